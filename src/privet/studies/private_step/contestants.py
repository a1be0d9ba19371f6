"""Who takes part: each is one whole optimiser step of SGD on the same task.

| name         | what a step does                                                              |
|--------------|-------------------------------------------------------------------------------|
| plain        | PyTorch as written: zero_grad, mean cross entropy, backward, step             |
| plain-best   | the same in the fastest of: as written, channels last, each also in pieces    |
|              | that add up, and on CUDA compiled                                             |
| privet       | the engine's own: Poisson sample, clip, sum, secret noise, fingerprint, step; |
|              | in the faster of: as in training, and where it is asked for compiled          |
| opacus-hooks | `GradSampleModule` and `DPOptimizer`                                          |
| opacus-ghost | `GradSampleModuleFastGradientClipping`, its optimiser and its loss            |
| vmap         | `torch.func`: every example's gradient, clipped, added up, noise              |

What favours the peers: all but Privet get the same ready batch again and again, so that they
neither sample nor gather nor scale; their noise comes from PyTorch's generator, not from a
cryptographic one; they keep no accounts. What favours Privet: its step does not charge a ledger
here. A contestant with several variants (whole batch or in pieces) is timed in its fastest.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from privet.engine.account import Unpaid
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.errors import InputError
from privet.privacy.clipping import ROUNDING_MARGIN, cross_entropy, make_clipper
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.studies.private_step.workloads import Task

LEARNING_RATE: Final = 0.01
ENDLESS: Final = 10**9  # steps of the plan: nobody takes them all
PROBE: Final = 4  # examples that Privet tries its clipper on
UNCLIPPED: Final = math.inf
CLIPPED: Final = 1.0
BELOW: Final = 1.0 - ROUNDING_MARGIN
BOUNDS: Final = (UNCLIPPED, CLIPPED, BELOW)  # which part of the clip norm a gradient is cut down to


@final
@dataclass(frozen=True)
class Ready:
    """A contestant on its mark: `step` is what is timed."""

    step: Callable[[], object]
    optimizer: torch.optim.Optimizer

    def tidy(self) -> None:
        """Give the gradients back, outside the clock: others need the memory."""
        self.optimizer.zero_grad(set_to_none=True)


def _as_it_is(model: nn.Module) -> nn.Module:
    return model


@final
@dataclass(frozen=True)
class Variant:
    """One way to take the step.

    `bound`, one of `BOUNDS`: plain SGD does not clip, and Privet goes a little below the clip
    norm, so that rounding lifts no contribution above it. `adapted` makes the model one that the
    contestant can take. One that is `slow_to_build` is compared in double precision only if it is
    Privet's, and not at all if it is plain SGD.
    """

    label: str
    build: Callable[[Task, nn.Module], Ready]
    bound: float = CLIPPED
    adapted: Callable[[nn.Module], nn.Module] = _as_it_is
    slow_to_build: bool = False


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def _pieces(task: Task, rows: int) -> list[tuple[Tensor, Tensor]]:
    x, y = task.first(task.batch)
    return list(zip(torch.split(x, rows), torch.split(y, rows), strict=True))


# Plain SGD


def plain(task: Task, model: nn.Module) -> Ready:
    """PyTorch as written."""
    return _plain(task, model, model, [task.first(task.batch)])


def channels_last(task: Task, model: nn.Module) -> Ready:
    """Images and filters laid out with the channels last."""
    return _channels_last(task, model, task.batch)


def in_pieces(task: Task, model: nn.Module) -> Ready:
    """Gradients added up over pieces that stay in a cache."""
    return _plain(task, model, model, _pieces(task, task.rows_at_once))


def in_pieces_channels_last(task: Task, model: nn.Module) -> Ready:
    """Both."""
    return _channels_last(task, model, task.rows_at_once)


def compiled(task: Task, model: nn.Module) -> Ready:
    """By `torch.compile`, for this very size."""
    torch.compiler.reset()  # it counts what it compiled for other models and gives up at eight
    return _plain(task, model, torch.compile(model, dynamic=False), [task.first(task.batch)])


def _channels_last(task: Task, model: nn.Module, rows: int) -> Ready:
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    laid = torch.channels_last
    pieces = [(x.contiguous(memory_format=laid), y) for x, y in _pieces(task, rows)]
    return _plain(task, model, model, pieces)


def _plain(
    task: Task,
    model: nn.Module,
    called: Callable[[Tensor], Tensor],
    pieces: Sequence[tuple[Tensor, Tensor]],
) -> Ready:
    optimizer = _sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        for x, y in pieces:
            with task.passes():
                loss = F.cross_entropy(called(x), y)
            share = len(x) / task.batch
            (loss if share == 1 else share * loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return Ready(step, optimizer)


# Privet


def privet(task: Task, model: nn.Module, *, compiled: bool = False) -> Ready:
    """The engine's trainer, its sampler, its pieces, its noise."""
    optimizer = _sgd(model)
    plan = Plan(
        steps=ENDLESS,
        sampling_rate=task.batch / task.records,
        clip_norm=task.clip_norm,
        noise_multiplier=task.noise_multiplier,
        normaliser=float(task.batch),
        delta=1e-5,
    )
    probe, precision = task.first(PROBE), find_precision(task.precision, task.device)
    clipper = make_clipper(model, cross_entropy, task.clip_norm, probe=probe, precision=precision)
    trainer = PrivateTrainer(
        model=model,
        optimizer=optimizer,
        examples=task.examples(),
        plan=plan,
        clipper=clipper,
        randomness=Randomness.fresh(),
        account=Unpaid(),
        origin=Origin(facts={}, train="made up", test="made up"),
        probe=probe,
        compiled=compiled,
    )
    batches = trainer.batches()
    return Ready(lambda: trainer.step(next(batches)), optimizer)


# Opacus


def _compatible(model: nn.Module) -> nn.Module:
    """With Opacus' own attention and recurrent layers for PyTorch's."""
    from opacus.validators import ModuleValidator

    like = next(model.parameters())
    fixed: nn.Module = ModuleValidator.fix(model).to(like.device, like.dtype).train()
    ModuleValidator.validate(fixed, strict=True)
    return fixed


def opacus_hooks(task: Task, model: nn.Module, rows: int) -> Ready:
    """Every example's gradient by hooks, then clipped by the optimiser."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model)
    optimizer = DPOptimizer(_sgd(model), **_opacus_settings(task))
    return _opacus(task, wrapped, optimizer, nn.CrossEntropyLoss(), rows)


def opacus_ghost(task: Task, model: nn.Module, rows: int) -> Ready:
    """Norms by hooks, then a second backward pass over weighted losses."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=task.clip_norm)
    optimizer = DPOptimizerFastGradientClipping(_sgd(model), **_opacus_settings(task))
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    return _opacus(task, wrapped, optimizer, loss, rows)


def _opacus_settings(task: Task) -> dict[str, Any]:
    return {
        "noise_multiplier": task.noise_multiplier,
        "max_grad_norm": task.clip_norm,
        "expected_batch_size": task.batch,
    }


def _opacus(task: Task, wrapped: nn.Module, optimizer: Any, loss: Any, rows: int) -> Ready:
    """Several pieces are one step, as Opacus' `BatchMemoryManager` makes them."""
    pieces = _pieces(task, rows)

    def step() -> None:
        for i, (x, y) in enumerate(pieces):
            optimizer.signal_skip_step(do_skip=i + 1 < len(pieces))
            optimizer.zero_grad()
            with task.passes():
                losses = loss(wrapped(x), y)
            losses.backward()
            optimizer.step()

    return Ready(step, optimizer)


# vmap


def vmapped(task: Task, model: nn.Module, rows: int) -> Ready:
    """The way of the PyTorch tutorials on per-sample gradients."""
    optimizer, pieces = _sgd(model), _pieces(task, rows)
    weights = dict(model.named_parameters())

    def loss_of_one(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        with task.passes():
            return F.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    per_example = vmap(grad(loss_of_one), in_dims=(None, 0, 0), randomness="different")

    def step() -> None:
        optimizer.zero_grad()
        values = {name: weight.detach() for name, weight in weights.items()}
        sums = {name: torch.zeros_like(value) for name, value in values.items()}
        for x, y in pieces:
            _add_clipped(sums, per_example(values, x, y), task.clip_norm)
        for name, weight in weights.items():
            noise = torch.randn_like(weight) * (task.noise_multiplier * task.clip_norm)
            weight.grad = (sums[name] + noise) / task.batch
        optimizer.step()

    return Ready(step, optimizer)


def _add_clipped(sums: dict[str, Tensor], rows: dict[str, Tensor], clip_norm: float) -> None:
    norms = torch.stack([part.flatten(1).norm(dim=1) for part in rows.values()]).norm(dim=0)
    factors = (clip_norm / norms).clamp(max=1.0)
    for name, part in rows.items():
        sums[name] += torch.einsum("i,i...->...", factors, part)


# All of them


def _plain_only(task: Task) -> Iterable[Variant]:
    yield Variant("as written", plain, bound=UNCLIPPED)


def _plain_best(task: Task) -> Iterable[Variant]:
    yield Variant("as written", plain, bound=UNCLIPPED)
    if not task.workload.tokens:
        yield Variant("channels last", channels_last, bound=UNCLIPPED)
    if task.batch > task.rows_at_once:
        yield Variant("in pieces", in_pieces, bound=UNCLIPPED)
        if not task.workload.tokens:
            both = "in pieces, channels last"
            yield Variant(both, in_pieces_channels_last, bound=UNCLIPPED)
    if task.device.type == "cuda":
        yield Variant("compiled", compiled, bound=UNCLIPPED, slow_to_build=True)


def _privet(task: Task) -> Iterable[Variant]:
    yield Variant("as in training", privet, bound=BELOW)
    if task.compiling:
        yield Variant("compiled", partial(privet, compiled=True), bound=BELOW, slow_to_build=True)


def _whole_or_in_pieces(
    build: Callable[[Task, nn.Module, int], Ready],
    adapted: Callable[[nn.Module], nn.Module] = _as_it_is,
) -> Callable[[Task], Iterable[Variant]]:
    def variants(task: Task) -> Iterable[Variant]:
        yield Variant("whole batch", lambda t, m: build(t, m, t.batch), adapted=adapted)
        if task.batch > task.rows_at_once:
            yield Variant("in pieces", lambda t, m: build(t, m, t.rows_at_once), adapted=adapted)

    return variants


CONTESTANTS: Final[dict[str, Callable[[Task], Iterable[Variant]]]] = {
    "plain": _plain_only,
    "plain-best": _plain_best,
    "privet": _privet,
    "opacus-hooks": _whole_or_in_pieces(opacus_hooks, _compatible),
    "opacus-ghost": _whole_or_in_pieces(opacus_ghost, _compatible),
    "vmap": _whole_or_in_pieces(vmapped),
}
ALWAYS: Final = ("plain", "privet")  # there is nothing to say without them
PEERS: Final = tuple(name for name in CONTESTANTS if name not in ALWAYS)


def with_peers(peers: Iterable[str]) -> list[str]:
    """The contestants of a race: plain and Privet always, and these peers, in the usual order."""
    asked = list(peers)
    for name in asked:
        if name not in PEERS:
            near = difflib.get_close_matches(name, PEERS, n=1)
            raise InputError(
                "unknown peer",
                got=f"'{name}'",
                expected=f"one of {', '.join(PEERS)}",
                fix=f"did you mean '{near[0]}'?" if near else "plain and privet always take part",
            )
    return [name for name in CONTESTANTS if name in ALWAYS or name in asked]
