"""The scores of the study have the privacy that they are said to have."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privet.studies.audit_power.ideal import canaries, mu_for, worlds


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_mu_has_the_epsilon_of_dp_accounting(epsilon):
    oracle = pld.from_gaussian_mechanism(1 / mu_for(epsilon, 1e-5))
    assert oracle.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, abs=1e-3)


def test_the_record_shifts_scores_by_mu():
    without, with_ = worlds(0, 100_000, 1.5)
    assert with_.mean() - without.mean() == pytest.approx(1.5, abs=0.02)
    assert (without.std(), with_.std()) == pytest.approx((1.0, 1.0), abs=0.01)
    scores, coins = canaries(0, 100_000, 1.5)
    assert scores[coins].mean() - scores[~coins].mean() == pytest.approx(1.5, abs=0.03)
    assert np.mean(coins) == pytest.approx(0.5, abs=0.01)
