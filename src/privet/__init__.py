"""Privet: train on sensitive data and release the result with proof.

    import privet

    data = privet.data.load("digits")
    release = privet.train("dpsgd", data, epsilon=3.0, delta=1e-5)
    release.privacy  # Privacy(epsilon=2.99..., delta=1e-05, ..., basis='proved')
    release.predict(data.test.x)
    release.save("runs/digits")

Names are loaded on first use, so that `import privet` and `privet --help` are instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet import data as data
    from privet import federation as federation
    from privet import models as models
    from privet import synthesis as synthesis
    from privet.attacks import attack as attack
    from privet.audits.twin import audit as audit
    from privet.certification import certify as certify
    from privet.engine.handover import hand_over as hand_over
    from privet.engine.plan import Plan as Plan
    from privet.engine.prepare import Extras as Extras
    from privet.engine.prepare import make_private as make_private
    from privet.ledger import Ledger as Ledger
    from privet.release import Release as Release
    from privet.training import train as train
    from privet.tuning import tune as tune
    from privet.verification import verify as verify

    load = Release.load

_HOMES = {
    "Extras": "privet.engine.prepare",
    "Ledger": "privet.ledger",
    "Plan": "privet.engine.plan",
    "Release": "privet.release",
    "attack": "privet.attacks",
    "audit": "privet.audits.twin",
    "certify": "privet.certification",
    "hand_over": "privet.engine.handover",
    "make_private": "privet.engine.prepare",
    "train": "privet.training",
    "tune": "privet.tuning",
    "verify": "privet.verification",
}
_ROOMS = ("data", "federation", "models", "synthesis")

__all__ = [
    "Extras",
    "Ledger",
    "Plan",
    "Release",
    "attack",
    "audit",
    "certify",
    "data",
    "federation",
    "hand_over",
    "load",
    "make_private",
    "models",
    "synthesis",
    "train",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"privet.{name}")
    if name == "load":
        return import_module("privet.release").Release.load
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'privet' has no attribute '{name}'")
