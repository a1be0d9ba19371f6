"""From a model, an optimiser and data to a private trainer, with every check on the way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.data.identity import entered_in_ledger
from privet.engine.account import Account, RunAccount
from privet.engine.adversary import Adversary, require_adversary
from privet.engine.arguments import (
    require_dataset,
    require_fitting,
    require_geometry,
    require_ledger,
    require_model,
    require_numbers,
    require_optimizer,
    require_views,
    shown,
)
from privet.engine.averaging import WeightAverage
from privet.engine.canaries import DiracCanaries
from privet.engine.examples import CONTRIBUTION, Augmentation, Examples, made_up_batch
from privet.engine.generators import draws_by_itself, generator_at
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.ranks import Ranks
from privet.engine.trainer import PrivateTrainer, require_all_updated
from privet.engine.turns import Turns
from privet.engine.untouched import require_fresh
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path
from privet.models.fronted import Fronted
from privet.privacy.clipping import Clipper, PerExampleLoss, cross_entropy, make_clipper
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.privacy.geometry import FLAT, Geometry
from privet.privacy.phases import in_phase, phases_of
from privet.privacy.precision import Precision, find_precision
from privet.privacy.randomness import Randomness
from privet.privacy.separation import (
    constant_layers,
    kept_constant,
    require_separate_examples,
)

# Steps from which on compiling pays, on a GPU. For a WRN-16-4 on an H200 it took about 70 seconds
# and saved about a fifth of a step.
COMPILING_PAYS: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What makes private training strong or fast, and changes nothing in its guarantee.

    Attributes:
        geometry: in which norm a unit's gradient is clipped: `privacy.geometry.Geometry("flat")`,
            "per-layer" or "weighted".
        contribution: the most records of one unit that a step uses, where units have several.
        augmentation: random views of every example, averaged before clipping:
            `models.augmentation.Views("shift", 4)`, or anything that is called like it.
        adversary: replaces or accompanies every example by an adversarial one, clipped with it:
            `training.adversarial.Madry(size=0.1)`, or anything that is called like it.
        ema: decay of the moving average of the weights that is released; None for the last ones.
        precision: how coarsely gradients are computed: "float32", "tf32" (CUDA only) or "bf16";
            what is added is no longer than the clip norm all the same, see `privacy.precision`.
        compiled: whether the model's passes are compiled; None: where that pays. What cannot be
            compiled runs as it is, and `trainer.note` says why.
        canaries: made-up units by which the run is audited; see `engine.canaries`.
    """

    geometry: Geometry = FLAT
    contribution: int = CONTRIBUTION
    augmentation: Augmentation | None = None
    adversary: Adversary | None = None
    ema: float | None = None
    precision: str = "float32"
    compiled: bool | None = None
    canaries: DiracCanaries | None = None

    def __post_init__(self) -> None:
        require_geometry(self.geometry)
        if self.contribution < 1:
            raise InputError("bad contribution", got=self.contribution, expected="at least 1")
        if not isinstance(self.compiled, bool | None):
            raise InputError("bad compiled", got=shown(self.compiled), expected="a bool or None")


def make_private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    batch: int,
    epochs: float,
    clip_norm: float = 1.0,
    sampler: str = "poisson",
    cycle: int | None = None,
    bands: int | tuple[float, ...] = 1,
    extras: Extras = Extras(),  # noqa: B008 - frozen
    loss: PerExampleLoss = cross_entropy,
    ledger: Ledger | None = None,
    label: str = "custom",
) -> PrivateTrainer:
    """Your model, your optimiser, your loop; private steps.

        trainer = privet.make_private(model, optimizer, data, epsilon=3, delta=1e-5, ...)
        for batch in trainer.batches():
            trainer.step(batch)
        release = privet.hand_over(trainer, data)

    The whole plan is reserved in the ledger before this returns.

    Args:
        model: any module that treats examples apart; inputs arrive scaled to [0, 1].
        optimizer: built from the model's parameters.
        data: with declared bounds, classes and nominal size.
        epsilon: target, add/remove neighbours.
        delta: of the target.
        batch: expected batch.
        epochs: expected passes over the data.
        clip_norm: bound on one unit's gradient.
        sampler: which units a step sees, by name; see `privacy.sampling`.
        cycle: of samplers in which every unit has its turn.
        bands: of correlated noise, whose coefficients are then the best for the optimiser's
            momentum at a constant learning rate; or the coefficients themselves, such as
            `privacy.factorisation.optimal_coefficients` finds for other schedules.
        extras: geometry of clipping, records of a user, views, adversary, average of weights,
            precision, compiling.
        loss: one value for each example.
        ledger: the user's own by default.
        label: how the run is called in the ledger.
    """
    require_dataset(data)
    require_model(model)
    require_optimizer(optimizer)
    require_ledger(ledger)
    _require_extras(extras)
    turns = Turns(
        sampler=sampler,
        batch=batch,
        nominal_size=data.nominal_size,
        epochs=epochs,
        cycle=cycle,
        bands=_number_of(bands),
    )
    plan = Plan.calibrate(
        epsilon=left_for_training(epsilon, data),
        delta=delta,
        nominal_size=data.nominal_size,
        batch=batch,
        epochs=epochs,
        clip_norm=clip_norm,
        unit=data.unit,
        sampler=sampler,
        cycle=cycle,
        bands=_coefficients(bands, optimizer, turns),
    )
    ledger = ledger if ledger is not None else Ledger(default_ledger_path())
    with entered_in_ledger(data, ledger):
        return assemble(
            model,
            optimizer,
            data,
            plan,
            loss=loss,
            randomness=Randomness.fresh(),
            open_account=lambda: RunAccount.open(ledger, data.name, plan, label=label),
            extras=extras,
        )


def assemble(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Dataset,
    plan: Plan,
    *,
    loss: PerExampleLoss,
    randomness: Randomness,
    open_account: Callable[[], Account],
    extras: Extras = Extras(),  # noqa: B008 - frozen
    ranks: Ranks = Ranks(),  # noqa: B008 - frozen
) -> PrivateTrainer:
    """Check the model on made-up inputs, choose its clipper, put the trainer together.

    The account is opened last: nothing is reserved for a model that cannot be trained.
    """
    require_fresh(model)
    device = next(model.parameters()).device
    precision = find_precision(extras.precision, device)
    probe = made_up_batch(data, device)
    for phase in phases_of(model):
        with in_phase(model, phase):
            require_fitting(model, loss, data, probe)
            require_separate_examples(model, probe[0])
    constant = constant_layers(model)
    require_all_updated(model, optimizer)
    examples = Examples.of(
        ranks.share(data.train), data.bounds, device, contribution=extras.contribution
    )
    trained, augmentation, adversary = model, extras.augmentation, extras.adversary
    drawn_for = (augmentation, adversary, data.train.units)
    chosen_by_torch = any(part is not None for part in drawn_for)
    draws_by_torch = chosen_by_torch or _draws_by_itself(model, loss, probe)
    if augmentation is not None:  # refused now, not in the first step, which would be charged
        require_views(augmentation, probe[0])
    if adversary is not None:
        require_adversary(adversary, model, probe)
    # What never changes is computed once; but an adversary moves what the front sees.
    if isinstance(model, Fronted) and adversary is None:
        # Views that are drawn once; a resumed run with its keys draws the same.
        own = ranks.own(randomness.sampling)
        generator = generator_at(own, device, purpose="kept views", step=0)
        with kept_constant(constant):
            examples = examples.seen_by(model.front, augmentation, generator)
        trained, augmentation = model.head, None
        probe = (model.front(probe[0]).detach(), probe[1])
    with kept_constant(constant):
        clipper = _clipper_of_all_phases(trained, loss, plan, probe, extras.geometry, precision)
    _require_precision(clipper, precision)
    pays = compiling_pays(plan, device)
    return PrivateTrainer(
        model=trained,
        whole=model,
        optimizer=optimizer,
        examples=examples,
        plan=plan,
        clipper=clipper,
        randomness=randomness,
        account=open_account(),
        average=None if extras.ema is None else WeightAverage(trained, extras.ema),
        augmentation=augmentation,
        adversary=adversary,
        ranks=ranks,
        origin=Origin.of(data),
        draws_by_torch=draws_by_torch,
        probe=probe,
        compiled=pays if extras.compiled is None else extras.compiled,
        canaries=extras.canaries,
    )


def _clipper_of_all_phases(
    model: nn.Module,
    loss: PerExampleLoss,
    plan: Plan,
    probe: tuple[Tensor, Tensor],
    geometry: Geometry,
    precision: Precision,
) -> Clipper:
    """Tried in every phase: the fast clipper, unless one of them needs the other."""
    clippers = []
    for phase in phases_of(model):
        with in_phase(model, phase):
            clippers.append(
                make_clipper(
                    model, loss, plan.clip_norm, probe=probe, geometry=geometry, precision=precision
                )
            )
    slow = [clipper for clipper in clippers if clipper.note]
    return (slow or clippers)[0]


def _draws_by_itself(model: nn.Module, loss: PerExampleLoss, probe: tuple[Tensor, Tensor]) -> bool:
    """In any phase."""
    for phase in phases_of(model):
        with in_phase(model, phase):
            if draws_by_itself(model, loss, probe):
                return True
    return False


def compiling_pays(plan: Plan, device: torch.device) -> bool:
    """Whether a run is long enough; by plan and device alone, so that a resumed run is alike."""
    # Compiled anew, a step may come out different; then it must be one that can be drawn anew.
    redoable = plan.sampler.redoable and not plan.bands
    return device.type == "cuda" and redoable and plan.steps >= COMPILING_PAYS


def _require_precision(clipper: Clipper, precision: Precision) -> None:
    """The reference clipper knows float32 alone: slow, where fast was asked for."""
    if clipper.precision is not precision:
        raise InputError(
            f"the model cannot be clipped in {precision.name}",
            got=f"a model that only torch.func can clip ({clipper.note})",
            fix="use float32",
        )


def _number_of(bands: object) -> int:
    """Of correlated noise; a single band is none."""
    if isinstance(bands, tuple):
        return len(bands)
    if not (isinstance(bands, int) and bands >= 1):
        raise InputError(
            "bad bands",
            got=shown(bands),
            expected="how many, at least 1, or a tuple of their coefficients",
        )
    return 0 if bands == 1 else bands


def _coefficients(
    bands: int | tuple[float, ...], optimizer: torch.optim.Optimizer, turns: Turns
) -> tuple[float, ...]:
    if isinstance(bands, tuple):
        return bands
    _, steps = turns.resolved()
    if bands == 1:
        return ()
    momentum = optimizer.defaults["momentum"] if isinstance(optimizer, torch.optim.SGD) else 0.0
    return optimal_coefficients(Workload(steps=steps, momentum=momentum), bands)


def _require_extras(extras: object) -> None:
    if not isinstance(extras, Extras):
        raise InputError("no extras", got=shown(extras), fix="write privet.Extras(ema=0.9, ...)")


def left_for_training(epsilon: float, data: Dataset) -> float:
    """The target less what learning the data's public facts has cost."""
    require_numbers(epsilon=epsilon)
    left = epsilon - sum(fact.epsilon for fact in data.learned)
    if epsilon > 0 >= left:
        raise InputError(
            "nothing is left for training",
            got=f"epsilon={epsilon:g}, of which learning public facts took {epsilon - left:g}",
            fix="allow a larger epsilon",
        )
    return left
