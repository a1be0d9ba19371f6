"""The private step against an independent re-computation; order of events; planted bugs."""

import hashlib
import struct

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chi2
from torch import nn

from privet.engine import trainer as trainer_module
from privet.engine.trainer import Batch, PrivateTrainer
from privet.errors import CheckFailed, InputError
from privet.privacy.clipping import ROUNDING_MARGIN, FastClipper, cross_entropy
from privet.privacy.randomness import Randomness


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
    name = hashlib.blake2b(total.numpy().tobytes(), digest_size=32).digest()
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
    monkeypatch.setitem(trainer_module.MOST_ROWS, "cpu", physical)
    trainer = make_trainer(records=30, sampling_rate=1.0)
    total = trainer._clipped_sum(next(trainer.batches()))
    expected = clipped_sum_by_loop(trainer, make_trainer.split(30), range(30))
    assert (total - expected).norm() <= 1e-5 * 30 * 0.5


def test_a_batch_larger_than_the_physical_one_is_summed_whole(make_trainer):
    trainer = make_trainer(records=1200, sampling_rate=1.0)
    batch = next(trainer.batches())
    assert len(batch.indices) == 1200 > trainer_module.MOST_ROWS["cpu"]
    expected = clipped_sum_by_loop(trainer, make_trainer.split(1200), range(1200))
    assert (trainer._clipped_sum(batch) - expected).norm() <= 1e-5 * 1200 * 0.5


def test_one_record_more_changes_nothing_but_its_own_contribution(make_trainer, tools):
    few, many = make_trainer(records=30, steps=20), make_trainer(records=31, steps=20)
    split = make_trainer.split(31)
    joined = 0
    for a, b in zip(few.batches(), many.batches(), strict=True):
        assert [i for i in b.indices.tolist() if i != 30] == a.indices.tolist()
        many.model.load_state_dict(few.model.state_dict())
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


def test_dropout_is_drawn_anew_at_every_step_and_under_every_key(make_trainer):
    sums = []
    for step, seed in ((0, 7), (1, 7), (0, 8)):
        trainer = make_trainer(model=make_trainer.model(dropout=True), seed=seed)
        sums.append(trainer._clipped_sum(Batch(step=step, indices=torch.arange(30))))
    assert not torch.equal(sums[0], sums[1])
    assert not torch.equal(sums[0], sums[2])


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
