import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from privet.studies.attack_parity.network import Subject, built

# Stands for torchattacks: honest, cheating, broken, slow or dead, by the size it is asked for.
STUB = """
import os, time
import torch
__version__ = "7.7"
print("a library that talks on stdout")

class FGSM:
    def __init__(self, model, eps):
        self.model, self.eps = model, eps

    def __call__(self, x, y):
        print("and again")
        if self.eps == 0.5:
            raise RuntimeError("out of luck")
        if self.eps == 0.6:
            os._exit(3)
        if self.eps == 0.7:
            time.sleep(60)
        x = x.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        (gradient,) = torch.autograd.grad(loss, x)
        reach = 3 * self.eps if self.eps == 0.4 else self.eps
        return (x + reach * gradient.sign()).clamp(0, 1).detach()
"""


@pytest.fixture
def stubs(tmp_path, monkeypatch):
    """A Python whose torchattacks is the stub, and which has neither of the others."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    (folder / "torchattacks.py").write_text(STUB)
    for name in ("foolbox", "art"):
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return SimpleNamespace(python=Path(sys.executable), folder=folder)


@pytest.fixture
def linear():
    """Lead of class 0 = 4 (mean of x - 0.5) + 0.01: everything is known in closed form."""
    layers = [("Flatten", []), ("Linear", [4, 2])]
    model = built(layers)
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.5] * 4, [-0.5] * 4]))
        model[1].bias.copy_(torch.tensor([-0.995, 0.995]))
    model.eval().requires_grad_(False)
    x = torch.linspace(0.3, 0.7, 9)[:, None, None, None].expand(9, 1, 2, 2).contiguous()
    return Subject(model, layers, x, torch.zeros(9).long())
