"""Users with 1 to 30 records each: all records of a user are protected as one."""

import tempfile
from pathlib import Path

import numpy as np

import privet
from privet.data import Bounds, Dataset, Split

rng = np.random.default_rng(0)


def made_up(users: int) -> Split:
    """Readings of wristbands; every user has habits, so the records of one are alike."""
    units = np.repeat(np.arange(users), rng.integers(1, 31, users))
    habits = rng.normal(0, 1, (users, 6))
    x = habits[units] + rng.normal(0, 1, (len(units), 6))
    y = (x[:, :3].sum(1) > x[:, 3:].sum(1)).astype(np.int64)
    return Split(x=x, y=y, units=units)  # units: whose each record is, 0, 1, 2, ...


data = Dataset(
    name="wristbands",
    train=made_up(2000),
    test=made_up(200),  # other users, of whom all is public here
    bounds=Bounds(low=(-4.0,), high=(4.0,)),
    classes=("at rest", "moving"),
    nominal_size=2000,  # users, not records
    unit="user",
    test_is_public=True,
    licence="none",
    source="made up",
)

with tempfile.TemporaryDirectory() as folder:
    ledger = privet.Ledger(Path(folder) / "ledger.db")
    # A step uses at most 4 random records of a user; their mean gradient is clipped as one. More
    # would cost time and nothing else: the guarantee is for all of a user's records in any case.
    release = privet.train(
        "dpsgd", data, epsilon=2.0, contribution=4, model="linear", epochs=5, ledger=ledger
    )
    assert release.privacy is not None
    print(f"{len(data.train)} records of {data.train.n_units} users")
    print(f"one {release.privacy.unit}: epsilon {release.privacy.epsilon:.3f}")
    print(f"records of one user in a step: {release.trust['mechanism']['contribution']}")
    print(f"test accuracy: {release.trust['utility']['test_accuracy']:.3f}")
    ledger.close()
