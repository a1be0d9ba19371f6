"""Settings of contenders on known streams; see `robust_private.choices` for keys and layers.

Permuted images of 28x28: features of `l2dp-objective` by accuracy on training images of MNIST,
learned from others of them (of the shared stream: from none that are in it), under permutations of
their own, at epsilon 2, after 20 tasks. Disjoint tasks of 2,500: 44 % with 1,024 directions, 42 %
with 512. Shared tasks of 3,000, each charged 20 times: 25 % with 256 directions, 24 % with 512; so
much noise leaves less to be told apart. Who goes by steps has `mlp`, the same for all: where pixels
are permuted, convolutions have nothing to hold on to.
"""

from collections.abc import Mapping
from typing import Any, Final

from privet.studies.lifelong.contenders import HERO, STEPWISE

Settings = Mapping[str, Mapping[str, Any]]

_STEPWISE: Final[Settings] = {name: {"model": "mlp"} for name in STEPWISE}
_DISJOINT: Final[Settings] = {HERO: {"model": "cosines-2-1024"}, **_STEPWISE}
_SHARED: Final[Settings] = {HERO: {"model": "cosines-2-256"}, **_STEPWISE}
SETTINGS: Final[Mapping[str, Mapping[bool, Settings]]] = {
    "permuted-mnist": {False: _DISJOINT, True: _SHARED},
    "permuted-fashion-mnist": {False: _DISJOINT, True: _SHARED},
}
"""By the name of a stream, and whether it is shared."""
