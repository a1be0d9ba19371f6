"""L2DP-ML as published: Algorithms 3.7 and 3.6, their batches, memory and noise."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from privet.errors import InputError
from privet.lifelong.published import trainer
from privet.lifelong.published.settings import PublishedSettings
from privet.lifelong.published.trainer import PublishedLearner
from privet.models import create
from privet.models.published_lifelong import LIFELONG

QUICK = {"epsilon": 4.0, "batch": 12, "epochs": 2, "learning_rate": 0.05, "noise_seed": 5}


def learner(stream, noise=None, **changes):
    asked = QUICK | changes
    if asked.get("variant", "published") != "published":
        del asked["epsilon"]
    return PublishedLearner(stream, PublishedSettings(**asked), noise)


def learned(stream, upto=None, **changes):
    made = learner(stream, **changes)
    for task in range(len(stream) if upto is None else upto):
        made.learn(task)
    return made


def weights(made):
    return torch.cat([value.flatten().double() for value in made.network.state_dict().values()])


def watched(monkeypatch, made):
    """The batches that the learner asks gradients of, in order."""
    seen, real = [], made._gradient

    def gradient(batch):
        seen.append(batch)
        return real(batch)

    monkeypatch.setattr(made, "_gradient", gradient)
    return seen


def accuracy(made, task):
    test = made.stream.tasks[task].data.test
    scores = made.network(torch.from_numpy(test.x))
    return float((scores.argmax(1).numpy() == test.y).mean())


# --- batches and memory -------------------------------------------------------------------------


def test_batches_are_disjoint_fixed_and_the_same_in_every_epoch(lights, monkeypatch):
    made = learner(lights(sizes=(50,)), epochs=3)
    seen = watched(monkeypatch, made)
    made.learn(0)
    assert len(seen) == 3 * 4, "the last two records are dropped"
    for first, *others in (seen[i::4] for i in range(4)):
        assert all(torch.equal(first.x, other.x) for other in others)
    records = torch.cat([batch.x for batch in seen[:4]]).flatten(1)
    assert len(records) == 48
    assert len(torch.unique(records, dim=0)) == 48
    own = {tuple(x) for x in made.stream.tasks[0].data.train.x.reshape(50, -1).tolist()}
    assert {tuple(x) for x in records.tolist()} <= own


def test_the_memory_is_one_random_batch_of_each_past_task(lights, monkeypatch):
    made = learner(lights(sizes=(48,) * 4))
    kept = []
    for task in range(4):
        seen = watched(monkeypatch, made)
        made.learn(task)
        own, remembered = (seen, []) if task == 0 else (seen[0::2], seen[1::2])
        assert all(any(b is m for m in kept) for b in remembered), "of earlier tasks alone"
        assert len(made._memory) == task + 1
        assert len(made._memory[-1].y) == 12
        assert any(made._memory[-1] is b for b in own)
        if task == 3:
            assert {id(b) for b in remembered} == {id(m) for m in kept}, "all are picked"
        kept = list(made._memory)
    assert len({made._kept(task) for task in range(4)}) > 1, "not always the same place"


def test_tasks_come_in_order(lights):
    with pytest.raises(InputError, match="tasks come in order: got 1, expected 0"):
        learner(lights()).learn(1)


# --- noise --------------------------------------------------------------------------------------


def test_noise_is_one_offset_for_all_records_of_all_tasks(lights):
    made, stream = learner(lights()), lights()
    before = made._noise.over(12)
    for task in range(3):
        made.learn(task)
        assert torch.equal(made.network.input_noise, before.inputs)
        assert torch.equal(made.network.hidden_noise, before.hidden)
        x = torch.from_numpy(stream.tasks[task].data.train.x[:2])
        noised = made.network.noised(x)
        assert float((noised - x).abs().max()) > 1.0
        assert torch.allclose(noised[0] - noised[1], 2 * (x[0] - x[1]), atol=1e-4)


def test_noise_at_test_is_a_choice(lights):
    off = learned(lights(), noise_at_test=False)
    assert not off.network.input_noise.any()
    assert not off.network.hidden_noise.any()
    on = learned(lights())
    trained = dict(on.network.named_parameters())
    assert all(torch.equal(p, trained[n]) for n, p in off.network.named_parameters())


def test_the_statistics_are_those_of_the_memory_at_the_released_weights(lights):
    made = learned(lights())
    assert not made.network.training
    norm = made.network.hidden[0]
    with torch.no_grad():
        inputs = [made.network.encoded(made.network.noised(b.x)) for b in made._memory]
    means = torch.stack([part.mean((0, 2, 3)) for part in inputs]).mean(0)
    assert torch.allclose(norm.running_mean, means, atol=1e-4)


def test_unseeded_noise_is_drawn_anew(lights):
    one, other = (learner(lights(), noise_seed=None) for _ in range(2))
    assert not torch.equal(one._noise.inputs, other._noise.inputs)
    assert torch.equal(one.network.first.weight, other.network.first.weight), "by the public seed"


# --- the algorithm, written once more -----------------------------------------------------------


def brute_force(made, sizes):
    """Algorithm 3.7 with autograd of the written objectives, one sum after another."""
    network = create(LIFELONG, (1, 6, 6), 2, init_seed=0).train()
    for task in range(len(sizes)):
        batches = made._batches(task)
        n = len(batches[0].y)
        u, w, chi3 = made._noise.inputs / n, made._noise.hidden / n, made._noise.labels[0] / n

        def gradient(batch, u=u, w=w, chi3=chi3):
            x = 2 * batch.x - 1 + u
            h = network.first(x).clamp(-1, 1).detach() + w
            back = F.conv_transpose2d(h, network.first.weight, padding=1)
            r = ((0.5 - x) * back).sum() / len(x) / 36
            z = network.last(network.hidden(h))
            y = F.one_hot(batch.y, 2)
            l = ((0.5 - y) * z + z**2 / 8).sum() / len(x)  # noqa: E741
            l = l - (network.last.weight @ chi3).sum()  # noqa: E741
            parts = [torch.autograd.grad(r, network.first.weight)[0]]
            parts += torch.autograd.grad(l, list(network.parameters())[1:])
            return torch.cat([part.flatten() for part in parts])

        for step in range(2 * len(batches)):
            g = gradient(batches[step % len(batches)])
            if task == 1:
                g_ref = gradient(made._memory[0])  # the only one there is
                g = g - (g @ g_ref) / (g_ref @ g_ref) * g_ref
            start = 0
            for p in network.parameters():
                p.data -= 0.05 * g[start : start + p.numel()].view_as(p)
                start += p.numel()
            for kernel in network.first.weight.data:
                kernel /= max(1.0, float(kernel.abs().sum()))
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize("sizes", [(24,), (24, 36)])
def test_the_loop_is_the_algorithm(lights, sizes):
    made = learned(lights(sizes=sizes), epsilon=60.0)  # much noise would magnify rounding
    found = torch.cat([p.detach().flatten() for p in made.network.parameters()])
    by_hand = brute_force(made, sizes)
    assert torch.allclose(found, by_hand, atol=1e-3)
    assert not torch.allclose(made._noise.labels / 12, torch.zeros(64), atol=0.1)


def test_the_first_layer_keeps_its_norm(lights):
    made = learned(lights(), column_norm=0.7)
    norms = made.network.first.weight.detach().abs().flatten(1).sum(1)
    assert float(norms.max()) <= 0.7 * (1 + 1e-6)
    assert made.budgets.column_norm == 0.7


def test_the_projection_is_a_choice(lights):
    always, conditional = (learned(lights(), projection=p) for p in ("always", "conditional"))
    assert not torch.equal(weights(always), weights(conditional))
    first = [learned(lights(), 1, projection=p) for p in ("always", "conditional")]
    assert torch.equal(weights(first[0]), weights(first[1])), "without a memory there is none"


def test_whole_tasks_take_one_step_each_with_noise_of_their_size(lights, monkeypatch):
    made = learner(lights(sizes=(24, 36)), algorithm="whole", batch=None)
    assert made.budgets.batch == 36, "the largest has the worst claim"
    seen, noise = watched(monkeypatch, made), []
    real = made._load_noise
    monkeypatch.setattr(made, "_load_noise", lambda n: (noise.append(n), real(n))[1])
    made.learn(0)
    made.learn(1)
    assert [len(batch.y) for batch in seen] == [24, 36, 24]
    assert noise == [24, 24, 36, 24, 36], "the last of each task is that of the release"


def test_a_gradient_in_pieces_is_the_gradient(lights, monkeypatch):
    """But for batch normalisation, which sees a piece: of the first layer it is exact."""
    made = learner(lights(sizes=(48,)), algorithm="whole", batch=None)
    (batch,) = made._batches(0)
    count = made.network.first.weight.numel()
    at_once = made._gradient(batch)[:count]
    monkeypatch.setattr(trainer, "PIECE", 10)
    in_pieces = made._gradient(batch)
    assert torch.allclose(in_pieces[:count], at_once, rtol=1e-4, atol=1e-5)


# --- what it comes to ---------------------------------------------------------------------------


def test_agem_and_plenty_of_budget_learn(lights):
    stream = lights(sizes=(120, 120))
    for changes in ({"variant": "agem"}, {"epsilon": 4000.0, "epsilon_labels": 2000.0}):
        made = learned(stream, epochs=5, **changes)
        assert accuracy(made, 1) > 0.9


def test_the_offset_protects_nothing(lights):
    """Taken off the published inputs, they train what the records train."""
    black = {"sizes": (60, 60)}
    streams = lights(**black), lights(**black)
    for stream in streams:
        for task in stream:  # every pixel is black in some record
            task.data.train.x[:2] = 0.0
    agem = learned(streams[0], variant="agem")
    offset = learned(streams[1], variant="offset")
    drawn = offset.drawn.inputs / 12
    assert float(drawn.abs().mean()) > 5.0, "many times what an input is"
    assert float(offset.network.input_noise.abs().max()) < 1e-4
    for one, other in zip(agem.network.parameters(), offset.network.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-2)
    assert [accuracy(agem, t) for t in (0, 1)] == [accuracy(offset, t) for t in (0, 1)]


def test_a_network_that_diverged_is_not_released(lights):
    with pytest.raises(InputError, match="training diverged in task 0: got learning rate 1e"):
        learned(lights(), learning_rate=1e6)


# --- going on after a crash ---------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["published", "offset", "agem"])
def test_a_restored_learner_goes_on_as_if_nothing_had_happened(lights, variant):
    changes = {"variant": variant, "noise_seed": None}
    made = learned(lights(), 1, **changes)
    for steps in (0, 1, 5):  # between two tasks, and within the second
        for _ in range(steps - made.next_step):
            made.step()
        buffer = io.BytesIO()
        torch.save(made.state(), buffer)
        buffer.seek(0)
        other = learner(lights(), made.drawn, **changes)
        other.restore(torch.load(buffer, weights_only=True))
        assert (other.learned, other.next_step) == (1, steps)
        assert torch.equal(weights(other), weights(made))
        for task in (1, 2):
            other.learn(task)
    for task in (1, 2):
        made.learn(task)
    assert torch.equal(weights(other), weights(made))


def test_a_state_does_not_follow_the_learner(lights):
    made = learned(lights(), 1)
    state = made.state()
    before = state["network"]["last.weight"].clone()
    made.learn(1)
    assert torch.equal(state["network"]["last.weight"], before)
    assert state["learned"] == 1


def test_users_with_several_records_are_batched_by_record(lights):
    stream = lights(sizes=(24, 24), unit="user", nominal_size=6)
    for task in stream:
        object.__setattr__(task.data.train, "units", np.arange(24) // 4)
    made = learned(stream)
    assert [len(batch.y) for batch in made._batches(0)] == [12, 12]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_it_runs_on_a_gpu(lights):
    found = [learned(lights(), device=device) for device in ("cpu", "cuda")]
    first, second = (weights(made).cpu() for made in found)
    assert float((first - second).abs().max()) < 1e-2 * float(first.abs().max())
