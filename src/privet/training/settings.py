"""What a user may choose about a DP-SGD run, and the plan that follows from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import nn

from privet.data.dataset import Dataset
from privet.engine.fixed_parts import ATTACKER, PAID, FixedPart
from privet.engine.plan import Plan
from privet.engine.prepare import Extras, left_for_training
from privet.engine.spent import Spent
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import check_target
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.privacy.geometry import GEOMETRIES, Geometry
from privet.privacy.sampling import SAMPLERS
from privet.training.ordinary import CHOICES, OrdinarySettings
from privet.training.paid_attacker import require_countable, require_paid, spent_by
from privet.training.stated_public import lines


@dataclass(frozen=True, kw_only=True)
class Settings(OrdinarySettings):
    """What a user may choose besides the ordinary. None of it is read off the data.

    Attributes:
        epsilon: target, add/remove neighbours (zero-out where the sampler knows no other), of all
            that is counted: learned facts and a private attacker, too.
        delta: of the target.
        batch: expected units in a step; default: a fifth of the nominal size, at most 2048.
        learning_rate: highest one, on the update in units of the clip norm.
        clip_norm: bound on one unit's gradient.
        clipping: in which norm: 'flat', 'per-layer', 'weighted' (by the sizes of the layers).
        sampler: 'poisson', 'cyclic-poisson', 'fixed-batches', 'shuffled'.
        cycle: steps in which a unit has one turn, for the samplers with turns.
        bands: of correlated noise; 1 is independent noise.
        recipe: where the settings come from, if from a recipe of `privet recipes`.
        compile: whether the model's passes are compiled; default: where that pays.
        keep_keys: keep the secret keys in `internal/` until the run ends, so that a killed run
            repeats its lost steps exactly; otherwise they are charged again.
        canaries: made-up units by which the run itself is audited (`engine.canaries`); the bound
            stays in `internal/audit.json`; 0 for none.
        noise_seed: for tests only: known noise, hence no epsilon.
        private_attacker: say so if the attacker was trained privately on these very records; then
            its cost is composed with the run's, and `epsilon` is the target of both.
        attacker_spent: what its card proves, as text; found by the run itself.
    """

    epsilon: float
    delta: float = 1e-5
    clip_norm: float = 1.0
    clipping: str = "flat"
    sampler: str = "poisson"
    cycle: int | None = None
    bands: int = 1
    recipe: str | None = None
    compile: bool | None = None
    keep_keys: bool = True
    canaries: int = 0
    noise_seed: int | None = None
    private_attacker: bool = False
    attacker_spent: str | None = None

    method: ClassVar[str] = "dpsgd"
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **CHOICES,
        "clipping": GEOMETRIES,
        "sampler": SAMPLERS,
    }
    _positive: ClassVar[tuple[str, ...]] = (*OrdinarySettings._positive, "clip_norm")
    _counts: ClassVar[tuple[str, ...]] = (*OrdinarySettings._counts, "bands")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target(self.epsilon, self.delta)

    def _check_together(self) -> None:
        super()._check_together()
        self._check_word_about_attacker()
        if self.canaries < 0 or self.canaries == 1:
            raise InputError("bad canaries", got=self.canaries, expected="0, or 2 and more")
        if not self.keep_keys and (self.sampler != "poisson" or self.bands > 1):
            raise InputError(
                "a run in which every unit has its turn can only be resumed with its keys",
                got=f"no kept keys, {self.sampler} sampling, {self.bands} bands",
                fix="keep the keys, or use independent noise and Poisson sampling",
            )

    def _check_word_about_attacker(self) -> None:
        public = bool((self.public_attacker or "").strip())
        if self.attacker is None and self.private_attacker:
            raise InputError("a statement about no network", fix="leave --private-attacker out")
        if self.attacker is not None and not public and not self.private_attacker:
            raise InputError(
                "a network that has seen the records would bring them into every gradient",
                got=f"attacker '{self.attacker}', and no word about where it is from",
                fix='--public-attacker "trained on ..., which is public"; if it was trained'
                " privately on these records, --private-attacker",
            )
        if self.public_attacker is not None and self.private_attacker:
            raise InputError(
                "the network is public, or trained privately on these records",
                got="both",
                expected="one of --public-attacker and --private-attacker",
            )

    def filled_for(self, data: Dataset) -> Self:
        """With what the card of the attacker proves."""
        filled, spent = super().filled_for(data), None
        if self.attacker is not None:
            spent = spent_by(self.attacker)
            if self.private_attacker:
                require_countable(self.attacker, spent, data)
        return replace(filled, attacker_spent=None if spent is None else spent.to_text())

    @property
    def _spent(self) -> Spent | None:
        """What the attacker cost the records that it was trained on; of filled settings."""
        return None if self.attacker_spent is None else Spent.from_text(self.attacker_spent)

    @property
    def _counted(self) -> Spent | None:
        """What the attacker cost these records; of filled settings."""
        if not self.private_attacker:
            return None
        assert self._spent is not None, "settings that were not filled"
        return self._spent

    def fixed_parts(self, data: Dataset) -> tuple[FixedPart, ...]:
        """With what the attacker cost."""
        return tuple(
            replace(
                part,
                statement=PAID if self.private_attacker else part.statement,
                spent=self._spent,
            )
            if part.part == ATTACKER
            else part
            for part in super().fixed_parts(data)
        )

    def require_public(self, data: Dataset, ledger: Ledger | None) -> None:
        """And what was called private must be paid for."""
        super().require_public(data, ledger)
        if self.attacker is not None and (paid := self._counted) is not None:
            require_paid(self.attacker, paid, lines(self.attacker_data), data, ledger)

    @property
    def _may_be_private(self) -> tuple[str, ...]:
        return (*super()._may_be_private, ATTACKER)

    def _batch_for(self, nominal_size: int) -> int:
        """Large batches serve private training."""
        return max(1, min(2048, nominal_size // 5))

    def plan_for(self, data: Dataset, whole: Callable[[DpEvent], DpEvent] | None = None) -> Plan:
        """The plan, calibrated to the target; `whole` as in `Plan.calibrate`.

        With a private attacker the target is that of its plan and of all that `whole` stands for,
        composed.
        """
        filled, epsilon = self.filled_for(data), left_for_training(self.epsilon, data)
        assert filled.batch is not None
        drawn, steps = Turns(
            sampler=self.sampler,
            batch=filled.batch,
            nominal_size=data.nominal_size,
            epochs=self.epochs,
            cycle=self.cycle,
            bands=0 if self.bands == 1 else self.bands,
        ).resolved()
        if (paid := filled._counted) is not None:
            epsilon = paid.left_of(epsilon, self.delta, drawn.adjacencies, part=ATTACKER)
            whole = _after(paid, whole)
        return Plan.calibrate(
            epsilon=epsilon,
            delta=self.delta,
            nominal_size=data.nominal_size,
            batch=filled.batch,
            epochs=self.epochs,
            clip_norm=self.clip_norm,
            unit=data.unit,
            sampler=self.sampler,
            cycle=self.cycle,
            bands=self._coefficients(steps),
            whole=whole,
        )

    def plan_like(self, plan: Plan) -> Plan:
        """`plan` for these settings, which differ from its own in nothing that its event shows."""
        return replace(plan, clip_norm=self.clip_norm, bands=self._coefficients(plan.steps))

    def made_of(self, trained: nn.Module, data: Dataset, plan: Plan) -> nn.Module:
        """The classifier that is released: what was trained, or what follows from it and the plan.

        Post-processing: it looks at no record.
        """
        return trained

    def extras(self) -> Extras:
        """What makes the training strong or fast and leaves its guarantee as it is."""
        return Extras(
            geometry=Geometry(self.clipping),
            contribution=self.contribution,
            augmentation=self.augmentation,
            adversary=self.adversary,
            ema=self.ema or None,
            precision=self.precision,
            compiled=self.compile,
        )

    def _coefficients(self, steps: int) -> tuple[float, ...]:
        if self.bands == 1:
            return ()
        workload = Workload(
            steps=steps,
            momentum=self.momentum if self.optimizer == "sgd" else 0.0,
            last_rate=1.0 if self.schedule == "constant" else 0.0,
        )
        return optimal_coefficients(workload, self.bands)


def _after(paid: Spent, whole: Callable[[DpEvent], DpEvent] | None) -> Callable[[DpEvent], DpEvent]:
    """What was paid before, once, and then all that one run stands for."""
    return lambda run: paid.composed_with(run if whole is None else whole(run))
