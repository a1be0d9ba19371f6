"""Settings of methods on known data sets, by the names that `--methods` takes; see `choices`.

What is not here has the method's own defaults. A key may be `all`, `METHOD`, `METHOD:ANALYSIS`,
each also for one budget alone: `METHOD@EPSILON`.
"""

from collections.abc import Mapping
from typing import Any, Final

SMALL: Final = ("0.05", "0.1", "0.2", "0.4", "0.5")  # budgets at which fixed features do better


def _recipes(method: str, usual: str, small: str) -> dict[str, dict[str, str]]:
    return {method: {"recipe": usual}, **{f"{method}@{e}": {"recipe": small} for e in SMALL}}


SETTINGS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "mnist": {
        **_recipes("dpsgd", "mnist", "mnist-small-epsilon"),
        **_recipes("stobatch", "mnist-robust", "mnist-robust-small-epsilon"),
        **_recipes("dpal", "mnist-robust", "mnist-robust-small-epsilon"),
    },
    "fashion-mnist": {"dpsgd": {"recipe": "fashion-mnist"}},
    "cifar10": {"dpsgd": {"recipe": "cifar10"}},
}
