import os

# Some virtual machines announce AMX and lack it: bfloat16 products would end the process. To be set
# before PyTorch is first imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Test processes side by side have a core each: more threads would only wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from privet.data.dataset import Bounds, Dataset, Split


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    """No test touches the user's ledger."""
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path / "home"))


@pytest.fixture
def make_data():
    """Small made-up data: two classes that a linear model can tell apart."""

    def make(n=80, seed=0, **changes):
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        x = rng.uniform(0, 1, size=(n, 4)).astype(np.float32)
        x[:, 0] = np.where(y == 1, 0.9, 0.1) + rng.normal(0, 0.05, n)
        x = np.clip(x, 0, 1).astype(np.float32)
        facts = {
            "name": "made-up",
            "train": Split(x=x, y=y.astype(np.int64)),
            "test": Split(x=x[:20], y=y[:20].astype(np.int64)),
            "bounds": Bounds(low=(0.0,), high=(1.0,)),
            "classes": ("no", "yes"),
            "nominal_size": n,
            "licence": "none",
            "source": "made up",
            "test_is_public": True,
        }
        return Dataset(**(facts | changes))

    return make
