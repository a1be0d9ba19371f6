"""Records randomised one by one: all outputs of the worst pairs, and an audit of what is drawn."""

import itertools
import math
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest, chisquare

from privet.audits.mechanism import Subject, audit_mechanism, refutes
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import pure_epsilon, total_epsilon
from privet.privacy.local import (
    LEAST_SPREAD,
    LEVELS,
    RecordRandomiser,
    least_redrawn,
    require_places,
)
from privet.privacy.randomness import Randomness
from privet.privacy.tradeoff import Stated

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def stream(seed=0):
    return Randomness.seeded(seed).noise


def made(epsilon=2.0, **changes):
    asked = {"label_share": 0.25, "norm": 1.0, "dimensions": 2, "classes": 3} | changes
    return RecordRandomiser.calibrate(epsilon=epsilon, **asked)


# --- labels ------------------------------------------------------------------------------------


def response(p, classes):
    """The law of the answer: a row for each label, the last for nobody's."""
    law = np.full((classes + 1, classes), p / classes)
    law[:classes] += (1 - p) * np.eye(classes)
    law[classes] = 1 / classes
    return law


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_labels_by_all_their_answers(p, classes):
    law, event = np.log(response(p, classes)), dp.RandomizedResponseDpEvent(p, classes)
    against_nobody = np.abs(law[:classes] - law[classes]).max()
    assert pure_epsilon(event, ADD_REMOVE) == pytest.approx(against_nobody, abs=1e-12)
    between = max(np.abs(a - b).max() for a, b in itertools.combinations(law[:classes], 2))
    assert pure_epsilon(event, REPLACE_ONE) == pytest.approx(between, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 5.0, 15.0])
def test_labels_are_redrawn_no_more_often_than_they_must(epsilon, classes):
    p = least_redrawn(epsilon, classes)
    kept, less = (
        pure_epsilon(dp.RandomizedResponseDpEvent(q, classes)) for q in (p, p * (1 - 1e-6))
    )
    assert kept <= epsilon < less


def test_answers_have_their_law():
    """60,000 answers of two labels and of nobody; 1e-4 each for a right mechanism."""
    randomiser = replace(made(), redrawn=0.3)
    y = np.repeat([0, 2], 20_000)
    x = np.zeros((len(y), 2))
    _, answers = randomiser.randomised(x, y, places=60_000, stream=stream())
    expected = 20_000 * response(0.3, 3)[[0, 2, 3]].sum(0)
    assert chisquare(np.bincount(answers, minlength=3), expected).pvalue > 1e-4
    labels = np.array([-1] * 1000 + [1] * 3000)
    kept = (randomiser._response(labels, stream(1))[1000:] == 1).sum()
    assert binomtest(int(kept), 3000, randomiser.keep_probability).pvalue > 1e-4


# --- records -----------------------------------------------------------------------------------


def law_of(v, spread):
    """log P(x~ = k), k = 0..H, for one number: summed over all of Z that is worth a double."""
    z = np.arange(-80 * int(spread + 1) - LEVELS, 80 * int(spread + 1) + 2 * LEVELS)
    pmf = np.exp(-np.abs(z) / spread)
    found = np.bincount(np.clip(v + z, 0, LEVELS), weights=pmf / pmf.sum(), minlength=LEVELS + 1)
    return np.log(found)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_records_by_all_their_outputs(epsilon):
    """The worst pairs of two numbers: a record of full norm, nobody, and one of the other axis."""
    randomiser = made(epsilon)
    t, m = randomiser.spread, randomiser.longest
    full, none = law_of(m, t), law_of(0, t)
    assert np.abs(full - none).max() == pytest.approx(m / t, rel=1e-9)
    two = np.abs(full - none).max() + np.abs(none - full).max()
    assert two == pytest.approx(2 * m / t, rel=1e-9)
    half = np.abs(law_of(m // 2, t) - none).max()
    assert 2 * half == pytest.approx(m / t, rel=1e-9), "spread over both numbers: no worse"
    record = dp.ComposedDpEvent([randomiser.event.events[0]])
    assert pure_epsilon(record, ADD_REMOVE) == pytest.approx(m / t)
    assert pure_epsilon(record, REPLACE_ONE) == pytest.approx(2 * m / t)


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 20.0])
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_both_together_cost_the_target_and_no_more(epsilon, share):
    randomiser = made(epsilon, label_share=share, dimensions=49, classes=10, norm=6.0)
    spent = total_epsilon([randomiser.event], 0.0, ADD_REMOVE)
    assert epsilon * (1 - 1e-6) < spent <= epsilon
    assert randomiser.scale == pytest.approx(
        6.0 / (epsilon - pure_epsilon(randomiser.event.events[1]))
    )


def test_there_is_no_less_noise_than_some():
    randomiser = made(1e6)
    assert randomiser.spread == LEAST_SPREAD
    assert pure_epsilon(randomiser.event) < 1e6


rows = arrays(
    np.float64,
    (4, 3),
    elements=st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1),
)


@given(rows, st.floats(1e-3, 1e3))
def test_no_record_is_longer_than_the_norm(x, norm):
    randomiser = made(dimensions=3, norm=norm)
    levels = randomiser.in_levels(x)
    assert np.abs(levels).sum(1).max() <= randomiser.longest
    assert np.abs(levels).max() <= LEVELS


def test_a_short_record_is_what_it_was():
    randomiser = made(dimensions=3, norm=1.0)  # the highest level is 4/3
    levels = randomiser.in_levels(np.array([[0.5, 0.25, 0.1], [3.0, 0.0, 3.0]]))
    assert levels.tolist() == [[96, 48, 19], [95, 0, 95]]


@pytest.mark.parametrize("v", [0, 20, 100])
def test_numbers_have_their_law(v):
    """20,000 records of one number, in 30 bins; 1e-4 each for a right mechanism."""
    randomiser = made(3.0, dimensions=2)
    x = np.tile([v / randomiser.longest + 1e-9, 0.0], (20_000, 1))
    noisy, _ = randomiser.randomised(
        x, np.zeros(20_000, dtype=np.int64), places=20_000, stream=stream()
    )
    law = np.exp(law_of(v, randomiser.spread))
    edges = np.searchsorted(np.cumsum(law), np.linspace(0, 1, 31)[1:-1])
    bins = np.searchsorted(np.unique(edges), np.arange(LEVELS + 1))
    expected = np.bincount(bins, weights=law) * 20_000
    assert (
        chisquare(np.bincount(bins[noisy[:, 0]], minlength=len(expected)), expected).pvalue > 1e-4
    )


# --- places ------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch):
    """Without noise: what is in the places."""
    monkeypatch.setattr(
        "privet.privacy.local.two_sided_geometric", lambda n, **_: np.zeros(n, dtype=np.int64)
    )
    return replace(made(dimensions=3, norm=3.0), redrawn=2.0**-30)


def pairs(randomiser, x, y, places, seed):
    noisy, labels = randomiser.randomised(x, y, places=places, stream=stream(seed))
    return sorted((*row, label) for row, label in zip(noisy.tolist(), labels.tolist(), strict=True))


@pytest.mark.parametrize("gone", [0, 7, 19])
def test_to_remove_a_record_is_to_put_nobody_in_its_place(bare, gone):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.3, 1, (20, 3)), rng.integers(0, 3, 20)
    left = np.arange(20) != gone
    with_, without = pairs(bare, x, y, 20, 0), pairs(bare, x[left], y[left], 20, 0)
    assert len(with_) == len(without) == 20
    new = [pair for pair in without if pair not in with_]
    assert len(new) == 1
    assert new[0][:3] == (0, 0, 0)
    assert len([pair for pair in with_ if pair not in without]) == 1


def test_the_order_is_secret_and_uniform(bare):
    """Where the first of four records goes, over 2,000 keys; 1e-4 for a right order."""
    x, y = np.eye(4, 3) + 0.1, np.zeros(4, dtype=np.int64)
    found = [
        int(np.argmax(bare.randomised(x, y, places=4, stream=stream(s))[0][:, 0]))
        for s in range(2000)
    ]
    assert chisquare(np.bincount(found, minlength=4)).pvalue > 1e-4


def test_more_records_than_places_are_refused():
    require_places(10, 10)
    with pytest.raises(InputError, match=r"more records than are declared.*nominal size"):
        made().randomised(np.zeros((3, 2)), np.zeros(3, dtype=np.int64), places=2, stream=stream())


# --- under audit -------------------------------------------------------------------------------


def audited(run, noisy, runs, *, claimed=1.0):
    """The likelihood ratio of a place: nothing tells more. Every place is a run of its own."""

    def sample(included, runs, seed):
        n = runs if included else 0
        x, y = np.tile((run.norm, 0.0), (n, 1)), np.zeros(n, dtype=np.int64)
        found, labels = noisy(x, y, places=runs, stream=stream(seed))
        return np.column_stack([found, labels]).astype(np.float64)

    def log_ratio(rows):
        by_record = (np.abs(rows[:, 0]) - np.abs(rows[:, 0] - run.longest)) / run.spread
        kept = run.classes * (1.0 - run.redrawn) + run.redrawn
        return by_record + np.log(np.where(rows[:, -1] == 0, kept, run.redrawn))

    subject = Subject(
        name="a record", claim=Stated(claimed), pair="full norm, or nobody",
        sample=sample, statistic=log_ratio,
    )  # fmt: skip
    evidence = audit_mechanism(subject, runs=runs, confidence=0.999, seed=0)
    return evidence.epsilon, refutes(evidence, subject)


def test_an_audit_comes_near_the_epsilon_and_stays_below():
    run = made(1.0, classes=2)
    epsilon, refuted = audited(run, run.randomised, 100_000)
    assert 0.85 < epsilon <= 1.0
    assert not refuted


def test_half_the_noise_is_caught():
    run = replace(made(1.0, classes=2), scale=made(1.0, classes=2).scale / 2)
    assert audited(run, run.randomised, 5000)[1]


def test_labels_that_are_kept_too_often_are_caught():
    run = made(1.0, classes=2)
    run = replace(run, redrawn=run.redrawn / 2)
    assert audited(run, run.randomised, 10_000)[1]


def test_noise_in_floating_point_would_be_caught():
    """Why the numbers are whole: the same mechanism in doubles, told by the low bits of sums."""
    run = made(1.0, classes=2)

    def in_doubles(x, y, *, places, stream):
        rng = np.random.default_rng(stream.seed(purpose="doubles", step=0))
        placed = np.zeros((places, 2))
        placed[: len(y)] = x * run.longest
        labels = np.concatenate([y, np.full(places - len(y), -1)])
        noise = rng.laplace(scale=run.spread, size=placed.shape)
        return placed + noise, run._response(labels, stream)

    assert audited(run, in_doubles, 100_000)[1]


def test_a_bad_mechanism_is_refused():
    for changes in ({"norm": 0.0}, {"scale": math.inf}, {"redrawn": 0.0}, {"classes": 1}):
        with pytest.raises(InputError):
            replace(made(), **changes)
    with pytest.raises(InputError, match="wrong form"):
        made().randomised(np.zeros((3, 5)), np.zeros(3, dtype=np.int64), places=9, stream=stream())
