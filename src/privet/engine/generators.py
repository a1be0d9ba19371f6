"""PyTorch's generators, set by addresses of a secret stream.

They draw what makes a unit's gradient random before it is clipped: dropout, views, the choice among
a unit's records. The guarantee needs that these draws are independent from unit to unit: with one
unit more, others get other draws of the same law. That PyTorch's generators are as good as random
is an assumption of its own, `TORCH_DRAWS`; what keys and noise rest on does not imply it.

Two uses never share an address: from one seed, equal kernels draw equal numbers, and a unit's views
would follow from another's dropout.

| device | generator  | set from                                                               |
|--------|------------|------------------------------------------------------------------------|
| CPU    | MT19937    | all 624 words of its state: `manual_seed` uses 32 bits of its argument |
| others | by a seed  | 63 bits; that is all that CUDA's Philox generator takes, and one more  |

Kernels may use less of it: where PyTorch is built with MKL, dropout on the CPU draws each mask from
a number of 32 bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from privet.privacy.clipping import PerExampleLoss
from privet.privacy.probing import undisturbed
from privet.privacy.randomness import SecretStream

TORCH_DRAWS: Final = (
    "PyTorch's generators are as good as random: they draw dropout, views and the choice among a"
    " unit's records"
)
_STATE_WORDS: Final = 624
_STATE_START: Final = 24  # bytes of the state of a CPU generator before its words


def generator_at(
    stream: SecretStream, device: torch.device, *, purpose: str, step: int
) -> torch.Generator:
    """A generator that an address of the stream decides."""
    generator = torch.Generator(device)
    generator.manual_seed(stream.seed(purpose=purpose, step=step))
    if device.type == "cpu":
        _set_whole_state(generator, stream, purpose=purpose, step=step)
    return generator


def set_global_generators(stream: SecretStream, *, step: int) -> None:
    """Let an address decide what a model draws by itself, on any device."""
    seed = stream.seed(purpose="forward", step=step)
    # Without an accelerator, `torch.manual_seed` remembers every call for one that may come, with
    # a stack trace: most of the time of a small step.
    seeded = torch if torch.accelerator.is_available() else torch.default_generator
    seeded.manual_seed(seed)
    _set_whole_state(torch.default_generator, stream, purpose="forward", step=step)


@contextmanager
def drawing_at(
    stream: SecretStream, device: torch.device, *, step: int
) -> Iterator[torch.Generator]:
    """PyTorch's generators at addresses of the step; the one given draws records and views.

    Two addresses, one for dropout, one for records and views: a redone step repeats both.
    """
    own = [device] if device.type == "cuda" else []  # other processes may have the other GPUs
    with torch.random.fork_rng(devices=own):
        set_global_generators(stream, step=step)
        yield generator_at(stream, device, purpose="views", step=step)


def draws_by_itself(model: nn.Module, loss: PerExampleLoss, probe: tuple[Tensor, Tensor]) -> bool:
    """Whether training this model moves a global generator, tried on made-up inputs."""
    x, y = probe
    with undisturbed(model), torch.no_grad():
        model.train()
        before = _global_states(x.device)
        loss(model(x.clone()), y)
        after = _global_states(x.device)
    return not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def _global_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_whole_state(
    generator: torch.Generator, stream: SecretStream, *, purpose: str, step: int
) -> None:
    uniform = stream.uniform(_STATE_WORDS, purpose=f"{purpose}, state", step=step)
    words = np.floor(uniform * 2.0**32).astype("<u8")  # each of 32 bits, in a place for 64
    state = generator.get_state()
    state[_STATE_START : _STATE_START + words.nbytes] = torch.from_numpy(words.view(np.uint8))
    generator.set_state(state)
