"""What is measured on a release: stays are drawn from it and compared with held-out real ones.

As many stays are drawn as the contenders learned from. Measures that take a part of the stays take
the same real ones for all contenders. For the plots, 1,000 stays of either side are kept, as in the
papers: where they lie in the principal plane, how many cells each lacks, its mean gap.

The yardstick is the same of real training stays in place of drawn ones: what sampling alone makes
of these figures.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch

from privet.data.records.joining import joined
from privet.data.records.records import PatientRecords
from privet.errors import InputError
from privet.files import read_json, write_json
from privet.release import Release
from privet.studies.robust_private.measuring import Arrays, Measured, Stages, Watch
from privet.studies.robust_private.study import keep_arrays
from privet.studies.synthesis.fidelity import measures_with
from privet.studies.synthesis.sources import Studied
from privet.synthesis.evaluation.measure import Comparison, plain
from privet.synthesis.evaluation.missing_patterns import empty_per_record
from privet.synthesis.evaluation.registry import find_measure
from privet.synthesis.evaluation.side import Floats, Side
from privet.synthesis.evaluation.timing import samples
from privet.synthesis.evaluation.trajectories import mean_by_step
from privet.synthesis.sampling import sample

STAGE: Final = "fidelity"
LEAST: Final = 20  # stays of either side
KEPT: Final = 1_000  # stays behind the plots
SEED: Final = 0
YARDSTICK: Final = "real"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Laboratory:
    """One source, one protocol, one device for all; `stays` is how many are drawn."""

    studied: Studied
    device: torch.device
    stays: int | None = None

    def __post_init__(self) -> None:
        if self.stays is not None and self.stays < LEAST:
            raise InputError("too few stays", got=self.stays, expected=f"at least {LEAST}")

    @property
    def protocol(self) -> dict[str, Any]:
        """What decides on the figures."""
        return {
            "measures": list(measures_with(self.studied.shown.label)),
            "stays": self.stays or len(self.studied.train),
            "compared_with": len(self.studied.test),
            "kept": KEPT,
            "trajectories": list(self.studied.shown.trajectories),
            "seed": SEED,
        }

    def stages(self) -> Stages:
        """One: draw, and compare."""
        return {STAGE: (self.protocol, self.measured)}

    def measured(self, folder: Path, watch: Watch) -> Measured:
        """Figures of a release."""
        release, began = Release.load(folder), time.monotonic()
        release.model.to(self.device)
        drawn = joined(list(sample(release, self.protocol["stays"], seed=SEED)))
        spent = round(time.monotonic() - began, 3)
        found, arrays = self._compared(drawn, watch)
        return {**found, "sampling_seconds": spent}, arrays

    def yardstick(self, folder: Path) -> dict[str, Any]:
        """Figures of real training stays in place of drawn ones; kept in the study's folder."""
        path, asked = folder / f"{YARDSTICK}.json", self.protocol | dict(self.studied.facts)
        if path.exists() and read_json(path)["asked"] == asked:
            return read_json(path)
        found, arrays = self._compared(self.studied.train, lambda _: None)
        keep_arrays(folder / f"{YARDSTICK}.npz", arrays)
        write_json(path, {"asked": asked, **found})
        return read_json(path)

    @cached_property
    def _sides(self) -> tuple[Side, Side]:
        """Training and held-out stays; what measures keep of the latter serves all releases."""
        return Side(self.studied.train), Side(self.studied.test)

    def _compared(self, records: PatientRecords, watch: Watch) -> Measured:
        train, test = self._sides
        if min(len(records), len(test)) < LEAST:
            raise InputError(
                "too few stays to compare",
                got=f"{len(records)} beside {len(test)} held-out ones",
                expected=f"at least {LEAST}",
            )
        comparison = Comparison(
            candidate=Side(records), test=test, train=train, seed=SEED, device=str(self.device)
        )
        figures, seconds, arrays = {}, {}, dict[str, Any]()
        names = self.protocol["measures"]
        for done, name in enumerate(names):
            began = time.monotonic()
            outcome = find_measure(name).compare(comparison)
            figures[name] = plain(outcome.figures)
            seconds[name] = round(time.monotonic() - began, 3)
            if name == "projection":
                arrays = _planes(outcome.drawn["points"])
            watch((done + 1) / len(names))
        arrays |= self._drawn(comparison)
        return {"stays": len(records), "figures": figures, "measure_seconds": seconds}, arrays

    def _drawn(self, comparison: Comparison) -> Arrays:
        """What plots are drawn from, of real and of other stays."""
        arrays: Arrays = {}
        rng = comparison.rng("kept for plots")
        for which, side in (("real", comparison.test), ("other", comparison.candidate)):
            few = side.at_most(KEPT, rng)
            arrays[f"{which}_empty"] = empty_per_record(few)
            arrays[f"{which}_gap"] = samples(few)["mean_gap"]
            for column, means in self._trajectories(side).items():
                arrays[f"{which}_mean_{column}"] = means
        return {name: values.astype(np.float32) for name, values in arrays.items()}

    def _trajectories(self, side: Side) -> Mapping[str, Floats]:
        places = {f.name: place for place, f in enumerate(side.schema.temporal)}
        columns = self.studied.shown.trajectories
        return {column: mean_by_step(side, places[column])[0] for column in columns}


def _planes(points: Any) -> Arrays:
    """Real and other stays in the principal plane of real ones."""
    real, other = (np.asarray(part[:KEPT], dtype=np.float32) for part in points)
    return {"real_plane": real, "other_plane": other}
