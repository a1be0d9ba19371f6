import pytest

from privet.errors import InputError
from privet.studies.robust_private import measuring
from privet.studies.robust_private.protocol import Protocol, chosen_examples, on_both_scales


def test_the_papers_scale_is_twice_as_wide():
    assert on_both_scales(0.1) == "0.1 (0.2 on [-1, 1])"


def test_attacks_are_as_asked():
    made = Protocol(attacks=("fgsm", "ifgsm", "mim", "pgd"), steps=7, eot=25, restarts=3).configured
    assert [one.name for one in made] == ["fgsm", "ifgsm", "mim", "pgd"]
    assert {(one.norm, one.eot) for one in made} == {("linf", 25)}
    assert [getattr(one, "steps", None) for one in made] == [None, 7, 7, 7]
    assert made[3].restarts == 3


def test_examples_are_spread_evenly(digits):
    x, y = chosen_examples(digits, 10)
    rows = [0, 40, 80, 120, 160, 199, 239, 279, 319, 359]
    assert y.tolist() == digits.test.y[rows].tolist()
    assert float(x.max()) <= 1.0
    assert len(chosen_examples(digits, None)[0]) == len(chosen_examples(digits, 9999)[0]) == 360


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eot": 5}, "at least 20"),
        ({"attacks": ()}, "bad attacks"),
        ({"attacks": ("pgd", "pgd")}, "each one once"),
        ({"attacks": ("pdg",)}, "did you mean 'pgd'"),
        ({"sizes": (0.2, 0.1)}, "ascending"),
        ({"sizes": (0.0,)}, "above 0"),
        ({"radii": (float("inf"),)}, "finite"),
        ({"scale": -1.0}, "scale|sigma"),
        ({"alpha": 0.0}, "alpha"),
        ({"n": 0}, "bad n"),
        ({"examples": 0}, "bad examples"),
        ({"restarts": 0}, "bad restarts"),
    ],
)
def test_bad_terms_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        Protocol(**changes)


def test_the_precision_of_certificates_is_among_what_decides_on_them():
    """Else a study would take those of another precision from an earlier run for its own."""
    usual, coarse = Protocol(), Protocol(precision="tf32")
    assert coarse.certifying == usual.certifying | {"precision": "tf32"}
    assert usual.certifying == Protocol(precision="float32").certifying != coarse.certifying
    assert coarse.attacking == usual.attacking
    assert coarse.to_json()["certifying"]["precision"] == "tf32"


@pytest.mark.parametrize(
    ("precision", "last"), [("float32", False), ("tf32", True), ("bf16", True)]
)
def test_the_certifier_is_told_the_precision(monkeypatch, digits, precision, last):
    told = {}

    def certifier(*_, **given):
        told.update(given)
        raise InputError("enough is known")

    monkeypatch.setattr(measuring, "certify", certifier)
    asked = Protocol(precision=precision, examples=4)
    found, _ = measuring.by_smoothing(None, digits, asked, lambda _: None)
    assert "enough is known" in found["why"]
    assert (told["precision"], told["channels_last"]) == (precision, last)
