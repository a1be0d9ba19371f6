"""Training of networks that attack a fixed classifier in one pass: what AIN and its rivals share.

| symbol | here                | meaning                                                      |
|--------|---------------------|--------------------------------------------------------------|
| F      | `classifier`        | fixed, attacked                                              |
| G      | `perturber`         | what is trained                                              |
| B      | `decay.bound`       | largest change of a pixel in this epoch                      |
| t      | `target`            | class to reach; None: any but the classifier's own answer    |
| S      | `success`           | share of validation images that are fooled                   |

    in each epoch, for batches of the training images:
        x' = x + p, |p| <= B, within [0, 1]
        a step on the mean of the objective at x'
    after each: S on the validation images; B by `bound_decay`; weights go back where it says so

For each bound that was asked for, the weights with the largest S under it are kept, of all epochs
that trained under it or a tighter one: what fools within less often fools still better within more.
Images of the target class are left out, since there is nothing to reach.

Guarantee: none. The network may hold any record that it was trained on.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, final

import torch
from torch import Tensor, nn

from privet.attacks.generated import ANY
from privet.attacks.losses import Goal
from privet.data.dataset import Dataset
from privet.engine.examples import Examples
from privet.engine.generators import drawing_at
from privet.engine.plain import Course, EpochOrder
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.files import write_atomically
from privet.models.attacked import Attacked
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import Perturber
from privet.privacy.precision import FULL, Precision, find_precision
from privet.privacy.randomness import Randomness, SecretStream
from privet.release import INTERNAL, Release
from privet.training import unprotected
from privet.training.against_classifier import AgainstClassifier
from privet.training.bound_decay import BoundDecay
from privet.training.decay_plot import decay_plot
from privet.training.dpsgd import require_device
from privet.training.unprotected import Unprotected, Watcher

VALIDATED: Final = 0.1  # share of the records
AT_ONCE: Final = 2048
AT_ONCE_CUDA: Final = 8192  # small images in small pieces would keep a GPU waiting
PICTURE: Final = "decay.svg"
LONGEST: Final = 1.0  # norm of a step's gradient
FOREIGN: Final = {
    "augment": "none",
    "views": 1,
    "input_noise": 0.0,
    "adversarial": "none",
    "contribution": 1,
    "ema": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class PerturberSettings(AgainstClassifier):
    """What may be chosen about any of them.

    Attributes:
        batch: images in a step, fewer where there are not as many as records; default: 200, or a
            quarter of the nominal size where that is smaller.
        contribution: always one record of a unit.
        optimizer: 'adam', or 'sgd'.
    """

    epochs: float = 40.0
    learning_rate: float = 1e-3
    optimizer: str = "adam"
    contribution: int = 1

    _must_state: ClassVar[bool] = False

    def _check_together(self) -> None:
        super()._check_together()
        given = [name for name, usual in FOREIGN.items() if getattr(self, name) != usual]
        if given:
            raise InputError(
                f"'{self._what}' does not know this",
                got=f"{given[0]} {getattr(self, given[0])}",
                fix="leave it out",
            )

    def _batch_for(self, nominal_size: int) -> int:
        return max(1, min(200, nominal_size // 4))

    def network(self, data: Dataset) -> Perturber:
        """What is trained, with its first weights; of filled settings."""
        return self.first_perturber(data)

    @abstractmethod
    def decay_for(self, epochs: int) -> BoundDecay:
        """How the bound tightens in so many epochs."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Tried:
    """What a step has tried.

    Attributes:
        places: of the images among those that are trained on.
        x, labels: the images, and the classifier's own answers.
        perturbed: x'.
        scores: F(x').
    """

    places: Tensor
    x: Tensor
    labels: Tensor
    perturbed: Tensor
    scores: Tensor


class Objective(Protocol):
    """What a perturber is to make small; it may learn something of its own on the way."""

    def __call__(self, tried: Tried) -> Tensor:
        """One value for each image."""

    def state(self) -> dict[str, Any]:
        """Of what it has learned: tensors and plain values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """Images that are worth an attack, and what the classifier says of them."""

    x: Tensor
    labels: Tensor

    @classmethod
    def of(
        cls, data: Dataset, classifier: FixedClassifier, target: int | None, device: torch.device
    ) -> Self:
        """All training records but those of the target class."""
        examples, parts = Examples.of(data.train, data.bounds, device, contribution=1), []
        draws = torch.Generator(device).manual_seed(0)  # one record of each unit
        for units in torch.split(torch.arange(len(examples)), AT_ONCE):
            x = examples.rows(units, draws).x
            with torch.no_grad():
                labels = classifier(x).argmax(1)
            keep = labels != (-1 if target is None else target)
            parts.append((x[keep], labels[keep]))
        x, labels = (torch.cat(part) for part in zip(*parts, strict=True))
        return cls(x=x, labels=labels)

    def __len__(self) -> int:
        """How many."""
        return len(self.x)

    def at(self, places: Tensor) -> Self:
        """Some of them."""
        return type(self)(x=self.x[places], labels=self.labels[places])

    def parts(self) -> Iterator[Self]:
        """All of them, as many at a time as are worth it."""
        many = AT_ONCE_CUDA if self.x.device.type == "cuda" else AT_ONCE
        pairs = zip(torch.split(self.x, many), torch.split(self.labels, many), strict=True)
        return (type(self)(x=x, labels=labels) for x, labels in pairs)

    def apart(self, seed: int) -> tuple[Self, Self]:
        """To train on, and to validate with."""
        if len(self) < 2:
            raise InputError("too few images to attack", got=len(self), expected="2 or more")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        order = order.to(self.x.device)
        count = max(1, round(VALIDATED * len(self)))
        return self.at(order[count:]), self.at(order[:count])


@final
class PerturberTrainer:
    """Takes the steps of all epochs.

    Attributes:
        model: the perturber.
        plan: of all steps.
        decay: the bound, now and next.
        history: bound and success of every epoch, and whether it was taken back.
        target, aim: the class to reach, its place and in words.
    """

    def __init__(
        self,
        perturber: Perturber,
        classifier: FixedClassifier,
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        *,
        training: Images,
        validation: Images,
        target: int | None,
        aim: str,
        plan: Course,
        decay: BoundDecay,
        stream: SecretStream,
        precision: Precision = FULL,
    ) -> None:
        self.model, self.optimizer, self.plan = perturber.train(), optimizer, plan
        self.decay, self.history, self.next_step = decay, list[dict[str, Any]](), 0
        self.objective, self.target, self.aim = objective, target, aim
        self._classifier, self._training, self._validation = classifier, training, validation
        self._stream, self._precision = stream, precision
        self._order = EpochOrder(plan.sampler, stream, training.x.device)
        self._before = self._weights()
        self._kept: dict[float, dict[str, Tensor]] = {}
        self._best: dict[float, float] = {}

    note = ""

    @property
    def standing(self) -> str:
        """For the bar of progress."""
        fooled = f", fooled {100 * self.history[-1]['success']:.0f} %" if self.history else ""
        return f"bound {self.decay.bound:.3f}{fooled}"

    @property
    def best(self) -> dict[float, float]:
        """Success on validation images of what is kept for each bound that was reached."""
        return dict(self._best)

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The one there is."""
        return (self.optimizer,)

    def step(self) -> None:
        """One batch; at the end of an epoch, what follows from it."""
        places = self._order.at(len(self._training), self.next_step)
        if len(places):  # there may be fewer images than the nominal size has batches
            self._learn(places)
        self.next_step += 1
        if self.next_step % self._steps_of_epoch == 0:
            self._end_epoch()

    def _learn(self, places: Tensor) -> None:
        images, device = self._training.at(places), self._training.x.device
        with (
            self._precision.products(device),
            drawing_at(self._stream, device, step=self.next_step) as generator,
        ):
            self.optimizer.zero_grad(set_to_none=True)
            with self._precision.passes(device):
                perturbed = self.model.perturbed(
                    images.x, images.labels, self.decay.bound, generator
                )
                scores = self._classifier(perturbed).float()
            tried = Tried(
                places=places, x=images.x, labels=images.labels, perturbed=perturbed, scores=scores
            )
            torch.autograd.backward(self.objective(tried).mean())
        nn.utils.clip_grad_norm_(self.model.parameters(), LONGEST)
        self.optimizer.step()

    @cached_property
    def _steps_of_epoch(self) -> int:
        return max(1, round(1 / self.plan.sampler.rate))

    def _end_epoch(self) -> None:
        self._require_sane()
        bound, success = self.decay.bound, self.success(self.decay.bound)
        self._keep_best(bound, success)
        back = self.decay.after(success)
        self.history.append({"bound": bound, "success": success, "taken_back": back})
        if back:
            self.model.load_state_dict(self._before)
        else:
            self._before = self._weights()

    def _require_sane(self) -> None:
        """No epoch mends weights that are no numbers."""
        weights = [w for w in self.model.parameters() if w.is_floating_point()]
        if not bool(torch.stack([w.isfinite().all() for w in weights]).all()):
            raise InputError(
                "training diverged",
                got=f"weights that are no numbers after epoch {len(self.history) + 1}",
                fix="a lower --learning-rate, or --warmup 0.05",
            )

    def _keep_best(self, bound: float, success: float) -> None:
        """For this bound and all wider ones that are wanted: what fools most there is kept."""
        for stop in self.decay.stops:
            if stop < bound:
                continue
            found = success if stop == bound else self.success(stop)
            if found >= self._best.get(stop, 0.0):
                self._kept[stop], self._best[stop] = self._weights(), found

    def success(self, bound: float) -> float:
        """Share of the validation images that are fooled."""
        self.model.eval()
        fooled: int | Tensor = 0
        images = self._validation
        draws = torch.Generator(images.x.device).manual_seed(len(self.history))
        with torch.no_grad():
            for part in images.parts():
                tried = self.model.perturbed(part.x, part.labels, bound, draws)
                said = self._classifier(tried).argmax(1)
                reached = said != part.labels if self.target is None else said == self.target
                fooled = fooled + reached.sum()
        self.model.train()
        return int(fooled) / len(images)

    def released_model(self) -> Attacked:
        """A network for each bound, and the classifier behind; bounds never reached: the last."""
        made = []
        for bound in self.decay.stops:
            network = copy.deepcopy(self.model)
            network.load_state_dict(self._kept.get(bound, self._weights()))
            made.append(network)
        shape = tuple(self._training.x.shape[1:])
        return Attacked(made, self.decay.stops, self._classifier, shape)

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on: tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": self.objective.state(),
            "decay": self.decay.state(),
            "before": self._before,
            "kept": [[bound, self._best[bound], self._kept[bound]] for bound in self._kept],
            "history": self.history,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.objective.restore(state["objective"])
        self.decay = BoundDecay(**state["decay"] | {"stops": tuple(state["decay"]["stops"])})
        self._before, self.history = state["before"], state["history"]
        self._best = {bound: best for bound, best, _ in state["kept"]}
        self._kept = {bound: weights for bound, _, weights in state["kept"]}


def length(d: Tensor) -> Tensor:
    """l2 norm of each row; the small term keeps the slope finite at zero."""
    return d.flatten(1).square().sum(1).add(1e-12).sqrt()


def fooling_margin(
    scores: Tensor, labels: Tensor, target: int | None, *, confidence: float
) -> Tensor:
    """How far scores are from the goal; no less than -`confidence`, where nothing more is won."""
    wanted = labels if target is None else torch.full_like(labels, target)
    margin = Goal(labels=wanted, targeted=target is not None).margin(scores)
    return margin.clamp_min(-confidence)


def fooling_entropy(scores: Tensor, labels: Tensor, target: int | None) -> Tensor:
    """-log of the probability of the target; of all classes but the label, without a target."""
    if target is not None:
        return -torch.log_softmax(scores, 1)[:, target]
    others = scores.scatter(1, labels[:, None], -torch.inf)
    return torch.logsumexp(scores, 1) - torch.logsumexp(others, 1)


def probabilities(images: Images, classifier: FixedClassifier) -> Tensor:
    """What the classifier says of clean images."""
    with torch.no_grad():
        parts = [torch.softmax(classifier(part.x), 1) for part in images.parts()]
    return torch.cat(parts)


ObjectiveOf = Callable[[Images, FixedClassifier, int | None], Objective]


def build_trainer(
    data: Dataset, settings: PerturberSettings, objective_of: ObjectiveOf
) -> PerturberTrainer:
    """Of filled settings; `objective_of(images, classifier, target)` makes the objective."""
    device, target = require_device(settings.device), settings.target_class(data)
    classifier = settings.fixed(data).module.to(device)
    images = Images.of(data, classifier, target, device)
    training, validation = images.apart(settings.init_seed)
    perturber = settings.network(data).to(device)
    assert settings.batch is not None
    sampler, steps = Turns(
        sampler="shuffled",
        batch=settings.batch,
        nominal_size=data.nominal_size,
        epochs=settings.epochs,
    ).resolved()
    return PerturberTrainer(
        perturber,
        classifier,
        _optimizer(perturber, settings),
        objective_of(training, classifier, target),
        training=training,
        validation=validation,
        target=target,
        aim=settings.target or ANY,
        plan=Course(steps=steps, sampler=sampler),
        decay=settings.decay_for(max(1, round(settings.epochs))),
        stream=Randomness.seeded(settings.init_seed).sampling,
        precision=find_precision(settings.precision, device),
    )


def _optimizer(perturber: Perturber, settings: PerturberSettings) -> torch.optim.Optimizer:
    if settings.optimizer == "adam":
        parameters = list(perturber.parameters())
        fused = parameters[0].device.type == "cuda"  # one launch where there would be many
        return torch.optim.Adam(parameters, lr=settings.learning_rate, fused=fused)
    return torch.optim.SGD(
        perturber.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )


def run(
    way: Unprotected,
    data: Dataset,
    settings: PerturberSettings,
    *,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    **rest: Any,
) -> Release:
    """As `unprotected.run`, with a picture of the decay in `internal/`, drawn anew each epoch."""
    return unprotected.run(way, data, settings, out=out, watch=_drawing(watch, out), **rest)


def resume(
    way: Unprotected, out: str | Path, data: Dataset, *, watch: Watcher | None = None, **rest: Any
) -> Release:
    """As `unprotected.resume`, with the same picture."""
    return unprotected.resume(way, out, data, watch=_drawing(watch, out), **rest)


def _drawing(watch: Watcher | None, out: str | Path | None) -> Watcher | None:
    """A watcher that draws what an epoch has shown, too; validation images are private."""
    if out is None:
        return watch
    picture, drawn = Path(out) / INTERNAL / PICTURE, 0

    def both(trainer: PerturberTrainer) -> None:
        nonlocal drawn
        if len(trainer.history) > drawn:
            drawn = len(trainer.history)
            write_atomically(picture, decay_plot(trainer.history, trainer.aim), private=True)
        if watch is not None:
            watch(trainer)

    return both


def mechanism(trainer: PerturberTrainer, settings: PerturberSettings) -> dict[str, Any]:
    """What a card says about the steps."""
    return {
        "contribution": 1,
        "noise": "none",
        "target": trainer.aim,
        "bounds": list(trainer.decay.stops),
    }
