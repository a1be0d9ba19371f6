"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import copy

import torch
from opacus import PrivacyEngine
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, random_split


def accuracy(model, loader):
    hits = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits


def one_epoch(model, optimizer, batches, bound, multiplier, expected):
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for one, label in zip(x, y):
            optimizer.zero_grad()
            cross_entropy(model(one[None]), label[None]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), bound)
            for s, p in zip(sums, model.parameters()):
                s += p.grad
        for s, p in zip(sums, model.parameters()):
            p.grad = (s + multiplier * bound * torch.randn_like(p)) / expected
        optimizer.step()


def broken_torch(model, optimizer, records, bound, multiplier, epochs):
    train, held_out = random_split(records, [0.9, 0.1])
    best, kept = 0.0, None
    for _ in range(epochs):
        one_epoch(model, optimizer, DataLoader(train), bound, multiplier, 256)
        score = accuracy(model, DataLoader(held_out))
        if score > best:  # <- wrong private-selection
            best, kept = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


def broken_opacus(model, optimizer, loader, epochs):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    plateau = ReduceLROnPlateau(optimizer)
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        plateau.step(total)  # <- wrong private-selection


def doubtful_torch(model, optimizer, batches, others, bound, multiplier, epochs):
    last = 0.0
    for _ in range(epochs):
        one_epoch(model, optimizer, batches, bound, multiplier, 256)
        score = accuracy(model, others)
        if score < last:  # <- doubt private-selection
            break
        last = score


def right_torch(model, optimizer, batches, public_records, bound, multiplier, epochs):
    best, kept = 0.0, None
    for _ in range(epochs):
        one_epoch(model, optimizer, batches, bound, multiplier, 256)
        score = accuracy(model, DataLoader(public_records))
        if score > best:
            best, kept = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


def right_opacus(model, optimizer, loader, test, epochs, delta, cap):
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            if step % 100 == 0:
                torch.save(model.state_dict(), "last.pt")
        spent = engine.get_epsilon(delta)
        print(epoch, spent, accuracy(model, test))
        if spent > cap:
            break
