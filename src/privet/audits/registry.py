"""All that can be audited by name: sound mechanisms, mutants, federations, published mechanisms."""

import difflib

from privet.audits.federated import FEDERATED
from privet.audits.federated_mutants import FEDERATED_MUTANTS
from privet.audits.lifetimes import LIFETIMES
from privet.audits.mechanism import Entry, Subject
from privet.audits.mutant_pairs import MUTANTS
from privet.audits.papers import PAPERS
from privet.audits.sound import SOUND
from privet.audits.whole_lives import WHOLE
from privet.errors import InputError


def subjects() -> dict[str, Entry]:
    """All, by name; nothing is made before `Entry.make` is called."""
    return {
        **SOUND,
        **MUTANTS,
        **FEDERATED,
        **FEDERATED_MUTANTS,
        **LIFETIMES,
        **WHOLE,
        **PAPERS,
    }


def find_subject(name: str) -> Subject:
    """A subject by name; an unknown one is bad input."""
    known = subjects()
    if name in known:
        return known[name].make()
    near = difflib.get_close_matches(str(name).lower(), known, n=1)
    raise InputError(
        "unknown mechanism",
        got=repr(name),
        expected=f"one of {', '.join(known)}",
        fix=f"did you mean '{near[0]}'?" if near else "",
    )
