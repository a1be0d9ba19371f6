import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from privet.data.dataset import Split
from privet.privacy.randomness import SecretStream
from privet.release import Release
from privet.tuning.scoring import correct_answers, hold_out, noisy


def stream(name=b"scoring"):
    return SecretStream(hashlib.blake2b(name, digest_size=32).digest())


def records(n, units=None):
    x = np.arange(n, dtype=np.float32)[:, None]
    return Split(x=x, y=np.zeros(n, dtype=np.int64), units=units)


class Threshold(nn.Module):
    """Says 1 from one half on."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.cat([0.5 - x, x - 0.5], dim=1)


RELEASE = Release(
    model=Threshold(), config={"bounds": {"low": [0.0], "high": [1.0]}, "shape": [1]}, trust={}
)


class TestHoldingOut:
    def test_every_record_is_in_one_of_two_parts(self):
        train, scoring = hold_out(records(1000), 0.2, stream())
        both = np.concatenate([train.x, scoring.x])[:, 0]
        assert sorted(both) == list(range(1000))
        # Binomial(1000, 0.2) misses this interval with probability 1e-4.
        low, high = stats.binom(1000, 0.2).interval(1 - 1e-4)
        assert low <= len(scoring) <= high

    def test_units_stay_whole(self):
        units = np.arange(300) // 5
        train, scoring = hold_out(records(300, units), 0.5, stream())
        owners = [set(units[part.x[:, 0].astype(int)]) for part in (train, scoring)]
        assert owners[0].isdisjoint(owners[1])
        assert owners[0] | owners[1] == set(range(60))
        assert 0 < len(owners[1]) < 60
        assert scoring.n_units == len(owners[1])

    def test_one_unit_more_moves_nobody(self):
        """The planted mistake: cutting a shuffled list moves others when one more comes."""

        def held(n):
            return set(hold_out(records(n), 0.3, stream())[1].x[:, 0])

        def held_by_shuffling(n):
            order = np.argsort(stream().uniform(n, purpose="order", step=0))
            return set(order[: round(0.3 * n)].astype(float))

        changes = [held(n + 1) - {float(n)} ^ held(n) for n in range(100, 130)]
        assert not any(changes)
        shuffled = [held_by_shuffling(n + 1) - {n} ^ held_by_shuffling(n) for n in range(100, 130)]
        assert any(shuffled)

    def test_each_unit_is_drawn_by_itself(self):
        """Pairs of units over many keys: independent, by Fisher's exact test at 1 in 1000."""
        drawn = []
        for i in range(2000):
            scoring = hold_out(records(2), 0.3, stream(b"%d" % i))[1]
            drawn.append([float(u) in scoring.x[:, 0] for u in (0, 1)])
        a, b = np.array(drawn).T
        table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        assert stats.fisher_exact(table).pvalue > 1e-3
        assert stats.binomtest(int(a.sum()), 2000, 0.3).pvalue > 1e-3


class TestCorrectAnswers:
    @settings(max_examples=60, deadline=None)
    @given(data=st.data(), n_units=st.integers(2, 8))
    def test_one_unit_counts_at_most_one(self, data, n_units):
        """Take any unit out, with all its records."""
        owners = [u for u in range(n_units) for _ in range(data.draw(st.integers(1, 5)))]
        n = len(owners)
        x = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))[:, None]
        y = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
        units = np.array(owners)
        whole = Split(x=x, y=y, units=units)
        total = correct_answers(RELEASE, whole)
        for unit in range(n_units):
            without = correct_answers(RELEASE, whole.part(units != unit))
            assert -1e-12 <= total - without <= 1 + 1e-12

    def test_known_answers(self):
        x, y = np.array([[0.9], [0.8], [0.1], [0.2]]), np.array([1, 0, 0, 0])
        assert correct_answers(RELEASE, Split(x=x, y=y)) == 3.0
        grouped = Split(x=x, y=y, units=np.array([0, 0, 0, 1]))
        assert correct_answers(RELEASE, grouped) == pytest.approx(2 / 3 + 1)
        assert correct_answers(RELEASE, grouped.part(np.zeros(4, dtype=bool))) == 0.0


class TestNoise:
    def test_it_is_gaussian_of_the_stated_size(self):
        """Kolmogorov-Smirnov at 1 in 1000, fixed key; half the noise is caught."""
        drawn = np.array([noisy(40.0, 3.0, trial=t, stream=stream()) - 40.0 for t in range(2000)])
        assert stats.kstest(drawn / 3.0, "norm").pvalue > 1e-3
        assert stats.kstest(drawn / 6.0, "norm").pvalue < 1e-9

    def test_equal_scores_of_two_trials_get_unrelated_noise(self):
        one, two = (noisy(40.0, 3.0, trial=t, stream=stream()) for t in (0, 1))
        assert one != two
        assert one == noisy(40.0, 3.0, trial=0, stream=stream())

    def test_two_scores_of_one_trial_get_unrelated_noise(self):
        """As many differences as scores: noise that did not know the score would give one."""
        moved = {noisy(float(s), 3.0, trial=0, stream=stream()) - s for s in range(20)}
        assert len({round(m, 6) for m in moved}) == 20
