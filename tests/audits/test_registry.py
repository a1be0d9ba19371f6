"""Subjects by name."""

from pathlib import Path

import pytest

from privet.audits.federated import FEDERATED
from privet.audits.federated_mutants import FEDERATED_MUTANTS
from privet.audits.registry import find_subject, subjects
from privet.errors import InputError


def test_every_subject_is_made_under_its_name():
    entries = subjects()
    kinds = [entry.kind for entry in entries.values()]
    assert (kinds.count("sound"), kinds.count("mutant")) == (4, 23)
    for name, entry in entries.items():
        subject = entry.make()
        assert subject.name == name
        kept = name.endswith(("-sound", "-coin", "-forced")) or name in FEDERATED
        keeps_its_claim = entry.kind == "sound" or kept
        assert bool(subject.flaw) != keeps_its_claim
        assert entry.summary.endswith(".")
        assert subject.pair


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean 'reused-noise'"):
        find_subject("reused_noise")


def test_a_known_name_is_found():
    assert find_subject("laplace").name == "laplace"


def test_the_page_tells_of_all_sound_and_broken_ones():
    page = (Path(__file__).parents[2] / "docs" / "methods" / "mutants.md").read_text()
    for name, entry in subjects().items():
        assert entry.kind in ("paper", "lifelong") or f"{name} " in page
        broken = entry.kind == "mutant" or name in FEDERATED_MUTANTS
        assert not broken or f"| `{name}` |" in page
