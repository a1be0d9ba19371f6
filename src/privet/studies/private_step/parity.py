"""Before anything is timed: whether a contestant gives the optimiser the right sum.

The reference is a loop over single examples with plain autograd: slow, independent of `torch.func`
and of every hook, obviously right. The contestant takes one whole step with noise far below
rounding, on a data set of exactly one batch (a Poisson sample at rate 1), cut into pieces. What it
left in the parameters' gradients, times the batch, must be the clipped sum; for plain SGD, the sum.

| compared in | may differ by | why                                                             |
|-------------|---------------|-----------------------------------------------------------------|
| double      | 1e-5          | every error of substance is larger; an example left out is 1/n  |
| single      | 2e-2          | as timed. Rounding may turn a ReLU over, in plain PyTorch too,   |
|             |               | where one memory layout gives other gradients than another.     |
|             |               | Who cannot run in double has only this, and must keep 1e-5.     |

The clip norm is the median norm, so that some gradients are clipped and some are not. A contestant
with layers of its own (Opacus' attention) is compared on its own model: the question here is
whether it clips and adds up what that model computes. How far the model's outputs are from
PyTorch's is written down beside it.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.engine.summing import MOST_GRADIENT_ENTRIES, MOST_ROWS
from privet.errors import CheckFailed
from privet.privacy.precision import FULL
from privet.studies.private_step.contestants import BOUNDS, CONTESTANTS, Variant
from privet.studies.private_step.machine import reason
from privet.studies.private_step.workloads import Task, Workload

TOLERANCE: Final = 1e-5
ROUNDED: Final = 2e-2  # in single precision, for who is right in double
MORE: Final = 8  # examples beyond what the engine clips at once on a CPU
PIECE: Final = 100
QUIET: Final = 1e-12  # noise multiplier
PROBED: Final = 9  # examples whose median norm is the clip norm

References = dict[tuple[Callable[[nn.Module], nn.Module], torch.dtype], dict[float, Tensor]]
"""What was computed before: by the model and the precision it is for, sums by their bound."""


@final
@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far one variant of a contestant is from the reference; `why` it may not be timed."""

    model: str
    contestant: str
    variant: str
    difference: float | None = None
    single_difference: float | None = None
    outputs_difference: float | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def quiet_task(workload: Workload, device: torch.device, *, compiling: bool = False) -> Task:
    """One batch that is the whole data set, almost no noise, and some gradients to clip."""
    parameters = sum(p.numel() for p in workload.model(device).parameters())
    n = min(MOST_ROWS["cpu"], MOST_GRADIENT_ENTRIES["cpu"] // parameters) + MORE
    task = Task(
        workload=workload,
        batch=n,
        device=device,
        records=n,
        noise_multiplier=QUIET,
        rows_at_once=min(PIECE, n // 2),
        dtype=torch.float64,
        compiling=compiling,
    )
    return replace(task, clip_norm=_median_norm(task))


def agreements(task: Task, names: Iterable[str]) -> list[Agreement]:
    """All variants of these contestants; a Privet that is wrong is refused."""
    references: References = {}
    with warnings.catch_warnings(), FULL.products(task.device):
        warnings.simplefilter("ignore")  # peers' advice, which has its place elsewhere
        found = [
            agreement(task, name, variant, references)
            for name in names
            for variant in CONTESTANTS[name](task)
            if name == "privet" or not variant.slow_to_build
        ]
    for one in found:
        if one.contestant == "privet" and one.why:
            raise CheckFailed(
                f"Privet's clipped sum on {one.model} is not autograd's",
                got=one.why,
                expected=f"a relative difference of at most {TOLERANCE:g}",
                fix="nothing was timed; please report it",
            )
    return found


def agreement(task: Task, name: str, variant: Variant, references: References) -> Agreement:
    """Of one variant; `references` remembers what others have computed."""
    found = Agreement(model=task.workload.name, contestant=name, variant=variant.label)
    double: float | None = None
    with contextlib.suppress(Exception):  # not everyone can; what is wrong shows below
        double = _sum_difference(task, variant, references)
    single: float | None = None
    try:
        if double is None or not variant.slow_to_build:
            single = _sum_difference(replace(task, dtype=torch.float32), variant, references)
        outputs = _outputs_difference(task, variant)
    except Exception as error:  # whatever a peer may do
        return replace(found, difference=double, why=reason(error))
    limits = [(double, TOLERANCE), (single, TOLERANCE if double is None else ROUNDED)]
    wrong = [d for d, most in limits if d is not None and not d <= most]  # NaN is wrong, too
    return replace(
        found,
        difference=double,
        single_difference=single,
        outputs_difference=outputs,
        why=f"wrong sum: {wrong[0]:.1e} off" if wrong else "",
    )


def reference(
    model: nn.Module, x: Tensor, y: Tensor, clip_norms: Iterable[float]
) -> dict[float, Tensor]:
    """The sums of gradients clipped to each norm, example by example, in double precision."""
    size = sum(p.numel() for p in model.parameters())
    totals = {c: torch.zeros(size, dtype=torch.float64) for c in clip_norms}
    for one in _gradients(model, x, y):
        norm = max(float(one.norm()), 1e-30)
        for clip_norm, total in totals.items():
            total += one * min(1.0, clip_norm / norm)
    return totals


def _gradients(model: nn.Module, x: Tensor, y: Tensor) -> Iterator[Tensor]:
    for one, label in zip(torch.split(x, 1), torch.split(y, 1), strict=True):
        loss = F.cross_entropy(model(one), label)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        yield torch.cat([part.double().flatten().cpu() for part in parts])


def _median_norm(task: Task) -> float:
    norms = [float(one.norm()) for one in _gradients(task.model(), *task.first(PROBED))]
    return sorted(norms)[len(norms) // 2]


def _sum_difference(task: Task, variant: Variant, references: References) -> float:
    key = (variant.adapted, task.dtype)
    if key not in references:
        norms = {bound: bound * task.clip_norm for bound in BOUNDS}
        model = variant.adapted(task.model())
        sums = reference(model, *task.first(task.batch), norms.values())
        references[key] = {bound: sums[norm] for bound, norm in norms.items()}
    model = variant.adapted(task.model())
    variant.build(task, model).step()
    updates = [p.grad for p in model.parameters() if p.grad is not None]
    found = torch.cat([update.detach().double().flatten().cpu() for update in updates])
    return _difference(task.batch * found, references[key][variant.bound])


def _outputs_difference(task: Task, variant: Variant) -> float:
    x, _ = task.first(PROBED)
    with torch.no_grad():
        return _difference(variant.adapted(task.model())(x), task.model()(x))


def _difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
