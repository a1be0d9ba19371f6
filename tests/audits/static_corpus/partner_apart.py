"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import PrivacyEngine
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


def attacked(model, x, y, size):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(model(x), y), x)
    return (x + size * slope.sign()).clamp(0, 1).detach()


def gradients(model, x, y):
    params = dict(model.named_parameters())

    def one(params, x, y):
        return cross_entropy(functional_call(model, params, (x[None],)), y[None])

    return vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)


def clipped(grads, bound):
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factors = torch.clamp(bound / norms, max=1.0)
    return {name: torch.einsum("i,i...->...", factors, g) for name, g in grads.items()}


def broken_torch(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        clean = clipped(gradients(model, x, y), bound)
        # <- wrong partner-apart
        harmed = clipped(gradients(model, attacked(model, x, y, 0.1), y), bound)
        for name, p in model.named_parameters():
            noise = multiplier * bound * torch.randn_like(p)
            p.grad = (clean[name] + harmed[name] + noise) / expected
        optimizer.step()


def broken_opacus(model, optimizer, loader):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        optimizer.zero_grad()
        harmed = attacked(model, x, y, 0.1)
        both = torch.cat([x, harmed])  # <- wrong partner-apart
        cross_entropy(model(both), torch.cat([y, y])).backward()
        optimizer.step()


def right_torch(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        clean = gradients(model, x, y)
        harmed = gradients(model, attacked(model, x, y, 0.1), y)
        sums = clipped({name: (clean[name] + harmed[name]) / 2 for name in clean}, bound)
        for name, p in model.named_parameters():
            noise = multiplier * bound * torch.randn_like(p)
            p.grad = (sums[name] + noise) / expected
        optimizer.step()


def right_halves(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        clean = clipped(gradients(model, x, y), bound / 2)
        harmed = clipped(gradients(model, attacked(model, x, y, 0.1), y), bound / 2)
        for name, p in model.named_parameters():
            noise = multiplier * bound * torch.randn_like(p)
            p.grad = (clean[name] + harmed[name] + noise) / expected
        optimizer.step()


def right_opacus(model, optimizer, loader):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(attacked(model, x, y, 0.1)), y).backward()
        optimizer.step()


def right_branches(model, optimizer, batches, bound, multiplier, expected, robust):
    for x, y in batches:
        if robust:
            sums = clipped(gradients(model, attacked(model, x, y, 0.1), y), bound)
        else:
            sums = clipped(gradients(model, x, y), bound)
        for name, p in model.named_parameters():
            p.grad = (sums[name] + multiplier * bound * torch.randn_like(p)) / expected
        optimizer.step()


def shortened(slope, bound):
    return slope * torch.clamp(bound / slope.norm(), max=1.0)


def right_layers(weight, bias, batches, lr, bound, multiplier, expected):
    for x, y in batches:
        sums = [torch.zeros_like(weight), torch.zeros_like(bias)]
        for one, label in zip(x, y):
            loss = cross_entropy(one[None] @ weight + bias, label[None])
            first, second = torch.autograd.grad(loss, (weight, bias))
            parts = [shortened(first, bound), shortened(second, bound)]
            for s, part in zip(sums, parts):
                s += part
        for p, s in zip((weight, bias), sums):
            p.data -= lr * (s + multiplier * bound * 2**0.5 * torch.randn_like(s)) / expected
