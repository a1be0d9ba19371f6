import pytest

from privet.attacks import ATTACKS, create
from privet.attacks.registry import OTHER_NAMES, find_attack
from privet.errors import InputError


def test_every_attack_is_found_by_its_name_and_says_what_it_is():
    assert list(ATTACKS) == [
        "fgsm", "ifgsm", "mim", "pgd", "apgd-ce", "apgd-dlr", "cw", "deepfool", "square",
        "autoattack",
    ]  # fmt: skip
    for name, kind in ATTACKS.items():
        assert find_attack(name) is kind
        assert kind.summary
        assert create(name, norm=kind.norms[0]).norm in kind.norms


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pdg", "pgd"),
        ("bim", "ifgsm"),
        ("APGD", "apgd-ce"),
        ("squares", "square"),
        ("advgn", "advgan"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(given, meant):
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        find_attack(given)


def test_the_names_of_networks_that_attack_are_in_the_list():
    with pytest.raises(InputError, match=r"autoattack, .*\(ain, atn, advgan\)"):
        find_attack("foo")


def test_hints_lead_to_attacks_and_hide_none():
    assert set(OTHER_NAMES.values()) <= set(ATTACKS)
    assert not set(OTHER_NAMES) & set(ATTACKS)


def test_an_unknown_setting_is_refused():
    with pytest.raises(InputError, match="unknown setting of fgsm: got steps"):
        create("fgsm", steps=3)


def test_a_norm_that_an_attack_does_not_have_is_refused():
    with pytest.raises(InputError, match="cw does not work in this norm: got l1"):
        create("cw", norm="l1")
