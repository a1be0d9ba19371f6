import warnings

import pytest
import torch

from privet.engine.account import Unpaid
from privet.errors import InputError
from privet.studies.private_step import contestants
from privet.studies.private_step.contestants import CONTESTANTS, PEERS, with_peers
from privet.studies.private_step.workloads import Task, lstm, transformer

HUGE = 1e6
QUIET = 1e-18


def quiet(workload, device, **changes):
    """One batch that is all the data; nothing is clipped, no noise to speak of; in pieces."""
    settings = {"batch": 11, "records": 11, "rows_at_once": 4, "dtype": torch.float64}
    settings |= {"clip_norm": HUGE, "noise_multiplier": QUIET}
    return Task(workload=workload, device=device, **(settings | changes))


def weights_after(task, variant, steps=2):
    model = variant.adapted(task.model())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ready = variant.build(task, model)
        for _ in range(steps):
            ready.step()
            ready.tidy()
    assert all(p.grad is None for p in model.parameters())
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def one(name, task):
    return next(iter(CONTESTANTS[name](task)))


@pytest.mark.parametrize("name", CONTESTANTS)
def test_unclipped_and_without_noise_all_take_the_step_of_plain_sgd(name, tiny, cpu, opacus):
    task = quiet(tiny, cpu)
    start = torch.cat([p.detach().flatten() for p in task.model().parameters()])
    expected = weights_after(task, one("plain", task))
    variants = list(CONTESTANTS[name](task))
    assert len(variants) == {"plain": 1, "plain-best": 4, "privet": 1}.get(name, 2)
    for variant in variants:
        moved = weights_after(task, variant)
        assert (moved - expected).norm() <= 1e-9 * (expected - start).norm(), variant.label


@pytest.mark.parametrize("workload", [transformer(5), lstm(5)], ids=lambda w: w.name)
def test_so_they_do_on_sequences(workload, cpu):
    """In single precision: PyTorch's LSTM has no vmap in double."""
    task = quiet(workload, cpu, dtype=torch.float32)
    start = torch.cat([p.detach().flatten() for p in task.model().parameters()])
    expected = weights_after(task, one("plain", task))
    for name in ("plain-best", "privet", "vmap"):
        moved = weights_after(task, one(name, task))
        assert (moved - expected).norm() <= 1e-4 * (expected - start).norm(), name


@pytest.mark.parametrize("name", ["privet", "opacus-hooks", "opacus-ghost", "vmap"])
def test_private_steps_add_the_stated_noise(name, tiny, cpu, opacus):
    """9,930 draws of deviation 3: their own deviation is within 4 % but for one run in 10^7."""
    task = quiet(tiny, cpu, clip_norm=1e-6, noise_multiplier=3e6, dtype=torch.float32)
    torch.manual_seed(5)
    model = task.model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one(name, task).build(task, model).step()
    noise = task.batch * torch.cat([p.grad.flatten() for p in model.parameters()])
    assert float(noise.std()) == pytest.approx(3.0, rel=0.04)


def test_privet_runs_the_engine_with_poisson_samples_of_the_nominal_batch(tiny, cpu, monkeypatch):
    made = []

    class Spy(contestants.PrivateTrainer):
        def __init__(self, **parts):
            super().__init__(**parts)
            self.sizes = []
            made.append(self)

        def step(self, batch):
            self.sizes.append(len(batch.indices))
            super().step(batch)

    monkeypatch.setattr(contestants, "PrivateTrainer", Spy)
    task = Task(workload=tiny, batch=40, device=cpu, records=400)
    ready = contestants.privet(task, task.model())
    for _ in range(30):
        ready.step()
    (trainer,) = made
    assert trainer.plan.sampler.name == "poisson"
    assert trainer.randomness.secret
    assert len(set(trainer.sizes)) > 1
    # 1,200 units expected, deviation 33: five of them
    assert abs(sum(trainer.sizes) - 30 * 40) < 5 * 33


def test_the_null_account_has_no_books():
    with pytest.raises(InputError, match="no account"):
        Unpaid().books  # noqa: B018


def test_plain_and_privet_always_take_part():
    assert with_peers([]) == ["plain", "privet"]
    assert with_peers(PEERS) == list(CONTESTANTS)
    assert with_peers(["vmap"]) == ["plain", "privet", "vmap"]


def test_an_unknown_peer_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'opacus-ghost'"):
        with_peers(["opacus-gost"])
