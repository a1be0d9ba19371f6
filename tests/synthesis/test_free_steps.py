"""What follows a private step: no record is needed for it, and each part moves when it may."""

import copy
import gc
import inspect
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from privet.models.record_coders import Made
from privet.synthesis import free_steps
from privet.synthesis.free_steps import Free, FreeSteps
from privet.synthesis.record_terms import CODERS, CRITICS, summed

sys.path.insert(0, str(Path(__file__).parent))
from family_cases import BOTH, MEMBERS, batch, give_gradients, made


def weights(part):
    return {} if part is None else {n: p.detach().clone() for n, p in part.named_parameters()}


def moved(part, before):
    return {n for n, p in ({} if part is None else dict(part.named_parameters())).items()
            if not torch.equal(p, before[n])}  # fmt: skip


def riding(name, phase=None, **changes):
    """With the object that rides on the optimiser at hand."""
    kept = []
    inner = FreeSteps.ride

    def ride(self, optimizer):
        kept.append(self)
        return inner(self, optimizer)

    FreeSteps.ride = ride
    try:
        settings, model, optimizer = made(name, phase, **changes)
    finally:
        FreeSteps.ride = inner
    return settings, model, optimizer, kept[0]


@torch.no_grad()
def stays_of(free):
    return free._made(free._latents(free._drawing(0)), free._drawing(1))[1]


def test_it_is_handed_no_record():
    """A model and numbers: nothing by which a record could come in."""
    assert list(inspect.signature(FreeSteps).parameters) == ["model", "how"]
    assert {field.type for field in fields(Free)} <= {int, float, "int", "float"}
    source = inspect.getsource(free_steps)
    assert "dataset" not in source.lower()
    assert "privet.data" not in source


def test_it_holds_no_tensor_but_weights():
    """After steps on gradients that real stays gave: whatever it can reach is no stay."""
    _, model, optimizer, free = riding("igamt", CRITICS)
    x, y = batch(slice(6))
    losses = summed(model(x), y)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(losses.mean(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient
    del losses, found
    optimizer.step()
    sizes = {p.shape for p in model.parameters()} | {b.shape for b in model.buffers()}
    seen, left, shapes = set(), [free], set()
    while left:
        thing = left.pop()
        if id(thing) in seen or inspect.ismodule(thing) or isinstance(thing, type):
            continue
        seen.add(id(thing))
        if torch.is_tensor(thing):
            shapes.add(thing.shape)
        elif not inspect.isfunction(thing):
            left.extend(gc.get_referents(thing))
    assert shapes
    assert shapes <= sizes | {torch.Size([])}


@pytest.mark.parametrize("name", MEMBERS)
def test_the_same_gradients_lead_to_the_same_weights(name):
    """Twice from the start, no data anywhere: gradients, weights and the seed decide."""
    ends = []
    for _ in range(2):
        _, model, optimizer, _ = riding(name)
        for phase in (*model.phases, model.phases[-1]):
            model.phase = phase
            give_gradients(model)
            optimizer.step()
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_the_batch_that_was_looked_at_leaves_no_trace(name, phase):
    """Other records, the same private gradients: not a bit differs, in weights or in state."""
    ends = []
    for chosen in (slice(8), slice(8, 20)):
        _, model, optimizer, free = riding(name, phase)
        free._steps[CRITICS] = 1
        for seed in range(2):
            model(batch(chosen)[0]).sum().backward()
            give_gradients(model, seed=seed)
            optimizer.step()
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])


@pytest.mark.parametrize(("name", "phase"), BOTH)
def test_private_parts_move_in_their_phase_alone(name, phase):
    _, model, optimizer, free = riding(name, phase)
    free._steps[CRITICS] = 1  # not the first of its phase, which copies
    own = model.networks
    parts = {n: part for n, part in own.named_children() if n != "reader"}
    before = {n: weights(part) for n, part in parts.items()}
    give_gradients(model)
    optimizer.step()
    changed = {n for n, part in parts.items() if moved(part, before[n])}
    critics = {n for n in parts if "critic" in n}
    if phase == CODERS:
        assert changed == {"encoder", "decoder", "last", "start", "spread"}
    else:
        body = "imitator" if name == "igamt" else "decoder"
        free_parts = {body, "last"} | ({"generator"} if own.generator is not None else set())
        if name == "aae":  # nothing judges what its decoder makes
            free_parts = {"generator"}
        beside = {"start"} if name == "gan" else {"spread"}
        assert changed == critics | free_parts | beside


def test_imitation_leaves_encoder_and_decoder_alone():
    """For many steps: what is frozen is compared bit for bit."""
    _, model, optimizer, _ = riding("igamt", CRITICS)
    own = model.networks
    give_gradients(model)
    optimizer.step()
    kept = weights(own.encoder) | {f"d.{n}": p for n, p in weights(own.decoder).items()}
    for seed in range(4):
        give_gradients(model, seed=seed)
        optimizer.step()
    now = weights(own.encoder) | {f"d.{n}": p for n, p in weights(own.decoder).items()}
    assert all(torch.equal(kept[key], now[key]) for key in kept)


def test_a_planted_leak_into_the_decoder_is_seen(monkeypatch):
    """If noisy gradients of the other phase were used, the test above would fail."""
    monkeypatch.setattr(FreeSteps, "_learning", lambda self, phase: [self._model.networks])
    with pytest.raises(AssertionError):
        test_imitation_leaves_encoder_and_decoder_alone()


def test_the_imitator_begins_as_the_averaged_decoder():
    _, model, optimizer, _ = riding("igamt", free_steps=0)
    for phase in (CODERS, CODERS, CRITICS):
        model.phase = phase
        give_gradients(model, size=1.0, seed=len(phase))
        before = weights(model.averaged.decoder)
        optimizer.step()
    own = model.networks
    assert not moved(own.decoder, before)
    assert not moved(own.imitator, weights(own.decoder))
    assert not moved(model.averaged.imitator, weights(own.imitator))


def test_the_anchor_is_the_mean_of_what_steps_said():
    _, model, optimizer, _ = riding("igamt")
    said = []
    for seed in range(3):
        give_gradients(model, seed=seed)
        said.append(-model.anchor.weight.grad.clone() / model.weights.anchor)
        optimizer.step()
    assert torch.allclose(model.anchor.weight, torch.stack(said).mean(0), rtol=1e-4, atol=1e-6)


def test_the_anchor_finds_the_mean_profile():
    """From gradients of stays, without noise: exactly their mean."""
    _, model, optimizer, _ = riding("igamt")
    x, y = batch()
    for _ in range(2):
        optimizer.zero_grad()
        summed(model(x), y).mean().backward()
        optimizer.step()
    rows = model.networks.reader.read(x)
    expected = model.profile(rows.x, rows.m).mean(0)
    assert torch.allclose(model.anchor.weight[0], expected, atol=1e-5)


def test_the_counts_are_the_mean_of_the_stays_counts():
    """From gradients of stays, without noise, over two steps: exactly their mean histogram."""
    _, model, optimizer, _ = riding("igamt")
    halves = [batch(slice(12)), batch(slice(12, 24))]
    for x, y in halves:
        optimizer.zero_grad()
        summed(model(x), y).mean().backward()
        optimizer.step()
    rows = [model.networks.reader.read(x) for x, _ in halves]
    expected = torch.cat([model.counted.of(r.x, r.m) for r in rows]).mean(0)
    assert expected.max() > 1
    assert torch.allclose(model.counts.weight[0], expected, atol=1e-4)


def test_private_means_end_with_the_phase_that_learns_them():
    """In the other, what the noisy sums hold in their place is noise alone."""
    _, model, optimizer, _ = riding("igamt", CRITICS)
    before = [part.weight.clone() for part in (model.anchor, model.counts)]
    for seed in range(2):
        give_gradients(model, seed=seed)
        optimizer.step()
    after = [part.weight for part in (model.anchor, model.counts)]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_critics_are_kept_from_being_steep():
    _, model, optimizer, _ = riding("igamt", CRITICS, learning_rate=10.0)
    give_gradients(model, size=10.0)
    optimizer.step()
    for name, parameter in model.networks.named_parameters():
        if "critic" in name and parameter.dim() == 2:
            assert torch.linalg.matrix_norm(parameter, 2) <= 1 + 1e-5


@pytest.mark.parametrize("name", ["gan", "vaegan", "daae", "igamt"])
def test_real_and_made_stays_of_one_law_leave_critics_at_rest(name, monkeypatch):
    """Made stays, read as if they were real, give the gradient that their judgement takes back.

    Signs and scales of both halves, in other words.
    """
    _, model, _, free = riding(name, CRITICS)
    model.eval()
    generator = free._drawing(-1)
    with torch.no_grad():
        z = free._latents(generator)
        start, stays = free._made(z, generator)
    codes = model.networks.reader.codes(stays.x, stays.m, start)
    if model.networks.critic_z is not None:  # its stays are others than those of an encoder
        model.networks.critic_z = None
    critics = [p for critic in free._critics for p in critic.parameters()]
    loss = summed(model(codes / 255), None).mean()
    real = torch.autograd.grad(loss, critics, allow_unused=True)
    for parameter, gradient in zip(critics, real, strict=True):
        parameter.grad = gradient.clone()
    free._add_made()
    for parameter, gradient in zip(critics, real, strict=True):
        assert parameter.grad.norm() <= 1e-4 * gradient.norm() + 1e-7


def test_latents_of_one_law_leave_their_critic_at_rest():
    _, model, _, free = riding("igamt", CRITICS)
    generator = free._drawing(-1)
    with torch.no_grad():
        z = free._latents(generator)
        stays = free._made(z, generator)[1]
    critic = model.networks.critic_z
    parameters = list(critic.parameters())
    real = -model.weights.critics * critic(z * stays.m[..., -1:]).mean()
    for p, g in zip(parameters, torch.autograd.grad(real, parameters), strict=True):
        p.grad = g
    for other in (model.networks.critic_x, model.networks.critic_m):
        for p in other.parameters():
            p.grad = torch.zeros_like(p)
    free._add_made()
    assert all(p.grad.abs().max() < 1e-6 for p in parameters)


def test_the_distance_to_private_means_is_right_on_average():
    """Of coins with chance 0.3 from a target of 0.5: 0.04 each, not more for small batches."""
    _, model, _, free = riding("igamt")
    with torch.no_grad():
        model.anchor.weight.fill_(0.5)
    steps, features = model.networks.shape.sizes.steps, model.networks.shape.sizes.features
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(300):
        m = (torch.rand(4, steps, features, generator=generator) < 0.3).float()
        found.append(float(free._apart(Made(x=torch.ones_like(m), m=m, chance=m))))
    expected = 3 * steps * features * 0.04
    assert sum(found) / len(found) == pytest.approx(expected, rel=0.03)


def test_free_steps_lead_to_the_private_means():
    """With nothing but the anchor: twice as many cells at first as there should be."""
    _, model, optimizer, free = riding(
        "igamt", CRITICS, judged_weight=0.0, imitation_weight=0.0, free_rate=0.01, free_steps=30,
        free_batch=64,
    )  # fmt: skip
    sizes = model.networks.shape.sizes
    target = torch.zeros(sizes.steps, 3 * sizes.features)
    target[0] = 0.2
    target[0, sizes.features - 1] = 1.0
    with torch.no_grad():
        model.anchor.weight.copy_(target.flatten()[None])
    before = stays_of(free)
    give_gradients(model, size=0.0)
    optimizer.step()
    after = stays_of(free)
    wanted = target[0, :8]

    def apart(stays):
        return float((stays.m[:, 0, :8].mean(0) - wanted).abs().mean())

    assert apart(after) < 0.6 * apart(before)


def test_state_is_kept_and_brought_back():
    _, model, optimizer, free = riding("igamt", CRITICS)
    give_gradients(model)
    optimizer.step()
    state, weights_then = copy.deepcopy((optimizer.state_dict(), model.state_dict()))
    _, other, another, again = riding("igamt", CRITICS)
    other.load_state_dict(weights_then)
    another.load_state_dict(state)
    assert again._steps == free._steps
    for each, its in ((model, optimizer), (other, another)):
        give_gradients(each, seed=5)
        its.step()
    now, then = other.state_dict(), model.state_dict()
    assert all(torch.equal(now[key], then[key]) for key in now)
