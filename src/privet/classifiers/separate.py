"""Whether a classifier treats the rows of a batch apart.

Votes of one forward batch count as independent draws. They are not, where a row's scores depend on
the rows beside it (normalisation by the batch), or where one draw of the model's own noise serves a
whole call.
"""

from typing import Final

import torch
from torch import Tensor

from privet.classifiers.classifier import Classifier
from privet.errors import InputError

ROWS: Final = 8
CALLS: Final = 24  # a coin that is thrown once a call shows both sides, but for one time in 10^7
MOVED: Final = 1e-3  # of the largest score: far above rounding


@torch.no_grad()
def require_rows_apart(classifier: Classifier) -> None:
    """Refuse what is seen, on made-up inputs, to mix rows or to share its draws among them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, *classifier.shape, generator=generator).to(classifier.device)
    alike = x[:1].expand_as(x).contiguous()
    calls = torch.stack([classifier.scores(alike) for _ in range(CALLS)])
    spread = (calls - calls[:1, :1]).abs().amax()
    within = (calls - calls[:, :1]).abs().amax()
    far = MOVED * calls.abs().amax()
    if spread > far:
        if within <= far:
            raise InputError(
                "one draw of the model serves a whole batch",
                got="equal rows that agree within a call and differ between calls",
                expected="a draw of its own for every row: votes must be independent",
                fix="draw noise of the shape of the batch",
            )
        _require_apart_under_one_seed(classifier, x, far)
        return
    if (classifier.scores(_others(x))[0] - classifier.scores(x)[0]).abs().amax() > far:
        raise _mixing()


def _require_apart_under_one_seed(classifier: Classifier, x: Tensor, far: Tensor) -> None:
    """Of what draws by PyTorch's generators; what has a generator of its own is not repeatable."""

    def seeded(rows: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return classifier.scores(rows)[0]

    repeats = (seeded(x) - seeded(x)).abs().amax() <= far
    if repeats and (seeded(_others(x)) - seeded(x)).abs().amax() > far:
        raise _mixing()


def _others(x: Tensor) -> Tensor:
    """The first input, beside others than in x."""
    return (1.0 - x).index_copy(0, torch.zeros(1, dtype=torch.int64, device=x.device), x[:1])


def _mixing() -> InputError:
    return InputError(
        "the classifier mixes the rows of a batch",
        got="scores of an input that change with the inputs beside it",
        expected="scores that depend on their own input alone",
        fix="normalise by fixed statistics",
    )
