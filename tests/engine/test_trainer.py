"""The private step against an independent re-computation; order of events; planted bugs."""

import hashlib
import struct

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2
from torch import nn

from privet.engine import summing
from privet.engine.averaging import WeightAverage
from privet.engine.trainer import Batch, PrivateTrainer
from privet.errors import CheckFailed, InputError
from privet.privacy import noise as noise_module
from privet.privacy.clipping import (
    ROUNDING_MARGIN,
    FastClipper,
    cross_entropy,
)
from privet.privacy.geometry import Geometry
from privet.privacy.randomness import Randomness
from privet.privacy.tags import secret_name


def words(key, n, purpose, step, context=b""):
    """AES-256-CTR under a key derived from the address, written anew."""
    address = f"{len(purpose)}|{purpose}|{step}|".encode() + context
    subkey = hashlib.blake2b(address, key=key, digest_size=32)
    stream = Cipher(algorithms.AES256(subkey.digest()), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * n)), dtype="<u8") >> np.uint64(11)


def expected_indices(trainer, n, step):
    u = words(trainer.randomness.sampling.key, n, "sampling", step) / 2.0**53
    return [i for i in range(n) if u[i] < trainer.plan.sampling_rate]


def expected_noise(trainer, total, step):
    """Box-Muller on 53-bit uniforms, bound to the bytes of the sum and to the scale."""
    n = total.numel()
    scale = trainer.plan.noise_multiplier * trainer.plan.clip_norm
    half = (n + 1) // 2
    name = hashlib.sha256(hashlib.sha256(total.numpy().tobytes()).digest()).digest()
    address = name + struct.pack("<d", scale)
    u = words(trainer.randomness.noise.key, 2 * half, "gaussian", step, address) / 2.0**53
    radius, angle = np.sqrt(-2 * np.log(1 - u[:half])), 2 * np.pi * u[half:]
    z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]
    return scale * torch.from_numpy(z)


def clipped_sum_by_loop(trainer, split, indices):
    """One example at a time, plain autograd."""
    parameters = list(trainer.model.parameters())
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    bound = trainer.plan.clip_norm * (1 - ROUNDING_MARGIN)
    for i in indices:
        x, y = torch.from_numpy(split.x[i : i + 1]), torch.from_numpy(split.y[i : i + 1])
        grads = torch.autograd.grad(cross_entropy(trainer.model(x), y).sum(), parameters)
        row = torch.cat([g.flatten() for g in grads]).double()
        total += row * min(1.0, bound / float(row.norm()))
    return total


def test_each_update_is_clipped_sum_plus_noise_over_the_normaliser(make_trainer, tools):
    trainer = make_trainer()
    split = make_trainer.split(30)
    for batch in trainer.batches():
        indices = expected_indices(trainer, 30, batch.step)
        assert batch.indices.tolist() == indices
        expected = clipped_sum_by_loop(trainer, split, indices)
        # The noise is bound to the exact float32 sum, so that is taken from the trainer ...
        total = trainer._clipped_sum(batch)
        assert (total - expected).norm() <= 1e-5 * len(indices) * 0.5  # ... after comparing it.
        before = tools.weights(trainer.model)
        buffers = [
            trainer.optimizer.state[p].get("momentum_buffer") for p in trainer.model.parameters()
        ]
        momentum = torch.cat(
            [torch.zeros(1) if b is None else b.flatten() for b in buffers]
        ).clone()
        trainer.step(batch)
        update = ((total.double() + expected_noise(trainer, total, batch.step)) / 9.0).float()
        assert torch.allclose(tools.update(trainer.model), update, rtol=1e-6, atol=1e-9)
        velocity = update if batch.step == 0 else 0.9 * momentum + update
        assert torch.allclose(tools.weights(trainer.model), before - 0.1 * velocity, atol=1e-6)


@pytest.mark.parametrize("physical", [1, 7, 512])
def test_the_physical_batch_bounds_memory_and_changes_nothing(make_trainer, monkeypatch, physical):
    monkeypatch.setitem(summing.MOST_ROWS, "cpu", physical)
    trainer = make_trainer(records=30, sampling_rate=1.0)
    total = trainer._clipped_sum(next(trainer.batches()))
    expected = clipped_sum_by_loop(trainer, make_trainer.split(30), range(30))
    assert (total - expected).norm() <= 1e-5 * 30 * 0.5


def test_a_batch_larger_than_the_physical_one_is_summed_whole(make_trainer):
    trainer = make_trainer(records=1200, sampling_rate=1.0)
    batch = next(trainer.batches())
    assert len(batch.indices) == 1200 > summing.MOST_ROWS["cpu"]
    expected = clipped_sum_by_loop(trainer, make_trainer.split(1200), range(1200))
    assert (trainer._clipped_sum(batch) - expected).norm() <= 1e-5 * 1200 * 0.5


class Nudged:
    """View k of an example is the example moved by k tenths; no draw, so that a loop can follow."""

    def __init__(self, views):
        self.views = views

    def __call__(self, x, generator):
        moves = 0.1 * torch.arange(self.views, dtype=x.dtype)
        return (x[:, None] + moves[:, None]).flatten(0, 1)


def test_views_of_an_example_are_averaged_and_clipped_as_one(make_trainer):
    """One example at a time, plain autograd on the mean loss of its views."""
    trainer = make_trainer(augmentation=Nudged(3), clip_norm=0.2, sampling_rate=1.0)
    split, parameters = make_trainer.split(30), list(trainer.model.parameters())
    expected, bound = 0.0, 0.2 * (1 - ROUNDING_MARGIN)
    for i in range(30):
        views = torch.from_numpy(split.x[i]) + 0.1 * torch.arange(3)[:, None]
        losses = cross_entropy(trainer.model(views), torch.full((3,), int(split.y[i])))
        grads = torch.autograd.grad(losses.mean(), parameters)
        row = torch.cat([g.flatten() for g in grads]).double()
        assert row.norm() > bound  # else clipping each view by itself would be the same
        expected = expected + row * (bound / float(row.norm()))
    total = trainer._clipped_sum(next(trainer.batches()))
    assert (total - expected).norm() <= 1e-5 * 30 * 0.2


WEIGHTS = {"0": 3.0, "2": 0.5}


def test_weighted_clipping_and_its_noise_are_mapped_back_to_the_parameters(make_trainer, tools):
    """u = W g is clipped and gets the noise; the optimiser is given W^-1 of that."""
    model = make_trainer.model()
    clipper = FastClipper(model, cross_entropy, 0.5, geometry=Geometry.weighted(WEIGHTS))
    trainer = make_trainer(model=model, clipper=clipper)
    split, parameters = make_trainer.split(30), list(model.parameters())
    scales = torch.cat(
        [torch.full((p.numel(),), WEIGHTS[n[0]]) for n, p in model.named_parameters()]
    ).double()
    for batch in trainer.batches():
        expected = 0.0
        for i in batch.indices.tolist():
            x, y = torch.from_numpy(split.x[i : i + 1]), torch.from_numpy(split.y[i : i + 1])
            grads = torch.autograd.grad(cross_entropy(model(x), y).sum(), parameters)
            u = scales * torch.cat([g.flatten() for g in grads]).double()
            expected = expected + u * min(1.0, 0.5 * (1 - ROUNDING_MARGIN) / float(u.norm()))
        total = trainer._clipped_sum(batch)
        assert (total - expected).norm() <= 1e-5 * len(batch.indices) * 0.5
        noisy = total.double() + expected_noise(trainer, total, batch.step)
        trainer.step(batch)
        assert torch.allclose(tools.update(model).double() * scales * 9.0, noisy, rtol=1e-5)


def test_one_record_more_changes_nothing_but_its_own_contribution(make_trainer, tools):
    few, many = make_trainer(records=30, steps=20), make_trainer(records=31, steps=20)
    split = make_trainer.split(31)
    joined = 0
    for a, b in zip(few.batches(), many.batches(), strict=True):
        assert [i for i in b.indices.tolist() if i != 30] == a.indices.tolist()
        many.model.load_state_dict(few.model.state_dict())
        many.untouched.note()
        without, total = few._clipped_sum(a), many._clipped_sum(b)
        own = clipped_sum_by_loop(many, split, [i for i in b.indices.tolist() if i == 30])
        few.step(a)
        many.step(b)
        if 30 in b.indices:
            joined += 1
            assert (total - without - own).norm() <= 1e-5
            assert own.norm() <= 0.5
            rest = tools.update(many.model).double() * 9.0 - expected_noise(many, total, b.step)
            assert (rest - without - own).norm() <= 1e-5
        else:
            assert torch.equal(tools.update(few.model), tools.update(many.model))
        assert few.plan == many.plan
    assert 0 < joined < 20


def nothing_to_learn(outputs, _):
    return 0.0 * outputs.sum(1)


def pure_noise(make_trainer, tools, kind=PrivateTrainer, steps=60, **changes):
    """Updates of a run whose gradients are all zero: steps x parameters."""
    trainer = make_trainer(kind=kind, loss=nothing_to_learn, steps=steps, **changes)
    updates = []
    for batch in trainer.batches():
        trainer.step(batch)
        updates.append(tools.update(trainer.model).double())
    return torch.stack(updates), trainer.plan


def noise_has_the_planned_size(updates, plan, error_rate=1e-6):
    """Chi-square, two-sided: a right mechanism fails with probability `error_rate`."""
    scale = plan.noise_multiplier * plan.clip_norm / plan.normaliser
    statistic = float((updates / scale).pow(2).sum())
    low, high = chi2.ppf([error_rate / 2, 1 - error_rate / 2], updates.numel())
    return bool(low <= statistic <= high)


def noise_is_fresh_at_every_step(updates, plan, error_rate=1e-6):
    """Differences of consecutive steps have twice the variance; every second one is independent."""
    scale = plan.noise_multiplier * plan.clip_norm / plan.normaliser * 2**0.5
    differences = (updates[1::2] - updates[0::2]) / scale
    low, high = chi2.ppf([error_rate / 2, 1 - error_rate / 2], differences.numel())
    return bool(low <= float(differences.pow(2).sum()) <= high)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip_norm": 3.0, "noise_multiplier": 0.4},
        {"normaliser": 1000.0},
        {"sampling_rate": 1.0},
    ],
)
def test_the_update_has_the_planned_noise_at_every_step(make_trainer, tools, changes):
    updates, plan = pure_noise(make_trainer, tools, **changes)
    assert noise_has_the_planned_size(updates, plan)
    assert noise_is_fresh_at_every_step(updates, plan)


def test_an_empty_batch_gets_the_same_noise(make_trainer, tools):
    trainer = make_trainer(sampling_rate=1e-9, steps=60)
    updates = []
    for batch in trainer.batches():
        assert len(batch.indices) == 0
        trainer.step(batch)
        updates.append(tools.update(trainer.model).double())
    assert noise_has_the_planned_size(torch.stack(updates), trainer.plan)
    assert noise_is_fresh_at_every_step(torch.stack(updates), trainer.plan)


# --- order and refusals ----------------------------------------------------------------------


class Recorder:
    """Notes the order in which the parts of a step are called."""

    def __init__(self, trainer, refuse=""):
        self.calls = []
        for owner, name in [
            (trainer.account, "charge"),
            (trainer._clipper, "clipped_sum"),
            (trainer.account, "confirm"),
            (trainer.optimizer, "step"),
        ]:
            setattr(owner, name, self.wrap(name, getattr(owner, name), refuse))

    def wrap(self, name, function, refuse):
        def call(*args, **named):
            if not self.calls or self.calls[-1] != name:
                self.calls.append(name)
            if name == refuse:
                raise CheckFailed("refused")
            return function(*args, **named)

        return call


def test_a_step_charges_then_clips_then_confirms_then_updates(make_trainer):
    trainer = make_trainer()
    recorder = Recorder(trainer)
    trainer.step(next(trainer.batches()))
    assert recorder.calls == ["charge", "clipped_sum", "confirm", "step"]


@pytest.mark.parametrize(
    ("refuse", "reached"),
    [("charge", ["charge"]), ("confirm", ["charge", "clipped_sum", "confirm"])],
)
def test_a_refused_step_leaves_the_weights_untouched(make_trainer, tools, refuse, reached):
    trainer = make_trainer()
    recorder = Recorder(trainer, refuse=refuse)
    before = tools.weights(trainer.model)
    with pytest.raises(CheckFailed):
        trainer.step(next(trainer.batches()))
    assert recorder.calls == reached
    assert torch.equal(tools.weights(trainer.model), before)
    assert trainer.next_step == 0
    assert all(p.grad is None for p in trainer.model.parameters())


def test_a_settled_run_cannot_go_on(make_trainer, tools):
    trainer = make_trainer()
    tools.run(trainer, until=2)
    before = tools.weights(trainer.model)
    trainer.account.settle()
    with pytest.raises(CheckFailed, match="not covered by an open reservation"):
        trainer.step(next(trainer.batches()))
    assert torch.equal(tools.weights(trainer.model), before)


def test_the_ledger_counts_exactly_the_steps_done(make_trainer, tools, ledger):
    trainer = make_trainer()
    tools.run(trainer, until=4)
    record = ledger.run(trainer.account.run_id)
    assert (record.planned, record.charged, record.redone) == (6, 4, 0)


def test_a_batch_out_of_turn_is_refused(make_trainer, tools):
    trainer = make_trainer()
    first = next(trainer.batches())
    trainer.step(first)
    before = tools.weights(trainer.model)
    for stale in (first, Batch(step=4, indices=first.indices)):
        with pytest.raises(InputError, match="out of turn"):
            trainer.step(stale)
    assert torch.equal(tools.weights(trainer.model), before)


def test_an_unused_batch_is_refused(make_trainer):
    batches = make_trainer().batches()
    next(batches)
    with pytest.raises(InputError, match=r"batch 0 was not used.*trainer\.step"):
        next(batches)


def test_batches_end_with_the_plan(make_trainer, tools):
    trainer = make_trainer()
    tools.run(trainer)
    assert trainer.next_step == 6
    assert list(trainer.batches()) == []


def test_an_optimiser_with_foreign_parameters_is_refused(make_trainer):
    model = make_trainer.model()
    foreign = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *foreign.parameters()], lr=0.1)
    with pytest.raises(InputError, match="not in the model"):
        make_trainer(model=model, optimizer=optimizer)


def test_a_clipper_that_allows_more_than_the_plan_is_refused(make_trainer):
    model = make_trainer.model()
    with pytest.raises(InputError, match="allows more than the plan"):
        make_trainer(model=model, clipper=FastClipper(model, cross_entropy, 0.6))
    make_trainer(model=model, clipper=FastClipper(model, cross_entropy, 0.4))


def test_frozen_parameters_do_not_move(make_trainer, tools):
    model = make_trainer.model()
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    trainer = make_trainer(model=model)
    tools.run(trainer)
    assert torch.equal(model[0].weight, frozen)
    assert model[0].weight.grad is None
    assert model[0].bias.grad is not None


# --- repeating -------------------------------------------------------------------------------


def test_a_repeated_step_with_dropout_is_bit_identical(make_trainer, tools):
    updates = []
    for global_seed in (1, 2):  # the global stream must not matter
        trainer = make_trainer(model=make_trainer.model(dropout=True), sampling_rate=1.0)
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        tools.run(trainer, until=3)
        assert torch.equal(torch.get_rng_state(), state)
        updates.append(tools.update(trainer.model))
    assert torch.equal(*updates)


@pytest.mark.parametrize("bands", [(), (0.9, 0.4, 0.1)], ids=["independent", "banded"])
def test_noise_drawn_on_the_device_repeats_bit_for_bit_and_under_one_name(
    make_trainer, tools, monkeypatch, tmp_path, bands
):
    """As on a GPU, with CPU tensors: name, noise and journal without SHA-256 and AES."""
    monkeypatch.setattr(noise_module, "stays_on_device", lambda values: True)
    banded = {"sampler_name": "cyclic-poisson", "cycle": 3, "bands": bands} if bands else {}
    journals, weights = [tmp_path / "a", tmp_path / "b", tmp_path / "c"], []
    for journal, seed in zip(journals, (7, 7, 8), strict=True):
        trainer = make_trainer(journal=journal, seed=seed, **banded)
        tools.run(trainer, until=3)
        weights.append(tools.weights(trainer.model))
    first, again, other = (journal.read_text().split() for journal in journals)
    assert torch.equal(weights[0], weights[1])
    assert first == again
    assert len(set(first) & set(other)) == 3  # the numbers of the steps alone
    trainer = make_trainer(**banded)
    total = trainer._clipped_sum(next(trainer.batches()))
    noisy, name = trainer._noisy_sum(total, 0)
    assert name == first[1] == secret_name(noisy, trainer.randomness.noise).hex()[:32]


def test_dropout_is_drawn_anew_at_every_step_and_under_every_key(make_trainer):
    sums = []
    for step, seed in ((0, 7), (1, 7), (0, 8)):
        trainer = make_trainer(model=make_trainer.model(dropout=True), seed=seed)
        sums.append(trainer._clipped_sum(Batch(step=step, indices=torch.arange(30))))
    assert not torch.equal(sums[0], sums[1])
    assert not torch.equal(sums[0], sums[2])


def test_a_repeated_step_that_differs_is_drawn_anew_sample_and_noise(make_trainer, tools, tmp_path):
    """Charged as a step of its own, so nothing of it may be shared with the first attempt.

    Fresh keys draw the old sample again with probability 0.58^30 < 1e-7.
    """
    journal = tmp_path / "steps.log"
    journal.write_text("0 " + "0" * 32 + "\n")  # a first attempt, of which nothing else is left
    trainer = make_trainer(journal=journal, model=make_trainer.model(dropout=True))
    trainer.repeating, old = True, trainer.randomness
    batch = next(trainer.batches())
    trainer.step(batch)
    new = trainer.randomness
    assert new.sampling.key != old.sampling.key
    assert new.noise.key != old.noise.key
    assert (new.secret, trainer.repeating, trainer.account.redone_steps) == (False, False, 1)
    indices = expected_indices(trainer, 30, 0)
    assert indices != batch.indices.tolist()
    twin = make_trainer(randomness=new, model=make_trainer.model(dropout=True))
    total = twin._clipped_sum(Batch(step=0, indices=torch.tensor(indices)))
    expected = ((total.double() + expected_noise(trainer, total, 0)) / 9.0).float()
    assert torch.allclose(tools.update(trainer.model), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("repeating", "first"), [(True, ""), (False, "0 " + "0" * 32 + "\n")])
def test_keys_are_renewed_for_no_other_reason(make_trainer, tools, tmp_path, repeating, first):
    """Not while repeating steps that were never done, nor where the keys were fresh already."""
    journal = tmp_path / "steps.log"
    journal.write_text(first)
    trainer = make_trainer(journal=journal)
    trainer.repeating, old = repeating, trainer.randomness
    tools.run(trainer, until=1)
    assert trainer.randomness is old


class Broken(torch.optim.SGD):
    """Stops half way through the parameters of one step, once."""

    breaks_at = 2

    def step(self, closure=None):
        self.taken = getattr(self, "taken", -1) + 1
        if self.taken == self.breaks_at:
            parameter = self.param_groups[0]["params"][0]
            with torch.no_grad():
                parameter.add_(parameter.grad, alpha=-0.1)
            raise KeyboardInterrupt
        return super().step(closure)


class BrokenAverage(WeightAverage):
    """Stops before it takes in the weights of step 2, once."""

    broke = False

    def update(self, model, step):
        if step == 2 and not self.broke:
            self.broke = True
            raise KeyboardInterrupt
        super().update(model, step)


def broken_off(make_trainer, tools, where, **changes):
    """A trainer whose step 2 broke off after its update had reached the weights."""
    model = make_trainer.model()
    if where == "optimiser":
        changes["optimizer"] = Broken(model.parameters(), lr=0.1)
    trainer = make_trainer(model=model, randomness=Randomness.fresh(), **changes)
    if where == "average":
        trainer.average = BrokenAverage(model, 0.9)
    before, drawn = trainer.randomness, []
    draw = trainer._draw
    trainer._draw = lambda step: drawn.append(draw(step)) or drawn[-1]
    with pytest.raises(KeyboardInterrupt):
        tools.run(trainer)
    assert trainer.next_step == 2
    return trainer, before, drawn


@pytest.mark.parametrize("again", ["the loop", "the step"])
@pytest.mark.parametrize("where", ["optimiser", "average"])
def test_a_step_that_broke_off_is_drawn_anew_and_charged_again(make_trainer, tools, where, again):
    """Else one sample would meet two draws of noise, which is more than two steps reveal.

    Fresh keys draw the old sample again with probability 0.58^30 < 1e-7.
    """
    trainer, before, drawn = broken_off(make_trainer, tools, where)
    if again == "the step":
        trainer.step(drawn[-1])
        assert trainer.next_step == 3
    tools.run(trainer)
    assert trainer.next_step == 6
    assert trainer.account.redone_steps == 1
    assert trainer.randomness.sampling.key != before.sampling.key
    assert trainer.randomness.noise.key != before.noise.key
    *_, first, last = [batch.indices.tolist() for batch in drawn if batch.step == 2]
    assert first != last


TURNS = {
    "fixed": {"sampler_name": "fixed-batches", "cycle": 3, "sampling_rate": 1 / 3},
    "shuffled": {"sampler_name": "shuffled", "cycle": 3, "sampling_rate": 1 / 3},
    "cyclic": {"sampler_name": "cyclic-poisson", "cycle": 3},
    "banded": {"sampler_name": "cyclic-poisson", "cycle": 3, "bands": (0.9, 0.4)},
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("where", ["optimiser", "average"])
def test_where_units_have_turns_a_step_that_broke_off_ends_the_run(
    make_trainer, tools, where, name
):
    trainer, _, _ = broken_off(make_trainer, tools, where, **TURNS[name])
    before = tools.weights(trainer.model)
    for _ in range(2):
        with pytest.raises(CheckFailed, match="comes out different"):
            tools.run(trainer)
    assert torch.equal(tools.weights(trainer.model), before)


@pytest.mark.parametrize("changes", [{}, TURNS["banded"]], ids=["plain", "banded"])
@pytest.mark.parametrize("part", ["_clipped_sum", "_confirmed", "_set_gradients"])
def test_a_step_that_broke_off_before_the_weights_moved_is_repeated_free(
    make_trainer, tools, changes, part
):
    """An undisturbed run with the same keys is the oracle, bit for bit."""
    whole = make_trainer(**changes)
    tools.run(whole)
    trainer = make_trainer(**changes)
    tools.run(trainer, until=2)
    done = getattr(trainer, part)

    def after_it(*args):
        done(*args)
        raise MemoryError

    setattr(trainer, part, after_it)
    with pytest.raises(MemoryError):
        tools.run(trainer)
    setattr(trainer, part, done)
    tools.run(trainer)
    assert torch.equal(tools.weights(trainer.model), tools.weights(whole.model))
    assert trainer.account.redone_steps == 0


def test_a_batch_that_is_drawn_twice_is_one_sample_and_taken_once(make_trainer, tools):
    trainer = make_trainer()
    first, second = next(trainer.batches()), next(trainer.batches())
    assert torch.equal(first.indices, second.indices)
    with pytest.raises(InputError, match="out of turn"):
        trainer.step(first)
    trainer.step(second)
    with pytest.raises(InputError, match="out of turn"):
        trainer.step(second)
    tools.run(trainer)
    whole = make_trainer()
    tools.run(whole)
    assert torch.equal(tools.weights(trainer.model), tools.weights(whole.model))


def test_views_and_dropout_are_drawn_apart(make_trainer):
    """From one seed they would be the same numbers: a unit's views would follow others' dropout."""
    drawn = []

    class Drawing:
        views = 1

        def __call__(self, x, generator):
            drawn.append(torch.rand(64, generator=generator))
            return x

    class Noting(nn.Module):
        def forward(self, x):
            drawn.append(torch.rand(64))
            return x

    model = nn.Sequential(Noting(), nn.Linear(5, 3))
    clipper = FastClipper(model, cross_entropy, 0.5)
    trainer = make_trainer(model=model, augmentation=Drawing(), clipper=clipper)
    trainer._clipped_sum(Batch(step=0, indices=torch.arange(30)))
    views, forward = drawn[:2]
    assert not torch.isclose(views, forward).any()


def test_other_keys_give_other_batches_and_noise(make_trainer, tools):
    one, other = make_trainer(seed=1), make_trainer(seed=2)
    first, second = next(one.batches()), next(other.batches())
    assert first.indices.tolist() != second.indices.tolist()
    with pytest.raises(InputError, match="out of turn"):  # what others drew is not a sample
        other.step(Batch(step=0, indices=first.indices))
    total = torch.zeros(100)
    noise = [t.plan.noise.add_to(total, step=0, stream=t.randomness.noise) for t in (one, other)]
    assert (noise[0] - noise[1]).norm() > 0.01


def test_a_stale_gradient_moves_nothing(make_trainer, tools):
    trainer = make_trainer()
    frozen = next(trainer.model.parameters())
    before = frozen.detach().clone()
    frozen.requires_grad_(False)
    frozen.grad = torch.ones_like(frozen)
    moving = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    trainer._set_gradients(torch.zeros(moving))
    trainer.optimizer.step()
    assert torch.equal(frozen, before)


def test_a_buffer_that_changed_in_training_is_not_released(make_trainer):
    trainer = make_trainer()
    trainer.model.register_buffer("memory", torch.zeros(3))
    with pytest.raises(InputError, match="buffer 'memory' changed"):
        trainer.require_unchanged_buffers()


@pytest.mark.parametrize("before", [0.0, 5.0])
def test_a_buffer_whose_value_moved_is_not_released(make_trainer, tools, before):
    model = make_trainer.model()
    model.register_buffer("memory", torch.full((3,), before))
    trainer = make_trainer(model=model)
    tools.run(trainer, until=1)
    trainer.require_unchanged_buffers()
    model.memory[1] += 1e-6  # in place: the same tensor under the same name
    with pytest.raises(InputError, match="buffer 'memory' changed"):
        trainer.require_unchanged_buffers()


def test_the_average_of_the_weights_is_released_and_the_weights_stay(make_trainer, tools):
    """Against the recurrence by hand: decay (1 + t) / (10 + t), at most 0.9."""
    trainer = make_trainer(average=0.9)
    expected = tools.weights(trainer.model)
    for batch in trainer.batches():
        trainer.step(batch)
        decay = min(0.9, (1 + batch.step) / (10 + batch.step))
        expected = decay * expected + (1 - decay) * tools.weights(trainer.model)
    last = tools.weights(trainer.model)
    released = trainer.released_model()
    assert torch.allclose(tools.weights(released), expected, atol=1e-6)
    assert (expected - last).norm() > 0.01  # or the last weights would pass for the average
    assert torch.equal(tools.weights(trainer.model), last)
    assert released is not trainer.model
    plain = make_trainer()
    tools.run(plain)
    assert torch.equal(tools.weights(plain.released_model()), last)


def test_a_clipper_for_another_model_is_refused(make_trainer):
    trainer = make_trainer()
    with pytest.raises(InputError, match="another model"):
        PrivateTrainer(
            model=make_trainer.model(),
            optimizer=trainer.optimizer,
            examples=trainer._examples,
            plan=trainer.plan,
            clipper=trainer._clipper,
            randomness=trainer.randomness,
            account=trainer.account,
            origin=trainer.origin,
        )


def test_the_same_step_on_another_sum_gets_unrelated_noise(make_trainer):
    """Correlation of 3000 pairs: |r| < 0.1 but for a probability of 4e-8."""
    trainer = make_trainer()
    total = torch.zeros(3000)
    nudged = total.clone()
    nudged[0] = 1e-30
    a, b = (
        trainer.plan.noise.add_to(t, step=0, stream=trainer.randomness.noise)
        for t in (total, nudged)
    )
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.1


# --- planted bugs ----------------------------------------------------------------------------


class Mutant(PrivateTrainer):
    """The right step, in pieces that a planted bug can change."""

    def step(self, batch):
        total = self._clipped_sum(batch)
        noisy = total.double() + self.noise_for(total, batch)
        self._set_gradients(noisy / self.divisor(batch))
        self.optimizer.step()
        self.next_step += 1

    def noise_for(self, total, batch):
        noisy = self.plan.noise.add_to(total, step=batch.step, stream=self.randomness.noise)
        return noisy - total.double()

    def divisor(self, batch):
        return self.plan.normaliser


class NoiseOverTheBatch(Mutant):
    def noise_for(self, total, batch):
        return super().noise_for(total, batch) / max(1, len(batch.indices))


class DividesByTheRealisedBatch(Mutant):
    def divisor(self, batch):
        return max(1, len(batch.indices))


class DividesByTheDataSize(Mutant):
    def divisor(self, batch):
        return self.plan.sampling_rate * len(self._examples)


class ReusesItsNoise(Mutant):
    def noise_for(self, total, batch):
        if not hasattr(self, "drawn"):
            self.drawn = super().noise_for(total, batch)
        return self.drawn


class NoiseIgnoresTheClipNorm(Mutant):
    def noise_for(self, total, batch):
        return super().noise_for(total, batch) / self.plan.clip_norm


class SkipsEmptyBatches(Mutant):
    def step(self, batch):
        if len(batch.indices):
            super().step(batch)
        else:
            self._set_gradients(torch.zeros_like(self._clipped_sum(batch)))
            self.next_step += 1


def normaliser_ignores_the_data(make_trainer, tools, kind):
    """The same pure-noise step with one record more must give the same update."""
    updates = []
    for records in (30, 31):
        runs, _ = pure_noise(make_trainer, tools, kind=kind, steps=8, records=records)
        updates.append(runs)
    return bool(torch.equal(*updates))


def passes(make_trainer, tools, kind):
    updates, plan = pure_noise(make_trainer, tools, kind=kind)
    on_empty, _ = pure_noise(make_trainer, tools, kind=kind, sampling_rate=0.02)
    return (
        noise_has_the_planned_size(updates, plan)
        and noise_has_the_planned_size(on_empty, plan)
        and noise_is_fresh_at_every_step(updates, plan)
        and normaliser_ignores_the_data(make_trainer, tools, kind)
    )


@pytest.mark.parametrize("kind", [PrivateTrainer, Mutant])
def test_right_steps_pass_the_checks(make_trainer, tools, kind):
    assert passes(make_trainer, tools, kind)


@pytest.mark.parametrize(
    "kind",
    [
        NoiseOverTheBatch,
        DividesByTheRealisedBatch,
        DividesByTheDataSize,
        ReusesItsNoise,
        NoiseIgnoresTheClipNorm,
        SkipsEmptyBatches,
    ],
)
def test_the_checks_catch_planted_bugs(make_trainer, tools, kind):
    assert not passes(make_trainer, tools, kind)


def test_fresh_keys_differ_between_runs(make_trainer, tools):
    updates = []
    for _ in range(2):
        trainer = make_trainer(randomness=Randomness.fresh())
        tools.run(trainer, until=1)
        updates.append(tools.update(trainer.model))
    assert not torch.equal(*updates)


def test_a_layer_without_a_rule_is_named(make_trainer):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = nn.Parameter(torch.ones(5))

        def forward(self, x):
            return x * self.by

    assert make_trainer().note == ""
    slow = make_trainer(model=nn.Sequential(Scaled(), nn.Linear(5, 3)))
    assert slow.note == "torch.func for 0 (Scaled): no rule, slower"
