"""Synthetic patient records: generators, and what tells how good and how private they are.

    records = privet.data.records.load_records("simulator")
    release = privet.synthesis.fit("autoregressive", records, epsilon=1.5, delta=1e-5)
    for chunk in privet.synthesis.sample(release, 1000, where=["age>=60"]): ...
    privet.synthesis.evaluate(real_train, real_test, synthetic)

Names are loaded on first use: each needs other heavy packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.synthesis.evaluation import evaluate as evaluate
    from privet.synthesis.evaluation import render_fidelity_report as render_fidelity_report
    from privet.synthesis.fitting import fit as fit
    from privet.synthesis.sampling import sample as sample

_HOMES = {
    "evaluate": "privet.synthesis.evaluation",
    "fit": "privet.synthesis.fitting",
    "render_fidelity_report": "privet.synthesis.evaluation",
    "sample": "privet.synthesis.sampling",
}

__all__ = ["evaluate", "fit", "render_fidelity_report", "sample"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'privet.synthesis' has no attribute '{name}'")
