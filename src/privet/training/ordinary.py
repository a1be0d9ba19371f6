"""What a user may choose about any run, private or not."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Self, cast, get_args, get_type_hints

import torch
from torch import nn

from privet.attacks.geometry import NORMS, Norm
from privet.data.dataset import Dataset
from privet.engine.adversary import Adversary
from privet.engine.arguments import named_or_none, shown
from privet.engine.examples import CONTRIBUTION, Augmentation
from privet.engine.fixed_parts import ATTACKER, FixedPart
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create, default_model
from privet.models.augmentation import AUGMENTATIONS, Views
from privet.models.registry import SMALL
from privet.privacy.precision import PRECISIONS
from privet.privacy.units import PerExampleLoss, cross_entropy
from privet.training.adversarial import ADVERSARIES, SIZE, STEPS, find_adversary
from privet.training.adversarial_network import (
    BY_NETWORK,
    as_fixed_part,
    by_network,
    found_about,
)
from privet.training.schedule import SCHEDULES
from privet.training.stated_public import lines, require_other_records

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "schedule": tuple(SCHEDULES),
    "optimizer": ("sgd", "adam"),
    "augment": AUGMENTATIONS,
    "adversarial": (*ADVERSARIES, *BY_NETWORK),
    "adversarial_norm": NORMS,
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
class OrdinarySettings(ABC):
    """What a user may choose. None of it is read off the data.

    Attributes:
        batch: units in a step; the default is the method's.
        epochs: passes over the data.
        learning_rate: highest one.
        schedule: how it goes on: 'linear' or 'cosine' to zero, or 'constant'.
        warmup: share of the steps in which it first rises from zero.
        optimizer: 'sgd', or 'adam'.
        momentum: of SGD.
        contribution: most records of one unit in a step, where a unit has several.
        augment: random views of every example, averaged: 'none', 'shift', 'flip-crop'.
        views: how many.
        input_noise: standard deviation of Gaussian noise on every view, not cut off at the bounds.
        adversarial: train on adversarial examples: 'kurakin' (beside the clean ones), 'madry'
            (instead of them), 'ain' (by a network, beside the clean ones), 'ain-madry' (by both,
            beside them), or 'none'.
        attacker: for 'ain' and 'ain-madry': folder of a release of `ain`.
        public_attacker: the statement that these records had no part in it, in words.
        attacker_digest, attacker_data: of its weights, and the data sets behind it; found by the
            run itself.
        adversarial_norm: of their perturbations: 'linf', 'l2', 'l1'; default: linf.
        adversarial_size: largest norm of one, inputs in [0, 1]; default: 0.1.
        adversarial_steps: gradients to find one; default: 1 for 'kurakin', 7 for 'madry'.
        ema: decay of the moving average of weights that is released; 0 releases the last ones.
        model: a name of `privet.models`; default: by the shape of the examples.
        init_seed: of the first weights; public.
        device: 'cpu', 'cuda', ...
        precision: how coarsely gradients are computed: 'float32', 'tf32' (CUDA only), 'bf16'.
        checkpoint_every: steps between checkpoints; default: every 20 seconds.
    """

    batch: int | None = None
    epochs: float = 30.0
    learning_rate: float = 0.25
    schedule: str = "linear"
    warmup: float = 0.0
    optimizer: str = "sgd"
    momentum: float = 0.9
    contribution: int = CONTRIBUTION
    augment: str = "none"
    views: int = 1
    input_noise: float = 0.0
    adversarial: str = "none"
    adversarial_norm: str | None = None
    adversarial_size: float | None = None
    adversarial_steps: int | None = None
    attacker: str | None = None
    public_attacker: str | None = None
    attacker_digest: str | None = None
    attacker_data: str | None = None
    ema: float = 0.0
    model: str | None = None
    init_seed: int = 0
    device: str = "cpu"
    precision: str = "float32"
    checkpoint_every: int | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = CHOICES
    _positive: ClassVar[tuple[str, ...]] = ("learning_rate", "epochs", "adversarial_size")
    _small_models: ClassVar[tuple[str, ...]] = SMALL
    _attack_steps: ClassVar[Mapping[str, int]] = STEPS
    _shares: ClassVar[tuple[str, ...]] = ("momentum", "ema", "warmup")
    _counts: ClassVar[tuple[str, ...]] = (
        "contribution",
        "views",
        "adversarial_steps",
        "checkpoint_every",
    )

    def __post_init__(self) -> None:
        self._check_kinds()
        for name, value in self._set(self._positive):
            if not 0 < value < float("inf"):
                raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
        for name, value in self._set(self._shares):
            if not 0 <= value < 1:
                raise InputError(f"bad {name}", got=value, expected=f"0 <= {name} < 1")
        for name, value in self._set(self._counts):
            if value < 1:
                raise InputError(f"bad {name}", got=value, expected="a whole number, at least 1")
        for name, value in self._set(tuple(self._choices)):
            if value not in self._choices[name]:
                raise InputError(
                    f"unknown {name}",
                    got=f"'{value}'",
                    expected=f"one of {', '.join(self._choices[name])}",
                )
        self._check_together()

    def _set(self, names: tuple[str, ...]) -> list[tuple[str, Any]]:
        """Those of the names that have a value."""
        values = [(name, getattr(self, name)) for name in names]
        return [(name, value) for name, value in values if value is not None]

    def _check_kinds(self) -> None:
        if isinstance(self.model, nn.Module):
            raise InputError(
                "a setting names the model",
                got=f"a module ({type(self.model).__name__})",
                expected="a name of `privet models`",
                fix="train a module of your own with privet.make_private",
            )
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            kinds = get_args(hint) or (hint,)
            as_number = isinstance(value, int) and float in kinds
            is_flag = isinstance(value, bool) and bool not in kinds
            if is_flag or not (as_number or isinstance(value, kinds)):
                expected = " or ".join(_KINDS[kind] for kind in kinds)
                raise InputError(f"bad {field.name}", got=shown(value), expected=expected)

    def _check_together(self) -> None:
        if not 0 <= self.input_noise < float("inf"):
            raise InputError(
                "bad input_noise", got=self.input_noise, expected="a finite number, at least 0"
            )
        if self.views > 1 and self.augment == "none" and not self._copies_differ:
            raise InputError(
                "several views of nothing",
                got=f"views {self.views}",
                fix="name an --augment, or give an --input-noise",
            )
        details = self._set(("adversarial_norm", "adversarial_size", "adversarial_steps"))
        if self.adversarial == "none" and details:
            raise InputError(
                "details of an attack without the attack",
                got=", ".join(f"{name} {value}" for name, value in details),
                fix="--adversarial madry, or kurakin",
            )
        self._check_attacker()
        if self.adversarial != "none" and self.input_noise and not self._attack_adds_noise:
            raise InputError(
                "adversarial examples of noisy inputs",
                got=f"adversarial '{self.adversarial}', input_noise {self.input_noise:g}",
                expected="one of the two: attacks keep to [0, 1], noise does not",
                fix="leave out --adversarial or --input-noise",
            )

    def _check_attacker(self) -> None:
        if (self.adversarial in BY_NETWORK) != (self.attacker is not None):
            network = named_or_none("--attacker", self.attacker)
            raise InputError(
                "partners by a network, and the network, go together",
                got=f"--adversarial {self.adversarial}, {network}",
                fix="--adversarial ain --attacker runs/ain, or neither",
            )
        if self.attacker is None and self.public_attacker is not None:
            raise InputError("a statement about no network", fix="leave --public-attacker out")
        if self.attacker is not None and self.adversarial_norm not in (None, "linf"):
            raise InputError(
                "networks that attack know one norm", got=self.adversarial_norm, expected="linf"
            )

    @property
    def _copies_differ(self) -> bool:
        """Whether copies of an example, none of them moved, are different to the network."""
        return self.input_noise > 0

    @property
    def _attack_adds_noise(self) -> bool:
        """Whether the adversary knows of the noise, and adds it behind its attack."""
        return False

    def filled_for(self, data: Dataset) -> Self:
        """The same with every default that depends on public facts filled in."""
        attack: dict[str, Any] = {}
        if self.adversarial != "none":
            attack = {
                "adversarial_norm": self.adversarial_norm or "linf",
                "adversarial_size": self.adversarial_size or SIZE,
                "adversarial_steps": self.adversarial_steps or self._attack_steps[self.adversarial],
            }
        if self.attacker is not None:
            attack |= found_about(self.attacker, data)
        return replace(
            self,
            batch=self._batch_for(data.nominal_size) if self.batch is None else self.batch,
            model=self.model or self._default_model(data),
            **attack,
        )

    def network(self, data: Dataset) -> nn.Module:
        """What is trained, for filled settings; its first weights are those of the seed."""
        assert self.model is not None
        return create(
            self.model,
            data.shape,
            len(data.classes),
            init_seed=self.init_seed,
            instead=self._small_models,
        )

    @property
    def loss(self) -> PerExampleLoss:
        """Of one example."""
        return cross_entropy

    @property
    def covers_all(self) -> bool:
        """Whether what is proved of the run covers all that is released."""
        return True

    def fixed_parts(self, data: Dataset) -> tuple[FixedPart, ...]:
        """What went in and was not learned by the run; of filled settings."""
        if self.attacker is None or self.attacker_digest is None:
            return ()
        behind = lines(self.attacker_data)
        made = as_fixed_part(self.attacker, self.attacker_digest, self.public_attacker, behind)
        return (made,)

    def require_public(self, data: Dataset, ledger: Ledger | None) -> None:
        """Refuse what was called public and is not, by its own card; of filled settings."""
        require_other_records(
            self._stated_public(), data, ledger, may_be_private=self._may_be_private
        )

    def _stated_public(self) -> list[tuple[str, tuple[str, ...]]]:
        """Parts of which that was said, and the data sets behind them."""
        return [(ATTACKER, lines(self.attacker_data))] if self.public_attacker else []

    @property
    def _may_be_private(self) -> tuple[str, ...]:
        """Parts that these records may have had a part in, if that is said."""
        return ()

    def constrained(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...]
    ) -> torch.optim.Optimizer:
        """The optimiser of the network, with hooks for what its steps must keep; here none."""
        return optimizer

    def _default_model(self, data: Dataset) -> str:
        """The network where none was named."""
        return default_model(data.shape)

    @abstractmethod
    def _batch_for(self, nominal_size: int) -> int:
        """The method's usual batch."""

    @property
    def augmentation(self) -> Augmentation | None:
        """The views that were asked for."""
        if self.augment == "none" and not self.input_noise:
            return None
        return Views(self.augment, self.views, self.input_noise)

    @property
    def adversary(self) -> Adversary | None:
        """The adversary that was asked for; of filled settings."""
        size, steps = self.adversarial_size or SIZE, self.adversarial_steps
        steps = steps or self._attack_steps.get(self.adversarial, 1)
        if self.attacker is not None and self.attacker_digest is not None:
            source, digest = self.attacker, self.attacker_digest
            return by_network(self.adversarial, source, digest, size=size, steps=steps)
        return find_adversary(
            self.adversarial,
            size=size,
            norm=cast("Norm", self.adversarial_norm or "linf"),
            steps=steps,
        )
