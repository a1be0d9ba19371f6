"""How the bound tightens: closed forms, the adaptive rule step by step, and arrival in time."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.training.bound_decay import KINDS, ROLLBACKS, BoundDecay

SCHEDULES = ("exponential", "step", "time")


def decay(kind, stops=(0.2,), epochs=20, first=0.8):
    return BoundDecay(kind=kind, first=first, stops=stops, epochs=epochs)


def bounds(found, epochs, success=1.0):
    """Of the epochs from the first one on, so many and one more."""
    trained = [found.bound]
    for _ in range(epochs):
        assert not found.after(success)
        trained.append(found.bound)
    return trained


# --- schedules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "epochs", "expected"),
    [
        ("exponential", 4, [0.8, 0.8 / 2**0.5, 0.4, 0.4 / 2**0.5, 0.2]),
        ("step", 10, [*[0.8] * 5, *[0.4] * 5, 0.2]),
        ("time", 3, [0.8, 0.4, 0.8 / 3, 0.2]),
        ("none", 3, [0.2] * 4),
    ],
)
def test_schedules_by_hand(kind, epochs, expected):
    assert bounds(decay(kind, epochs=epochs), epochs) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("exponential", lambda i: 0.9 * math.exp(-i * math.log(0.9 / 0.13) / 40)),
        ("step", lambda i: 0.9 * (0.13 / 0.9) ** (math.floor(i / 5) / 8)),
        ("time", lambda i: 0.9 / (1 + i * (0.9 / 0.13 - 1) / 40)),
    ],
)
def test_schedules_have_the_closed_forms_of_the_paper(kind, formula):
    """Rates from B_40 = 0.13; what was fooled does not matter."""
    found = decay(kind, (0.13,), 40, first=0.9)
    for i in range(41):
        assert found.bound == pytest.approx(formula(i), rel=1e-12)
        assert not found.after((i % 7) / 7)
    assert found.bound == 0.13


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_bound_is_reached_exactly_and_kept(kind):
    for first in (0.7, 0.8, 1.0):
        for last in (0.03, 0.155, 0.26, 0.3):
            for epochs in range(1, 30):
                found = bounds(decay(kind, (last,), epochs, first=first), epochs + 3)
                assert found[epochs:] == [last] * 4


def test_steps_that_do_not_divide_the_epochs():
    assert bounds(decay("step", epochs=12), 12) == pytest.approx(
        [*[0.8] * 5, *[0.4] * 5, *[0.2] * 3]
    )
    assert bounds(decay("step", epochs=3), 3) == [0.8, 0.8, 0.8, 0.2]


def test_a_stop_is_not_jumped_over():
    """Alone it would be 0.8, 0.4, 0.2, 0.1."""
    found = bounds(decay("exponential", (0.1, 0.5, 0.3), epochs=3), 3)
    assert found == pytest.approx([0.8, 0.5, 0.3, 0.1])


def test_where_time_is_short_every_epoch_goes_on_to_the_next_stop():
    """Two stops are left for two epochs: the first of them before the schedule is there."""
    assert bounds(decay("step", (0.3, 0.2), epochs=10), 10)[8:] == pytest.approx([0.4, 0.3, 0.2])
    assert bounds(decay("time", (0.5, 0.3, 0.2), epochs=1), 3) == [0.8, 0.5, 0.3, 0.2]


# --- the adaptive rule ---------------------------------------------------------------------------


def adaptive():
    """From 0.8 to a sixteenth of it in 16 epochs: at first by 2^(-1/4) in each."""
    return decay("adaptive", (0.05,), 16)


def halved(times):
    return pytest.approx(0.8 * 2.0**-times, rel=1e-12)


def test_it_goes_faster_where_nothing_is_lost_up_to_four_times_as_fast():
    found, gone = adaptive(), 0.0
    for quarters in (1.5, 2.25, 3.375, 4.0, 4.0):
        assert not found.after(1.0)
        gone += quarters / 4
        assert found.bound == halved(gone)


def test_it_keeps_its_speed_where_no_more_than_the_tolerance_is_lost():
    found = adaptive()
    assert [found.after(success) for success in (0.996, 0.992, 0.988)] == [False] * 3
    assert found.bound == halved(0.75)


def test_more_than_the_tolerance_is_taken_back_and_tried_at_half_the_speed():
    found = adaptive()
    assert not found.after(0.9), "no slower step leads back behind the first bound"
    assert found.bound == halved(0.25)
    assert found.after(0.89)
    assert found.bound == halved(0.125), "from the bound before, half as far"
    assert not found.after(0.9), "as many as before the epoch that was taken back"
    assert found.bound == halved(0.125 + 0.1875), "and one and a half times as fast again"


def test_success_is_compared_with_the_last_epoch_that_was_kept():
    found = adaptive()
    found.after(0.9)
    assert found.after(0.5)
    assert found.after(0.6), "more than 0.5, and less than 0.9"
    assert found.bound == halved(0.0625)


def test_not_more_than_three_epochs_in_a_row_are_taken_back():
    """A slower step would be possible: it was four times as fast as at first, and is half."""
    found = adaptive()
    for _ in range(4):
        found.after(1.0)
    before = 1.5 / 4 + 2.25 / 4 + 3.375 / 4
    assert found.bound == halved(before + 1.0)
    tried = []
    for _ in range(ROLLBACKS):
        assert found.after(0.5)
        tried.append(found.bound)
    assert tried == [halved(before + share) for share in (0.5, 0.25, 0.125)]
    assert not found.after(0.5)
    assert found.bound == halved(before + 0.25), "on from where it failed, at the last speed"
    assert not found.after(0.5), "and that success is what counts now"


def test_those_that_were_taken_back_earlier_do_not_count():
    found = adaptive()
    found.after(0.9)
    for _ in range(ROLLBACKS + 1):
        assert found.after(0.5)
        assert not found.after(0.9)


def test_nothing_is_taken_back_where_no_slower_step_is_possible():
    """The slowest is a quarter of the first speed."""
    found = adaptive()
    found.after(0.9)
    assert [found.after(0.5), found.after(0.5)] == [True, True]
    assert found.bound == halved(0.0625)
    assert not found.after(0.5)
    assert found.bound == halved(0.125)


def test_nothing_is_taken_back_at_the_last_bound():
    found = decay("adaptive", (0.2,), 4)
    assert bounds(found, 6)[-3:] == [0.2] * 3
    assert not found.after(0.1)
    assert found.bound == 0.2


def test_no_success_at_all_is_a_loss_like_any_other():
    found = adaptive()
    assert not found.after(0.0)
    assert not found.after(0.0)
    assert found.bound == halved(0.25 + 0.375), "0 after 0 is no loss"


def test_in_the_last_quarter_it_is_as_fast_as_it_must_be():
    """An eighth of the bound is left to go in three epochs: half in each."""
    found = adaptive()
    found.bound = found.kept_bound = 0.4
    found.kept_success, found.epoch, found.speed = 0.9, 13, math.log(2) / 16
    reached = bounds(found, 3, success=0.897)
    assert reached == pytest.approx([0.4, 0.2, 0.1, 0.05])
    assert reached[-1] == 0.05


def test_before_the_last_quarter_it_is_not_in_a_hurry():
    found = adaptive()
    found.bound = found.kept_bound = 0.4
    found.kept_success, found.epoch, found.speed = 0.9, 12, math.log(2) / 16
    found.after(0.897)
    assert found.bound == pytest.approx(0.4 * 2 ** (-1 / 16))


# --- whatever happens ----------------------------------------------------------------------------

STOPS = st.sets(st.integers(20, 600), min_size=1, max_size=4).map(
    lambda found: tuple(stop / 1000 for stop in found)
)
SUCCESS = st.lists(st.floats(0.0, 1.0), min_size=45, max_size=45)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS[:-1]), stops=STOPS, more=st.integers(0, 40), success=SUCCESS)
def test_every_bound_is_trained_under_and_the_last_one_in_time(kind, stops, more, success):
    epochs = len(stops) + more
    found = decay(kind, stops, epochs)
    trained, in_a_row = [found.bound], 0
    for share in success[:epochs]:
        before, kept = found.bound, found.kept_bound
        back = found.after(share)
        trained.append(found.bound)
        if back:
            assert kind == "adaptive"
            assert before < found.bound <= kept
        else:
            assert found.bound <= before
        in_a_row = in_a_row + 1 if back else 0
        assert in_a_row <= ROLLBACKS
    assert min(trained) == trained[-1] == min(stops)
    assert set(stops) <= set(trained)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(kind=st.sampled_from(KINDS), stops=STOPS, cut=st.integers(0, 44), success=SUCCESS)
def test_a_restored_decay_goes_on_as_the_one_before_it(kind, stops, cut, success):
    found = decay(kind, stops, 30)
    for share in success[:cut]:
        found.after(share)
    restored = BoundDecay(**json.loads(json.dumps(found.state())))
    assert dataclasses.asdict(restored) == dataclasses.asdict(found)
    for share in success[cut:]:
        assert restored.after(share) == found.after(share)
        assert restored == found


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "linear"}, "unknown decay: got 'linear', expected one of adaptive"),
        ({"stops": ()}, "bad bounds"),
        ({"stops": (0.2, 0.0)}, "bad bounds: got 0.2, 0, beginning with 0.8"),
        ({"stops": (0.2, -0.1)}, "bad bounds"),
        ({"stops": (0.9,)}, "bad bounds: got 0.9, beginning with 0.8"),
        ({"first": 1.1}, "bad bounds"),
        ({"first": math.nan}, "bad bounds"),
        ({"stops": (math.nan,)}, "bad bounds"),
    ],
)
def test_what_is_no_decay_is_refused(changes, said):
    with pytest.raises(InputError) as caught:
        decay(**{"kind": "adaptive"} | changes)
    assert said in str(caught.value)
