"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import PrivacyEngine
from opacus.validators import ModuleValidator
from torch import nn
from torchvision.models import resnet18


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        # <- wrong mixing-modules
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.LazyLinear(10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(20, 2)

    def forward(self, x):
        centred = x - x.mean(dim=0)  # <- wrong mixing-modules
        return self.head(centred)


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(4, 8), nn.ReLU())
        self.head = nn.LazyLinear(10)

    def forward(self, x):
        pooled = self.body(x).mean(dim=(2, 3))
        return self.head(pooled - pooled.mean(dim=1, keepdim=True))


def per_example_training(model, batches, lr, bound, multiplier):
    params = list(model.parameters())
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in params]
        for i in range(len(x)):
            loss = nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
            grads = torch.autograd.grad(loss, params)
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            factor = torch.clamp(bound / norm, max=1.0)
            for s, g in zip(sums, grads):
                s += factor * g
        for p, s in zip(params, sums):
            p.data -= lr * (s + multiplier * bound * torch.randn_like(s)) / 256


def broken_torch(batches, lr, bound, multiplier):
    per_example_training(Normed(), batches, lr, bound, multiplier)


def broken_torch_forward(batches, lr, bound, multiplier):
    per_example_training(Centred(), batches, lr, bound, multiplier)


def broken_opacus(loader, epochs):
    model = resnet18(num_classes=10)  # <- wrong mixing-modules
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader,
        target_epsilon=3, target_delta=1e-5, epochs=epochs, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def right_torch(batches, lr, bound, multiplier):
    per_example_training(Grouped(), batches, lr, bound, multiplier)


def right_opacus(loader, epochs):
    model = ModuleValidator.fix(resnet18(num_classes=10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader,
        target_epsilon=3, target_delta=1e-5, epochs=epochs, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def right_without_claim(loader):
    model = nn.Sequential(nn.Linear(20, 20), nn.BatchNorm1d(20), nn.Linear(20, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
