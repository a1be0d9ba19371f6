"""A canary patient: small fits of a generator without and with one patient, seen at what it makes.

The real thing, on a small scale: the method's own trainer, settings and noise, on a handful of
made-up records.

| symbol | here        | meaning                                                                  |
|--------|-------------|--------------------------------------------------------------------------|
| D      | `patients`  | three patients who were seen once, and of whom nothing was measured      |
| D'     |             | the same and the canary: all rows there, all values at their upper bound |
| phi    | `seen`      | what is made of fixed noise, row by row: values where measured, and masks |
|        |             | (of settled makers: values at the middle of their bins)                  |
| score  |             | its sum: the canary has the most in all cells, the others next to nothing |
| N      | `PATIENTS`  | 4, declared in both worlds                                               |

DP holds for every pair of neighbouring sets of records, and the claims of papers are made for any
set, network and number of steps. So the auditor takes few records and small networks: one patient
of four shows more than one of thousands, and a fit takes a second or so.

Under `--analysis paper` the claim is the authors'. Under `sound` it is the curve of the plan, with
full batches, where what is made at the end can show most.

Guarantee: bounds are those of `two_worlds`. Runs are independent given what they share, which is
public: records of the pair, settings, first weights, the noise of phi.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from privet.audits.mechanism import Floats, Subject
from privet.audits.twins import Again
from privet.data.dataset import Dataset, Split
from privet.data.records.coding import CODE_BOUNDS, code_shape
from privet.data.records.features import Categorical, Codes, Numeric
from privet.data.records.schema import PATIENT, Schema
from privet.data.records.schema_file import schema_to_json
from privet.engine.account import Unpaid
from privet.errors import InputError
from privet.guarantee import REFUTED
from privet.models.record_coders import unrolled
from privet.models.record_levels import Levels
from privet.models.record_maker import RecordMaker
from privet.models.record_rows import RowSizes
from privet.privacy.accounting import tradeoff_of
from privet.privacy.randomness import Randomness
from privet.privacy.tradeoff import Stated, TradeOff
from privet.synthesis.family import FAMILY
from privet.synthesis.fitting import METHODS
from privet.synthesis.published.igamt import gaps_of, trainer_of
from privet.synthesis.published.trainer import AAAI
from privet.training.dpsgd import build, fresh_randomness
from privet.training.registry import PAPER, SOUND, foreign

PATIENTS: Final = 4
RUNS: Final = 120
EPSILON: Final = 1.5
DELTA: Final = 1e-5
LOOKED_AT: Final = 32  # stays that are made of fixed noise
SIZES: Final = {"gru": "gru-16-1-4", "transformer": "transformer-16-1-4"}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    PAPER: {"batch": 2, "epochs": 30.0, "learning_rate": 0.005},
    SOUND: {"batch": PATIENTS, "epochs": 30.0, "free_batch": 8},
}
AAAI_SETTINGS: Final = {"epochs": 60.0, "learning_rate": 0.001}  # its noise is three times as large

Watch = Callable[[], object]


def schema() -> Schema:
    """Three rows of two columns; one static column."""
    return Schema(
        name="canary-patient",
        temporal=tuple(Numeric(name=name, low=0, high=1, bins=4) for name in ("a", "b")),
        static=(Categorical(name="s", values=("u", "v")),),
        outcomes=(),
        max_steps=3,
        max_gap=4.0,
        gap_bins=4,
        nominal_size=PATIENTS,
    )


def patients(included: bool) -> Dataset:
    """The records of a world; the canary stands last."""
    public, sizes = schema(), RowSizes.of(schema())
    codes: Codes = np.zeros((PATIENTS, *code_shape(public)), dtype=np.uint8)
    codes[:, 0, 0] = 1
    codes[:-1, 1, 0] = 1  # one row, after the shortest gap
    codes[-1, 0, 0] = sizes.start[0]
    codes[-1, 1:, 0] = sizes.levels[-1]
    codes[-1, 1:, 1:] = sizes.levels[:-1]
    codes = codes if included else codes[:-1]
    none = np.zeros(0, dtype=np.int64)
    return Dataset(
        name=public.name,
        train=Split(x=codes, y=np.zeros(len(codes), dtype=np.int64)),
        test=Split(x=codes[:0], y=none),
        bounds=CODE_BOUNDS,
        classes=(),
        nominal_size=PATIENTS,
        licence="none",
        source="made up",
        unit=PATIENT,
        schema=schema_to_json(public),
    )


@final
@dataclass(frozen=True, kw_only=True)
class Fits:
    """Whole fits; called, they give what is made of fixed noise, a row for each run.

    Attributes:
        method, analysis: what fits.
        options: its settings.
        watch: told after each run.
    """

    method: str
    analysis: str
    options: dict[str, Any]
    watch: Watch = lambda: None

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """Seeds of the runs follow from the seed."""
        fitted = self.fitter(patients(included))
        rows = []
        for own in np.random.default_rng(seed).integers(2**62, size=runs):
            rows.append(seen(fitted(int(own))))
            self.watch()
        return np.stack(rows)

    def settings(self, data: Dataset, noise_seed: int | None = None) -> Any:
        """Filled ones."""
        kind = METHODS[self.method].analyses[self.analysis].settings
        return kind(**self.options, noise_seed=noise_seed).filled_for(data)

    def fitter(self, data: Dataset) -> Callable[[int], RecordMaker]:
        """From the seed of a run to what it releases."""
        return self._proved(data) if self.analysis == SOUND else self._published(data)

    def _proved(self, data: Dataset) -> Callable[[int], RecordMaker]:
        """On one engine, which begins anew: its model was checked once."""
        settings = self.settings(data)
        plan = settings.plan_for(data)
        randomness = fresh_randomness(settings)
        again = Again(
            build(data, settings, plan, randomness=randomness, account=Unpaid()), settings
        )

        def fitted(seed: int) -> RecordMaker:
            trained = again.trained(Randomness.seeded(seed, settings.init_seed))
            made: RecordMaker = settings.made_of(trained, data, plan)
            return made

        return fitted

    def _published(self, data: Dataset) -> Callable[[int], RecordMaker]:
        def fitted(seed: int) -> RecordMaker:
            trainer = trainer_of(data, self.settings(data, seed))
            while trainer.next_step < trainer.plan.steps:
                trainer.step()
            return trainer.model.maker()

        return fitted


@torch.no_grad()
def seen(maker: RecordMaker) -> Floats:
    """What is made of fixed noise, on average: values where measured, and masks, (2 L F,)."""
    maker.eval()
    z = maker.drawn_latents(LOOKED_AT, torch.Generator().manual_seed(0))
    start = torch.tensor(maker.shape.sizes.start).expand(LOOKED_AT, -1)
    levels = maker.levels
    made = unrolled(maker.body, maker.last, maker.reader, start, z, levels=levels)
    x = made.x if levels is None else _settled(levels, made.x)
    both = torch.cat([x * made.m, made.m], 2).mean(0).flatten()
    return np.asarray(both.nan_to_num(0.0).double().numpy())  # a run that diverged is a run


def _settled(levels: Levels, x: Tensor) -> Tensor:
    """Values as cut points move them: what was learned of the canary may be there alone."""
    return torch.stack([levels.binned(row, place) for place, row in enumerate(x.unbind(1))], 1)


def canary_patient(
    method: str,
    analysis: str = SOUND,
    *,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    watch: Watch = lambda: None,
    **options: Any,
) -> Subject:
    """A method under audit by small fits.

    Args:
        method: of the IGAMT family.
        analysis: 'sound' or 'paper'.
        epsilon: what is asked for, and so claimed or proved.
        delta: of that.
        watch: told after each fit.
        options: further settings.
    """
    _require_known(method, analysis, options)
    slower = AAAI_SETTINGS if options.get("version") == AAAI else {}
    size = {"model": SIZES[FAMILY[method].coder], "epsilon": epsilon, "delta": delta}
    fits = Fits(
        method=method,
        analysis=analysis,
        options=size | SETTINGS[analysis] | slower | options,
        watch=watch,
    )
    data = patients(True)
    settings, flaw = fits.settings(data), ""
    claim: TradeOff
    if analysis == SOUND:
        plan = settings.plan_for(data)
        claim = tradeoff_of(plan.event(), plan.sampler.adjacencies[0])
    else:
        claim = Stated(epsilon, delta)
        noising = settings.noising(data, settings.course_for(data))
        gaps = [gap for gap in gaps_of(settings, noising) if not gap.startswith(REFUTED)]
        flaw = f"{gaps[0].capitalize()}."
    return Subject(
        name=f"{method}, {analysis}",
        claim=claim,
        delta=delta,
        unit=PATIENT,
        pair="three patients of whom nothing was measured, and one with all values at their upper"
        " bound, who is there or not; seen is what is made of fixed noise.",
        sample=fits,
        statistic=lambda rows: rows.sum(1),
        flaw=flaw,
        runs=RUNS,
    )


def _require_known(method: str, analysis: str, options: Mapping[str, Any]) -> None:
    if method not in FAMILY:
        raise InputError(
            "no canary patient for this method",
            got=f"'{method}'",
            expected=f"one of {', '.join(FAMILY)}",
            fix="privet synthesize fit --canaries 5000 audits a run by itself",
        )
    if analysis not in SETTINGS:
        raise InputError(
            "nothing is claimed that an audit could refute",
            got=f"analysis '{analysis}'",
            expected=f"one of {', '.join(SETTINGS)}",
        )
    variant = METHODS[method].analyses[analysis]
    unknown = sorted(set(options) - variant.options)
    if unknown:
        raise foreign(METHODS, method, unknown, variant)
