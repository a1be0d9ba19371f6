"""Networks, records and releases for tests of what phones are given."""

import numpy as np
import torch

from privet.data.dataset import Bounds
from privet.federation.local_work import Material
from privet.federation.on_device.handed import Handed
from privet.models import create

SHAPES = {"har-wild-32": (3, 100), "har-wild-64": (3, 100), "sentiment-head": (768,)}
BATCH = 20


def handed(name, shape, classes=3, *, work=None, seed=0):
    """A network with its first weights."""
    return Handed(
        model=name,
        network=create(name, shape, classes, init_seed=seed),
        shape=shape,
        classes=tuple(f"class {i}" for i in range(classes)),
        bounds=Bounds(low=(0.0,), high=(1.0,)),
        work=work,
        source="made up",
    )


def records(name, n=70, classes=3, seed=5):
    """Records of one client whose labels can be learnt."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.uniform(0, 1, (n, *SHAPES[name])).astype(np.float32)
    x[..., ::2] *= (0.3 + 0.7 * y / classes).reshape(-1, *[1] * len(SHAPES[name]))
    rows = np.arange(n)
    return Material(
        x=torch.from_numpy(x),
        y=torch.from_numpy(y),
        clients=[rows],
        pool=np.array([], dtype=np.int64),
        classes=classes,
    )
