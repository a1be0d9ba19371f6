"""Adversarial rows: what makes them may look at one row, the weights, and draws of that row.

An adversary replaces each row that a unit contributes by rows which the model, as it is now, finds
hard. The engine gives it the model's scores as a function, and takes care of the rest: the model is
scored in evaluation mode, so that nothing is drawn or remembered on the way; its modes come back;
gradients are taken with respect to inputs alone, so that none lands in a weight; and the draws come
from the generator of the step, so that a redone step repeats them.

Guarantee: an adversary leaves the privacy of a step as it is.

Proof. Before a step, the weights are a function of earlier private sums: given those, they are a
constant. What an adversary makes of row r is a function of the row (its label too), of this
constant and of the draws of row r. The draws of all rows are independent and distributed alike, so
one may suppose that each unit brings its own. Given them, the rows of a unit are a function of that
unit alone, and so is their weighted gradient; clipped as one, it is no longer than C. Removing a
unit removes its rows, changes no other, and moves the clipped sum by at most C: what the step
accounts.

The proof needs rows that do not meet. Scores of a model that treats examples apart do not mix them;
what an adversary does with the scores is tried out by `require_adversary`. How many rows there are
is private, too, and moves with a unit: a mean over them would tell. So a private step gives an
adversary always the same number of rows. What it keeps from one call to the next is not noticed.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from privet.engine.examples import Rows
from privet.errors import InputError
from privet.privacy.precision import FULL, Precision
from privet.privacy.probing import exact, make_up_weights, undisturbed
from privet.privacy.separation import TWINS, drawn_together

Scores = Callable[[Tensor], Tensor]
"""Inputs to class scores, (n, *shape) -> (n, classes); autograd goes through."""

SEEDS: Final = 8  # under which it is tried: it may mix at times only
MOVED: Final = 1e-4  # a row that another one has moved, and not rounding


class Adversary(Protocol):
    """Makes hard rows of each row; nothing of one row enters what is made of another."""

    @property
    def shares(self) -> tuple[float, ...]:
        """What each row that is made counts in the place of the first; they add up to one."""

    def __call__(self, scores: Scores, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """(n, *shape) -> (n * k, *shape) for k shares: rows i * k and following are made of i."""


def attacked(
    rows: Rows,
    adversary: Adversary,
    model: nn.Module,
    generator: torch.Generator,
    precision: Precision = FULL,
    *,
    block: int | None = None,
) -> Rows:
    """The rows that the adversary makes of these, given `block` at a time (see `Rows.in_blocks`).

    The model is afterwards what it was.
    """
    device = rows.x.device

    def scores(inputs: Tensor) -> Tensor:
        with precision.passes(device):
            found: Tensor = model(inputs.clone())  # the model may work in place
        return found.float() if precision.halves else found

    with _evaluating(model), precision.products(device):
        made = rows.in_blocks(lambda x, y: adversary(scores, x, y, generator), block)
    return rows.shared_out(made.detach(), adversary.shares)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Neither dropout nor a running mean while scores are taken; then every mode as before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def require_adversary(adversary: Adversary, model: nn.Module, probe: tuple[Tensor, Tensor]) -> None:
    """Refuse one that mixes examples, or that cannot attack this model.

    Tried on made-up inputs and weights: a last layer of zeros would hide what is below it.
    """
    shares = getattr(adversary, "shares", None)
    if not callable(adversary) or not _are_shares(shares):
        raise InputError(
            "no adversary",
            got=type(adversary).__name__,
            expected="a callable (scores, x, y, generator) -> rows with `shares` that add up to 1",
            fix="see privet.training.adversarial.Madry",
        )
    x, y = probe
    with undisturbed(model), exact():
        make_up_weights(model)
        for seed in range(SEEDS):
            _require_rows_apart(adversary, model, x, y, seed)
        twins = x[:1].repeat(TWINS, *[1] * (x.dim() - 1)), y[:1].repeat(TWINS)
        if drawn_together(lambda seed: _tried(adversary, model, *twins, seed)):
            raise InputError(
                "the adversary draws random numbers that examples share",
                got="rows of identical examples that vary together from seed to seed",
                expected="draws of its own for every row: one example more moves others to another"
                " block, under other draws",
                fix="draw row by row",
            )


def _require_rows_apart(
    adversary: Adversary, model: nn.Module, x: Tensor, y: Tensor, seed: int
) -> None:
    """Change one row, its label too, and see whether another one's rows move."""
    before = _tried(adversary, model, x, y, seed)
    for row in range(len(x)):
        others = torch.arange(len(x), device=x.device) != row
        changed = torch.where(others.view(-1, *[1] * (x.dim() - 1)), x, 1.0 - x)
        after = _tried(adversary, model, changed, torch.where(others, y, y[row - 1]), seed)
        if ((after - before)[others].abs() > MOVED).any():
            raise InputError(
                "the adversary mixes examples",
                got="rows that move when another example changes",
                expected="what is made of a row depends on that row alone",
                fix="normalise, draw and project row by row; add losses up, not their mean",
            )


def _are_shares(shares: object) -> bool:
    if not isinstance(shares, tuple) or not shares:
        return False
    return all(share > 0 for share in shares) and math.isclose(sum(shares), 1.0)


def _tried(adversary: Adversary, model: nn.Module, x: Tensor, y: Tensor, seed: int) -> Tensor:
    """What it makes of some rows, by row."""
    generator = torch.Generator(x.device).manual_seed(seed)
    made = attacked(Rows(x=x.clone(), y=y), adversary, model, generator).x
    k = len(adversary.shares)
    if made.shape != (len(x) * k, *x.shape[1:]):
        raise InputError(
            "the adversary does not return its rows",
            got=f"shape {tuple(made.shape)}",
            expected=f"{(len(x) * k, *x.shape[1:])} for {len(x)} examples",
        )
    return made.reshape(len(x), k, *x.shape[1:])
