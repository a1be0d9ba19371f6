"""How good synthetic records are, and what they tell about real ones.

Figures of `evaluate` are computed from real records without charge and stay with their owner;
those of `noisy_short_form` may be released once their event is charged.
"""

from privet.synthesis.evaluation.evaluating import evaluate
from privet.synthesis.evaluation.registry import MEASURES, find_measure
from privet.synthesis.evaluation.report import render_fidelity_report
from privet.synthesis.evaluation.result import FidelityResult
from privet.synthesis.evaluation.short_form import ShortForm, noisy_short_form

__all__ = [
    "MEASURES",
    "FidelityResult",
    "ShortForm",
    "evaluate",
    "find_measure",
    "noisy_short_form",
    "render_fidelity_report",
]
