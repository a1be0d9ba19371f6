"""Small networks of all members, on a few simulated stays."""

import torch

from privet.data.records.coding import coded_dataset
from privet.data.records.simulator import simulate
from privet.synthesis.fitting import METHODS
from privet.training.dpsgd import model_and_optimizer

RECORDS = simulate(24, seed=4)
DATA = coded_dataset(RECORDS)
SIZES = {"gru": "gru-16-1-4", "transformer": "transformer-16-1-4"}
MEMBERS = [name for name in METHODS if name != "autoregressive"]
BOTH = [
    (name, phase)
    for name in MEMBERS
    for phase in ("coders", "critics")
    if (name, phase) not in {("vae", "critics"), ("gan", "coders")}
]


def settings_of(name, **changes):
    settings = METHODS[name].under("sound").settings
    coder = "transformer" if name == "igamt" else "gru"
    given = {"epsilon": 5.0, "model": SIZES[coder], "epochs": 2.0, "batch": 8, "free_batch": 8}
    return settings(**given | changes).filled_for(DATA)


def made(name, phase=None, **changes):
    """Settings, and what is trained with its optimiser; weights are off their start."""
    settings = settings_of(name, **changes)
    model, optimizer = model_and_optimizer(DATA, settings, torch.device("cpu"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.networks.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.phase = phase or model.phases[0]
    return settings, model, optimizer


def batch(chosen=slice(None)):
    x = torch.from_numpy(DATA.train.x[chosen]).float() / 255
    return x, torch.zeros(len(x), dtype=torch.long)


def give_gradients(model, size=1e-3, seed=0):
    """As the engine would: something private in every trained parameter."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = size * torch.randn(parameter.shape, generator=generator)
