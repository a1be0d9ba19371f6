"""What a user may choose about a DP-SGD run, and the plan that follows from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, get_args, get_type_hints

from torch import nn

from privet.data.dataset import Dataset
from privet.engine.arguments import shown
from privet.engine.examples import CONTRIBUTION
from privet.engine.plan import Plan
from privet.engine.prepare import Extras, left_for_training
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import check_target
from privet.models import default_model
from privet.models.augmentation import AUGMENTATIONS, Views
from privet.privacy.accounting import DpEvent
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.privacy.geometry import GEOMETRIES, Geometry
from privet.privacy.precision import PRECISIONS
from privet.privacy.sampling import SAMPLERS
from privet.training.schedule import SCHEDULES

CHOICES: Final = {
    "schedule": tuple(SCHEDULES),
    "optimizer": ("sgd", "adam"),
    "clipping": GEOMETRIES,
    "augment": AUGMENTATIONS,
    "sampler": SAMPLERS,
    "precision": tuple(PRECISIONS),
}


_KINDS: Final = {
    float: "a number",
    int: "a whole number",
    str: "a name",
    bool: "True or False",
    type(None): "None",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may choose. None of it is read off the data.

    Attributes:
        epsilon: target, add/remove neighbours (zero-out where the sampler knows no other).
        delta: of the target.
        batch: expected units in a step; default: a fifth of the nominal size, at most 2048.
        epochs: expected passes over the data.
        learning_rate: highest one, on the update in units of the clip norm.
        schedule: how it goes on: 'linear' or 'cosine' to zero, or 'constant'.
        warmup: share of the steps in which it first rises from zero.
        optimizer: 'sgd', or 'adam'.
        momentum: of SGD.
        clip_norm: bound on one unit's gradient.
        clipping: in which norm: 'flat', 'per-layer', 'weighted' (by the sizes of the layers).
        contribution: most records of one unit in a step, where a unit has several.
        augment: random views of every example, averaged before clipping: 'none', 'shift',
            'flip-crop'.
        views: how many.
        ema: decay of the moving average of weights that is released; 0 releases the last ones.
        sampler: 'poisson', 'cyclic-poisson', 'fixed-batches', 'shuffled'.
        cycle: steps in which a unit has one turn, for the samplers with turns.
        bands: of correlated noise; 1 is independent noise.
        model: a name of `privet.models`; default: by the shape of the examples.
        recipe: where the settings come from, if from a recipe of `privet recipes`.
        init_seed: of the first weights; public.
        device: 'cpu', 'cuda', ...
        precision: how coarsely gradients are computed: 'float32', 'tf32' (CUDA only), 'bf16'.
        compile: whether the model's passes are compiled; default: where that pays.
        keep_keys: keep the secret keys in `internal/` until the run ends, so that a killed run
            repeats its lost steps exactly; otherwise they are charged again.
        checkpoint_every: steps between checkpoints; default: every 20 seconds.
        noise_seed: for tests only: known noise, hence no epsilon.
    """

    epsilon: float
    delta: float = 1e-5
    batch: int | None = None
    epochs: float = 30.0
    learning_rate: float = 0.25
    schedule: str = "linear"
    warmup: float = 0.0
    optimizer: str = "sgd"
    momentum: float = 0.9
    clip_norm: float = 1.0
    clipping: str = "flat"
    contribution: int = CONTRIBUTION
    augment: str = "none"
    views: int = 1
    ema: float = 0.0
    sampler: str = "poisson"
    cycle: int | None = None
    bands: int = 1
    model: str | None = None
    recipe: str | None = None
    init_seed: int = 0
    device: str = "cpu"
    precision: str = "float32"
    compile: bool | None = None
    keep_keys: bool = True
    checkpoint_every: int | None = None
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        check_target(self.epsilon, self.delta)
        for name in ("learning_rate", "clip_norm", "epochs"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
        for name in ("momentum", "ema", "warmup"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"bad {name}", got=value, expected=f"0 <= {name} < 1")
        for name in ("contribution", "views", "bands", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"bad {name}", got=value, expected="a whole number, at least 1")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(
                    f"unknown {name}",
                    got=f"'{getattr(self, name)}'",
                    expected=f"one of {', '.join(known)}",
                )
        self._check_together()

    def _check_kinds(self) -> None:
        if isinstance(self.model, nn.Module):
            raise InputError(
                "a setting names the model",
                got=f"a module ({type(self.model).__name__})",
                expected="a name of `privet models`",
                fix="train a module of your own with privet.make_private",
            )
        for name, hint in get_type_hints(type(self)).items():
            value, kinds = getattr(self, name), get_args(hint) or (hint,)
            as_number = isinstance(value, int) and float in kinds
            is_flag = isinstance(value, bool) and bool not in kinds
            if is_flag or not (as_number or isinstance(value, kinds)):
                expected = " or ".join(_KINDS[kind] for kind in kinds)
                raise InputError(f"bad {name}", got=shown(value), expected=expected)

    def _check_together(self) -> None:
        if self.views > 1 and self.augment == "none":
            raise InputError(
                "several views of nothing", got=f"views {self.views}", fix="name an --augment"
            )
        if not self.keep_keys and (self.sampler != "poisson" or self.bands > 1):
            raise InputError(
                "a run in which every unit has its turn can only be resumed with its keys",
                got=f"no kept keys, {self.sampler} sampling, {self.bands} bands",
                fix="keep the keys, or use independent noise and Poisson sampling",
            )

    def filled_for(self, data: Dataset) -> "Settings":
        """The same with every default that depends on public facts filled in."""
        return replace(
            self,
            batch=max(1, min(2048, data.nominal_size // 5)) if self.batch is None else self.batch,
            model=self.model or default_model(data.shape),
        )

    def plan_for(self, data: Dataset, whole: Callable[[DpEvent], DpEvent] | None = None) -> Plan:
        """The plan, calibrated to the target; `whole` as in `Plan.calibrate`."""
        filled = self.filled_for(data)
        assert filled.batch is not None
        _, steps = Turns(
            sampler=self.sampler,
            batch=filled.batch,
            nominal_size=data.nominal_size,
            epochs=self.epochs,
            cycle=self.cycle,
            bands=0 if self.bands == 1 else self.bands,
        ).resolved()
        return Plan.calibrate(
            epsilon=left_for_training(self.epsilon, data),
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

    def extras(self) -> Extras:
        """What makes the training strong or fast and leaves its guarantee as it is."""
        return Extras(
            geometry=Geometry(self.clipping),
            contribution=self.contribution,
            augmentation=None if self.augment == "none" else Views(self.augment, self.views),
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
