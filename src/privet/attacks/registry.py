"""Attacks by name: `create("pgd", norm="l2", steps=100)`."""

import difflib
from dataclasses import fields
from typing import Any, Final

from privet.attacks.apgd import APGDCE, APGDDLR
from privet.attacks.attack import Attack
from privet.attacks.autoattack import AutoAttack
from privet.attacks.cw import CW
from privet.attacks.deepfool import DeepFool
from privet.attacks.fgsm import FGSM
from privet.attacks.generated import METHODS, Generated, is_generated
from privet.attacks.ifgsm import IFGSM
from privet.attacks.mim import MIM
from privet.attacks.pgd import PGD
from privet.attacks.square import Square
from privet.errors import InputError

ATTACKS: Final[dict[str, type[Attack]]] = {
    kind.name: kind
    for kind in (FGSM, IFGSM, MIM, PGD, APGDCE, APGDDLR, CW, DeepFool, Square, AutoAttack)
}
# What others call them, where the nearest spelling would mislead.
OTHER_NAMES: Final = {
    "bim": "ifgsm",
    "mifgsm": "mim",
    "apgd": "apgd-ce",
    "c&w": "cw",
    "aa": "autoattack",
}


def find_attack(name: object) -> type[Attack]:
    """An attack by name; an unknown one is bad input."""
    if isinstance(name, str) and name in ATTACKS:
        return ATTACKS[name]
    if is_generated(name):
        return Generated
    given = str(name).lower()
    if given in METHODS:
        raise InputError(
            f"{given} needs a network that is trained for it",
            got="its name alone",
            expected="the folder of one",
            fix=f"privet train {given} --classifier RELEASE --out runs/{given}, then name that",
        )
    near = [OTHER_NAMES[given]] if given in OTHER_NAMES else []
    near = near or difflib.get_close_matches(given, [*ATTACKS, *METHODS], n=1)
    raise InputError(
        "unknown attack",
        got=repr(name),
        expected=f"one of {', '.join(ATTACKS)}, or the folder of a network that attacks"
        f" ({', '.join(METHODS)})",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )


def create(name: str, **settings: Any) -> Attack:
    """A configured attack; a setting that it does not have is bad input."""
    kind = find_attack(name)
    own: dict[str, Any] = {"source": name} if kind is Generated else {}
    known = settings_of(kind) - set(own)
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(
            f"unknown setting of {name}",
            got=", ".join(unknown),
            expected=f"some of {', '.join(sorted(known))}",
        )
    return kind(**own, **settings)


def settings_of(kind: type[Attack]) -> set[str]:
    """Names of what can be set."""
    return {field.name for field in fields(kind)}
