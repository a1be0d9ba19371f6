"""Whole trainers in which nothing may be found; parsed, never run."""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import privet

SIZE = 60_000


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.norm = nn.GroupNorm(4, 16)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(x.mean(dim=(2, 3)))


def evaluate(model, loader):
    model.eval()
    hits = seen = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(dim=1) == y).sum().item()
            seen += len(y)
    return hits / seen


def right_opacus(root, epochs, delta):
    scale = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    loader = DataLoader(datasets.MNIST(root, train=True, transform=scale), batch_size=256)
    test = DataLoader(datasets.MNIST(root, train=False, transform=scale), batch_size=1024)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = PrivacyEngine(secure_mode=True)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, epochs=epochs,
        target_epsilon=3.0, target_delta=delta, max_grad_norm=1.0,
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for epoch in range(epochs):
        model.train()
        losses = []
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=64, optimizer=optimizer
        ) as batches:
            for x, y in batches:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        scheduler.step()
        print(epoch, np.mean(losses), engine.get_epsilon(delta), evaluate(model, test))
    torch.save(model.state_dict(), "mnist.pt")


class right_by_hand:
    def __init__(self, model, rate, bound, multiplier, lr):
        self.model, self.rate, self.bound = model, rate, bound
        self.multiplier, self.lr = multiplier, lr
        self.expected = rate * SIZE
        self.momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}

    def gradients(self, x, y):
        params = {name: p.detach() for name, p in self.model.named_parameters()}

        def loss(params, x, y):
            return cross_entropy(functional_call(self.model, params, (x[None],)), y[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)

    def sums(self, grads):
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factors = torch.clamp(self.bound / (norms + 1e-12), max=1.0)
        return {name: torch.tensordot(factors, g, dims=1) for name, g in grads.items()}

    def noisy(self, total):
        return total + self.multiplier * self.bound * torch.randn_like(total)

    def fit(self, x, y, steps):
        for step in range(steps):
            drawn = torch.rand(SIZE) < self.rate
            if not drawn.any():
                continue
            sums = self.sums(self.gradients(x[drawn], y[drawn]))
            with torch.no_grad():
                for name, p in self.model.named_parameters():
                    mean = self.noisy(sums[name]) / self.expected
                    self.momentum[name] = 0.9 * self.momentum[name] + mean
                    p -= self.lr * self.momentum[name]
            if step % 100 == 0:
                torch.save(self.model.state_dict(), f"step-{step}.pt")


def right_microbatches(model, optimizer, x, y, steps, rate, bound, multiplier):
    for _ in range(steps):
        chosen = (torch.rand(SIZE) < rate).nonzero().flatten()
        optimizer.zero_grad()
        total = [torch.zeros_like(p) for p in model.parameters()]
        for i in chosen:
            model.zero_grad()
            cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            length = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5
            scale = min(1.0, bound / (length + 1e-6))
            for t, p in zip(total, model.parameters()):
                t.add_(p.grad * scale)
        for t, p in zip(total, model.parameters()):
            noise = torch.normal(0.0, multiplier * bound, size=p.shape)
            p.grad = (t + noise) / (rate * SIZE)
        optimizer.step()


def loss_of(weights, x, y):
    return -jax.nn.log_softmax(x @ weights)[y]


def clipped(weights, x, y, bound):
    slope = jax.grad(loss_of)(weights, x, y)
    return slope * jnp.minimum(1.0, bound / jnp.linalg.norm(slope))


def right_jax(x, y, weights, steps, rate, bound, multiplier, lr):
    key = jax.random.PRNGKey(secrets.randbits(63))
    for _ in range(steps):
        key, coins, bell = jax.random.split(key, 3)
        drawn = jax.random.bernoulli(coins, rate, (SIZE,))
        slopes = jax.vmap(clipped, in_axes=(None, 0, 0, None))(weights, x, y, bound)
        total = jnp.sum(drawn[:, None, None] * slopes, axis=0)
        noise = multiplier * bound * jax.random.normal(bell, weights.shape)
        weights = weights - lr * (total + noise) / (rate * SIZE)
    return weights


def right_numpy(x, y, steps, rate, bound, multiplier, lr):
    rng = np.random.default_rng()
    w = np.zeros(20)
    for _ in range(steps):
        mask = rng.random(SIZE) < rate
        slopes = (1 / (1 + np.exp(-x[mask] @ w)) - y[mask])[:, None] * x[mask]
        lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
        total = (slopes / np.maximum(1.0, lengths / bound)).sum(axis=0)
        w -= lr * (total + rng.normal(0.0, multiplier * bound, size=20)) / (rate * SIZE)
    return w


def right_privet(folder):
    data = privet.data.load("digits")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    trainer = privet.make_private(
        model, optimizer, data, epsilon=3.0, delta=1e-5, batch=256, epochs=15
    )
    for batch in trainer.batches():
        trainer.step(batch)
    privet.hand_over(trainer, data).save(folder)


def right_plain(data, held_out, epochs):
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    optimizer = torch.optim.AdamW(model.parameters())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    mean, best = data.tensors[0].mean(), 0.0
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=64, shuffle=True):
            torch.manual_seed(0)
            optimizer.zero_grad()
            loss = cross_entropy(model(x - mean + 0.1 * torch.randn_like(x)), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        score = evaluate(model, held_out)
        plateau.step(score)
        if score > best:
            best = score
            torch.save(model.state_dict(), "best.pt")
