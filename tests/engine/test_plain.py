"""The plain loop: what anyone would write, step by step."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import privet
from privet.engine import plain
from privet.engine.generators import generator_at
from privet.models import create
from privet.privacy.randomness import Randomness
from privet.privacy.sampling import sampler_for
from privet.training.plain import PlainSettings

QUICK = {"model": "mlp", "epochs": 3, "batch": 16}


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def loop(data, *, optimizer, rate, noise=0.0, steps):
    """Written out: the weights after each step."""
    stream = Randomness.seeded(3).sampling
    model = create("mlp", data.shape, len(data.classes), init_seed=3)
    optimiser = optimizer(model.parameters())
    x, y = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
    for step in range(steps):
        epoch, piece = divmod(step, 5)  # 80 records in batches of 16
        order = np.argsort(stream.uniform(80, purpose="order", step=epoch), kind="stable")
        rows = torch.from_numpy(np.sort(order[16 * piece : 16 * (piece + 1)]))
        inputs, labels = x[rows], y[rows]
        if noise:
            generator = generator_at(stream, torch.device("cpu"), purpose="views", step=step)
            inputs = inputs + noise * torch.randn(inputs.shape, generator=generator)
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        optimiser.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
        yield weights(model)


@pytest.mark.parametrize(
    ("changes", "optimizer", "rate"),
    [
        ({}, lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), 0.05),
        ({"momentum": 0.0, "learning_rate": 0.3}, lambda p: torch.optim.SGD(p, lr=1.0), 0.3),
        ({"optimizer": "adam", "learning_rate": 0.01}, torch.optim.Adam, 0.01),
        ({"input_noise": 0.3}, lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9), 0.05),
    ],
    ids=["sgd", "without-momentum", "adam", "noise"],
)
def test_every_step_is_that_of_a_loop_written_by_hand(make_data, changes, optimizer, rate):
    """Bit for bit: minibatches in a new order each epoch, mean loss, a linear schedule."""
    data, found = make_data(), []
    privet.train(
        "plain", data, **(QUICK | {"init_seed": 3} | changes),
        watch=lambda trainer: found.append(weights(trainer.model)),
    )  # fmt: skip
    noise = changes.get("input_noise", 0.0)
    expected = list(loop(data, optimizer=optimizer, rate=rate, noise=noise, steps=15))
    assert len(found) == len(expected) == 15
    assert all(same(*pair) for pair in zip(found, expected, strict=True))


def test_every_record_is_used_once_in_each_epoch(make_data):
    sampler = PlainSettings(**QUICK).course_for(make_data()).sampler
    stream = Randomness.seeded(0).sampling
    for first in (0, 5):
        drawn = [sampler.draw(83, step=first + i, stream=stream) for i in range(5)]
        assert sorted(np.concatenate(drawn)) == list(range(83))


def test_batches_that_do_not_fit_at_once_give_the_same_gradient(make_data, monkeypatch):
    """Equal to rounding: sums in pieces."""

    def last(**changes):
        release = privet.train("plain", make_data(), **(QUICK | {"epochs": 1} | changes))
        return torch.cat([p.flatten() for p in release.model.parameters()])

    whole = last()
    monkeypatch.setitem(plain.MOST_ROWS, "cpu", 5)
    assert torch.allclose(last(), whole, atol=1e-6)


def test_records_of_a_unit_count_together(make_data):
    """Each user of the batch counts once, however many records it brings."""
    data = make_data(n=8)
    users = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    split = privet.data.Split(x=data.train.x, y=data.train.y, units=users)
    data = make_data(n=8, train=split, nominal_size=2, unit="user")
    settings = {"model": "linear", "epochs": 1, "batch": 2, "momentum": 0.0, "learning_rate": 1.0}
    release = privet.train("plain", data, schedule="constant", **settings)
    model = create("linear", data.shape, 2, init_seed=0)
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    means = [F.cross_entropy(model(x[users == u]), y[users == u]) for u in (0, 1)]
    (sum(means) / 2).backward()
    for after, before in zip(release.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(after, before - before.grad, atol=1e-6)


def test_the_average_is_released(make_data):
    seen = []
    release = privet.train(
        "plain", make_data(), ema=0.9, **QUICK, watch=lambda t: seen.append(weights(t.model))
    )
    model = create("mlp", (4,), 2, init_seed=0)
    average = weights(model)
    for step, new in enumerate(seen):
        decay = min(0.9, (1 + step) / (10 + step))
        average = [decay * a + (1 - decay) * w for a, w in zip(average, new, strict=True)]
    last = weights(release.model)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(last, average, strict=True))
    assert not same(last, seen[-1])


@pytest.mark.parametrize("name", ["shuffled", "poisson"])
def test_units_of_a_step_are_those_that_the_sampler_draws(name):
    """In any order of steps, for any number of units: what is kept belongs to one epoch."""
    stream = Randomness.seeded(3).sampling
    sampler = sampler_for(name, batch=10, nominal_size=43)
    order = plain.EpochOrder(sampler, stream, torch.device("cpu"))
    for n, step in [(43, 0), (43, 1), (43, 5), (43, 1), (41, 1), (43, 2)]:
        drawn = sampler.draw(n, step=step, stream=stream)
        assert order.at(n, step).tolist() == drawn.tolist()
