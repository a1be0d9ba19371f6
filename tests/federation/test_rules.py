"""Rules against independent computations, and against attackers."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean
from torch import Tensor

from privet.errors import InputError
from privet.federation.gathering import StreamingMean
from privet.federation.rules import RULES, rule_named
from privet.federation.rules.krum import central
from privet.federation.rules.median import middle
from privet.federation.rules.trimmed_mean import inner_mean
from privet.federation.stepping import Adam


def _rows(k: int, d: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(k, d)))


@given(st.integers(1, 12), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_mean_of_updates_is_the_mean_in_whatever_order_they_come(k: int, seed: int) -> None:
    rows = _rows(k, 5, seed)
    for order in (range(k), reversed(range(k))):
        mean = StreamingMean(5)
        for i in order:
            mean.add(rows[i].float(), 1.0)
        torch.testing.assert_close(mean.result(), rows.mean(0), atol=1e-6, rtol=0)


def test_weighted_mean_divides_by_the_weights_or_by_what_it_is_told() -> None:
    own, told = StreamingMean(1), StreamingMean(1, divisor=10.0)
    for change, weight in ((2.0, 1.0), (6.0, 0.5)):
        for mean in (own, told):
            mean.add(torch.tensor([change]), weight)
    assert float(own.result()) == pytest.approx(5.0 / 1.5)
    assert float(told.result()) == pytest.approx(0.5)


@given(st.integers(1, 11), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_median_is_that_of_numpy(k: int, seed: int) -> None:
    rows = _rows(k, 4, seed)
    np.testing.assert_allclose(middle(rows).numpy(), np.median(rows.numpy(), axis=0))


@given(st.integers(3, 15), st.sampled_from([0.0, 0.1, 0.25, 0.45]), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_trimmed_mean_is_that_of_scipy(k: int, trim: float, seed: int) -> None:
    rows = _rows(k, 4, seed)
    np.testing.assert_allclose(inner_mean(rows, trim).numpy(), trim_mean(rows.numpy(), trim))


def _krum_by_hand(rows: np.ndarray, attackers: int, chosen: int) -> np.ndarray:
    scores = []
    for i, one in enumerate(rows):
        others = sorted(float(((one - o) ** 2).sum()) for j, o in enumerate(rows) if j != i)
        scores.append(sum(others[: len(rows) - attackers - 2]))
    return np.asarray(rows[np.argsort(scores, kind="stable")[:chosen]].mean(0))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_krum_is_its_definition(attackers: int, chosen: int, seed: int) -> None:
    rows = _rows(2 * attackers + 4, 3, seed)
    found = central(rows, attackers=attackers, chosen=chosen).numpy()
    np.testing.assert_allclose(found, _krum_by_hand(rows.numpy(), attackers, chosen))


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum"])
def test_robust_rules_are_not_moved_far_by_few_attackers_and_the_mean_is(name: str) -> None:
    """Two of eleven send 1e6; honest ones are about (1, 1, 1)."""
    honest = 1.0 + 0.1 * _rows(9, 3)
    rows = torch.cat([honest, torch.full((2, 3), 1e6)])
    options = {"trimmed-mean": {"trim": 0.2}, "krum": {"attackers": 2}}.get(name, {})
    gathering = rule_named(name, **options).gathering(3)
    for row in rows:
        gathering.add(row, 1.0)
    assert float((gathering.result() - 1.0).abs().max()) < 0.5
    mean = StreamingMean(3)
    for row in rows:
        mean.add(row, 1.0)
    assert float(mean.result().min()) > 1e5


def test_fedadam_is_the_published_recursion() -> None:
    """Two steps by hand, without correction of the start."""
    step = Adam(1, rate=0.5, b1=0.9, b2=0.99, tau=0.1)
    m, v, theta, weights = 0.0, 0.01, 1.0, torch.tensor([1.0])
    for change in (0.3, -0.2):
        m = 0.9 * m + 0.1 * change
        v = 0.99 * v + 0.01 * change**2
        theta += 0.5 * m / (v**0.5 + 0.1)
        weights = step.moved(weights, torch.tensor([change]))
    assert float(weights) == pytest.approx(theta)


def test_stale_updates_weigh_less_and_never_more_than_one() -> None:
    rule = rule_named("fedbuff", stale=8)
    weights = [rule.weight(s) for s in range(9)]
    assert weights[0] == 1.0
    assert weights[3] == 0.5
    assert weights[8] == pytest.approx(1 / 3)
    assert all(a > b for a, b in itertools.pairwise(weights))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("average", {}, "unknown rule"),
        ("fedavg", {"buffer": 3}, "'fedavg' has no such setting: got buffer"),
        ("fedbuff", {"buffer": 0}, "bad size of a buffer"),
        ("flsys", {"seconds": 0.0}, "bad length of a round"),
        ("flsys", {"seconds": math.inf}, "a deadline that never comes"),
        ("fedavg", {"seconds": math.inf, "patient": True}, "a deadline that never comes"),
        ("flsys", {"server_rate": -1.0}, "bad server learning rate"),
        ("trimmed-mean", {"trim": 0.5}, "bad share to trim"),
        ("krum", {"chosen": 9}, "bad settings of Krum"),
        ("fedprox", {"proximal": -1.0}, "bad proximal term"),
        ("fedavg", {"cohort": 0}, "bad size of a cohort"),
        ("fedavg", {"rate": 1.5}, "bad sampling rate"),
    ],
)
def test_bad_rules_are_refused(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        rule_named(name, **options).step(3)


def test_every_rule_has_its_name() -> None:
    assert all(rule_named(name).name == name for name in RULES)
