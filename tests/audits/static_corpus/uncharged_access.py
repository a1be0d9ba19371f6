"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

from collections import Counter

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from sklearn.preprocessing import StandardScaler
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def private_steps(model, optimizer, x, y, bound, multiplier, steps):
    params = dict(model.named_parameters())

    def one(params, x, y):
        return cross_entropy(functional_call(model, params, (x[None],)), y[None])

    for _ in range(steps):
        chosen = torch.rand(60_000) < 0.01
        grads = vmap(grad(one), in_dims=(None, 0, 0))(params, x[chosen], y[chosen])
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factors = torch.clamp(bound / norms, max=1.0)
        for name, p in model.named_parameters():
            total = torch.einsum("i,i...->...", factors, grads[name])
            p.grad = (total + multiplier * bound * torch.randn_like(p)) / 600
        optimizer.step()


def broken_torch(model, optimizer, path, bound, multiplier, steps):
    table = torch.from_numpy(np.load(path))
    x, y = table[:, 1:], table[:, 0].long()
    centre, width = x.mean(0), x.std(0)  # <- wrong uncharged-access
    private_steps(model, optimizer, (x - centre) / width, y, bound, multiplier, steps)


def broken_opacus(model, optimizer, raw, labels):
    scaler = StandardScaler()
    scaled = scaler.fit_transform(raw)  # <- wrong uncharged-access
    counts = Counter(labels)  # <- wrong uncharged-access
    loader = DataLoader(TensorDataset(torch.tensor(scaled), torch.tensor(labels)), batch_size=64)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y, weight=torch.tensor([1 / counts[0], 1 / counts[1]])).backward()
        optimizer.step()


def doubtful_size(model, optimizer, loader, data, bound):
    accountant = RDPAccountant()
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=DataLoader(data),
        noise_multiplier=1.1, max_grad_norm=bound,
    )  # fmt: skip
    rate = 64 / len(data)  # <- doubt uncharged-access
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        accountant.step(noise_multiplier=1.1, sample_rate=rate)


def right_torch(model, optimizer, path, others, bound, multiplier, steps):
    table = torch.from_numpy(np.load(path))
    x, y = table[:, 1:], table[:, 0].long()
    reference = torch.from_numpy(np.load(others))
    centre, width = reference.mean(0), reference.std(0)
    private_steps(model, optimizer, (x - centre) / width, y, bound, multiplier, steps)


def right_opacus(model, optimizer, raw, labels, low, high):
    scaled = (torch.tensor(raw) - low) / (high - low)
    loader = DataLoader(TensorDataset(scaled, torch.tensor(labels)), batch_size=64)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y, reduction="none").mean()
        loss.backward()
        optimizer.step()
