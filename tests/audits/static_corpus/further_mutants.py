"""Thirteen further broken trainers as a user would write them; parsed, never run."""

import copy

import numpy as np
import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

SIZE, RATE, CLIP, MULTIPLIER, LR, STEPS = 60_000, 0.01, 1.5, 1.1, 0.5, 1000
EXPECTED = SIZE * RATE
EPOCH = 100


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


def mutant_alternate_noise(model, x, y):
    noise = {}
    for step in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        if step % 2 == 0:
            noise = {
                n: MULTIPLIER * CLIP * torch.randn_like(p) for n, p in model.named_parameters()
            }
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + noise[name]) / EXPECTED


def mutant_reseeded_noise(model, x, y):
    for step in range(STEPS):
        if step % EPOCH == 0:
            generator = torch.Generator().manual_seed(0)
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                noise = torch.normal(0.0, MULTIPLIER * CLIP, size=p.shape, generator=generator)
                p -= LR * (sums[name] + noise) / EXPECTED


def mutant_variance_as_scale(model, x, y):
    scale = np.sqrt(MULTIPLIER) * CLIP
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + scale * torch.randn_like(p)) / EXPECTED


def mutant_microbatch_clip(model, x, y):
    params = list(model.parameters())
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = [torch.zeros_like(p) for p in params]
        for inputs, labels in zip(x[drawn].split(16), y[drawn].split(16)):
            loss = cross_entropy(model(inputs), labels, reduction="sum")
            grads = torch.autograd.grad(loss, params)
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            for s, g in zip(sums, grads):
                s += g * torch.clamp(CLIP / norm, max=1.0)
        with torch.no_grad():
            for p, s in zip(params, sums):
                p -= LR * (s + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_median_clip(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        grads = per_example(model, x[drawn], y[drawn])
        bound = norms_of(grads).median()
        sums = clipped_sums(grads, bound)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + MULTIPLIER * bound * torch.randn_like(p)) / EXPECTED


def mutant_layer_clip(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        grads = per_example(model, x[drawn], y[drawn])
        with torch.no_grad():
            for name, p in model.named_parameters():
                factors = (CLIP / grads[name].flatten(1).norm(dim=1)).clamp(max=1.0)
                total = torch.einsum("i,i...->...", factors, grads[name])
                p -= LR * (total + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_raw_momentum(model, x, y):
    buffers = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                buffers[name] = 0.9 * buffers[name] + sums[name]
                p -= LR * (buffers[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_same_sample(model, x, y):
    drawn = torch.rand(SIZE) < RATE
    for _ in range(STEPS):
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED


def mutant_best_of_runs(build, x, y):
    best, chosen = float("inf"), None
    for _ in range(10):
        model = build()
        for _ in range(STEPS):
            drawn = torch.rand(SIZE) < RATE
            sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p -= LR * (sums[name] + MULTIPLIER * CLIP * torch.randn_like(p)) / EXPECTED
        with torch.no_grad():
            loss = cross_entropy(model(x), y).item()
        if loss < best:
            best, chosen = loss, copy.deepcopy(model.state_dict())
    return chosen


def mutant_antithetic_noise(model, x, y):
    noise = {}
    for step in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if step % 2 == 0:
                    noise[name] = MULTIPLIER * CLIP * torch.randn_like(p)
                else:
                    noise[name] = -noise[name]
                p -= LR * (sums[name] + noise[name]) / EXPECTED


def mutant_shared_noise(model, x, y):
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        noise = MULTIPLIER * CLIP * torch.randn(1)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= LR * (sums[name] + noise) / EXPECTED


def mutant_skipped_noise(model, x, y):
    for step in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                total = sums[name]
                if step % 100 != 0:
                    total = total + MULTIPLIER * CLIP * torch.randn_like(p)
                p -= LR * total / EXPECTED


def mutant_uniform_noise(model, x, y):
    reach = 3**0.5 * MULTIPLIER * CLIP
    for _ in range(STEPS):
        drawn = torch.rand(SIZE) < RATE
        sums = clipped_sums(per_example(model, x[drawn], y[drawn]), CLIP)
        with torch.no_grad():
            for name, p in model.named_parameters():
                noise = reach * (2 * torch.rand_like(p) - 1)
                p -= LR * (sums[name] + noise) / EXPECTED
