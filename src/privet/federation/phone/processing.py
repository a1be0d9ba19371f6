"""From raw samples to a model's windows, as soon as there are new ones; FLSys, section 2.1.

Samples are cut where they pause for longer than `GAP`, and where the label changes; windows of the
model's length follow one another by half of it, and every seventh is held out for evaluation. What
does not fill a window yet waits for the samples that come after it. A window is scaled by the range
of its sensor, a literal, never by what the samples show.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, final

import numpy as np
import torch

from privet.data.dataset import Bounds
from privet.federation.phone.collecting import (
    DAY,
    UNLABELLED,
    Collector,
    Plan,
    Preset,
    Samples,
    Switches,
)
from privet.federation.phone.records import HELD_OUT, TRAIN, Records
from privet.files import read_json, write_json

GAP: Final = 0.3  # seconds
HELD_OUT_EVERY: Final = 7
OVERLAPS: Final = 2  # windows that a sample is in
IDLE_SECONDS: Final = 60.0  # until switches are looked at again where nothing is collected
DONE: Final = "processed.json"


@final
class Processor:
    """Windows of one sensor for one model.

    Args:
        collector: of the sensor.
        records: where windows go.
        bounds: range of the sensor.
        folder: for how far it has come.
        keep_days: for how long windows are kept.
    """

    def __init__(
        self,
        collector: Collector,
        records: Records,
        *,
        bounds: Bounds,
        folder: Path,
        keep_days: float,
    ) -> None:
        self.collector, self.records, self.bounds = collector, records, bounds
        self.keep_days = keep_days
        self._path = folder / DONE
        kept = read_json(self._path) if self._path.exists() else {"until": -1e18, "windows": 0}
        self._until, self._windows = float(kept["until"]), int(kept["windows"])

    def run(self) -> int:
        """All that is new; how many windows.

        Killed between the windows and the note of them, it makes the same windows again, into the
        same files.
        """
        samples = self.collector.storage.since(self._until)
        if samples is None:
            return 0
        length = self.records.shape[-1]
        starts, labels, rest = windows(samples, length, hop=length // OVERLAPS)
        if len(starts):
            self._keep(samples, starts, labels, length)
        self._until, self._windows = rest, self._windows + len(starts)
        said = {"until": self._until, "windows": self._windows}
        write_json(self._path, said, private=True)
        return len(starts)

    def forget(self, *, before: float) -> None:
        """Windows that began before a moment."""
        self.records.forget_before(before)

    def _keep(
        self, samples: Samples, starts: Sequence[int], labels: Sequence[int], length: int
    ) -> None:
        picked = np.asarray(starts)[:, None] + np.arange(length)
        x = self.bounds.clamp_and_scale(samples.values[picked].transpose(0, 2, 1))
        x = np.ascontiguousarray(x).reshape(-1, *self.records.shape)
        y, first = np.asarray(labels, dtype=np.int64), float(samples.times[starts[0]])
        number = self._windows + np.arange(len(starts))
        out = number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        for part, chosen in ((TRAIN, ~out), (HELD_OUT, out)):
            self.records.add(part, first, torch.from_numpy(x[chosen]), torch.from_numpy(y[chosen]))


def windows(samples: Samples, length: int, *, hop: int) -> tuple[list[int], list[int], float]:
    """Where windows begin, what was done in them, and from when on samples are still needed.

    No window has samples of two activities, of both sides of a gap, or without a label.
    """
    cuts = np.flatnonzero((np.diff(samples.times) > GAP) | (np.diff(samples.labels) != 0))
    edges = [0, *(cuts + 1).tolist(), len(samples)]
    starts: list[int] = []
    labels: list[int] = []
    for begin, end in pairwise(edges):
        if samples.labels[begin] == UNLABELLED:
            continue
        own = range(begin, end - length + 1, hop)
        starts += own
        labels += [int(samples.labels[begin])] * len(own)
    last = edges[-2]
    open_from = starts[-1] + hop if starts and starts[-1] >= last else last
    if open_from >= len(samples):
        return starts, labels, float(np.nextafter(samples.times[-1], np.inf))
    return starts, labels, float(samples.times[open_from])


@final
class Sensing:
    """All collectors and processors of a phone.

    Args:
        plans: what to collect in this moment, given whether to save; see `collecting.merged`.
        collectors: by sensor.
        processors: of all models.
        switches: the user's.
        saves: whether to save the battery in this moment.
        kept: for how many days samples are kept, by sensor.
    """

    def __init__(
        self,
        plans: Callable[[bool], Mapping[str, Plan]],
        collectors: Mapping[str, Collector],
        processors: Sequence[Processor],
        switches: Switches,
        saves: Callable[[float], bool],
        kept: Mapping[str, float],
    ) -> None:
        self.plans, self.collectors, self.processors = plans, collectors, processors
        self.switches, self.saves, self.kept = switches, saves, kept

    def act(self, now: float) -> float:
        """Collect, process what is new, forget what is old."""
        plans = self.plans(self.saves(now))
        new = False
        for sensor, collector in self.collectors.items():
            if sensor in plans:
                new |= collector.collect(plans[sensor], now)
                continue
            collector.skip(now)
            collector.storage.forget(before=now - self.kept[sensor] * DAY)
            if self.switches.presets.get(sensor) is Preset.STOPPED:
                self._forget_all(collector)
        for processor in self.processors:
            if new:
                processor.run()
            processor.forget(before=now - processor.keep_days * DAY)
        return now + min((plan.flush_seconds for plan in plans.values()), default=IDLE_SECONDS)

    def _forget_all(self, collector: Collector) -> None:
        """Raw samples, and what models have made of them."""
        collector.storage.forget_all()
        for processor in self.processors:
            if processor.collector is collector:
                processor.forget(before=float("inf"))
