"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import secrets

import jax
import jax.numpy as jnp
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


def clipped_sums(model, x, y, bound):
    params = dict(model.named_parameters())

    def one(params, x, y):
        return cross_entropy(functional_call(model, params, (x[None],)), y[None])

    grads = vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factors = torch.clamp(bound / norms, max=1.0)
    return [torch.einsum("i,i...->...", factors, g) for g in grads.values()]


def broken_torch(model, optimizer, batches, bound, multiplier, expected):
    # <- wrong reused-noise
    noise = [multiplier * bound * torch.randn_like(p) for p in model.parameters()]
    for x, y in batches:
        for p, s, n in zip(model.parameters(), clipped_sums(model, x, y, bound), noise):
            p.grad = (s + n) / expected
        optimizer.step()


def broken_torch_seed(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        torch.manual_seed(0)  # <- wrong reused-noise
        for p, s in zip(model.parameters(), clipped_sums(model, x, y, bound)):
            p.grad = (s + multiplier * bound * torch.randn_like(p)) / expected
        optimizer.step()


def broken_opacus(model, optimizer, loader):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        torch.manual_seed(17)  # <- wrong reused-noise
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


class broken_opacus_kept(DPOptimizer):
    def __init__(self, params, std):
        self.params = params
        self.noise = [std * torch.randn_like(p) for p in params]  # <- wrong reused-noise

    def add_noise(self):
        for p, n in zip(self.params, self.noise):
            p.grad = p.summed_grad + n


def broken_jax(loss, weights, batches, bound, multiplier, lr, expected):
    key = jax.random.PRNGKey(secrets.randbits(32))
    for x, y in batches:
        grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(weights, x, y)
        norms = jnp.linalg.norm(grads, axis=1)
        total = jnp.sum(grads * jnp.minimum(1.0, bound / norms)[:, None], axis=0)
        noise = multiplier * bound * jax.random.normal(key, weights.shape)  # <- wrong reused-noise
        weights = weights - lr * (total + noise) / expected


def doubtful_torch(model, optimizer, batches, bound, multiplier, expected):
    generator = torch.Generator().manual_seed(7)
    for x, y in batches:
        for p, s in zip(model.parameters(), clipped_sums(model, x, y, bound)):
            noise = torch.randn(p.shape, generator=generator)  # <- doubt reused-noise
            p.grad = (s + multiplier * bound * noise) / expected
        optimizer.step()


def right_torch(model, optimizer, batches, bound, multiplier, expected):
    torch.manual_seed(0)
    for x, y in batches:
        noise = [multiplier * bound * torch.randn_like(p) for p in model.parameters()]
        for p, s, n in zip(model.parameters(), clipped_sums(model, x, y, bound), noise):
            p.grad = (s + n) / expected
        optimizer.step()


def right_opacus(model, optimizer, loader, step):
    accountant = RDPAccountant()
    for x, y in loader:
        torch.manual_seed(secrets.randbits(60))
        cross_entropy(model(x), y).backward()
        optimizer.step()
        accountant.step(noise_multiplier=1.1, sample_rate=0.01)


def right_jax(loss, weights, batches, bound, multiplier, lr, expected):
    key = jax.random.PRNGKey(secrets.randbits(32))
    for x, y in batches:
        key, part = jax.random.split(key)
        grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(weights, x, y)
        norms = jnp.linalg.norm(grads, axis=1)
        total = jnp.sum(grads * jnp.minimum(1.0, bound / norms)[:, None], axis=0)
        noise = multiplier * bound * jax.random.normal(part, weights.shape)
        weights = weights - lr * (total + noise) / expected
