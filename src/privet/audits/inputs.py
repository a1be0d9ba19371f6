"""Canaries that are records: made-up or public examples with labels that nothing else teaches.

| kind          | an example                                     | its label                   |
|---------------|------------------------------------------------|-----------------------------|
| `noise`       | uniform noise within the bounds                | drawn                       |
| `blank`       | all at the lower bound                         | drawn                       |
| `mislabelled` | one of the public test set                     | not its own, drawn          |

None of them is taken from the training records: what an audit says of them tells nothing about
those. A model that has learned such a label was taught it by the canary itself.
"""

from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Dataset
from privet.errors import InputError

KINDS: Final = ("noise", "blank", "mislabelled")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class InputCanaries:
    """Examples in [0, 1] with labels; `included` says which take part, by fair coins."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    included: NDArray[np.bool_]

    @classmethod
    def drawn(cls, kind: str, m: int, data: Dataset, rng: np.random.Generator) -> Self:
        """`m` canaries of one kind that fit the data."""
        if kind not in KINDS:
            raise InputError("unknown canaries", got=f"'{kind}'", expected=", ".join(KINDS))
        if m < 1:
            raise InputError("bad number of canaries", got=m, expected="at least 1")
        make = _mislabelled if kind == "mislabelled" else _made_up
        x, y = make(kind, m, data, rng)
        return cls(x=x, y=y, included=rng.random(m) < 0.5)

    def __len__(self) -> int:
        return len(self.y)


def _made_up(
    kind: str, m: int, data: Dataset, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if kind == "blank" and m > 1:
        raise InputError(
            "blank canaries are all the same",
            got=f"{m} of them",
            expected="1, in many runs",
            fix="canaries of another kind for one run",
        )
    shape = (m, *data.shape)
    x = np.zeros(shape) if kind == "blank" else rng.random(shape)
    return x.astype(np.float32), rng.integers(0, len(data.classes), m)


def _mislabelled(
    kind: str, m: int, data: Dataset, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if not data.test_is_public:
        raise InputError(
            "private test records make no canaries",
            got=f"data set '{data.name}'",
            fix="--canary noise",
        )
    if m > len(data.test):
        raise InputError(
            "too many mislabelled canaries",
            got=m,
            expected=f"at most {len(data.test)}, the test examples",
        )
    chosen = rng.permutation(len(data.test))[:m]
    others = rng.integers(1, len(data.classes), m)
    x = data.bounds.clamp_and_scale(data.test.x[chosen])
    return x, (data.test.y[chosen] + others) % len(data.classes)
