"""DP fine-tuning: a network from public records, adapted to private ones by LoRA.

The digits 0 to 4 play the public records, 5 to 9 the private ones. Only the low-rank parts and the
last layer are trained privately; what is frozen needs no clipping and no noise, and must be public.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import privet
from privet.engine.prepare import Extras
from privet.models.finetune import trainable_report
from privet.models.lora import merge_lora, with_lora


def half(split, digits):
    """The records of five digits, labelled 0 to 4."""
    chosen = np.isin(split.y, digits)
    part = split.part(chosen)
    return replace(part, y=part.y - digits[0])


def pretrained(public) -> nn.Module:
    """An ordinary network, trained without privacy on what anyone may see."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 16, 64), nn.ReLU(), nn.Linear(64, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y = torch.tensor(public.x / 16.0, dtype=torch.float32), torch.tensor(public.y)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model[-1] = nn.Linear(64, 5)  # the private classes are others
    return model


with tempfile.TemporaryDirectory() as folder:
    digits = privet.data.load("digits")
    public, five = half(digits.train, range(5)), range(5, 10)
    private = replace(
        digits, name="late-digits", train=half(digits.train, five), test=half(digits.test, five),
        classes=digits.classes[5:], nominal_size=700,
    )  # fmt: skip

    model = with_lora(pretrained(public), rank=4, targets=["4"], also_train=["6"])
    print(trainable_report(model))
    ledger = privet.Ledger(Path(folder) / "ledger.db")
    trainer = privet.make_private(
        model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.03),
        private, epsilon=3.0, delta=1e-5, batch=350, epochs=30,
        extras=Extras(ema=0.9), ledger=ledger, label="fine-tuning",
    )  # fmt: skip
    for batch in trainer.batches():
        trainer.step(batch)
    release = privet.hand_over(trainer, private)
    print(release.privacy)
    print(f"test accuracy on the private digits: {release.trust['utility']['test_accuracy']:.3f}")
    print(merge_lora(release.model))  # for use elsewhere: plain layers again
    ledger.close()
