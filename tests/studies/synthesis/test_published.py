"""Figures of the papers: as they stand there, and as they say of them."""

from privet.studies.synthesis.contenders import BASELINES, CONTENDERS
from privet.studies.synthesis.published import (
    AAAI,
    ACCURACY,
    BY_FEATURE,
    KL,
    OVERALL,
    THESIS_EMORY,
    THESIS_MIMIC,
)


def test_spot_checks():
    assert THESIS_MIMIC["edgamt"] == (5.111574, 0.240675)
    assert THESIS_EMORY["daae"] == (6.439933, 0.390111)
    assert AAAI["igamt"] == (3.97, 0.82)
    assert BY_FEATURE["vaegan"]["heart rate"] == (0.470880, 0.321513)
    assert KL["igamt"][6] == 0.04
    assert ACCURACY == {"real": 80.5, "igamt": 82.0}


def test_igamt_is_first_as_the_papers_say():
    for pairs in OVERALL.values():
        assert min(pairs, key=lambda name: pairs[name][0]) == "igamt"
        assert max(pairs, key=lambda name: pairs[name][1]) == "igamt"
    for feature in ("time", "heart rate", "SBP"):
        assert min(BY_FEATURE, key=lambda name: BY_FEATURE[name][feature][0]) == "igamt"
    best = max(BY_FEATURE, key=lambda name: BY_FEATURE[name]["SBP"][1])
    assert best == "edgamt"  # the one exception that the thesis has


def test_the_steps_of_the_thesis_fall():
    steps = [THESIS_MIMIC[name][0] for name in ("dgat", "dgatt", "dgamt", "edgamt", "igamt")]
    assert steps == sorted(steps, reverse=True)


def test_names_are_contenders():
    for pairs in (*OVERALL.values(), BY_FEATURE, KL):
        assert set(pairs) <= set(CONTENDERS)
    assert all(set(BASELINES) <= set(pairs) for pairs in OVERALL.values())
    assert {len(values) for values in KL.values()} == {10}
