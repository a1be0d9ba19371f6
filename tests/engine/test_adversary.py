"""Adversarial rows: one row at a time, a model left as it was, and a bounded share of the sum."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.attacks.geometry import moved, random_point
from privet.engine.adversary import attacked, require_adversary
from privet.engine.examples import Rows
from privet.errors import InputError
from privet.models.tokens import Tokens
from privet.privacy.clipping import FastClipper, cross_entropy
from privet.training import adversarial
from privet.training.adversarial import Kurakin, Madry

CLIP = 0.01


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def records(n=12, dtype=torch.float64):
    x = torch.rand(n, 6, generator=seeded(1), dtype=dtype)
    return Rows(x=x, y=torch.arange(n) % 3)


def some(rows, order):
    return Rows(x=rows.x[order], y=rows.y[order])


class ByTheBatch:
    """A bug: the gradient is scaled by its largest entry in the whole batch."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        inputs = x.detach().requires_grad_()
        loss = F.cross_entropy(scores(inputs), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, inputs)
        return moved(x, 0.5 * gradient / gradient.abs().max())


class OneStartForAll:
    """A bug: every row starts from the middle of the batch."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        return moved(x, 0.1 * (x.mean(0) - x))


class TowardsTheUsualLabel:
    """A bug: rows move with the labels of the batch; inputs of others never enter."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        return moved(x, 0.1 * (y - y.double().mean()).to(x.dtype)[:, None].expand_as(x))


class NextLabel:
    """A bug: each row is attacked under the label of the row before it, as by a wrong shift."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        inputs = x.detach().requires_grad_()
        loss = F.cross_entropy(scores(inputs), y.roll(1), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, inputs)
        return moved(x, 0.1 * gradient.sign())


# --- sensitivity -------------------------------------------------------------------------------


def shifts(adversary, model, rows):
    """For each row: how far the others' rows move, and the clipped sum, when it is left out."""
    clipper, n = FastClipper(model, cross_entropy, CLIP), len(rows.y)
    for last in range(n):
        others = [i for i in range(n) if i != last]
        # The row goes last, so that the draws of the others are the same with it and without.
        made = [
            attacked(some(rows, order), adversary, model, seeded(4))
            for order in ([*others, last], others)
        ]
        sums = [clipper.clipped_sum(r.x, r.y, views=r.views, weights=r.weights) for r in made]
        whole, part = (r.x for r in made)
        yield float((whole[: len(part)] - part).abs().max()), float((sums[0] - sums[1]).norm())


def row_by_row(x, size, norm, generator):
    """Starts of the same law, with draws of each row's own."""
    starts = [random_point(x[i : i + 1], size, norm, seeded(i)) for i in range(len(x))]
    return torch.cat(starts)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("kind", [Kurakin, Madry])
def test_one_example_less_moves_no_other_row_and_the_sum_by_at_most_the_clip_norm(
    kind, norm, monkeypatch
):
    monkeypatch.setattr(adversarial, "random_point", row_by_row)
    for moved_by, shift in shifts(kind(size=0.3, norm=norm, steps=3), network(), records()):
        assert moved_by < 1e-9
        assert shift <= CLIP * (1 + 1e-9)


def confident():
    """A line that is sure of forty examples, and very wrong about the last one."""
    line = nn.Linear(6, 2).double()
    with torch.no_grad():
        line.weight.copy_(torch.tensor([[-20.0] * 6, [20.0] * 6]))
        line.bias.copy_(torch.tensor([60.0, -60.0]))
    x = torch.cat([torch.rand(40, 6, generator=seeded(2)) * 0.3 + 0.6, torch.ones(1, 6)]).double()
    return line, Rows(x=x, y=torch.tensor([1] * 40 + [0]))


def test_scaling_by_the_batch_would_be_caught():
    """The sure ones hardly move beside the wrong one, and move far without it: all at once."""
    line, rows = confident()
    *_, (moved_by, shift) = shifts(ByTheBatch(), line, rows)
    assert moved_by > 0.1
    assert shift > 1.5 * CLIP
    *_, (moved_by, shift) = shifts(Kurakin(size=0.5, own_label=True), line, rows)
    assert moved_by < 1e-9
    assert shift <= CLIP * (1 + 1e-9)


@pytest.mark.parametrize(
    "bug", [ByTheBatch(), OneStartForAll(), TowardsTheUsualLabel(), NextLabel()]
)
def test_what_mixes_examples_is_refused_before_a_run(bug):
    probe = records(4, torch.float32)
    with pytest.raises(InputError, match="mixes examples"):
        require_adversary(bug, network(torch.float32), (probe.x, probe.y))


def test_a_last_layer_of_zeros_hides_nothing():
    model, probe = network(torch.float32), records(4, torch.float32)
    nn.init.zeros_(model[2].weight)
    with pytest.raises(InputError, match="mixes examples"):
        require_adversary(ByTheBatch(), model, (probe.x, probe.y))
    assert not model[2].weight.any(), "made-up weights are taken back"


@pytest.mark.parametrize("adversary", [Kurakin(size=0.2), Madry(size=0.2, norm="l2")])
def test_ours_are_not_refused(adversary):
    probe = records(4, torch.float32)
    require_adversary(adversary, network(torch.float32), (probe.x, probe.y))


def test_what_is_no_adversary_is_refused():
    model, probe = network(torch.float32), records(4, torch.float32)

    class Halved(ByTheBatch):
        shares = (0.5,)

    class TooMany(ByTheBatch):
        shares = (0.5, 0.5)

    for wrong in (None, "madry", Halved(), lambda *_: None):
        with pytest.raises(InputError, match="no adversary"):
            require_adversary(wrong, model, (probe.x, probe.y))
    with pytest.raises(InputError, match="does not return its rows"):
        require_adversary(TooMany(), model, (probe.x, probe.y))


def test_tokens_have_no_gradient():
    model = nn.Sequential(Tokens(10), nn.Embedding(10, 4), nn.Flatten(), nn.Linear(24, 3))
    probe = records(4, torch.float32)
    with pytest.raises(InputError, match="not of tokens"):
        require_adversary(Madry(), model, (probe.x, probe.y))


# --- what crafting leaves behind ---------------------------------------------------------------


class Moody(nn.Sequential):
    """Dropout and a running mean, and a layer that was put into evaluation mode on purpose."""

    def __init__(self):
        torch.manual_seed(0)
        frozen = nn.Dropout(0.2).eval()
        super().__init__(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), frozen, nn.Linear(8, 3)
        )


def test_the_model_is_left_as_it_was():
    model, rows = Moody(), records(dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    versions = [p._version for p in model.parameters()]
    state = torch.get_rng_state()
    made = attacked(rows, Madry(size=0.2), model, seeded())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [p._version for p in model.parameters()] == versions
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state), "draws come from the generator given"
    assert not made.x.requires_grad


def test_modes_come_back_after_an_error():
    model = Moody()

    class Broken(ByTheBatch):
        def __call__(self, *_):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attacked(records(dtype=torch.float32), Broken(), model, seeded())
    assert model.training
    assert not model[3].training


def test_the_generator_alone_decides():
    model, rows = network(), records()
    one, same, other = (
        attacked(rows, Madry(norm="l2", steps=1), model, seeded(s)).x for s in (5, 5, 6)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_partners_share_what_their_row_counted():
    """Two units of two records, one of them a gap; by hand."""
    rows = Rows(
        x=torch.arange(4.0)[:, None],
        y=torch.tensor([0, 1, 2, 3]),
        views=2,
        weights=torch.tensor([0.5, 0.5, 1.0, 0.0]),
    )
    made = torch.arange(8.0)[:, None]
    out = rows.shared_out(made, (0.75, 0.25))
    assert (out.views, out.y.tolist()) == (4, [0, 0, 1, 1, 2, 2, 3, 3])
    assert out.weights.tolist() == [0.375, 0.125, 0.375, 0.125, 0.75, 0.25, 0.0, 0.0]
    alike = Rows(x=rows.x, y=rows.y, views=2).shared_out(made, (0.75, 0.25))
    assert alike.weights.tolist() == [0.375, 0.125] * 4
    alone = rows.shared_out(made[:4], (1.0,))
    assert torch.equal(alone.weights, rows.weights)
    assert alone.views == 2


class OneSize:
    """A bug: one size is drawn for all rows of a call."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        size = torch.rand((), generator=generator, dtype=x.dtype)
        return moved(x, 0.3 * size * torch.ones_like(x))


class AtTimes:
    """A bug that shows in four calls of ten: rows are drawn to the middle of the batch."""

    shares = (1.0,)

    def __call__(self, scores, x, y, generator):
        if torch.rand((), generator=generator) < 0.4:
            return moved(x, 0.1 * (x.mean(0) - x))
        return x


def test_draws_that_rows_share_are_refused():
    """One unit more moves others to the next block, under another draw."""
    rows = records(6)
    with pytest.raises(InputError, match="draws random numbers that examples share"):
        require_adversary(OneSize(), network(), (rows.x, rows.y))


def test_an_adversary_that_mixes_at_times_is_refused():
    rows = records(6)
    with pytest.raises(InputError, match="mixes examples"):
        require_adversary(AtTimes(), network(), (rows.x, rows.y))
