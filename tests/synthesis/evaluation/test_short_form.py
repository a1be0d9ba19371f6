import json
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privet
from privet.errors import BudgetExceeded, InputError
from privet.privacy.accounting import pure_epsilon
from privet.privacy.randomness import SecretStream
from privet.synthesis.evaluation import noisy_short_form
from privet.synthesis.evaluation.short_form import FIGURES, contributions

STREAM = SecretStream(b"k" * 32)


@pytest.fixture(scope="module")
def several(make_records):
    """60 stays of 20 patients, some of them without rows or beyond the bounds."""
    records = make_records(60)
    values = records.values.copy()
    values[::7] = 1e9
    values[:, 3] = records.values[:, 3]
    owner = np.array([f"p{k % 20:02d}" for k in range(60)])
    schema = replace(records.schema, stay="stay_id")
    return replace(records, schema=schema, values=values, patients=owner)


@pytest.fixture
def ledger(tmp_path):
    opened = privet.Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def test_it_is_charged_before_it_is_told(several, ledger):
    noisy_short_form(several, several, ledger=ledger, epsilon=0.5)
    (run,) = ledger.account(several.schema.name).runs
    assert (run.label, run.step_event) == ("short form of fidelity", dp.LaplaceDpEvent(2.0))
    ledger.cap(several.schema.name, epsilon=0.9, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        noisy_short_form(several, several, ledger=ledger, epsilon=0.5)


def test_a_request_that_is_refused_costs_nothing(several, ledger):
    with pytest.raises(InputError, match="bad epsilon"):
        noisy_short_form(several, several, ledger=ledger, epsilon=0.0)
    assert ledger.names() == []


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 19))
def test_one_patient_with_all_stays_moves_the_sums_by_entries_between_0_and_1(several, who):
    """The sensitivity of the docstring, by removing patients."""
    without = several.part(several.patients != f"p{who:02d}")
    moved = contributions(several, FIGURES).sum(axis=0) - contributions(without, FIGURES).sum(
        axis=0
    )
    assert len(moved) == 4 + 4 + 3
    assert (moved >= -1e-9).all()
    assert (moved <= 1 + 1e-9).all()


def test_the_largest_move_is_attained(several):
    """A patient without rows counts as missing everywhere: L1 is d, L2 its root."""
    short = several.first_steps(0)
    table = contributions(short, ("missing", "never"))
    assert np.array_equal(table, np.ones((20, 8)))


def test_each_patient_weighs_the_same_however_many_rows(make_records, ledger):
    records = make_records(2)
    values = np.ones_like(records.values)
    values[records.stay_of_row == 0, 0] = np.nan
    form = noisy_short_form(
        replace(records, values=values), records, ledger=ledger, epsilon=1e9, nominal_size=2,
        stream=STREAM,
    )  # fmt: skip
    assert form.figures["missing"]["pulse"]["real"] == pytest.approx(0.5, abs=1e-6)


def test_without_much_noise_the_figures_are_those_of_the_records(several, make_records, ledger):
    made = make_records(50, seed=4)
    form = noisy_short_form(
        several, made, ledger=ledger, epsilon=1e8, figures=("mean", "missing"), nominal_size=20,
        stream=STREAM,
    )  # fmt: skip
    assert list(form.figures) == ["missing", "never", "mean"]  # the mean needs to know how many
    side = [several.patients[several.stay_of_row] == p for p in np.unique(several.patients)]
    clipped = np.clip(several.values[:, 0], 0, 200)
    expected = np.nanmean([np.nanmean(clipped[mine]) for mine in side])
    assert form.figures["mean"]["pulse"]["real"] == pytest.approx(expected, abs=1e-3)
    own = np.isnan(made.values[:, 0])
    rates = [own[made.stay_of_row == k].mean() for k in range(50)]
    found = form.figures["missing"]["pulse"]
    assert found["synthetic"] == pytest.approx(np.mean(rates))
    assert found["error"] == pytest.approx(abs(found["real"] - found["synthetic"]))
    assert "rhythm" not in form.figures["mean"]


def test_laplace_noise_has_the_stated_scale_and_price(several, make_records, ledger):
    forms = [
        noisy_short_form(several, several, ledger=ledger, epsilon=2.0, nominal_size=1_000)
        for _ in range(150)
    ]
    assert forms[0].noise == pytest.approx(4 / 2.0 / 1_000)
    assert (forms[0].sensitivity, forms[0].numbers, forms[0].patients) == (4.0, 4, 1_000)
    assert pure_epsilon(forms[0].event) == pytest.approx(forms[0].epsilon) == pytest.approx(2.0)
    # `above` is missing often enough that nothing is cut off at 0
    rhythm = [form.figures["missing"]["rhythm"]["real"] for form in forms]
    truth = contributions(several, ("missing",)).sum(axis=0)[3] / 1_000
    assert np.mean(np.abs(np.array(rhythm) - truth)) == pytest.approx(forms[0].noise, rel=0.3)


def test_gaussian_noise_has_the_stated_deviation_and_price(several, ledger):
    form = noisy_short_form(
        several, several, ledger=ledger, noise_multiplier=3.0, figures=("missing", "never")
    )
    assert form.noise == pytest.approx(3.0 * np.sqrt(8) / 100)
    assert form.event == dp.GaussianDpEvent(3.0)
    assert form.epsilon is None


def test_noise_is_fresh_unless_a_stream_is_given(several, ledger):
    loud = [
        noisy_short_form(several, several, ledger=ledger, epsilon=5.0).figures for _ in range(2)
    ]
    assert loud[0] != loud[1]
    same = [
        noisy_short_form(several, several, ledger=ledger, epsilon=5.0, stream=STREAM)
        for _ in range(2)
    ]
    assert same[0].figures == same[1].figures
    json.dumps(same[0].to_json(), allow_nan=False)
    assert all(0 <= c["real"] <= 1 for c in loud[0]["missing"].values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": None}, "noise is not stated"),
        ({"noise_multiplier": 1.0}, "noise is not stated"),
        ({"epsilon": -1.0}, "bad epsilon"),
        ({"figures": ("median",)}, "bad figures: got median"),
        ({"figures": ()}, "bad figures: got none"),
        ({"nominal_size": 0}, "bad nominal_size"),
    ],
)
def test_bad_requests_are_refused(several, changes, said, ledger):
    with pytest.raises(InputError, match=said):
        noisy_short_form(several, several, ledger=ledger, **({"epsilon": 1.0} | changes))
