"""A made-up table: learn its public facts privately, train within a cap, verify."""

import csv
import tempfile
from pathlib import Path

import numpy as np

import privet
from privet.data.declaring import declare

rng = np.random.default_rng(0)
with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    with (here / "clinic.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "pressure", "outcome"])
        for _ in range(4000):
            age, pressure = rng.integers(18, 95), rng.normal(125, 18)
            ill = 0.06 * (age - 55) + 0.05 * (pressure - 125) + rng.normal() > 0
            table.writerow([age, round(pressure), "ill" if ill else "healthy"])

    ledger = privet.Ledger(here / "ledger.db")
    ledger.open_account("clinic")
    ledger.cap("clinic", epsilon=4.0, delta=1e-5)  # before anything about the records is known
    facts = declare(
        here / "clinic.csv", here / "clinic.toml", name="clinic", label="outcome",
        classes=("healthy", "ill"), features={"age": (0.0, 110.0), "pressure": None}, bounds=None,
        nominal_size=None, test_fraction=0.2, learn_epsilon=0.5, ledger=ledger,
    )  # fmt: skip
    print(f"learned: size {facts.nominal_size}, pressure in {facts.features['pressure']}")

    data = privet.data.load(here / "clinic.toml")
    release = privet.train("dpsgd", data, epsilon=2.0, out=here / "run", epochs=10, ledger=ledger)
    assert release.privacy is not None
    print(f"epsilon {release.privacy.epsilon:.3f}, the learned facts included")
    print(f"spent of the cap: {ledger.account('clinic').spent_epsilon:.3f}")
    print(f"verified: {privet.verify(here / 'run', ledger=ledger).ok}")
    ledger.close()
