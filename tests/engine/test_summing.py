"""Pieces of a batch, and a step of one size."""

from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch
from torch import nn

from privet.engine import summing
from privet.engine.examples import Examples, Grouping
from privet.engine.summing import BatchSum, pieces, units_at_once
from privet.engine.trainer import PrivateTrainer
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy
from privet.privacy.fixed import FixedSum
from privet.privacy.precision import BF16, FULL
from privet.training.adversarial import Kurakin, Madry


def test_pieces_are_of_about_one_size_and_hold_every_unit_once():
    for n, sizes in ((0, []), (3, [3]), (4, [4]), (5, [3, 2]), (10, [4, 3, 3])):
        found = list(pieces(torch.arange(n), 4))
        assert [len(piece) for piece in found] == sizes
        assert torch.cat([torch.arange(0), *found]).tolist() == list(range(n))


def test_what_is_formed_decides_how_many_units_fit(monkeypatch):
    """A wide layer's gradients are never formed; a kernel's are."""
    wide = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 1000))
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    clipper = FastClipper(wide, cross_entropy, 1.0)
    everything = sum(p.numel() for p in wide.parameters())
    assert clipper.held == everything  # before anything is known
    clipper.clipped_sum(x, y)
    assert clipper.held == 2 * 9 + 2 + 1000
    assert ReferenceClipper(wide, cross_entropy, 1.0).held == everything
    monkeypatch.setitem(summing.MOST_GRADIENT_ENTRIES, "cpu", 5 * clipper.held)
    assert units_at_once(clipper, views=1) == 5
    monkeypatch.setitem(summing.MOST_ROWS, "cpu", 8)
    assert units_at_once(clipper, views=4) == 2


# --- a step of one size ------------------------------------------------------------------------

CLIP = 0.05
traces = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


@pytest.fixture
def traced(monkeypatch):
    """The books are traced and run as they are: what a compiler would be given."""
    monkeypatch.setattr(summing, "by_torch", lambda graph: graph)


class Draws:
    """A generator that is the same each time; counts how often it is asked for."""

    def __init__(self):
        self.asked = 0

    @contextmanager
    def __call__(self):
        self.asked += 1
        yield torch.Generator().manual_seed(3)


class Shaken:
    """Two views: one as it is, one with noise from the generator given."""

    views = 2

    def __call__(self, x, generator):
        noisy = x + 0.3 * torch.randn(x.shape, generator=generator)
        return torch.stack([x, noisy], 1).flatten(0, 1)


def shaken(x, generator):
    """The views of `Shaken` as a step draws them: four rows at a time, which are expected."""
    filled = torch.cat([x, torch.zeros(-len(x) % 4, 5)])
    return torch.cat([Shaken()(four, generator) for four in filled.split(4)])[: 2 * len(x)]


def records(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 5, generator=generator), torch.arange(n) % 3


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def batch_sum(x, y, *, compiled=True, clipper=None, grouping=None, **changes):
    given = {"augmentation": None, "expected": 4.0, "probe": records(4, seed=9)}
    return BatchSum(
        clipper=clipper or FastClipper(network(), cross_entropy, CLIP),
        examples=Examples(x, y, None, torch.device("cpu"), grouping=grouping),
        compiled=compiled,
        **(given | changes),
    )


def nothing():
    pass


def near(found, expected, units):
    return bool((found - expected).norm() <= 1e-5 * CLIP * max(1, units))


@traces
@pytest.mark.usefixtures("traced")
def test_totals_are_the_same_with_and_without_a_step_of_one_size():
    """Over batches of no unit, of some, of just as many as fit, and of several pieces."""
    x, y = records()
    plain, fixed = (batch_sum(x, y, compiled=compiled) for compiled in (False, True))
    assert plain.fixed is None
    assert fixed.fixed is not None
    assert fixed.fixed.note == ""
    assert fixed.fixed.size == 8
    generator = torch.Generator().manual_seed(0)
    for n in (8, 0, 1, 7, 9, 16, 33, 2):
        units = torch.randperm(40, generator=generator)[:n]
        found, expected = (s.of(units, Draws(), nothing) for s in (fixed, plain))
        assert near(found, expected, n), n
        by_hand = FastClipper(fixed.clipper.model, cross_entropy, CLIP).clipped_sum(
            x[units], y[units]
        )
        assert near(found, by_hand, n), n


@traces
@pytest.mark.usefixtures("traced")
def test_augmented_units_are_clipped_as_one():
    """Two views each, drawn piece by piece from the generator that the step is given."""
    x, y = records()
    fixed = batch_sum(x, y, augmentation=Shaken())
    assert fixed.fixed is not None
    units = torch.arange(3, 23)
    found = fixed.of(units, Draws(), nothing)
    clipper, expected = fixed.clipper, 0
    generator = torch.Generator().manual_seed(3)
    for piece in pieces(units, fixed.fixed.size):
        views = shaken(x[piece], generator)
        expected = expected + clipper.clipped_sum(views, y[piece].repeat_interleave(2), views=2)
    assert near(found, expected, 20)
    assert not near(found, clipper.clipped_sum(x[units], y[units]), 20)


@traces
@pytest.mark.usefixtures("traced")
def test_a_user_s_records_are_a_unit_whose_gaps_weigh_nothing():
    x, y = records(12)
    owner = torch.tensor([0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 5, 6])
    grouping = Grouping.of(owner, 3)
    plain, fixed = (
        batch_sum(x, y, compiled=compiled, grouping=grouping) for compiled in (False, True)
    )
    assert fixed.fixed is not None
    for units in (torch.arange(7), torch.tensor([3]), torch.tensor([5, 0])):
        found, expected = (s.of(units, Draws(), nothing) for s in (fixed, plain))
        assert near(found, expected, 7)
        clipped = [
            fixed.clipper.clipped_sum(x[owner == u], y[owner == u], views=int((owner == u).sum()))
            for u in units
        ]
        assert near(found, sum(clipped), 7)


@traces
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 11, 19])
def test_a_broken_unit_is_left_out_and_no_other(bad, place):
    """Whatever piece it is in. The batch is drawn again as it was: the same generator."""
    x, y = records(20)
    x[place] = bad
    fixed, draws, calls = batch_sum(x, y, augmentation=Shaken()), Draws(), []
    found = fixed.of(torch.arange(20), draws, lambda: calls.append(1))
    assert torch.isfinite(found).all()
    assert draws.asked == 2
    assert calls == [1]
    expected = batch_sum(x, y, augmentation=Shaken(), compiled=False)
    units, generator, total = torch.arange(20), torch.Generator().manual_seed(3), 0
    for piece in pieces(units, fixed.fixed.size):
        views = shaken(x[piece], generator).unflatten(0, (-1, 2))
        kept = piece != place
        labels = y[piece][kept].repeat_interleave(2)
        total = total + expected.clipper.clipped_sum(views[kept].flatten(0, 1), labels, views=2)
    assert near(found, total, 20)


@traces
@pytest.mark.usefixtures("traced")
def test_a_broken_unit_is_left_out_by_the_same_step(monkeypatch):
    """Another one would round all other units anew, and what one unit holds must not move them."""
    x, y = records(20)
    whole = batch_sum(x, y)
    assert whole.fixed is not None
    expected = whole.of(torch.arange(20), Draws(), nothing)
    for place in (0, 7, 19):
        spoiled = x.clone()
        spoiled[place] = torch.nan
        fixed = batch_sum(spoiled, y)
        assert fixed.fixed is not None
        with monkeypatch.context() as patch:
            patch.setattr(FastClipper, "clipped_sum", None)
            found = fixed.of(torch.arange(20), Draws(), nothing)
        alone = whole.clipper.clipped_sum(x[place : place + 1], y[place : place + 1])
        assert (expected - found - alone).abs().max() <= 1e-6 * CLIP


@traces
@pytest.mark.usefixtures("traced")
def test_other_work_is_done_once_after_all_pieces_are_under_way(monkeypatch):
    x, y = records()
    fixed, log = batch_sum(x, y), []
    summed = FixedSum.sum_unless_broken
    monkeypatch.setattr(
        FixedSum,
        "sum_unless_broken",
        lambda self, *a, **k: (log.append("piece"), summed(self, *a, **k))[1],
    )
    for n, parts in ((0, 0), (5, 1), (17, 3)):
        log.clear()
        fixed.of(torch.arange(n), Draws(), lambda: log.append("other"))
        assert log == ["piece"] * parts + ["other"]


@traces
@pytest.mark.usefixtures("traced")
def test_a_model_in_another_mode_is_summed_by_the_clipper_itself(monkeypatch):
    x, y = records()
    fixed = batch_sum(x, y)
    assert fixed.fixed is not None
    fixed.clipper.model.eval()
    monkeypatch.delattr(FixedSum, "sum_unless_broken")
    expected = fixed.clipper.clipped_sum(x[:9], y[:9])
    assert near(fixed.of(torch.arange(9), Draws(), nothing), expected, 9)


@traces
@pytest.mark.usefixtures("traced")
def test_the_fixed_size_depends_on_public_things_only():
    """Not on how many records there are, nor on what is in them; they are not looked at."""

    class Sealed:
        contribution = views = 1

        def __getattr__(self, name):
            raise AssertionError(f"{name} of private records was asked for")

    few, many = batch_sum(*records(3)), batch_sum(*records(500, seed=1))
    sealed = BatchSum(
        clipper=few.clipper,
        examples=Sealed(),
        augmentation=None,
        expected=4.0,
        probe=records(4, seed=9),
        compiled=True,
    )
    assert few.fixed.size == many.fixed.size == sealed.fixed.size == 8
    many.of(torch.arange(450), Draws(), nothing)  # nor on the batches so far
    assert many.fixed.size == 8
    assert batch_sum(*records(3), expected=100.0).fixed.size == 120


def test_there_is_no_fixed_size_where_it_does_not_pay(monkeypatch):
    x, y = records()
    assert batch_sum(x, y, compiled=False).fixed is None  # a CPU records nothing
    assert batch_sum(x, y, probe=None).fixed is None
    assert batch_sum(x, y, clipper=ReferenceClipper(network(), cross_entropy, CLIP)).fixed is None

    def broken(graph):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(summing, "by_torch", broken)
    without = batch_sum(x, y)
    assert without.fixed is None
    expected = without.clipper.clipped_sum(x[:30], y[:30])
    assert near(without.of(torch.arange(30), Draws(), nothing), expected, 30)


def test_a_piece_is_half_of_the_batch_at_most_unless_that_is_little(monkeypatch):
    clipper, probe = FastClipper(network(), cross_entropy, CLIP), records(4)
    assert summing._fixed_units(clipper, probe, 1, 100.0) == 120
    held = clipper.footprint
    assert held > 0
    monkeypatch.setattr(summing, "LITTLE", 10 * held)
    assert summing._fixed_units(clipper, probe, 1, 100.0) == 60
    assert summing._fixed_units(clipper, probe, 1, 4.0) == 8  # that is little
    monkeypatch.setattr(summing, "MUCH", 25 * held)
    assert summing._fixed_units(clipper, probe, 1, 100.0) == 24
    monkeypatch.setattr(summing, "MUCH", 0)
    monkeypatch.setattr(summing, "LITTLE", 0)
    assert summing._fixed_units(clipper, probe, 1, 100.0) == 1
    monkeypatch.undo()
    monkeypatch.setitem(summing.MOST_ROWS, "cuda", 60)
    assert summing._fixed_units(clipper, probe, 2, 100.0) == 30


# --- the next batch, drawn ahead ---------------------------------------------------------------


class UsesTheStale(PrivateTrainer):
    """The planted bug: what was drawn ahead is used, whatever has become of the keys."""

    def _draw(self, step):
        _, ahead = self._ahead
        return ahead if ahead is not None and ahead.step == step else super()._draw(step)


def one_size(make_trainer, **changes):
    """A trainer that sums by a step of one size."""
    trainer = make_trainer(**changes)
    trainer._summing.probe = records(4)
    trainer._summing.compiled = True
    return trainer


def drawn_for(trainer, step):
    """What the sampler gives at a step under the present keys."""
    stream = trainer.randomness.sampling
    return trainer.plan.sampler.draw(30, step=step, stream=stream).tolist()


@traces
@pytest.mark.usefixtures("traced")
def test_what_is_drawn_ahead_is_the_very_batch_that_would_have_been_drawn(make_trainer):
    trainer, seen = one_size(make_trainer), []
    for batch in trainer.batches():
        ahead = trainer._ahead[1]
        assert batch.step == 0 or batch is ahead
        seen.append(batch.indices.tolist())
        trainer.step(batch)
    assert trainer._summing.fixed is not None
    assert seen == [drawn_for(trainer, step) for step in range(6)]
    assert trainer._ahead[1].step == 5  # none beyond the last
    plain = make_trainer()
    assert seen == [batch.indices.tolist() for batch in every(plain)]
    assert plain._ahead[1] is None


@traces
@pytest.mark.usefixtures("traced")
def test_a_first_step_that_broke_off_can_be_tried_again(make_trainer, monkeypatch):
    trainer = one_size(make_trainer)
    batch = next(trainer.batches())
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "_noisy_sum", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.step(batch)
    assert trainer._summing.fixed is not None
    trainer.step(batch)
    assert trainer.next_step == 1


def interrupted(*_):
    raise KeyboardInterrupt


def every(trainer):
    for batch in trainer.batches():
        yield batch
        trainer.step(batch)


def next_is_of_the_new_keys(make_trainer, journal, kind):
    """After a step that was done anew under fresh keys; 30 units agree by chance below 1e-7."""
    journal.write_text("0 " + "0" * 32 + "\n")  # a first attempt that gave something else
    trainer = one_size(make_trainer, journal=journal, kind=kind)
    trainer.repeating, old = True, trainer.randomness
    batches = trainer.batches()
    trainer.step(next(batches))
    assert trainer.randomness is not old
    return next(batches).indices.tolist() == drawn_for(trainer, 1)


@traces
@pytest.mark.usefixtures("traced")
def test_what_was_drawn_under_old_keys_is_thrown_away(make_trainer, tmp_path):
    assert next_is_of_the_new_keys(make_trainer, tmp_path / "right.log", PrivateTrainer)


@traces
@pytest.mark.usefixtures("traced")
def test_a_stale_batch_would_show(make_trainer, tmp_path):
    assert not next_is_of_the_new_keys(make_trainer, tmp_path / "stale.log", UsesTheStale)


@traces
@pytest.mark.usefixtures("traced")
def test_keys_renewed_between_steps_throw_it_away_too(make_trainer):
    for kind, fresh in ((PrivateTrainer, True), (UsesTheStale, False)):
        trainer = one_size(make_trainer, kind=kind)
        batches = trainer.batches()
        trainer.step(next(batches))
        trainer.randomness = trainer.randomness.renewed()
        assert (next(batches).indices.tolist() == drawn_for(trainer, 1)) == fresh


# --- adversarial rows --------------------------------------------------------------------------


@traces
@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("augmentation", [None, Shaken()])
@pytest.mark.parametrize("adversary", [Kurakin(size=0.2), Madry(size=0.2, steps=2)])
def test_adversarial_rows_have_their_places_in_a_step_of_one_size(adversary, augmentation):
    """Over units of several records with gaps: the buffers hold all rows, each with its weight."""
    x, y = records()
    grouping = Grouping.of(torch.arange(40) // 3, 2)  # thirteen of three, one of a single record
    given = {"adversary": adversary, "augmentation": augmentation, "grouping": grouping}
    plain, fixed = (batch_sum(x, y, compiled=compiled, **given) for compiled in (False, True))
    rows = 2 * (1 if augmentation is None else 2) * len(adversary.shares)
    assert fixed.fixed._views == rows
    whole = torch.arange(fixed.fixed.size)  # as many as fit: pieces of another size draw anew
    for units in (torch.tensor([13, 0, 5, 2]), whole):
        found, expected = (s.of(units, Draws(), nothing) for s in (fixed, plain))
        assert expected.norm() > CLIP
        assert near(found, expected, len(units))
        assert torch.equal(fixed.of(units, Draws(), nothing), found), "a redone step repeats"


def test_an_adversary_sees_the_views_and_not_what_is_behind_them():
    class Looking:
        shares = (1.0,)
        seen: ClassVar = []

        def __call__(self, scores, x, y, generator):
            self.seen.append(x)
            return x

    x, y = records()
    looking = Looking()
    batch_sum(x, y, compiled=False, adversary=looking, augmentation=Shaken()).of(
        torch.arange(3), Draws(), nothing
    )
    seen = torch.cat(looking.seen)
    assert torch.equal(seen[:6], shaken(x[:3], torch.Generator().manual_seed(3)))
    assert len(seen) == 8
    assert not seen[6:].any()  # what fills its block up


class Averaging:
    """A usual slip: rows pulled along the gradient of the *mean* loss, shorter for more rows."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        inputs = x.detach().requires_grad_()
        loss = nn.functional.cross_entropy(scores(inputs), y)
        return x + 200.0 * torch.autograd.grad(loss, inputs)[0]


class Crowded:
    """The same slip in views: the more examples, the darker."""

    views = 1

    def __call__(self, x, generator):
        return x * 4 / len(x)


@pytest.mark.parametrize("made", [{"adversary": Averaging()}, {"augmentation": Crowded()}])
@pytest.mark.parametrize("blocks", [True, False], ids=["in blocks", "as they are"])
def test_what_is_made_of_a_unit_does_not_depend_on_how_many_there_are(monkeypatch, made, blocks):
    """Taking a unit away takes its own clipped gradient out of the sum, and nothing else."""
    if not blocks:  # what would be without them
        monkeypatch.setattr(BatchSum, "_block", None)
    x, y = records()
    summed = batch_sum(x, y, compiled=False, **made)

    def total(units):
        return summed.of(torch.tensor(units), Draws(), nothing)

    for n in (2, 40):
        moved = total(list(range(n))) - total(list(range(n - 1)))
        assert near(moved, total([n - 1]), n) == blocks


def test_a_step_may_be_coarse_and_its_adversary_is_then_too():
    """Scores in bfloat16 come back in float32; in full precision they are those of the model."""
    found = {}

    class Asking:
        shares = (1.0,)

        def __call__(self, scores, x, y, generator):
            found[len(found)] = scores(x)
            return x

    x, y = records()
    model = network()
    for precision in (FULL, BF16):
        clipper = FastClipper(model, cross_entropy, CLIP, precision=precision)
        batch_sum(x, y, compiled=False, clipper=clipper, adversary=Asking()).of(
            torch.arange(4), Draws(), nothing
        )
    full, coarse = (found[i][:4].detach() for i in (0, 1))
    assert torch.allclose(full, model(x[:4]).detach(), atol=1e-6)
    assert full.dtype == coarse.dtype == torch.float32
    assert 0 < (full - coarse).abs().max() < 0.05
