"""Your model, your optimiser, your loop: `make_private` supplies the private steps."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import privet


def build() -> nn.Module:
    torch.manual_seed(0)  # the first weights may be known to all
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


with tempfile.TemporaryDirectory() as folder:
    ledger = privet.Ledger(Path(folder) / "ledger.db")
    data = privet.data.load("digits")
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    trainer = privet.make_private(
        model, optimizer, data,
        epsilon=3.0, delta=1e-5, batch=256, epochs=15, ledger=ledger, label="my loop",
    )  # fmt: skip
    for batch in trainer.batches():
        trainer.step(batch)
        if trainer.next_step % 20 == 0:
            spent = trainer.plan.running_epsilon(trainer.next_step)
            print(f"step {trainer.next_step}: epsilon so far {spent:.2f}")

    release = privet.hand_over(trainer, data)  # closes the run in the ledger
    release.save(Path(folder) / "mine")
    print(release.privacy)
    print(f"test accuracy: {release.trust['utility']['test_accuracy']:.3f}")

    privet.load(Path(folder) / "mine", model=build())  # a model of yours must be built by you
    ledger.close()
