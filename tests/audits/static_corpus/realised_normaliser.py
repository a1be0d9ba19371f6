"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from torch.nn.functional import cross_entropy


def broken_torch(model, x, y, steps, rate, lr, bound, std):
    params = list(model.parameters())
    for _ in range(steps):
        chosen = torch.rand(60_000) < rate
        batch, labels = x[chosen], y[chosen]
        sums = [torch.zeros_like(p) for p in params]
        for one, label in zip(batch, labels):
            grads = torch.autograd.grad(cross_entropy(model(one[None]), label[None]), params)
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            for s, g in zip(sums, grads):
                s += g / max(1.0, norm / bound)
        with torch.no_grad():
            for p, s in zip(params, sums):
                # <- wrong realised-normaliser
                p -= lr * (s + std * torch.randn_like(s)) / len(batch)


def broken_opacus(model, optimizer, loader, bound, multiplier):
    wrapped = GradSampleModule(model)
    accountant = RDPAccountant()
    for x, y in DPDataLoader.from_data_loader(loader):
        cross_entropy(wrapped(x), y).backward()
        norms = torch.stack(
            [p.grad_sample.flatten(1).norm(dim=1) for p in wrapped.parameters()]
        ).norm(dim=0)
        factors = (bound / norms).clamp(max=1.0)
        for p in wrapped.parameters():
            total = torch.einsum("i,i...->...", factors, p.grad_sample)
            p.grad = total + multiplier * bound * torch.randn_like(p)
            p.grad /= x.shape[0]  # <- wrong realised-normaliser
        optimizer.step()
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def doubtful_mean(model, optimizer, batches, bound, std):
    wrapped = GradSampleModule(model)
    for x, y in batches:
        cross_entropy(wrapped(x), y).backward()
        for p in wrapped.parameters():
            norms = p.grad_sample.flatten(1).norm(dim=1, keepdim=True)
            clipped = p.grad_sample.flatten(1) * (bound / norms).clamp(max=1.0)
            # <- doubt realised-normaliser
            p.grad = clipped.mean(0) + std * torch.randn_like(clipped[0])
        optimizer.step()


def right_torch(model, x, y, steps, rate, lr, bound, std, expected):
    params = list(model.parameters())
    for _ in range(steps):
        chosen = torch.rand(60_000) < rate
        batch, labels = x[chosen], y[chosen]
        sums = [torch.zeros_like(p) for p in params]
        for one, label in zip(batch, labels):
            grads = torch.autograd.grad(cross_entropy(model(one[None]), label[None]), params)
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            for s, g in zip(sums, grads):
                s += g / max(1.0, norm / bound)
        with torch.no_grad():
            for p, s in zip(params, sums):
                p -= lr * (s + std * torch.randn_like(s)) / expected
        print("drawn", len(batch))


def right_opacus(model, optimizer, loader, bound, multiplier, expected):
    wrapped = GradSampleModule(model)
    accountant = RDPAccountant()
    seen = 0
    for x, y in DPDataLoader.from_data_loader(loader):
        losses = cross_entropy(wrapped(x), y)
        losses.backward()
        seen += x.shape[0]
        norms = torch.stack(
            [p.grad_sample.flatten(1).norm(dim=1) for p in wrapped.parameters()]
        ).norm(dim=0)
        factors = (bound / norms).clamp(max=1.0)
        for p in wrapped.parameters():
            total = torch.einsum("i,i...->...", factors, p.grad_sample)
            p.grad = (total + multiplier * bound * torch.randn_like(p)) / expected
        optimizer.step()
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)
