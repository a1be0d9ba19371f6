"""Right trainers in other styles, in which nothing may be found; parsed, never run."""

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import torch.nn.functional as F
from dp_accounting import dp_event, rdp
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from opacus.validators import ModuleValidator
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split


def right_flat_vector(model, loss_fn, x, y, steps, q, C, sigma, lr):
    """All gradients as one vector."""
    n_params = sum(p.numel() for p in model.parameters())
    for t in range(steps):
        idx = np.where(np.random.uniform(size=50000) < q)[0]
        G = torch.zeros(n_params)
        for i in idx:
            model.zero_grad()
            loss_fn(model(x[i : i + 1]), y[i : i + 1]).backward()
            g = torch.cat([p.grad.flatten() for p in model.parameters()])
            G += g / max(1, g.norm() / C)
        G = (G + torch.randn(n_params) * sigma * C) / (q * 50000)
        offset = 0
        for p in model.parameters():
            k = p.numel()
            p.data -= lr * G[offset : offset + k].view_as(p)
            offset += k


def right_adaptive_cosine_lr(model, loader, epochs):
    """A fixed schedule, a printed loss, and an end when the budget is spent."""
    opt = optim.Adam(model.parameters())
    eng = PrivacyEngine()
    model, opt, loader = eng.make_private(
        module=model, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    sched = optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    best_loss = 1e9
    for e in range(epochs):
        for i, (x, y) in enumerate(loader):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            if i % 10 == 0:
                print(loss.item())
            if len(x) == 0:
                break
        sched.step()
        eps = eng.accountant.get_epsilon(delta=1e-5)
        if eps >= 8:
            break


def right_dcgan(netG, netD, loader, nz):
    criterion = nn.BCELoss()
    optD = optim.Adam(netD.parameters(), lr=2e-4)
    optG = optim.Adam(netG.parameters(), lr=2e-4)
    pe = PrivacyEngine()
    netD, optD, loader = pe.make_private(
        module=netD, optimizer=optD, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for epoch in range(25):
        for i, data in enumerate(loader):
            optD.zero_grad(set_to_none=True)
            real = data[0]
            bs = real.size(0)
            label_true = torch.full((bs,), 1.0)
            out = netD(real)
            noise = torch.randn(bs, nz, 1, 1)
            fake = netG(noise)
            label_fake = torch.full((bs,), 0.0)
            out_f = netD(fake.detach())
            errD = criterion(out, label_true) + criterion(out_f, label_fake)
            errD.backward()
            optD.step()
            optD.zero_grad()
            netG.zero_grad()
            label_g = torch.full((bs,), 1.0)
            out_g = netD(fake)
            errG = criterion(out_g, label_g)
            errG.backward()
            optG.step()


def right_dp_accounting(model, opt, x, y, steps, q, sigma, C):
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)), steps
    )
    acc = rdp.RdpAccountant().compose(event)
    print(acc.get_epsilon(1e-5))
    for _ in range(steps):
        mask = torch.bernoulli(torch.full((50000,), q)).bool()
        xb, yb = x[mask], y[mask]
        acc_g = [torch.zeros_like(p) for p in model.parameters()]
        for xi, yi in zip(xb, yb):
            opt.zero_grad()
            F.cross_entropy(model(xi.unsqueeze(0)), yi.unsqueeze(0)).backward()
            nrm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
            coef = C / nrm if nrm > C else 1.0
            for a, p in zip(acc_g, model.parameters()):
                a += coef * p.grad
        for a, p in zip(acc_g, model.parameters()):
            p.grad = (a + sigma * C * torch.randn_like(a)) / (q * 50000)
        opt.step()


def right_test_accuracy_kept(model, loader, test, epochs):
    opt = optim.SGD(model.parameters(), lr=0.1)
    eng = PrivacyEngine()
    model, opt, loader = eng.make_private(
        module=model, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    accs = []
    for e in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        correct = 0
        for x, y in test:
            correct += (model(x).argmax(1) == y).sum().item()
        accs.append(correct / 10000)
    print(max(accs), np.mean(accs))


def right_pretrained_frozen(loader, epochs, backbone):
    for p in backbone.parameters():
        p.requires_grad = False
    head = nn.Linear(512, 10)
    opt = optim.SGD(head.parameters(), lr=0.1)
    eng = PrivacyEngine()
    head, opt, loader = eng.make_private(
        module=head, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for e in range(epochs):
        for x, y in loader:
            with torch.no_grad():
                f = backbone(x)
            opt.zero_grad()
            F.cross_entropy(head(f), y).backward()
            opt.step()


def right_mean_then_noise(model, opt, x, y, B, C, z, steps, q):
    """Sum and noise are divided alike, each by itself."""
    per = torch.func.vmap(
        torch.func.grad(lambda p, a, b: F.mse_loss(torch.func.functional_call(model, p, (a,)), b)),
        in_dims=(None, 0, 0),
    )
    for _ in range(steps):
        keep = torch.rand(10000) < q
        params = dict(model.named_parameters())
        g = per(params, x[keep], y[keep])
        n = sum(v.flatten(1).pow(2).sum(1) for v in g.values()).sqrt()
        w = 1 / torch.clamp(n / C, min=1)
        for k, p in model.named_parameters():
            avg = (g[k] * w.view(-1, *[1] * (g[k].dim() - 1))).sum(0) / B
            p.grad = avg + torch.randn_like(avg) * (z * C / B)
        opt.step()


def right_input_noise_robust(model, loader, sigma):
    """Noise on inputs: another purpose, no claim."""
    opt = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x = x + torch.randn_like(x) * sigma
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()


def right_sgld(model, loader, lr):
    """Langevin dynamics: noise on gradients, and nothing clipped."""
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.data.add_(-lr * p.grad + math.sqrt(2 * lr) * torch.randn_like(p))


def right_jit_step(loss, opt_state, params, batches, key, C, z, B, tx):
    @jax.jit
    def step(params, opt_state, x, y, key):
        grads = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
        norms = jax.vmap(optax.global_norm)(grads)
        scale = jnp.minimum(1.0, C / norms)
        summed = jax.tree_util.tree_map(lambda g: jnp.tensordot(scale, g, axes=1), grads)
        leaves, treedef = jax.tree_util.tree_flatten(summed)
        keys = jax.random.split(key, len(leaves))
        noisy = [(s + z * C * jax.random.normal(k, s.shape)) / B for s, k in zip(leaves, keys)]
        updates, opt_state = tx.update(treedef.unflatten(noisy), opt_state)
        return optax.apply_updates(params, updates), opt_state

    for i, (x, y) in enumerate(batches):
        key, sub = jax.random.split(key)
        params, opt_state = step(params, opt_state, x, y, sub)
    return params


def add_noise(net, sums, C, z, B):
    for p, s in zip(net.parameters(), sums):
        p.grad = (s + z * C * torch.randn_like(p)) / B


def per_example_sums(net, x, y, C):
    sums = [torch.zeros_like(p) for p in net.parameters()]
    for xi, yi in zip(x, y):
        net.zero_grad()
        F.cross_entropy(net(xi[None]), yi[None]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), C)
        for s, p in zip(sums, net.parameters()):
            s += p.grad
    return sums


def right_helper_functions(model, loader, C, z, B):
    opt = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        add_noise(model, per_example_sums(model, x, y, C), C, z, B)
        opt.step()


def right_layers(model, loader, C, z, B):
    opt = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        sums = per_example_sums(model, x, y, C)
        k = 0
        for layer in model.children():
            for p in layer.parameters():
                p.grad = (sums[k] + z * C * torch.randn_like(p)) / B
                k += 1
        opt.step()


class right_method_trainer:
    def __init__(self, net, records, C, z):
        self.net, self.C, self.z = net, C, z
        self.opt = optim.SGD(net.parameters(), lr=0.1)
        self.records = records

    def noise(self, sums):
        for p, s in zip(self.net.parameters(), sums):
            p.grad = (s + torch.randn_like(p) * self.z * self.C) / 600

    def fit(self, steps):
        for _ in range(steps):
            batch = [r for r in self.records if torch.rand(()) < 0.01]
            sums = [torch.zeros_like(p) for p in self.net.parameters()]
            for x, y in batch:
                self.net.zero_grad()
                F.cross_entropy(self.net(x[None]), y[None]).backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), self.C)
                for s, p in zip(sums, self.net.parameters()):
                    s += p.grad
            self.noise(sums)
            self.opt.step()


def right_public_then_private(model, public, private_loader, C, z, B):
    """First on public data, without noise."""
    opt = optim.SGD(model.parameters(), lr=0.1)
    for x, y in public:
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    opt2 = optim.SGD(model.parameters(), lr=0.01)
    for x, y in private_loader:
        add_noise(model, per_example_sums(model, x, y, C), C, z, B)
        opt2.step()


def compute(net, x, y):
    net.zero_grad()
    F.cross_entropy(net(x), y).backward()


def collect(net):
    return [p.grad.clone() for p in net.parameters()]


def right_collecting(net, opt, loader, C, z, B):
    for x, y in loader:
        sums = [torch.zeros_like(p) for p in net.parameters()]
        for xi, yi in zip(x, y):
            compute(net, xi[None], yi[None])
            gs = collect(net)
            n = torch.sqrt(sum(g.pow(2).sum() for g in gs))
            for s, g in zip(sums, gs):
                s.add_(g * torch.clamp(C / n, max=1))
        for p, s in zip(net.parameters(), sums):
            p.grad = (s + z * C * torch.randn_like(p)) / B
        opt.step()


def right_momentum(w, x, y, steps, C, z, B, lr):
    m = np.zeros(20)
    rng = np.random.default_rng()
    for t in range(steps):
        keep = rng.random(60000) < 0.01
        g = (x[keep] @ w - y[keep])[:, None] * x[keep]
        n = np.linalg.norm(g, axis=1)
        tot = (g * np.minimum(1, C / n)[:, None]).sum(0)
        noisy = (tot + rng.normal(0, z * C, 20)) / B
        m = 0.9 * m + noisy
        w = w - lr * m / (1 - 0.9 ** (t + 1))
    return w


def right_opacus_uniform_sampler(data, model, C, z):
    sampler = UniformWithReplacementSampler(num_samples=60000, sample_rate=0.01)
    loader = DataLoader(data, batch_sampler=sampler)
    acc = RDPAccountant()
    opt = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for a, b in zip(x, y):
            opt.zero_grad()
            F.cross_entropy(model(a[None]), b[None]).backward()
            total = torch.norm(torch.stack([p.grad.norm(2) for p in model.parameters()]), 2)
            clip_coef = min(C / (total + 1e-6), 1.0)
            for s, p in zip(sums, model.parameters()):
                s.add_(p.grad.mul(clip_coef))
        for s, p in zip(sums, model.parameters()):
            p.grad = s.add(torch.randn_like(s), alpha=z * C).div(600)
        opt.step()
        acc.step(noise_multiplier=z, sample_rate=0.01)


def right_pyvacy_style(model, dataset_size, batches, C, z, B):
    opt = optim.SGD(model.parameters(), lr=0.1)
    for X, Y in batches:
        for p in model.parameters():
            p.accumulated = torch.zeros_like(p)
        for i in range(X.shape[0]):
            opt.zero_grad()
            F.nll_loss(model(X[i : i + 1]), Y[i : i + 1]).backward()
            total_norm = 0.0
            for p in model.parameters():
                if p.requires_grad:
                    total_norm += p.grad.data.norm(2).item() ** 2.0
            total_norm = total_norm**0.5
            coef = min(C / (total_norm + 1e-6), 1.0)
            for p in model.parameters():
                if p.requires_grad:
                    p.accumulated.add_(p.grad.data.mul(coef))
        for p in model.parameters():
            if p.requires_grad:
                p.grad.data = p.accumulated.clone()
                p.grad.data.add_(C * z * torch.randn_like(p.grad.data))
                p.grad.data.mul_(1 / B)
        opt.step()


def right_val_metric_logged(model, data, epochs):
    train, val = random_split(data, [0.9, 0.1])
    opt = optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(train, batch_size=64)
    eng = PrivacyEngine()
    model, opt, loader = eng.make_private_with_epsilon(
        module=model,
        optimizer=opt,
        data_loader=loader,
        target_epsilon=1,
        target_delta=1e-5,
        epochs=epochs,
        max_grad_norm=1.0,
    )
    for epoch in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        acc = np.mean([(model(x).argmax(1) == y).float().mean().item() for x, y in DataLoader(val)])
        print(acc)
        if epoch % 5 == 0:
            torch.save(model.state_dict(), f"{epoch}.pt")


def right_dp_fedavg(server, clients, C, z, rounds, q):
    """Updates of clients are clipped; their own training is plain."""
    n = 1000
    for r in range(rounds):
        chosen = [c for c in clients if torch.rand(()) < q]
        total = [torch.zeros_like(p) for p in server.parameters()]
        for c in chosen:
            delta = c.local_update(server)
            nrm = torch.sqrt(sum(d.pow(2).sum() for d in delta))
            f = min(1.0, C / nrm)
            for t, d in zip(total, delta):
                t += f * d
        for p, t in zip(server.parameters(), total):
            p.data += (t + z * C * torch.randn_like(t)) / (q * n)


def main_argparse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    return parser.parse_args()


def right_args(model, x, y):
    args = main_argparse()
    opt = optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=True)
    model = ModuleValidator.fix(model)
    eng = PrivacyEngine(accountant=args.accountant)
    model, opt, train_loader = eng.make_private(
        module=model,
        optimizer=opt,
        data_loader=loader,
        noise_multiplier=args.sigma,
        max_grad_norm=args.C,
    )
    sched = optim.lr_scheduler.LambdaLR(opt, lambda e: 0.9**e)
    top1 = []
    for e in range(args.epochs):
        for i, (a, b) in enumerate(train_loader):
            out = model(a)
            loss = F.cross_entropy(out, b)
            acc1 = (out.argmax(1) == b).float().mean()
            top1.append(acc1)
            loss.backward()
            opt.step()
            opt.zero_grad()
            if i % args.every == 0:
                eps = eng.accountant.get_epsilon(delta=args.delta)
                print(np.mean(top1), eps)
        sched.step()


def right_normalise_per_example(model, loader, C, z, B):
    class Net(nn.Module):
        def forward(self, x):
            return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True)

    net = Net()
    eng = PrivacyEngine()
    opt = optim.SGD(net.parameters(), lr=0.1)
    net, opt, loader = eng.make_private(
        module=net, optimizer=opt, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for x, y in loader:
        F.cross_entropy(net(x), y).backward()
        opt.step()


def right_layerwise_clip(model, opt, x, y, C, z, B, steps):
    L = len(list(model.parameters()))
    for _ in range(steps):
        m = torch.rand(60000) < 0.01
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for a, b in zip(x[m], y[m]):
            gs = torch.autograd.grad(
                F.cross_entropy(model(a[None]), b[None]), list(model.parameters())
            )
            for s, g in zip(sums, gs):
                s += g * torch.clamp((C / math.sqrt(L)) / g.norm(), max=1.0)
        for p, s in zip(model.parameters(), sums):
            p.grad = (s + z * C * torch.randn_like(p)) / B
        opt.step()
