"""Training without privacy: what private training is compared with, and what attacks are tried on.

The loop is `engine/plain.py`: minibatch gradient descent on the mean loss, in a new order each
epoch. Ledger and card say what it is: an access to the records without any privacy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from privet.data.dataset import Dataset
from privet.engine.adversary import require_adversary
from privet.engine.arguments import require_fitting, require_views
from privet.engine.averaging import WeightAverage
from privet.engine.examples import Examples, made_up_batch
from privet.engine.plain import Course, PlainTrainer
from privet.engine.turns import Turns
from privet.models.fronted import Fronted
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.training import unprotected
from privet.training.dpsgd import model_and_optimizer, require_device
from privet.training.ordinary import OrdinarySettings
from privet.training.unprotected import Unprotected


@dataclass(frozen=True, kw_only=True)
class PlainSettings(OrdinarySettings):
    """The ordinary settings, with defaults that suit plain gradient descent.

    Attributes:
        batch: units in a step; default: 128, or the nominal size where that is smaller.
        learning_rate: highest one.
    """

    learning_rate: float = 0.05

    def _batch_for(self, nominal_size: int) -> int:
        return min(128, nominal_size)

    def course_for(self, data: Dataset) -> Course:
        """Steps and batches, of filled settings."""
        assert self.batch is not None
        sampler, steps = Turns(
            sampler="shuffled",
            batch=self.batch,
            nominal_size=data.nominal_size,
            epochs=self.epochs,
        ).resolved()
        return Course(steps=steps, sampler=sampler)


def plain_trainer(data: Dataset, settings: PlainSettings) -> PlainTrainer:
    """For filled settings."""
    device = require_device(settings.device)
    model, optimizer = model_and_optimizer(data, settings, device)
    precision, probe = find_precision(settings.precision, device), made_up_batch(data, device)
    trained, augmentation, adversary = model, settings.augmentation, settings.adversary
    require_fitting(model, settings.loss, data, probe)
    if augmentation is not None:
        require_views(augmentation, probe[0])
    if adversary is not None:
        require_adversary(adversary, model, probe)
    examples = Examples.of(data.train, data.bounds, device, contribution=settings.contribution)
    if isinstance(model, Fronted) and augmentation is None and adversary is None:
        examples, trained = examples.seen_by(model.front), model.head
    return PlainTrainer(
        model=trained,
        whole=model,
        optimizer=optimizer,
        examples=examples,
        plan=settings.course_for(data),
        stream=Randomness.seeded(settings.init_seed).sampling,
        precision=precision,
        average=WeightAverage(trained, settings.ema) if settings.ema else None,
        augmentation=augmentation,
        adversary=adversary,
        loss=settings.loss,
    )


def plain_mechanism(trainer: PlainTrainer, settings: PlainSettings) -> Mapping[str, Any]:
    """What the card says about the steps."""
    return {"contribution": trainer.contribution, "noise": "none"}


PLAIN: Final = Unprotected(
    method="plain", settings=PlainSettings, build=plain_trainer, mechanism=plain_mechanism
)

run = partial(unprotected.run, PLAIN)
resume = partial(unprotected.resume, PLAIN)
