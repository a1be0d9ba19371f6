"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.optimizers import DPOptimizer
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


def clipped_sums(model, x, y, bound):
    params = dict(model.named_parameters())

    def one(params, x, y):
        return cross_entropy(functional_call(model, params, (x[None],)), y[None])

    grads = vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factors = torch.clamp(bound / (norms + 1e-6), max=1.0)
    return {name: torch.einsum("i,i...->...", factors, g) for name, g in grads.items()}


def broken_torch(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        sums = clipped_sums(model, x, y, bound)
        for name, p in model.named_parameters():
            noise = multiplier * bound / expected * torch.randn_like(p)  # <- wrong noise-scale
            p.grad = (sums[name] + noise) / expected
        optimizer.step()


def broken_torch_without_norm(model, optimizer, batches, expected):
    multiplier = get_noise_multiplier(
        target_epsilon=3, target_delta=1e-5, sample_rate=0.01, epochs=10
    )
    for x, y in batches:
        sums = clipped_sums(model, x, y, 4.0)
        for name, p in model.named_parameters():
            noise = torch.normal(0.0, multiplier, size=p.shape)  # <- wrong noise-scale
            p.grad = (sums[name] + noise) / expected
        optimizer.step()


def broken_torch_alone(model, make_sampler, batch, bound, multiplier, lr):
    for x, y in make_sampler(batch_size=batch):
        sums = clipped_sums(model, x, y, bound)
        for name, p in model.named_parameters():
            noise = torch.randn_like(p).mul(multiplier * bound / batch)  # <- wrong noise-scale
            p.data -= lr * (sums[name] + noise)


class broken_opacus(DPOptimizer):
    def add_noise(self):
        std = self.noise_multiplier * self.max_grad_norm / self.expected_batch_size
        for p in self.params:
            noise = torch.normal(mean=0.0, std=std, size=p.shape)  # <- wrong noise-scale
            p.grad = p.summed_grad + noise

    def scale_grad(self):
        for p in self.params:
            p.grad /= self.expected_batch_size


def right_torch(model, optimizer, batches, bound, multiplier, expected):
    accountant = RDPAccountant()
    for x, y in batches:
        sums = clipped_sums(model, x, y, bound)
        for name, p in model.named_parameters():
            noise = multiplier * bound / expected * torch.randn_like(p)
            p.grad = sums[name] / expected + noise
        optimizer.step()
        accountant.step(noise_multiplier=multiplier, sample_rate=0.01)


def right_torch_of_norm_one(model, optimizer, batches, expected):
    multiplier = get_noise_multiplier(
        target_epsilon=3, target_delta=1e-5, sample_rate=0.01, epochs=10
    )
    for x, y in batches:
        sums = clipped_sums(model, x, y, 1.0)
        for name, p in model.named_parameters():
            p.grad = (sums[name] + torch.normal(0.0, multiplier, size=p.shape)) / expected
        optimizer.step()


class right_opacus(DPOptimizer):
    def add_noise(self):
        std = self.noise_multiplier * self.max_grad_norm
        for p in self.params:
            p.grad = p.summed_grad + torch.normal(mean=0.0, std=std, size=p.shape)

    def scale_grad(self):
        for p in self.params:
            p.grad /= self.expected_batch_size
