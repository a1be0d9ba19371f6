import pytest

from privet.attacks import ATTACKS
from privet.errors import InputError
from privet.studies.attack_parity.contests import BUDGETS, SIZES, contests


def test_every_attack_of_ours_meets_its_peers_in_every_norm_that_they_share():
    """linf and l2; AutoAttack is a peer's code itself."""
    found = [(c.attack, c.norm) for c in contests("mnist", list(BUDGETS))]
    assert found == [
        (name, norm)
        for name, kind in ATTACKS.items()
        if name != "autoattack"
        for norm in ("linf", "l2")
        if norm in kind.norms
    ]


def test_budgets_are_settings_of_the_attacks_and_reach_them():
    for contest in contests("digits", list(BUDGETS)):
        ours = contest.ours()
        assert ours.norm == contest.norm
        assert {name: getattr(ours, name) for name in contest.budget} == contest.budget
        assert contest.size == SIZES["digits"][contest.norm]
        assert contest.minimal == (contest.attack in ("cw", "deepfool"))


@pytest.mark.parametrize(
    ("data", "attacks", "said"),
    [
        ("mnist", ["pgd", "bim"], "unknown attacks: got bim"),
        ("mnist", [], "unknown attacks: got none"),
        ("cifar10", ["pgd"], "no sizes for these data: got 'cifar10', expected digits or mnist"),
    ],
)
def test_bad_requests_are_refused(data, attacks, said):
    with pytest.raises(InputError, match=said):
        contests(data, attacks)
