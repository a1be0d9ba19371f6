"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch.nn.functional import cross_entropy


def broken_torch(model, optimizer, batches, bound, multiplier):
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), bound)  # <- wrong batch-clipping
        for p in model.parameters():
            p.grad += multiplier * bound * torch.randn_like(p) / 256
        optimizer.step()


def broken_torch_by_hand(model, batches, lr, bound, std):
    for x, y in batches:
        loss = cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                shortened = g / max(1.0, total / bound)  # <- wrong batch-clipping
                p -= lr * (shortened + std * torch.randn_like(p))


def broken_opacus(model, optimizer, batches, bound, multiplier):
    accountant = RDPAccountant()
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), bound)  # <- wrong batch-clipping
        for p in model.parameters():
            p.grad.add_(torch.normal(0.0, multiplier * bound, size=p.shape))
        optimizer.step()
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def right_torch(model, optimizer, batches, bound, multiplier):
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for one, label in zip(x, y):
            optimizer.zero_grad()
            cross_entropy(model(one[None]), label[None]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
            for s, p in zip(sums, model.parameters()):
                s += p.grad
        for s, p in zip(sums, model.parameters()):
            p.grad = (s + multiplier * bound * torch.randn_like(p)) / 256
        optimizer.step()


def right_opacus(model, optimizer, loader):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def right_without_noise(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x + 0.1 * torch.randn_like(x)), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
