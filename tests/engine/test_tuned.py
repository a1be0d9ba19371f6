import math

import dp_accounting as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp

from privet.engine.tuned import DECLARED, Selected, Tuning, score_noise
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import (
    SELECTION_ORDERS,
    accountant_for,
    calibrate,
    epsilon_of,
    renyi,
    sampled_gaussian,
)
from privet.tuning.repetitions import Repetitions

CHOSEN = {"mean": 10.0, "shape": 1.0, "holdout": 0.1, "score_multiplier": 3.0}


def sampled_divergence(order, rate, z):
    """Mironov, Talwar and Zhang (2019), a sampled Gaussian at a whole order, as a binomial sum."""
    ks = range(order + 1)
    terms = [
        gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        + k * math.log(rate) + (order - k) * math.log1p(-rate) + (k * k - k) / (2 * z * z)
        for k in ks
    ]  # fmt: skip
    return logsumexp(terms) / (order - 1)


def theorem(order, curve, mean, shape):
    """Theorem 2 of Papernot and Steinke (2022), the best second order of those given."""
    gamma = Repetitions(mean=mean, shape=shape).gamma
    second = min((1 - 1 / b) * f + math.log(1 / gamma) / b for b, f in curve.items())
    return curve[order] + (1 + shape) * second + math.log(mean) / (order - 1)


def epsilon_by_hand(z, rate, turns, mean, shape, delta):
    curve = {a: turns * sampled_divergence(a, rate, z) for a in SELECTION_ORDERS}
    return min(
        theorem(a, curve, mean, shape)
        + math.log1p(-1 / a)
        - (math.log(delta) + math.log(a)) / (a - 1)
        for a in SELECTION_ORDERS
    )


@pytest.mark.parametrize(
    ("z", "rate", "turns", "mean", "shape"),
    [(7.5, 0.22, 135, 10.0, 1.0), (3.2, 0.04, 791, 10.0, 1.0), (3.0, 0.1, 50, 3.0, 0.0),
     (2.0, 0.05, 200, 30.0, 2.0)],
)  # fmt: skip
def test_epsilon_is_the_theorems(z, rate, turns, mean, shape):
    event = Selected(**CHOSEN | {"mean": mean, "shape": shape}).event(
        sampled_gaussian(z, rate, turns)
    )
    by_hand = epsilon_by_hand(z, rate, turns, mean, shape, 1e-5)
    assert accountant_for(event) == "rdp"
    assert epsilon_of(event, 1e-5, how="rdp") == pytest.approx(by_hand, rel=1e-6)


def test_one_run_is_never_dearer_than_the_best_of_several():
    run = sampled_gaussian(3.0, 0.1, 100)
    single = epsilon_of(run, 1e-5)
    costs = [
        epsilon_of(Selected(**CHOSEN | {"mean": m}).event(run), 1e-5, how="rdp")
        for m in (2.0, 10.0, 100.0)
    ]
    assert single < costs[0] < costs[1] < costs[2]


def test_calibration_covers_the_whole_selection():
    chosen = Selected(**CHOSEN)
    z = calibrate(3.0, 1e-5, lambda z: chosen.event(sampled_gaussian(z, 0.2, 30)))
    whole = epsilon_of(chosen.event(sampled_gaussian(z, 0.2, 30)), 1e-5, how="rdp")
    assert 2.99 < whole <= 3.0
    assert epsilon_of(sampled_gaussian(z, 0.2, 30), 1e-5) < 1.6  # what is left for one run


def test_replace_one_neighbours_get_no_figure():
    event = Selected(**CHOSEN).event(sampled_gaussian(3.0, 0.1, 100))
    with pytest.raises(InputError, match="no Renyi accounting"):
        epsilon_of(event, 1e-5, Adjacency.REPLACE_ONE, how="rdp")


class TestNoiseOfTheScore:
    @settings(max_examples=150, deadline=None)
    @given(
        rate=st.floats(1e-4, 0.999),
        z=st.floats(0.3, 50.0),
        turns=st.integers(1, 5000),
        order=st.integers(2, 80),
    )
    def test_a_score_costs_no_more_than_a_run_at_any_whole_order(self, rate, z, turns, order):
        """Jensen's inequality against the binomial sum, of which it knows nothing."""
        of_score = order / (2 * score_noise(rate, z, turns) ** 2)
        assert of_score <= turns * sampled_divergence(order, rate, z) * (1 + 1e-9) + 1e-12

    def test_the_librarys_curves_agree(self):
        run = sampled_gaussian(2.0, 0.1, 300)
        score = dp.GaussianDpEvent(score_noise(0.1, 2.0, 300))
        assert all(renyi(score, a) <= renyi(run, a) for a in (2, 5, 20, 64))

    def test_it_is_as_little_as_possible(self):
        """Where every unit joins every step the two are equal: any less would be too little."""
        run = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 9)
        score = score_noise(1.0, 2.0, 9)
        assert renyi(dp.GaussianDpEvent(score), 7) <= renyi(run, 7)
        assert renyi(dp.GaussianDpEvent(score), 7) == pytest.approx(renyi(run, 7))
        assert renyi(dp.GaussianDpEvent(0.999 * score), 7) > renyi(run, 7)


class TestTheEntryOfTheCard:
    def test_it_survives_json(self):
        charged = Tuning(kind="charged", detail="d", selected=Selected(**CHOSEN))
        for entry in (DECLARED, charged):
            assert Tuning.from_json(entry.to_json()) == entry

    def test_only_what_is_held_out_does_not_train(self):
        charged = Tuning(kind="charged", detail="", selected=Selected(**CHOSEN))
        assert (DECLARED.training_size(1437), charged.training_size(1437)) == (1437, 1293)

    @pytest.mark.parametrize(
        "record",
        [
            {"kind": "charged", "detail": "", "selected": None},
            {"kind": "declared", "detail": "", "selected": CHOSEN},
            {"kind": "free", "detail": "", "selected": None},
            {"kind": "declared", "detail": ""},
            *(
                {"kind": "charged", "detail": "", "selected": CHOSEN | change}
                for change in (
                    {"mean": 1.0}, {"mean": math.nan}, {"mean": 1e9}, {"shape": -0.5},
                    {"shape": math.inf}, {"holdout": 0.0}, {"holdout": 1.0},
                    {"score_multiplier": 0.0}, {"surplus": 1},
                )
            ),
        ],
    )  # fmt: skip
    def test_nonsense_is_bad_input(self, record):
        with pytest.raises(InputError):
            Tuning.from_json(record)
