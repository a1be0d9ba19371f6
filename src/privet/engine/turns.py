"""Batch, epochs, sampler, cycle and bands: what goes together, in the words of the options.

The samplers and the noise refuse by themselves what is not proved. They cannot say which of the
user's numbers it came from; that is said here, before anything is computed.

| here           | meaning                                                             |
|----------------|---------------------------------------------------------------------|
| N              | `nominal_size`, the declared number of units                        |
| `cycle`        | steps of which a unit joins at most one, so a step sees N / cycle   |
| `bands`        | steps over which correlated noise is felt; the cycle must be longer |
"""

import math
from dataclasses import dataclass
from typing import final

from privet.engine.arguments import require_numbers, shown
from privet.errors import InputError
from privet.privacy.correlated import SEPARATING
from privet.privacy.sampling import Sampler, sampler_for


@final
@dataclass(frozen=True, kw_only=True)
class Turns:
    """What a user asked for; `bands` counts those of correlated noise, 0 without."""

    sampler: str
    batch: int
    nominal_size: int
    epochs: float
    cycle: int | None = None
    bands: int = 0

    def resolved(self) -> tuple[Sampler, int]:
        """The sampler and the number of steps; a refusal where the numbers do not fit."""
        self._require_sound_numbers()
        self._require_known_turns()
        self._require_room()
        drawn = sampler_for(
            self.sampler,
            batch=self.batch,
            nominal_size=self.nominal_size,
            cycle=self.cycle,
            bands=self.bands,
        )
        steps = max(1, round(self.epochs / drawn.rate))
        if self.bands > 1:
            self._require_time(drawn, steps)
        return drawn, steps

    def _require_sound_numbers(self) -> None:
        n = self.nominal_size
        if not (_is_whole(self.batch) and 1 <= self.batch <= n):
            raise InputError(
                "bad batch",
                got=shown(self.batch),
                expected=f"a whole number, 1 to the nominal size {n}",
            )
        require_numbers(epochs=self.epochs)
        if not 0 < self.epochs < float("inf"):
            raise InputError(
                "bad number of epochs", got=self.epochs, expected="a positive, finite number"
            )
        if self.cycle is not None and not (_is_whole(self.cycle) and 1 <= self.cycle <= n):
            raise InputError(
                "bad cycle",
                got=shown(self.cycle),
                expected=f"a whole number, 1 to the nominal size {n}",
                fix="leave --cycle out for the default",
            )

    def _require_known_turns(self) -> None:
        if self.bands > 1 and self.sampler not in SEPARATING:
            raise InputError(
                "correlated noise with a sampler that does not keep a unit's turns apart",
                got=f"--bands {self.bands} with --sampler {self.sampler}",
                expected=" or ".join(SEPARATING),
                fix="--sampler cyclic-poisson, or --bands 1 for independent noise",
            )
        if self.sampler == "poisson" and self.cycle not in (None, 1):
            raise InputError(
                "plain Poisson sampling has no cycle",
                got=f"--cycle {self.cycle} with --sampler poisson",
                fix="leave --cycle out, or --sampler cyclic-poisson",
            )

    def _require_room(self) -> None:
        """Cyclic Poisson: a batch comes out of one part of the units, not of all."""
        parts = self.cycle or self.bands
        if self.sampler != "cyclic-poisson" or self.batch * parts <= self.nominal_size:
            return
        most, option = self.nominal_size // parts, "--cycle" if self.cycle else "--bands"
        fits = f"{option} at most {self.nominal_size // self.batch}"
        raise InputError(
            f"the batch is larger than what a step may draw from: with {option} {parts}, one part"
            f" in {parts} of {self.nominal_size} units",
            got=f"--batch {self.batch}",
            expected=f"--batch at most {most}",
            fix=f"--batch {most}, or {fits}" if most else fits,
        )

    def _require_time(self, drawn: Sampler, steps: int) -> None:
        """Correlated noise: a cycle, and a run, of no fewer steps than bands."""
        cycle = drawn.cycle
        if self.bands > cycle:
            most = self.nominal_size // self.bands
            longer = f"--cycle {self.bands}" if self.cycle else f"--batch at most {most}"
            if self.cycle and self.sampler == "cyclic-poisson" and self.batch > most:
                longer += f" with --batch at most {most}"
            raise InputError(
                "correlated noise that outlasts the cycle of the sampler",
                got=f"--bands {self.bands}, a cycle of {self._length_of(cycle)}",
                expected=f"--bands at most {cycle}",
                fix=f"--bands {cycle}, or {longer}" if most else f"--bands {cycle}",
            )
        if self.bands > steps:
            epochs = math.ceil(100 * self.bands * drawn.rate) / 100
            raise InputError(
                "correlated noise that outlasts the run",
                got=f"--bands {self.bands}, a run of {steps} steps ({self.epochs:g} epochs)",
                expected=f"--bands at most {steps}",
                fix=f"--bands {steps}, or more steps: --epochs at least {epochs:g}, or a smaller"
                " --batch",
            )

    def _length_of(self, cycle: int) -> str:
        if self.cycle:
            return f"{cycle} steps"
        return f"{cycle} steps (batches of {self.batch} of {self.nominal_size} units)"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
