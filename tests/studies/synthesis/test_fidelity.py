"""The seven measures are those of the evaluation, and point the way that it says."""

import pytest

from privet.studies.synthesis.fidelity import ENOUGH, SEVEN, measures_with
from privet.synthesis.evaluation.registry import MEASURES, find_measure


def test_they_were_named_beforehand():
    """Whoever changes this list after figures of `igamt` exist has chosen afterwards."""
    assert [(one.name, one.key, one.higher) for one in SEVEN] == [
        ("cluster distance", "clusters.minkowski_sum", False),
        ("cluster cosine", "clusters.cosine_mean", True),
        ("KL by column", "marginals.mean_kl_real_other", False),
        ("empty cells", "missing-rates.mean_cells_error", False),
        ("elapsed time", "timing.gap", False),
        ("correlations", "dependence.rows_mean", False),
        ("accuracy", "classes-of.percent", True),
    ]
    assert ENOUGH == 5
    assert all(one.why for one in SEVEN)


@pytest.mark.parametrize("one", SEVEN, ids=lambda one: one.name)
def test_the_evaluation_says_the_same_is_best(one):
    """0 is best where less is better, 1 where more is; of the classifier, what real ones reach."""
    measure = (
        find_measure("classes-of:dbp") if one.measure == "classes-of" else MEASURES[one.measure]
    )
    best = {h.figure: h.best for h in measure.headlines}
    if one.figure in best and best[one.figure] is not None:
        assert best[one.figure] == (1.0 if one.higher else 0.0)


def test_a_study_takes_them_all_once():
    names = measures_with("dbp")
    assert len(set(names)) == len(names)
    assert "classes-of:dbp" in names
    assert {one.measure for one in SEVEN} - {"classes-of"} <= set(names)
