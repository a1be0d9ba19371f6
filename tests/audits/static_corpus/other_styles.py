"""Broken trainers in other styles; parsed, never run. A mistake is marked by `<-`."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from tensorflow_privacy import compute_dp_sgd_privacy
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def broken_realised_flat(model, loss_fn, x, y, steps, q, C, sigma, lr):
    n_params = sum(p.numel() for p in model.parameters())
    for t in range(steps):
        idx = np.where(np.random.uniform(size=50000) < q)[0]
        G = torch.zeros(n_params)
        for i in idx:
            model.zero_grad()
            loss_fn(model(x[i : i + 1]), y[i : i + 1]).backward()
            g = torch.cat([p.grad.flatten() for p in model.parameters()])
            G += g / max(1, g.norm() / C)
        G = (G + torch.randn(n_params) * sigma * C) / len(idx)  # <- wrong realised-normaliser
        offset = 0
        for p in model.parameters():
            k = p.numel()
            p.data -= lr * G[offset : offset + k].view_as(p)
            offset += k


def broken_np_shuffle(w, X, Y, epochs, B, C, z, lr):
    eps = compute_dp_sgd_privacy(60000, B, z, epochs, 1e-5)
    order = np.arange(60000)
    for e in range(epochs):
        np.random.shuffle(order)  # <- wrong sampler-vs-accountant
        for s in range(0, 60000, B):
            ids = order[s : s + B]
            per = jax.vmap(jax.grad(lambda w, a, b: (a @ w - b) ** 2), (None, 0, 0))(
                w, X[ids], Y[ids]
            )
            nn_ = np.linalg.norm(per, axis=1)
            tot = (per * np.minimum(1, C / nn_)[:, None]).sum(0)
            w = w - lr * (tot + np.random.normal(0, z * C, w.shape)) / B
    return w, eps


def broken_early_stop_patience(model, loader, val_loader, epochs, patience=5):
    opt = optim.SGD(model.parameters(), lr=0.1)
    eng = PrivacyEngine()
    model, opt, loader = eng.make_private(
        module=model, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    best, bad = math.inf, 0
    for e in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        total = 0.0
        for x, y in val_loader:
            total += F.cross_entropy(model(x), y).item()
        if total < best:  # <- doubt private-selection
            best = total
            bad = 0
        else:
            bad += 1
            if bad >= patience:
                break


def broken_noise_list_reuse(model, opt, loader, C, z, B):
    acc = RDPAccountant()
    eps = [torch.randn(p.shape) for p in model.parameters()]  # <- wrong reused-noise
    for x, y in loader:
        micro = [torch.zeros_like(p) for p in model.parameters()]
        for j in range(x.shape[0]):
            gs = torch.autograd.grad(
                F.cross_entropy(model(x[j : j + 1]), y[j : j + 1]), model.parameters()
            )
            nrm = math.sqrt(sum(g.norm().item() ** 2 for g in gs))
            micro = [m + g * min(1, C / nrm) for m, g in zip(micro, gs)]
        for p, m, e in zip(model.parameters(), micro, eps):
            p.grad = (m + z * C * e) / B
        opt.step()
        acc.step(noise_multiplier=z, sample_rate=0.01)


def broken_std_missing_clip(model, opt, loader, C, z, B):
    acc = RDPAccountant()
    for x, y in loader:
        micro = [torch.zeros_like(p) for p in model.parameters()]
        for j in range(x.shape[0]):
            gs = torch.autograd.grad(
                F.cross_entropy(model(x[j : j + 1]), y[j : j + 1]), model.parameters()
            )
            nrm = math.sqrt(sum(g.norm().item() ** 2 for g in gs))
            micro = [m + g * min(1, C / nrm) for m, g in zip(micro, gs)]
        for p, m in zip(model.parameters(), micro):
            p.grad = (m + z * torch.randn_like(p)) / B  # <- wrong noise-scale
        opt.step()
        acc.step(noise_multiplier=z, sample_rate=0.01)


def broken_batch_clip_optax(params, loss, batches, C, z, lr, key):
    for x, y in batches:
        key, sub = jax.random.split(key)
        g = jax.grad(loss)(params, x, y)
        g = g * jnp.minimum(1.0, C / jnp.linalg.norm(g))  # <- wrong batch-clipping
        params = params - lr * (g + z * C * jax.random.normal(sub, params.shape))
    return params


def broken_bias_noise(model, opt, loader, C, z, B):
    for x, y in loader:
        tot = {n: 0 for n, _ in model.named_parameters()}
        for xi, yi in zip(x, y):
            model.zero_grad()
            F.cross_entropy(model(xi[None]), yi[None]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), C)
            for n, p in model.named_parameters():
                tot[n] = tot[n] + p.grad
        for n, p in model.named_parameters():
            p.grad = tot[n] / B
            if n.endswith(".bias"):  # <- wrong unclipped-part
                continue
            p.grad = p.grad + z * C / B * torch.randn_like(p)
        opt.step()


def broken_scaler(path, model):
    import pandas as pd
    from sklearn.preprocessing import MinMaxScaler

    df = pd.read_csv(path)
    X = MinMaxScaler().fit_transform(df.drop(columns="y"))  # <- wrong uncharged-access
    ds = TensorDataset(torch.tensor(X), torch.tensor(df["y"].values))
    loader = DataLoader(ds, batch_size=64)
    opt = optim.SGD(model.parameters(), lr=0.1)
    eng = PrivacyEngine()
    model, opt, loader = eng.make_private(
        module=model, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()


class broken_trainer:
    def __init__(self, model, data, C, z):
        self.model, self.C, self.z = model, C, z
        self.data = DataLoader(data, batch_size=32, shuffle=True)  # <- wrong sampler-vs-accountant
        self.opt = optim.SGD(model.parameters(), lr=0.1)
        self.acc = RDPAccountant()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.C)  # <- wrong batch-clipping

    def noise(self):
        for p in self.model.parameters():
            p.grad.add_(torch.randn_like(p.grad), alpha=self.z * self.C)

    def fit(self):
        for x, y in self.data:
            self.opt.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.clip()
            self.noise()
            self.opt.step()
            self.acc.step(noise_multiplier=self.z, sample_rate=0.01)
