"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import GradSampleModule
from torch.nn.functional import cross_entropy


def broken_torch(model, optimizer, batches, bound, std, expected):
    for x, y in batches:
        sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for one, label in zip(x, y):
            optimizer.zero_grad()
            cross_entropy(model(one[None]), label[None]).backward()
            # <- wrong unclipped-part
            kept = [p.grad for n, p in model.named_parameters() if "bias" not in n]
            norm = torch.sqrt(sum(g.pow(2).sum() for g in kept))
            factor = torch.clamp(bound / norm, max=1.0)
            for name, p in model.named_parameters():
                sums[name] += factor * p.grad
        for name, p in model.named_parameters():
            p.grad = (sums[name] + std * torch.randn_like(p)) / expected
        optimizer.step()


def broken_opacus(model, optimizer, batches, bound, multiplier, expected):
    wrapped = GradSampleModule(model)
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(wrapped(x), y).backward()
        norms = torch.stack(
            [p.grad_sample.flatten(1).norm(dim=1) for p in wrapped.parameters()]
        ).norm(dim=0)
        factors = (bound / norms).clamp(max=1.0)
        for p in wrapped.parameters():
            p.grad = torch.einsum("i,i...->...", factors, p.grad_sample) / expected
            if p.dim() > 1:  # <- wrong unclipped-part
                p.grad += multiplier * bound / expected * torch.randn_like(p)
        optimizer.step()


def right_torch(model, optimizer, batches, bound, std, expected, decay):
    for x, y in batches:
        sums = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for one, label in zip(x, y):
            optimizer.zero_grad()
            cross_entropy(model(one[None]), label[None]).backward()
            norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters()))
            factor = torch.clamp(bound / norm, max=1.0)
            for name, p in model.named_parameters():
                sums[name] += factor * p.grad
        for name, p in model.named_parameters():
            p.grad = (sums[name] + std * torch.randn_like(p)) / expected
            if "bias" not in name:
                p.grad += decay * p.data
        optimizer.step()


def right_opacus(model, batches, bound, multiplier, expected):
    wrapped = GradSampleModule(model)
    chosen = [p for n, p in wrapped.named_parameters() if n.endswith("lora")]
    optimizer = torch.optim.SGD(chosen, lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(wrapped(x), y).backward()
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in chosen]).norm(dim=0)
        factors = (bound / norms).clamp(max=1.0)
        for p in chosen:
            total = torch.einsum("i,i...->...", factors, p.grad_sample)
            p.grad = (total + multiplier * bound * torch.randn_like(p)) / expected
        optimizer.step()


def right_frozen(model, optimizer, batches, bound, std, expected):
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for one, label in zip(x, y):
            optimizer.zero_grad()
            cross_entropy(model(one[None]), label[None]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
            for s, p in zip(sums, model.parameters()):
                if not p.requires_grad:
                    continue
                s += p.grad
        for s, p in zip(sums, model.parameters()):
            if not p.requires_grad:
                continue
            p.grad = (s + std * torch.randn_like(p)) / expected
        optimizer.step()
