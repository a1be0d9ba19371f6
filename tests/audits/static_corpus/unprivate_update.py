"""Snippets for a rule; parsed, never run. A mistake is marked by `<-`."""

import torch
from opacus import PrivacyEngine
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.functional import cross_entropy


def broken_torch(encoder, critic, batches, bound, multiplier, expected):
    encoding = torch.optim.Adam(encoder.parameters())
    judging = torch.optim.Adam(critic.parameters())
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in critic.parameters()]
        for one, label in zip(x, y):
            critic.zero_grad()
            cross_entropy(critic(encoder(one[None])), label[None]).backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), bound)
            for s, p in zip(sums, critic.parameters()):
                s += p.grad
        for s, p in zip(sums, critic.parameters()):
            p.grad = (s + multiplier * bound * torch.randn_like(p)) / expected
        judging.step()
        encoding.step()  # <- wrong unprivate-update


def broken_opacus(encoder, head, loader):
    first = torch.optim.SGD(encoder.parameters(), lr=0.1)
    second = torch.optim.SGD(head.parameters(), lr=0.1)
    engine = PrivacyEngine()
    head, second, loader = engine.make_private(
        module=head, optimizer=second, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for x, y in loader:
        cross_entropy(head(encoder(x)), y).backward()
        first.step()  # <- wrong unprivate-update
        second.step()


def right_torch(encoder, critic, batches, bound, multiplier, expected):
    params = [*encoder.parameters(), *critic.parameters()]
    both = torch.optim.Adam(params)
    for x, y in batches:
        sums = [torch.zeros_like(p) for p in params]
        for one, label in zip(x, y):
            both.zero_grad()
            cross_entropy(critic(encoder(one[None])), label[None]).backward()
            torch.nn.utils.clip_grad_norm_(params, bound)
            for s, p in zip(sums, params):
                s += p.grad
        for s, p in zip(sums, params):
            p.grad = (s + multiplier * bound * torch.randn_like(p)) / expected
        both.step()


def right_opacus(generator, critic, loader):
    making = torch.optim.Adam(generator.parameters())
    judging = torch.optim.Adam(critic.parameters())
    engine = PrivacyEngine()
    critic, judging, loader = engine.make_private(
        module=critic, optimizer=judging, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )  # fmt: skip
    for real, _ in loader:
        fake = generator(torch.randn(64, 32)).detach()
        loss = bce(critic(real), torch.ones(len(real))) + bce(critic(fake), torch.zeros(64))
        loss.backward()
        judging.step()
        invented = generator(torch.randn(real.shape[0], 32))
        bce(critic(invented), torch.ones(64)).backward()
        making.step()
