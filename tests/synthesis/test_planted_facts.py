"""What was planted in the simulator is found again in synthetic records.

A network trained without privacy for about a minute, on few patients: so tolerances are wide, and
stated. They are a fraction of what records without the fact would show, which is said beside them.
"""

import pytest

import privet
from privet.data.records.joining import joined
from privet.data.records.simulator import simulate
from privet.data.records.simulator_estimates import recovered
from privet.data.records.simulator_truth import truth
from privet.synthesis import fit, sample

TOLERANCES = {
    "corr_sbp_dbp": 0.15,  # 0.8; without the fact 0
    "corr_heartrate_resprate": 0.15,  # 0.7; 0
    "autocorr_heartrate": 0.15,  # 0.85; 0
    "log_gap_mean": 0.10,  # 3.9; the schema's range is 0 to 7
    "log_gap_sd": 0.08,  # 0.76; of constant gaps 0
    "missing_temperature": 0.05,
    "missing_heartrate": 0.03,
    "missing_sbp": 0.03,
    "missing_rhythm": 0.03,
    "apart_sbp_dbp": 0.03,  # 0: always measured together; apart, 0.08
    "temperature_slope": 0.60,  # 0.9: missing depends on the value before; 0
    "rows": 0.7,
    "share_female": 0.03,
    "rate_admitted": 0.05,
    "auroc_admitted": 0.08,  # 0.86; of outcomes at random 0.5
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    ledger = privet.Ledger(tmp_path_factory.mktemp("facts") / "ledger.db")
    release = fit(
        "autoregressive", simulate(3000, seed=1), analysis="none", epochs=25, batch=100,
        ledger=ledger,
    )  # fmt: skip
    ledger.close()
    return recovered(joined(list(sample(release, 14_000, seed=2))))


@pytest.mark.parametrize("fact", TOLERANCES)
def test_a_planted_fact_is_found_again(found, fact):
    assert found[fact] == pytest.approx(truth()[fact], abs=TOLERANCES[fact])


def test_constraints_hold(found):
    assert found["nothing_after_death"] == 1.0
    assert found["sbp_above_dbp"] > 0.999  # the constraint lets them be equal
