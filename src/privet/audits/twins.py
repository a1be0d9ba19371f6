"""Many twins of a release, without and with one record, and only their answers: a black box.

| symbol | here                                                                               |
|--------|------------------------------------------------------------------------------------|
| D      | `records` blank records of one class; none by default                              |
| D'     | D and the canary: each value at one of its two bounds, drawn once, under the class |
|        | that the first weights think least likely                                          |
| phi    | `membership.confidence` of the finished model in the canary's label: the score     |
| q, T   | sampling rate and steps of the plan                                                |
| sigma  | its noise multiplier                                                               |

A privacy guarantee holds for every pair of neighbouring data sets, so an auditor chooses the pair
that shows most. That is the empty data set and the canary alone. What it adds is then all there is
beside the noise, in nearly the same direction in every step, with the full clip norm, since nothing
else moves the model. The nominal size is a constant of the plan: rate and normaliser stay as they
are, however many records there are. It also makes a twin cheap. Other records matter to mistakes
that mix examples; `records` puts some in.

The released weights (averaged ones where the release has them) are asked for one answer, which is
monotone in the canary's loss and does not saturate: its gradient has the direction of the canary's
own. A twin that weighs all steps alike (full batch, constant rate, no momentum) shows as much as
all of its noisy sums do, sqrt(T)/sigma. Weights w_t of the steps in the final model leave the share
sum w / sqrt(T sum w^2): sqrt(3)/2 where the rate falls linearly to zero; 0.95 under momentum 0.9 in
30 steps, where the last ones have not had their whole effect. Sampling
hides more from whoever sees the end alone: q sqrt(T)/sigma, where the steps themselves show about
q sqrt(T (exp(1/sigma^2) - 1)).

Guarantee: bounds and refutation are those of `two_worlds` and `gaussian`. The runs are independent
given what they share, which is public: plan, first weights, canary. The plan's guarantee holds
given the same.
"""

import copy
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from privet.audits.canary_run import RunAudit
from privet.audits.functions import LEAST_RUNS, Watch
from privet.audits.gaussian import gaussian
from privet.audits.kept_scores import KeptScores
from privet.audits.membership import confidence as label_confidence
from privet.audits.twin import made_up, plan_of, settings_of
from privet.audits.two_worlds import two_worlds, violates
from privet.data.dataset import Dataset, Split
from privet.engine.account import Unpaid
from privet.engine.handover import data_facts
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.guarantee import BEYOND_DOUBT, Adjacency
from privet.models import create
from privet.privacy.accounting import tradeoff_of
from privet.privacy.correlated import History
from privet.privacy.randomness import Randomness
from privet.training.dpsgd import build, fresh_randomness, take_steps
from privet.training.settings import Settings

TWINS: Final = "twins trained under the same plan on made-up records"
BLANK_CLASS: Final = 0
DIVERGED: Final = -1e9  # the score of a model without a finite answer

Scores = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TwinWorlds:
    """The two worlds of a plan, ready to be run.

    Attributes:
        plan, settings: of the release; a device may be another.
        worlds: data without and with the canary; it stands last.
        canary: its scaled input (1, *shape) and its label.
    """

    plan: Plan
    settings: Settings
    worlds: tuple[Dataset, Dataset]
    canary: tuple[NDArray[np.float32], int]

    @classmethod
    def of(cls, trust: Mapping[str, Any], *, records: int = 0, device: str | None = None) -> Self:
        """From the card of a release; `records` stand beside the canary."""
        plan, settings = plan_of(trust), replace(settings_of(trust, device=device), canaries=0)
        _require_pair(plan, records)
        shell = made_up(trust)
        canary = _canary(shell, settings)
        without, with_ = _splits(shell, records, canary)
        worlds = tuple(
            shell.training_on(split, nominal_size=shell.nominal_size) for split in (without, with_)
        )
        return cls(plan=plan, settings=settings, worlds=(worlds[0], worlds[1]), canary=canary)

    def scores(
        self,
        runs: int,
        *,
        seed: int | None = None,
        kept: Path | None = None,
        watch: Watch = lambda *_: None,
    ) -> tuple[Scores, Scores]:
        """Of `runs` trainings in each world, higher where the canary seems to have taken part.

        Args:
            runs: in each world.
            seed: of all draws, for tests; None for secret ones.
            kept: a file for the scores; those that stand there already are not computed again.
            watch: told how many trainings of how many are done.
        """
        if runs < LEAST_RUNS:
            raise InputError(
                "too few runs", got=runs, expected=f"at least {LEAST_RUNS} in each world"
            )
        again = [Again(self._built(data), self.settings) for data in self.worlds]
        with KeptScores(kept, self._terms(runs, seed)) as scores:
            for run, world in itertools.product(range(runs), (0, 1)):
                if len(scores.known[world]) <= run:
                    model = again[world].trained(_randomness(self.settings, seed, world, run))
                    scores.add(world, answer(model, *self.canary))
                watch(2 * run + world + 1, 2 * runs)
        return np.asarray(scores.known[0]), np.asarray(scores.known[1])

    def _terms(self, runs: int, seed: int | None) -> dict[str, Any]:
        """All that the scores depend on."""
        plan, others = self.plan.to_json(), len(self.worlds[0].train)
        terms = {"plan": plan | {"bands": list(self.plan.bands)}, "settings": asdict(self.settings)}
        made_by = {name: version(name) for name in ("privet", "torch")}
        facts = data_facts(self.worlds[0])
        return {**terms, **made_by, "data": facts, "records": others, "runs": runs, "seed": seed}

    def _built(self, data: Dataset) -> PrivateTrainer:
        randomness = fresh_randomness(self.settings)
        return build(data, self.settings, self.plan, randomness=randomness, account=Unpaid())

    def judged(self, without: Scores, with_: Scores, *, confidence: float = 0.95) -> RunAudit:
        """Bounds of epsilon, the one without assumptions first, and whether the curve falls."""
        adjacency = self.plan.sampler.adjacencies[0]
        curve = tradeoff_of(self.plan.event(), adjacency)
        others = len(self.worlds[0].train)
        bounds = [
            estimate(without, with_, delta=self.plan.delta, confidence=confidence)
            for estimate in (two_worlds, gaussian)
        ]
        return RunAudit(
            evidence=tuple(
                bound.evidence(
                    adjacency=adjacency,
                    unit=self.plan.unit,
                    attack="the final model's confidence in one speckled canary record beside"
                    f" {others or 'no'} other records (black box)",
                    canaries=1,
                    runs=len(without) + len(with_),
                    subject=TWINS,
                )
                for bound in bounds
            ),
            refuted=violates(curve, without, with_, confidence=BEYOND_DOUBT) is not None,
            curve=curve,
            scores=np.concatenate([without, with_]),
            included=np.arange(len(without) + len(with_)) >= len(without),
        )


class Again:
    """One trainer that begins anew for every run: its model was checked, and recorded, once."""

    def __init__(self, trainer: PrivateTrainer, settings: Settings) -> None:
        self._trainer, self._settings = trainer, settings
        self._weights = copy.deepcopy(trainer.model.state_dict())
        self._optimizer = copy.deepcopy(trainer.optimizer.state_dict())
        average = trainer.average
        self._average = None if average is None else copy.deepcopy(average.state())

    def trained(self, randomness: Randomness) -> nn.Module:
        """What the plan makes of the first weights under these draws."""
        trainer = self._trainer
        trainer.model.load_state_dict(self._weights)
        trainer.untouched.note()
        trainer.optimizer.load_state_dict(copy.deepcopy(self._optimizer))
        if trainer.average is not None and self._average is not None:
            trainer.average.restore(self._average)
        trainer.noise_history, trainer.next_step = History.empty(), 0
        trainer.randomness = randomness
        take_steps(trainer, self._settings, None, None)
        return trainer.released_model()


def answer(model: nn.Module, x: NDArray[np.float32], label: int) -> float:
    """The confidence of a model in the label of one example: all that an auditor sees.

    A twin that diverged is a run like any other: left out, or drawn again, the rest would be draws
    given that they did not diverge, about which a guarantee says nothing.
    """
    training, device = model.training, next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        scores = model(torch.from_numpy(x).to(device)).double().cpu().numpy()
    model.train(training)
    if not np.isfinite(scores).all():
        return DIVERGED
    return float(label_confidence(scores, [label])[0])


def _canary(shell: Dataset, settings: Settings) -> tuple[NDArray[np.float32], int]:
    """A speckled input, and the class that the (public) first weights think least likely of it."""
    x = np.random.default_rng(0).integers(0, 2, (1, *shell.shape)).astype(np.float32)
    assert settings.model is not None
    model = create(
        settings.model, shell.shape, len(shell.classes), init_seed=settings.init_seed
    ).eval()
    with torch.no_grad():
        likely = model(torch.from_numpy(x))[0]
    likely[BLANK_CLASS] = torch.inf
    return x, int(likely.argmin())


def _splits(
    shell: Dataset, records: int, canary: tuple[NDArray[np.float32], int]
) -> tuple[Split, Split]:
    """Blank records of one class; and the same with the canary behind them."""
    low, high = (np.asarray(end, np.float32) for end in (shell.bounds.low, shell.bounds.high))
    blank = np.broadcast_to(low, (records, *shell.shape)).astype(np.float32)
    x = np.concatenate([blank, low + (high - low) * canary[0]])
    y = np.append(np.full(records, BLANK_CLASS, np.int64), canary[1])
    units = None if shell.train.units is None else np.arange(records + 1)
    both = Split(x=x, y=y, units=units)
    return both.part(np.arange(records + 1) < records), both


def _require_pair(plan: Plan, records: int) -> None:
    if records < 0:
        raise InputError("bad number of records", got=records, expected="0 or more")
    if records and plan.sampler.adjacencies[0] is not Adjacency.ADD_REMOVE:
        raise InputError(
            "one record more moves the others to other batches under this sampler",
            got=f"{records} records beside the canary, {plan.sampler.name} sampling",
            expected="no other records",
            fix="leave --records out",
        )


def _randomness(settings: Settings, seed: int | None, world: int, run: int) -> Randomness:
    if seed is None:
        return Randomness.fresh(settings.init_seed)
    own = int(np.random.default_rng([seed, world, run]).integers(2**62))
    return Randomness.seeded(own, settings.init_seed)
