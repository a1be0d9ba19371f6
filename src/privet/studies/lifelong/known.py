"""Settings of contenders on known streams; see `robust_private.choices` for keys and layers.

Permuted images of 28x28: `cosines-2-1024` was the best of five on training images of MNIST that
were tested on other training images, under permutations of their own (44 % against 42 % with the
method's default, at epsilon 2, tasks of 2,500). Who goes by steps has `mlp`, the same for all:
where pixels are permuted, convolutions have nothing to hold on to.
"""

from collections.abc import Mapping
from typing import Any, Final

from privet.studies.lifelong.contenders import STEPWISE

Settings = Mapping[str, Mapping[str, Any]]

_PERMUTED: Final[Settings] = {
    "l2dp-objective": {"model": "cosines-2-1024"},
    **{name: {"model": "mlp"} for name in STEPWISE},
}
SETTINGS: Final[Mapping[str, Settings]] = {
    "permuted-mnist": _PERMUTED,
    "permuted-fashion-mnist": _PERMUTED,
}
