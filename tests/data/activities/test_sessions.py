"""Rates are what they claim, and windows are of one user and one activity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data.activities.sessions import Segment, Session, cut, early_and_late, resampled
from privet.errors import InputError


def session(signal, segments=None, user=1, rate=50):
    signal = np.asarray(signal, dtype=np.float32)
    whole = (Segment(label=0, start=0, stop=len(signal)),)
    return Session(user=user, rate=rate, signal=signal, segments=segments or whole)


def wave(frequency, seconds=40, rate=50):
    t = np.arange(seconds * rate) / rate
    return np.stack([np.sin(2 * np.pi * frequency * t), np.cos(2 * np.pi * frequency * t)], axis=1)


def strongest(signal, rate):
    """The frequency with the most power, to the resolution of the signal."""
    power = np.abs(np.fft.rfft(signal[:, 0])) ** 2
    return np.fft.rfftfreq(len(signal), 1 / rate)[power.argmax()]


@pytest.mark.parametrize("rate", [5, 10, 20, 50])
def test_a_wave_keeps_its_frequency_and_size_at_every_rate(rate):
    made = resampled(session(wave(1.25)), rate)
    assert made.rate == rate
    assert len(made.signal) == 40 * rate
    assert strongest(made.signal, rate) == pytest.approx(1.25, abs=1 / 40)
    inner = made.signal[rate:-rate]
    assert np.hypot(inner[:, 0], inner[:, 1]) == pytest.approx(np.ones(len(inner)), abs=0.03)


@pytest.mark.parametrize("rate", [5, 10, 20])
def test_samples_are_those_at_their_times(rate):
    """Sample i is at i / rate seconds; one shifted or dropped would show in a slow wave."""
    made = resampled(session(wave(0.5)), rate).signal[rate:-rate]
    times = np.arange(rate, 40 * rate - rate) / rate
    assert made[:, 0] == pytest.approx(np.sin(np.pi * times), abs=0.02)


def test_what_a_rate_cannot_carry_is_filtered_out():
    """7 Hz at 5 samples a second would pass for 2 Hz, if every tenth sample were taken."""
    fast = session(wave(7.0))
    assert np.abs(fast.signal[::10]).max() > 0.9
    assert np.abs(resampled(fast, 5).signal[5:-5]).max() < 0.02


def test_a_still_sensor_stays_still_to_the_edges():
    """Gravity is no edge: padding with zeros would make a jump of 1 g at both ends."""
    still = session(np.full((500, 2), 0.5))
    assert resampled(still, 20).signal == pytest.approx(np.full((200, 2), 0.5), abs=1e-3)


def test_segments_move_with_the_rate():
    labelled = (Segment(label=1, start=100, stop=200), Segment(label=0, start=203, stop=207))
    made = resampled(session(wave(1.0), labelled), 5)
    assert made.segments == (Segment(label=1, start=10, stop=20),), "the other is too short"


def test_windows_by_hand():
    """Two walks are joined: 7 + 6 samples make three windows of 5 at a hop of 4."""
    signal = np.arange(40.0).reshape(20, 2)
    walk = [Segment(label=0, start=0, stop=7), Segment(label=0, start=10, stop=16)]
    rest = Segment(label=2, start=7, stop=10)
    made = cut([session(signal, (walk[0], rest, walk[1]), user=9)], length=5, hop=4)
    assert made.x.shape == (3, 1, 2, 5)
    assert made.x[0, 0, 0].tolist() == [0, 2, 4, 6, 8]
    assert made.x[1, 0, 1].tolist() == [9, 11, 13, 21, 23]
    assert made.x[2, 0, 0].tolist() == [22, 24, 26, 28, 30]
    assert made.y.tolist() == [0, 0, 0], "three seconds of rest are no window"
    assert made.users.tolist() == [9, 9, 9]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_windows_are_of_one_session_and_one_label(data):
    """Values name session and label; every window has one of each, and its right owner."""
    sessions = []
    for number in range(data.draw(st.integers(1, 4))):
        lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
        labels = [data.draw(st.integers(0, 2)) for _ in lengths]
        stops = np.cumsum(lengths).tolist()
        parts = [
            Segment(label=label, start=stop - n, stop=stop)
            for label, n, stop in zip(labels, lengths, stops, strict=True)
        ]
        signal = np.stack([np.full(sum(lengths), number), np.repeat(labels, lengths)], axis=1)
        sessions.append(session(signal, tuple(parts), user=number // 2))
    try:
        made = cut(sessions, length=10, hop=data.draw(st.integers(1, 12)))
    except InputError:
        totals = [sum(s.stop - s.start for s in one.segments if s.label == label)
                  for one in sessions for label in range(3)]  # fmt: skip
        assert max(totals) < 10
        return
    for x, y, user in zip(made.x[:, 0], made.y, made.users, strict=True):
        assert set(x[1].tolist()) == {float(y)}
        assert len(set(x[0].tolist())) == 1
        assert x[0, 0] // 2 == user


def test_bad_sessions_are_refused():
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite numbers"):
            session([[0.0, 1.0], [bad, 1.0]])
    with pytest.raises(InputError, match="samples, channels"):
        session([0.0, 1.0])
    for start, stop in ((0, 3), (-1, 1), (1, 1)):
        with pytest.raises(InputError, match="outside its session"):
            session([[0.0], [1.0]], (Segment(label=0, start=start, stop=stop),))
    with pytest.raises(InputError, match="as long as a window"):
        cut([session(np.zeros((99, 3)))])
    with pytest.raises(InputError, match="sampling rate"):
        resampled(session(np.zeros((99, 3))), 0)
    with pytest.raises(InputError, match="bad windows"):
        cut([session(np.zeros((99, 3)))], hop=0)


def numbered(users, segments, length=400, setting=""):
    """Sessions whose samples are all different: which of them a window has can be told."""
    made = []
    for place, user in enumerate(users):
        signal = place * 10_000.0 + np.arange(length, dtype=np.float32)[:, np.newaxis]
        given = tuple(Segment(label=y, start=a, stop=b) for y, a, b in segments)
        made.append(
            Session(user=user, rate=50, signal=signal, segments=given, setting=setting or "")
        )
    return made


def samples_of(sessions, label):
    parts = [
        s.signal[g.start : g.stop, 0] for s in sessions for g in s.segments if g.label == label
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def test_the_later_part_is_what_was_done_last_across_sessions():
    """Two sessions of one user, 200 samples of label 0 in each: the line is at sample 340."""
    early, late = early_and_late(numbered([7, 7], [(0, 100, 300), (1, 300, 400)]), late=0.15)
    assert samples_of(early, 0).tolist() == [*range(100, 300), *range(10_100, 10_240)]
    assert samples_of(late, 0).tolist() == [*range(10_240, 10_300)]
    assert samples_of(late, 1).tolist() == [*range(10_370, 10_400)]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 150)), min_size=1, max_size=6),
    st.floats(0.05, 0.9),
)
@settings(max_examples=60, deadline=None)
def test_no_sample_is_lost_or_on_both_sides(bouts, late):
    stops = np.cumsum([length for _, length in bouts])
    segments = [(y, int(b - n), int(b)) for (y, n), b in zip(bouts, stops, strict=True)]
    sessions = numbered([1, 2, 1], segments, length=int(stops[-1]))
    parts = early_and_late(sessions, late=late)
    for label in range(3):
        for user in (1, 2):
            before, after = (samples_of([s for s in p if s.user == user], label) for p in parts)
            own = samples_of([s for s in sessions if s.user == user], label)
            assert np.array_equal(np.concatenate([before, after]), own)
            assert len(after) == len(own) - round(len(own) * (1 - late))


def test_one_user_more_moves_no_other_users_line():
    few, more = numbered([1], [(0, 0, 400)]), numbered([1, 2, 3], [(0, 0, 400)])
    for one, many in zip(early_and_late(few), early_and_late(more), strict=True):
        assert one[0].segments == many[0].segments


def test_settings_are_divided_apart():
    """The left arm's end is for testing, too, not the right arm's alone."""
    both = [*numbered([1], [(0, 0, 400)], setting="left"), *numbered([1], [(0, 0, 400)])]
    _, late = early_and_late(both)
    assert [s.segments[0].start for s in late] == [340, 340]


@pytest.mark.parametrize("late", [0.0, 1.0, -0.5])
def test_bad_shares_are_refused(late):
    with pytest.raises(InputError, match="bad share for testing"):
        early_and_late(numbered([1], [(0, 0, 400)]), late=late)
