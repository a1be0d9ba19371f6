import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from privet.lifelong.stream import Stream, Task

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_up_images import image_data


@pytest.fixture(autouse=True)
def _one_thread():
    """Small products wait for one another on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def lights():
    """A stream of small images, two classes: the light is above, or below; pixels permuted."""

    def make(sizes=(48, 48, 48), side=6, seed=0, **changes):
        rng, tasks = np.random.default_rng(seed), []
        for number, n in enumerate(sizes):
            y = np.arange(n) % 2
            x = rng.uniform(0.0, 0.4, (n, 1, side, side)).astype(np.float32)
            x[y == 0, :, : side // 2] += 0.5
            x[y == 1, :, side // 2 :] += 0.5
            order = rng.permutation(side * side)
            x = x.reshape(n, -1)[:, order].reshape(x.shape)
            name = f"lights/{number}"
            data = image_data(name, x, y.astype(np.int64), ("above", "below"), **changes)
            tasks.append(Task(name=str(number), data=data))
        return Stream(name="lights", tasks=tuple(tasks), shared=False)

    return make
