"""Sensors: one collector each, at the rate that the models together need; FLSys, section 3.

    models declare  sensor, least rate, preferred rate, flush period, how long to keep
    merged          rate = max preferred; on low battery or in saver mode max least
                    flush = min period; four times as long on low battery
                    keep = max days
    a collector     buffers samples, flushes them to a file every flush period
    raw storage     forgets what is too old, and of a sensor over its quota what is oldest

The user's presets come last: they can only make it less. What a collector has not flushed yet is
lost if the phone dies: at most one flush period.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray

from privet.errors import InputError
from privet.federation import wire
from privet.federation.phone.storage import load_tensors, own_folder, save_tensors
from privet.files import read_json, write_json

DAY: Final = 86_400.0
SAVING_FLUSH: Final = 4.0  # times as long between flushes
QUOTA_BYTES: Final = 64 * 2**20  # of a sensor
MOST_BUFFERED: Final = 20_000  # samples; then it is flushed whatever the period says
UNLABELLED: Final = -1
SWITCHES: Final = "switches.json"


class Preset(StrEnum):
    """What the user lets a sensor do."""

    FULL = "full"  # as models prefer
    SPARING = "sparing"  # the least that will do
    PAUSED = "paused"  # nothing, until it is changed
    STOPPED = "stopped"  # nothing, and what was collected is deleted


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one collector does for all models."""

    sensor: str
    rate: float
    flush_seconds: float
    keep_days: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Of one sensor: when, what (samples, channels), and what was being done."""

    times: NDArray[np.float64]
    values: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """How many."""
        return len(self.times)

    def part(self, chosen: NDArray[np.bool_] | slice) -> "Samples":
        """Some of them."""
        return Samples(
            times=self.times[chosen], values=self.values[chosen], labels=self.labels[chosen]
        )


class Source(Protocol):
    """What a sensor measures: a driver, or a recording that is played."""

    def between(self, start: float, stop: float) -> Samples:
        """What it measures from start on and before stop."""


def merged(
    wishes: Iterable[wire.Sensing], *, presets: Mapping[str, Preset], saving: bool
) -> dict[str, Plan]:
    """One plan for each sensor that anybody wants and the user allows."""
    by_sensor: dict[str, list[wire.Sensing]] = {}
    for wish in wishes:
        by_sensor.setdefault(wish.sensor, []).append(wish)
    return {
        sensor: _plan(sensor, asked, saving=saving, sparing=presets.get(sensor) is Preset.SPARING)
        for sensor, asked in by_sensor.items()
        if presets.get(sensor, Preset.FULL) not in (Preset.PAUSED, Preset.STOPPED)
    }


def _plan(sensor: str, asked: list[wire.Sensing], *, saving: bool, sparing: bool) -> Plan:
    least = saving or sparing
    return Plan(
        sensor=sensor,
        rate=max(wish.least_rate if least else wish.rate for wish in asked),
        flush_seconds=min(w.flush_seconds for w in asked) * (SAVING_FLUSH if saving else 1.0),
        keep_days=max(wish.keep_days for wish in asked),
    )


def kept_days(wishes: Iterable[wire.Sensing]) -> dict[str, float]:
    """For how long samples of each sensor are kept, also while it is switched off."""
    days: dict[str, float] = {}
    for wish in wishes:
        days[wish.sensor] = max(wish.keep_days, days.get(wish.sensor, 0.0))
    return days


@final
class RawStorage:
    """Samples of one sensor in files, in the order of time.

    Args:
        folder: of the sensor.
        quota: bytes.
    """

    def __init__(self, folder: Path, *, quota: int = QUOTA_BYTES) -> None:
        self.folder, self.quota = own_folder(folder), quota

    def add(self, samples: Samples) -> None:
        """One more file."""
        save_tensors(
            self.folder / f"{samples.times[0]:.6f}.safetensors",
            {
                "times": torch.from_numpy(samples.times),
                "values": torch.from_numpy(samples.values),
                "labels": torch.from_numpy(samples.labels),
            },
        )

    def since(self, moment: float) -> Samples | None:
        """All samples from a moment on; None if there are none."""
        files = self.files()
        starts = [float(path.stem) for path in files]
        # A file that begins before the moment may reach beyond it.
        first = max(0, int(np.searchsorted(starts, moment, side="right")) - 1)
        parts = [load_tensors(path) for path in files[first:]]
        if not parts:
            return None
        found = Samples(
            times=np.concatenate([part["times"].numpy() for part in parts]),
            values=np.concatenate([part["values"].numpy() for part in parts]),
            labels=np.concatenate([part["labels"].numpy() for part in parts]),
        )
        found = found.part(found.times >= moment)
        return found if len(found) else None

    def forget(self, *, before: float) -> int:
        """Delete what is older, and then the oldest until the quota is kept; how many files.

        A file is older if all of it is: if the one behind it begins before the moment, or its
        last sample was.
        """
        files, gone = self.files(), 0
        sizes = [path.stat().st_size for path in files]
        while files:
            if not self._is_older(files, before) and sum(sizes) <= self.quota:
                break
            files.pop(0).unlink()
            sizes.pop(0)
            gone += 1
        return gone

    @staticmethod
    def _is_older(files: list[Path], moment: float) -> bool:
        """All of the first one."""
        if float(files[0].stem) >= moment:
            return False
        if len(files) > 1:
            return float(files[1].stem) < moment
        return float(load_tensors(files[0])["times"][-1]) < moment

    def forget_all(self) -> None:
        """The user has stopped this sensor."""
        for path in self.files():
            path.unlink()

    def files(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.folder.glob("*.safetensors"), key=lambda path: float(path.stem))

    def size(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in self.files())


@final
@dataclass(kw_only=True)
class Statistics:
    """For the user: what a sensor has cost."""

    samples: int = 0
    flushes: int = 0
    bytes_written: int = 0
    cpu_seconds: float = 0.0


@final
class Collector:
    """One sensor at one rate.

    Args:
        source: what it measures.
        storage: where it goes.
        began: from when on it collects.
    """

    def __init__(self, source: Source, storage: RawStorage, *, began: float) -> None:
        self.source, self.storage = source, storage
        self.statistics = Statistics()
        self._at = self._flushed = began
        self._next = -float("inf")  # the next sample counts from here on
        self._buffer: list[Samples] = []

    def collect(self, plan: Plan, now: float) -> bool:
        """All that was measured until now; whether something was flushed."""
        began = time.process_time()
        found = self._thinned(self.source.between(self._at, now), plan.rate)
        self._at = now
        if len(found):
            self._buffer.append(found)
            self.statistics.samples += len(found)
        due = now - self._flushed >= plan.flush_seconds or self._buffered >= MOST_BUFFERED
        flushed = due and self.flush(now)
        if due:
            self.storage.forget(before=now - plan.keep_days * DAY)
        self.statistics.cpu_seconds += time.process_time() - began
        return flushed

    def skip(self, now: float) -> None:
        """Nothing is measured until now: the user has paused it."""
        self.flush(now)
        self._at = now

    def flush(self, now: float) -> bool:
        """What is buffered goes into a file; whether there was any."""
        self._flushed = now
        if not self._buffer:
            return False
        parts, self._buffer = self._buffer, []
        samples = Samples(
            times=np.concatenate([part.times for part in parts]),
            values=np.concatenate([part.values for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
        )
        self.storage.add(samples)
        self.statistics.flushes += 1
        self.statistics.bytes_written += samples.values.nbytes + samples.times.nbytes
        return True

    @property
    def _buffered(self) -> int:
        return sum(len(part) for part in self._buffer)

    def _thinned(self, samples: Samples, rate: float) -> Samples:
        """At most `rate` a second: the first one at or after each tick."""
        kept = np.zeros(len(samples), dtype=bool)
        for place, moment in enumerate(samples.times.tolist()):
            if moment >= self._next - 1e-9:
                kept[place] = True
                late = moment - self._next
                self._next = (self._next if late < 1.0 / rate else moment) + 1.0 / rate
        return samples.part(kept)


@final
class Switches:
    """What the user has set, on disk: a preset for each sensor. It holds as soon as it is there."""

    def __init__(self, folder: Path) -> None:
        self._path = own_folder(folder) / SWITCHES
        self.presets  # noqa: B018 - refuses what cannot be read before anything is collected

    @property
    def presets(self) -> Mapping[str, Preset]:
        """By sensor; those that are not there are FULL."""
        kept = read_json(self._path) if self._path.exists() else {}
        return MappingProxyType({sensor: _preset(name) for sensor, name in kept.items()})

    def set(self, sensor: str, preset: str) -> None:
        """The user's wish; kept."""
        write_json(self._path, {**self.presets, sensor: _preset(preset)}, private=True)


def _preset(name: object) -> Preset:
    if name not in tuple(Preset):
        raise InputError("unknown preset", got=name, expected=" | ".join(Preset))
    return Preset(str(name))


def told(collectors: Mapping[str, Collector]) -> dict[str, dict[str, float]]:
    """Statistics for the user, by sensor."""
    return {
        sensor: asdict(one.statistics) | {"bytes_kept": one.storage.size()}
        for sensor, one in collectors.items()
    }
