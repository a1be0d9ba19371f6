"""The thesis's own figures of L2DP-ML: other tasks' sizes, other epochs, other hardware.

They stand beside ours for their order, not for their size: in the usual construction every image is
in all tasks, and epsilon is claimed, and refuted (`privet audit mechanism l2dp-rank`). Average
accuracies are in figures there, of which the text tells differences alone.
"""

from collections.abc import Mapping
from typing import Final

Key = tuple[str, float | None]
"""Contender, and the claimed epsilon."""

_CLAIMED: Final = "l2dp:paper"
_MNIST: Final[Mapping[Key, tuple[float, float]]] = {
    (_CLAIMED, 0.5): (0.305, 0.00886),
    (_CLAIMED, 1.0): (0.278, 0.00907),
    (_CLAIMED, 2.0): (0.237, 0.00586),
    ("agem", None): (0.162, 0.01096),
}
_CIFAR10: Final[Mapping[Key, tuple[float, float]]] = {
    (_CLAIMED, 4.0): (0.033, 0.00896),
    (_CLAIMED, 7.0): (0.062, 0.01508),
    (_CLAIMED, 10.0): (0.034, 0.00184),
    ("agem", None): (0.133, 0.00859),
}
_ACTIVITIES: Final[Mapping[Key, tuple[float, float]]] = {
    (_CLAIMED, 0.2): (0.1133, 0.0003),
    (_CLAIMED, 0.5): (0.1124, 0.00029),
    (_CLAIMED, 1.0): (0.1106, 0.00026),
    ("agem", None): (0.1269, 0.00045),
}
FORGETTING: Final[Mapping[str, Mapping[Key, tuple[float, float]]]] = {
    "permuted-mnist": _MNIST,
    "permuted-cifar10": _CIFAR10,
    "hapt-rates": _ACTIVITIES,
}
"""Average forgetting after the last task, and its spread, by the named stream."""
SAID: Final[Mapping[str, str]] = {
    "permuted-mnist": "after 20 tasks 23.3 points below A-GEM at ε = 0.5; ε = 2 is 9.92 points"
    " above ε = 0.5; 2 and 3 epochs add 2.81 and 4.8",
    "permuted-cifar10": "A-GEM 35.24 %; at ε = 4 16.47 points below it after 1 task, 9.89 after 17",
    "hapt-rates": "of other recordings (HARW): 61.26 % at ε = 0.2, A-GEM 62.27 %",
}
"""What the text tells of accuracies."""
