"""Batch, epochs, cycle and bands: every refusal names numbers that then work."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.engine.turns import Turns
from privet.errors import InputError
from privet.privacy.correlated import SEPARATING
from privet.privacy.sampling import SAMPLERS, sampler_for

DIGITS = {"sampler": "cyclic-poisson", "batch": 287, "nominal_size": 1437, "epochs": 1}


def said_of(**changes):
    with pytest.raises(InputError) as caught:
        Turns(**(DIGITS | changes)).resolved()
    return str(caught.value)


def test_the_sampler_is_the_one_of_the_numbers():
    drawn, steps = Turns(**(DIGITS | {"epochs": 3, "bands": 4})).resolved()
    assert drawn == sampler_for("cyclic-poisson", batch=287, nominal_size=1437, bands=4)
    assert (drawn.cycle, steps) == (4, 15)


def test_the_steps_of_fixed_batches_follow_the_cycle_and_not_the_batch():
    drawn, steps = Turns(**(DIGITS | {"sampler": "fixed-batches", "cycle": 20})).resolved()
    assert (drawn.cycle, drawn.rate, steps) == (20, 1 / 20, 20)


def test_too_many_bands_say_what_the_batch_may_be():
    said = said_of(bands=8)
    assert "one part in 8 of 1437 units" in said
    assert "got --batch 287, expected --batch at most 179" in said
    assert said.endswith("Fix: --batch 179, or --bands at most 5")
    assert said_of(cycle=8).endswith("Fix: --batch 179, or --cycle at most 5")


def test_the_sampler_that_bands_need_is_named_before_any_number():
    said = said_of(sampler="poisson", bands=8)
    assert "does not keep a unit's turns apart: got --bands 8 with --sampler poisson" in said
    assert "--sampler cyclic-poisson, or --bands 1" in said


def test_bands_that_outlast_the_cycle_name_what_decides_it():
    said = said_of(sampler="fixed-batches", bands=8)
    assert "a cycle of 5 steps (batches of 287 of 1437 units)" in said
    assert said.endswith("Fix: --bands 5, or --batch at most 179")
    assert said_of(cycle=2, bands=4).endswith("Fix: --bands 2, or --cycle 4")
    assert said_of(cycle=2, bands=8).endswith("or --cycle 8 with --batch at most 179")


def test_bands_that_outlast_the_run_ask_for_epochs():
    said = said_of(bands=5, epochs=0.5)
    assert "got --bands 5, a run of 3 steps (0.5 epochs)" in said
    assert "--epochs at least 1, or a smaller --batch" in said


def test_a_cycle_without_turns_is_refused():
    assert "leave --cycle out, or --sampler cyclic-poisson" in said_of(sampler="poisson", cycle=4)
    assert Turns(**(DIGITS | {"sampler": "poisson", "cycle": 1})).resolved()[0].cycle == 1


@pytest.mark.parametrize("cycle", [0, -3, 2.5, "4", True, 1438])
def test_a_bad_cycle_is_refused_and_none_is_taken_for_the_default(cycle):
    assert "bad cycle" in said_of(cycle=cycle)


@pytest.mark.parametrize("batch", [0, 1438, 100.0, "100", None, True])
def test_a_bad_batch_is_refused(batch):
    assert "expected a whole number, 1 to the nominal size 1437" in said_of(batch=batch)


@pytest.mark.parametrize("epochs", [0, -1.0, float("inf"), float("nan"), "3", None])
def test_bad_epochs_are_refused(epochs):
    assert "epochs" in said_of(epochs=epochs)


def refusal_of(turns):
    try:
        turns.resolved()
    except InputError as error:
        return str(error)
    return ""


def kind_of(refusal):
    return refusal.split(":")[0]


def offered(fix):
    """The changes that a fix offers: alternatives, some of them of two options at once."""
    for alternative in fix.split(", or "):
        found = re.findall(
            r"--(batch|cycle|bands|epochs) (?:at most |at least )?(\d+\.?\d*)", alternative
        )
        if found:
            yield {name: float(value) if name == "epochs" else int(value) for name, value in found}


@given(
    sampler=st.sampled_from(SAMPLERS),
    nominal_size=st.integers(1, 400),
    batch=st.integers(1, 400),
    epochs=st.floats(0.05, 5),
    cycle=st.none() | st.integers(1, 60),
    bands=st.integers(0, 60),
)
def test_whatever_is_refused_is_mended_by_what_is_offered(
    sampler, nominal_size, batch, epochs, cycle, bands
):
    """Each offer ends this refusal; the next one, if any, is of another kind."""
    asked = Turns(
        sampler=sampler, nominal_size=nominal_size, batch=min(batch, nominal_size), epochs=epochs,
        cycle=cycle and min(cycle, nominal_size), bands=bands,
    )  # fmt: skip
    refusal = refusal_of(asked)
    if refusal:
        mended = [replace(asked, **change) for change in offered(refusal.partition(". Fix: ")[2])]
        assert all(kind_of(refusal_of(turns)) != kind_of(refusal) for turns in mended)
        return
    drawn, steps = asked.resolved()
    assert bands <= 1 or (sampler in SEPARATING and bands <= min(drawn.cycle, steps))
    assert drawn.rate * drawn.cycle <= 1 + 1e-9
