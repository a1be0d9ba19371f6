"""Training functions under audit: one that remembers, one that forgets, and one with noise."""

import numpy as np
import pytest

import privet
from privet.audits.functions import in_many_runs, in_one_run, open_function, with_shadows
from privet.audits.membership import lira, roc
from privet.errors import InputError


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


class Remembering:
    """Knows its training examples by heart; notes how it was called."""

    def __init__(self, strength=3.0):
        self.strength = strength
        self.calls = []

    def __call__(self, x, y, seed):
        self.calls.append((len(x), seed))
        known = {image.tobytes(): label for image, label in zip(x, y, strict=True)}
        rng = np.random.default_rng(seed)

        def predict(inputs):
            scores = rng.normal(size=(len(inputs), 10))
            for row, image in enumerate(inputs):
                label = known.get(image.tobytes())
                if label is not None:
                    scores[row, label] += self.strength
            return scores

        return predict


def test_who_took_part_in_one_run_scores_higher(digits):
    train = Remembering()
    scores, included = in_one_run(train, digits, kind="noise", m=600, seed=0)
    assert [size for size, _ in train.calls] == [len(digits.train) + included.sum()]
    assert roc(scores[included], scores[~included]).auc > 0.9


def test_one_that_forgets_shows_nothing(digits):
    scores, included = in_one_run(Remembering(0.0), digits, kind="noise", m=4000, seed=1)
    assert roc(scores[included], scores[~included]).auc == pytest.approx(0.5, abs=0.04)


def test_many_runs_are_independent_and_differ_in_the_canary_alone(digits):
    train, told = Remembering(), []
    without, with_ = in_many_runs(
        train, digits, kind="blank", runs=40, seed=0, watch=lambda *now: told.append(now)
    )
    n = len(digits.train)
    assert [size for size, _ in train.calls] == [n, n + 1] * 40
    assert len({seed for _, seed in train.calls}) == 80
    assert roc(with_, without).auc > 0.9
    assert told == [(i, 80) for i in range(1, 81)]


def test_shadows_are_trained_on_halves(digits):
    train = Remembering()
    confidences, member = with_shadows(train, digits, models=12, seed=0)
    assert confidences.shape == member.shape == (12, len(digits.train))
    assert [size for size, _ in train.calls] == member.sum(1).tolist()
    ratios = lira(confidences, member)
    known = np.isfinite(ratios)
    assert roc(ratios[member & known], ratios[~member & known]).auc > 0.9


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda x: np.zeros(len(x)), "does not classify"),
        (lambda x: np.zeros((2, 10)), "does not classify"),
        (lambda x: np.full((len(x), 10), np.nan), "not finite"),
    ],
)
def test_a_model_that_does_not_classify_is_told(digits, answer, said):
    with pytest.raises(InputError, match=said):
        in_one_run(lambda x, y, seed: answer, digits, kind="noise", m=5, seed=0)


def test_functions_are_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "mine_to_audit.py").write_text(
        "def train(x, y, seed):\n    return 7\nnot_one = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert open_function("mine_to_audit:train")(None, None, 0) == 7
    for path, said in (
        ("mine_to_audit", "package.module:name"),
        ("mine_to_audit:fit", "no such function"),
        ("nowhere_at_all:train", "no such module"),
        ("mine_to_audit:not_one", "not a function"),
    ):
        with pytest.raises(InputError, match=said):
            open_function(path)
