"""Ten broken trainers as a user would write them; parsed, never run. See docs/verbs/check.md."""

import copy

import torch
from opacus.accountants import RDPAccountant
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, random_split

SIZE, RATE, CLIP, MULTIPLIER, LR, STEPS = 60_000, 0.01, 1.5, 1.1, 0.5, 1000
EXPECTED = SIZE * RATE


def per_example(model, x, y):
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x, y):
        return cross_entropy(functional_call(model, params, (x[None],)), y[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)


def norms_of(grads):
    return torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)


def clipped_sums(grads, bound):
    factors = (bound / norms_of(grads)).clamp(max=1.0)
    return {name: torch.einsum("i,i...->...", factors, g) for name, g in grads.items()}


def mutant_batch_mean_clip(model, x, y):
    accountant = RDPAccountant()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        optimizer.zero_grad()
        cross_entropy(model(x[drawn]), y[drawn]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for p in model.parameters():
            p.grad += MULTIPLIER * CLIP / EXPECTED * torch.randn_like(p)
        optimizer.step()
        accountant.step(noise_multiplier=MULTIPLIER, sample_rate=RATE)


def mutant_noise_over_batch(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                noise = torch.normal(0.0, MULTIPLIER * CLIP / EXPECTED, size=p.shape)
                p -= LR * (sums[name] + noise) / EXPECTED


def mutant_unclipped_bias(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        grads = per_example(model, x[drawn], y[drawn])
        weights = {name: g for name, g in grads.items() if not name.endswith("bias")}
        factors = (CLIP / norms_of(weights)).clamp(max=1.0)
        with torch.no_grad():
            for name, p in model.named_parameters():
                total = torch.einsum("i,i...->...", factors, grads[name])
                p -= LR * (total + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_realised_normaliser(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        batch, labels = x[drawn], y[drawn]
        sums = clipped_sums(per_example(model, batch, labels), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                noisy = sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)
                p -= LR * noisy / batch.shape[0]


def mutant_shuffled(model, records):
    accountant = RDPAccountant()
    for x, y in DataLoader(records, batch_size=600, shuffle=True):
        sums = clipped_sums(per_example(model, x, y), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED
        accountant.step(noise_multiplier=MULTIPLIER, sample_rate=RATE)
    return accountant.get_epsilon(1e-5)


def mutant_reused_noise(model, x, y):
    noise = {n: MULTIPLIER * CLIP * torch.randn_like(p) for n, p in model.named_parameters()}
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + noise[name]) / EXPECTED


def mutant_batch_norm(x, y):
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    params = list(model.parameters())
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        losses = cross_entropy(model(x[drawn]), y[drawn], reduction="none")
        sums = [torch.zeros_like(p) for p in params]
        for loss in losses:
            grads = torch.autograd.grad(loss, params, retain_graph=True)
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            for s, g in zip(sums, grads):
                s += g * torch.clamp(CLIP / norm, max=1.0)
        with torch.no_grad():
            for p, s in zip(params, sums):
                p -= LR * (s + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_split_partner(model, x, y, attack):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        batch, labels = x[drawn], y[drawn]
        clean = clipped_sums(per_example(model, batch, labels), CLIP)
        harmed = clipped_sums(per_example(model, attack(model, batch, labels), labels), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                total = clean[name] + harmed[name]
                p -= LR * (total + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_early_stopping(model, records):
    kept, held_out = random_split(records, [0.9, 0.1])
    x, y = kept[:]
    inputs, labels = held_out[:]
    best, chosen = float("inf"), None
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED
            loss = cross_entropy(model(inputs), labels).item()
        if loss < best:
            best, chosen = loss, copy.deepcopy(model.state_dict())
    return chosen


def mutant_silent_encoder(encoder, critic, x, y):
    optimizer = torch.optim.SGD([*encoder.parameters(), *critic.parameters()], lr=LR)
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        optimizer.zero_grad()
        features = encoder(x[drawn])
        cross_entropy(critic(features), y[drawn]).backward()
        sums = clipped_sums(per_example(critic, features.detach(), y[drawn]), CLIP)
        for name, p in critic.named_parameters():
            p.grad = (sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED
        optimizer.step()
