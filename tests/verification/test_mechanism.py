"""Its older rules are tested through `verify`, in tests/test_verification.py."""

import pytest

from privet.verification.mechanism import check_mechanism


def test_nothing_is_said_against_our_cards(sound, against):
    assert against(check_mechanism(sound)) == ""


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("banded", {"noise": "independent"}, "independent noise with 3 bands"),
        ("banded", {"bands": []}, "correlated noise with 0 bands"),
        ("poisson", {"noise": "correlated"}, "correlated noise with 0 bands"),
        ("poisson", {"clipping": {"name": "banana", "numbers": {}}}, "unknown clipping geometry"),
        ("poisson", {"clipping": {"name": "flat", "numbers": {"": 2}}}, "flat clipping has no num"),
        ("poisson", {"contribution": 3}, "3 records of a unit in a step, where each is a unit"),
        ("grouped", {"torch_draws": False}, "PyTorch draws among the records of a unit"),
    ],
)
def test_a_part_that_does_not_go_with_the_others_is_named(card, against, name, change, said):
    changed = card(name)
    changed["mechanism"] |= change
    assert said in against(check_mechanism(changed))


def test_an_independent_twin_of_a_banded_run_is_sound(card, against):
    """The noise of a card may be either, as long as the word and the bands agree."""
    changed = card("banded")
    changed["mechanism"].update(noise="independent", bands=[])
    assert against(check_mechanism(changed)) == ""
