"""Synthetic records from a release: any number, chunk by chunk, under conditions.

Post-processing: it sees the weights and the schema, no record.

Conditions are met exactly, by drawing again: static columns before a stay begins, which costs
little; outcomes after it is over, which costs a whole stay for each that is refused. Cost grows
with the number of stays and of their rows; memory is that of one chunk.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, final

import numpy as np
import torch

from privet.data.records.coding import decode, decode_static
from privet.data.records.constraints import enforce
from privet.data.records.features import Codes
from privet.data.records.records import Floats, PatientRecords
from privet.data.records.schema import Schema
from privet.data.records.schema_file import schema_from_json
from privet.errors import InputError
from privet.models.record_maker import RecordMaker
from privet.models.row_transformer import RowTransformer
from privet.release import Release
from privet.synthesis.conditions import Conditions
from privet.synthesis.row_sampling import DrawsRows

CHUNK: Final = 2000  # stays drawn at a time
LEAST_SHARE: Final = 1e-4  # of draws that meet the conditions, below which we give up
TRIED: Final = 50_000  # draws before that is judged


def sample(
    release: Release, n: int, *, where: Sequence[str] = (), seed: int | None = None
) -> Iterator[PatientRecords]:
    """Chunks of n synthetic stays in all, drawn where the network lies.

    Args:
        release: made by `privet synthesize fit`; move its `model` to draw on another device.
        n: how many stays; each is a patient of its own.
        where: conditions, as "age>=60".
        seed: to draw the same again; default: a new one.
    """
    yield from Sampler.of(release, where=where, seed=seed).chunks(n)


class Drawer(Protocol):
    """A network that makes stays, in two steps: conditions are looked at in between."""

    def draw_static(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Codes of the static columns of n stays."""

    def draw_codes(self, static: torch.Tensor, generator: torch.Generator) -> Codes:
        """Codes of stays with these, as `data.records.coding` lays them out."""


@final
@dataclass(kw_only=True, eq=False)
class Sampler:
    """Draws stays; counts how many met the conditions."""

    network: Drawer
    schema: Schema
    conditions: Conditions
    generator: torch.Generator
    rng: np.random.Generator
    begun: int = 0  # draws of static columns, and those that met the conditions
    let_in: int = 0
    tried: int = 0  # stays drawn, and those that met the conditions
    kept: int = 0

    @classmethod
    def of(cls, release: Release, *, where: Sequence[str], seed: int | None) -> "Sampler":
        """For a release of records; any other is bad input."""
        network = release.model.eval()
        if "schema" not in release.config or not isinstance(network, RowTransformer | RecordMaker):
            raise InputError(
                "the release makes no records",
                got=f"method '{release.trust.get('method')}'",
                expected="one made by `privet synthesize fit`",
            )
        schema = schema_from_json(release.config["schema"])
        seed = secrets.randbits(62) if seed is None else seed
        return cls(
            network=DrawsRows(network) if isinstance(network, RowTransformer) else network,
            schema=schema,
            conditions=Conditions.read(where, schema),
            generator=torch.Generator().manual_seed(seed),
            rng=np.random.default_rng(seed),
        )

    def chunks(self, n: int) -> Iterator[PatientRecords]:
        """Chunks of n stays in all, none of them empty."""
        if n < 1:
            raise InputError("bad number of records", got=n, expected="at least 1")
        made = 0
        while made < n:
            missing = n - made
            records = self.drawn(self._draws_for(missing)).part(slice(missing))
            if len(records):
                yield numbered(records, first_id=1 + made)
            made += len(records)

    def _draws_for(self, wanted: int) -> int:
        """As many as will give so many, by the share that was kept so far; a chunk at most."""
        share = max(self.kept, 1) / self.tried if self.tried else 1.0
        return min(CHUNK, max(1, round(wanted / share)))

    def drawn(self, n: int) -> PatientRecords:
        """Those of n draws that meet the conditions on outcomes."""
        codes, values = self._static(n)
        drawn = self.network.draw_codes(codes, self.generator)
        records = decode(drawn, self.schema, self.rng)
        records = within_horizon(enforce(replace(records, static=values)))
        good = self.conditions.met_by_outcomes(records.outcomes)
        self._count(n, int(good.sum()))
        return records.part(good)

    def _static(self, n: int) -> tuple[torch.Tensor, Floats]:
        """Codes and values of static columns that meet the conditions."""
        codes, values, have = [], [], 0
        while have < n:
            drawn = self.network.draw_static(max(n - have, 256), self.generator)
            decoded = decode_static(drawn.cpu().numpy().astype(np.uint8), self.schema, self.rng)
            good = self.conditions.met_by_static(decoded)
            codes.append(drawn[torch.from_numpy(good).to(drawn.device)])
            values.append(decoded[good])
            have += int(good.sum())
            self.begun, self.let_in = self.begun + len(drawn), self.let_in + int(good.sum())
            _require_met(self.let_in, self.begun)
        return torch.cat(codes)[:n], np.concatenate(values)[:n]

    def _count(self, tried: int, kept: int) -> None:
        self.tried, self.kept = self.tried + tried, self.kept + kept
        _require_met(self.kept, self.tried)


def _require_met(kept: int, tried: int) -> None:
    if tried >= TRIED and kept < LEAST_SHARE * tried:
        raise InputError(
            "the conditions are almost never met",
            got=f"{kept} of {tried} draws",
            fix="ask for less",
        )


def within_horizon(records: PatientRecords) -> PatientRecords:
    """Without rows after the schema's horizon, which gaps drawn within their bins may pass."""
    horizon = records.schema.horizon
    if horizon is None or (records.times <= horizon).all():
        return records
    keep = records.times <= horizon
    lengths = np.bincount(records.stay_of_row[keep], minlength=len(records))
    return replace(
        records,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        times=records.times[keep],
        values=records.values[keep],
    )


def numbered(records: PatientRecords, *, first_id: int) -> PatientRecords:
    """The same stays, each a patient of its own, under numbers without gaps."""
    ids = np.array([str(first_id + k) for k in range(len(records))], dtype=np.str_)
    return replace(records, patients=ids, stays=ids)
