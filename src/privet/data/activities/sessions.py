"""Sessions: a signal of one user with labelled segments, resampled and cut into windows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.activities.by_user import Examples
from privet.errors import InputError

LENGTH: Final = 100  # samples of a window, at every rate
HOP: Final = 50  # samples from one window to the next
LATE: Final = 0.15  # share of what a user did that is for testing, where users test themselves


@final
@dataclass(frozen=True, kw_only=True)
class Segment:
    """Samples start..stop-1 of a session, in which one thing was done."""

    label: int
    start: int
    stop: int


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """What the sensors on one user measured without a break; `signal` is (samples, channels)."""

    user: int
    rate: int  # samples a second
    signal: NDArray[np.float32]
    segments: tuple[Segment, ...]
    setting: str = ""  # under which condition, where a study has several

    def __post_init__(self) -> None:
        if self.signal.ndim != 2 or not np.isfinite(self.signal).all():
            raise InputError(
                "a session's signal cannot be used",
                expected="finite numbers of shape (samples, channels)",
                fix="fetch the file again",
            )
        for segment in self.segments:
            if not 0 <= segment.start < segment.stop <= len(self.signal):
                raise InputError(
                    "a labelled segment lies outside its session",
                    got=f"samples {segment.start}..{segment.stop - 1}",
                    expected=f"some of 0..{len(self.signal) - 1}",
                    fix="fetch the file again",
                )


def resampled(session: Session, rate: int) -> Session:
    """The same session at another rate.

    The whole of it and not segment by segment: so filters meet no edges inside. Frequencies that
    the new rate cannot carry are filtered out first, or they would pass for lower ones.
    """
    if rate < 1:
        raise InputError("bad sampling rate", got=rate, expected="at least 1 sample a second")
    if rate == session.rate:
        return session
    from scipy.signal import resample_poly  # slow to import

    ratio = Fraction(rate, session.rate)
    up, down = ratio.numerator, ratio.denominator
    signal = resample_poly(session.signal, up, down, axis=0, padtype="line").astype(np.float32)
    moved = [
        Segment(label=s.label, start=s.start * up // down, stop=s.stop * up // down)
        for s in session.segments
    ]
    kept = tuple(segment for segment in moved if segment.start < segment.stop)
    return replace(session, rate=rate, signal=signal, segments=kept)


def early_and_late(
    sessions: Sequence[Session], *, late: float = LATE
) -> tuple[list[Session], list[Session]]:
    """The same sessions twice: what users did first of each activity, and the rest of it.

    Of each user, activity and setting the first 1 - `late` of all samples are early, in the order
    of the sessions. Windows that are cut from both share no sample. Where the line lies is a matter
    of the user's own records alone: a user more or fewer moves no other's.
    """
    if not 0 < late < 1:
        raise InputError("bad share for testing", got=late, expected="between 0 and 1")
    left: dict[tuple[int, int, str], int] = {}
    for session in sessions:
        for s in session.segments:
            key = (session.user, s.label, session.setting)
            left[key] = left.get(key, 0) + s.stop - s.start
    left = {key: round(samples * (1 - late)) for key, samples in left.items()}
    parts: tuple[list[Session], list[Session]] = ([], [])
    for session in sessions:
        early, after = [], []
        for s in sorted(session.segments, key=lambda s: s.start):
            key = (session.user, s.label, session.setting)
            line = s.start + min(left[key], s.stop - s.start)
            left[key] -= line - s.start
            early += [replace(s, stop=line)] if line > s.start else []
            after += [replace(s, start=line)] if line < s.stop else []
        parts[0].append(replace(session, segments=tuple(early)))
        parts[1].append(replace(session, segments=tuple(after)))
    return parts


def cut(sessions: Iterable[Session], *, length: int = LENGTH, hop: int = HOP) -> Examples:
    """Windows of `length` samples, one every `hop`, as images of one row for each channel.

    Segments of one label in one session are joined before they are cut: 100 samples at 5 Hz are
    20 seconds, longer than most flights of stairs. No window has samples of two sessions, so none
    has samples of two users.

    Examples are of shape (1, channels, length): `mlp` and `linear` take them, and so do the
    networks for small images (`cnn-tiny`, `cnn-strided`), which slide along the time; as
    (channels, 1, length) they would leave nothing to pool.
    """
    if length < 1 or hop < 1:
        raise InputError("bad windows", got=f"length {length}, hop {hop}", expected="at least 1")
    parts = [_windows(s, label, length, hop) for s in sessions for label in _labels(s)]
    parts = [part for part in parts if len(part.y)]
    if not parts:
        raise InputError("no session is as long as a window", got=f"windows of {length} samples")
    return Examples(
        x=np.concatenate([part.x for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        users=np.concatenate([part.users for part in parts]),
    )


def _labels(session: Session) -> Sequence[int]:
    return sorted({segment.label for segment in session.segments})


def _windows(session: Session, label: int, length: int, hop: int) -> Examples:
    pieces = [session.signal[s.start : s.stop] for s in session.segments if s.label == label]
    joined = np.concatenate(pieces)
    starts = np.arange(0, len(joined) - length + 1, hop)
    x = joined[starts[:, np.newaxis] + np.arange(length)]  # (windows, length, channels)
    return Examples(
        x=np.ascontiguousarray(x.transpose(0, 2, 1))[:, np.newaxis],
        y=np.full(len(starts), label, dtype=np.int64),
        users=np.full(len(starts), session.user, dtype=np.int64),
    )
