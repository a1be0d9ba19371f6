"""Settings of contenders on known streams; see `robust_private.choices` for keys and layers.

Permuted images of 28x28: features of `l2dp-objective` were tried at epsilon 2 on 20 tasks of
MNIST's training images, judged by other training images, under permutations that no study's seed
has (of the shared stream: on images that are not in it). Disjoint tasks were best with 1,024
directions, of five settings; shared ones, each charged 20 times, with 256, of eight: so much noise
leaves less to be told apart. Who goes by steps has `mlp`, the same for all, untuned: where pixels
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
