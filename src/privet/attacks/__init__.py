"""Adversarial attacks on any classifier: one attack, one file."""

from privet.attacks.attack import Attack
from privet.attacks.registry import ATTACKS, create
from privet.attacks.result import AttackResult
from privet.attacks.sweep import attack

__all__ = ["ATTACKS", "Attack", "AttackResult", "attack", "create"]
