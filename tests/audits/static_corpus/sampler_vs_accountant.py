"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader as Loader


def clipped_sums(model, loss, x, y, bound):
    params = dict(model.named_parameters())

    def one(params, x, y):
        return loss(functional_call(model, params, (x[None],)), y[None])

    grads = vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factors = (bound / norms).clamp(max=1.0)
    return {name: torch.einsum("i,i...->...", factors, g) for name, g in grads.items()}


def noisy_step(model, optimizer, loss, x, y, bound, multiplier, expected):
    sums = clipped_sums(model, loss, x, y, bound)
    for name, p in model.named_parameters():
        p.grad = (sums[name] + multiplier * bound * torch.randn_like(p)) / expected
    optimizer.step()


def broken_torch(model, optimizer, loss, data, bound, multiplier):
    accountant = RDPAccountant()
    loader = Loader(data, batch_size=64, shuffle=True)  # <- wrong sampler-vs-accountant
    for x, y in loader:
        noisy_step(model, optimizer, loss, x, y, bound, multiplier, 64)
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def broken_torch_permutation(model, optimizer, loss, x, y, bound, multiplier, epochs):
    accountant = RDPAccountant()
    for _ in range(epochs):
        order = torch.randperm(60_000)  # <- wrong sampler-vs-accountant
        for start in range(0, 60_000, 600):
            chosen = order[start : start + 600]
            noisy_step(model, optimizer, loss, x[chosen], y[chosen], bound, multiplier, 600)
            accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def broken_opacus(model, optimizer, loss, data, epochs):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(  # <- wrong sampler-vs-accountant
        module=model,
        optimizer=optimizer,
        data_loader=Loader(data, batch_size=64, shuffle=True),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    return engine.get_epsilon(1e-5)


def broken_opacus_own_loader(model, optimizer, loss, data, epochs):
    batches = Loader(data, batch_size=64, shuffle=True)  # <- wrong sampler-vs-accountant
    engine = PrivacyEngine()
    model, optimizer, private_batches = engine.make_private(
        module=model, optimizer=optimizer, data_loader=batches,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return engine.get_epsilon(1e-5)


def doubtful_torch(model, optimizer, loss, x, y, bound, multiplier, steps):
    accountant = RDPAccountant()
    rng = np.random.default_rng()
    for _ in range(steps):
        chosen = rng.choice(60_000, 600, replace=False)  # <- doubt sampler-vs-accountant
        noisy_step(model, optimizer, loss, x[chosen], y[chosen], bound, multiplier, 600)
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def right_torch(model, optimizer, loss, x, y, bound, multiplier, steps):
    accountant = RDPAccountant()
    order = torch.randperm(60_000)  # only to set test records apart
    kept = order[:50_000]
    x, y = x[kept], y[kept]
    for _ in range(steps):
        chosen = torch.rand(50_000) < 0.01
        noisy_step(model, optimizer, loss, x[chosen], y[chosen], bound, multiplier, 500)
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def right_opacus(model, optimizer, loss, data, test, epochs):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=Loader(data, batch_size=64, shuffle=True),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
    )
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    for x, y in Loader(test, batch_size=64, shuffle=True):
        print((model(x).argmax(1) == y).float().mean())
    return engine.get_epsilon(1e-5)


def right_converted(model, optimizer, loss, data, bound, multiplier):
    accountant = RDPAccountant()
    loader = DPDataLoader.from_data_loader(Loader(data, batch_size=64, shuffle=True))
    for x, y in loader:
        noisy_step(model, optimizer, loss, x, y, bound, multiplier, 64)
        accountant.step(noise_multiplier=multiplier, sample_rate=loader.sample_rate)


def right_without_accountant(model, optimizer, loss, data):
    for x, y in Loader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
