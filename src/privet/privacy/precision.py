"""How coarsely a private step may compute, and why the clip norm holds all the same.

| name    | the model's passes | products that add gradients up | norms          |
|---------|--------------------|--------------------------------|----------------|
| float32 | float32            | float32                        | float32, float64 |
| tf32    | TF32               | TF32                           | float32, float64 |
| bf16    | bfloat16           | TF32                           | float32, float64 |

Whatever the passes compute, each unit's gradient is some vector that depends on that unit and the
weights alone; what counts is that the vector which is *added* is no longer than the clip norm.
Gradients that are formed are rounded first, then measured, then added up in float32. Where they are
not formed, the product that adds them up may round its operands after they were measured. TF32
keeps ten bits after the first: an operand moves by at most 2^-10 of itself, even if the rest is cut
off. So a sum_t b_t a_t^T moves by at most (2^-9 + 2^-20) S, S = sum_t |b_t| |a_t|. Where what was
measured is itself a product in TF32, it may have moved as far the other way. A little more than
twice that, (2^-8 + 2^-16) S, is added to the norm before clipping (`Rounding.sums`).

Assumed, for all three and on the card: adding up the rounded terms, in float32 or better, behaves
as in real numbers. The worst case over millions of additions would exceed any allowance; what is
seen is far below it.

Norms of standardised kernels are read from a layer's output. In TF32 it is off by at most 2^-8
|a_t|; in bfloat16, where both operands and the output move by 2^-8 of themselves, by at most 2^-6
(`Rounding.outputs`).

The price: gradients are clipped a little too much, by 0.4 % where they are of rank one.
"""

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Final, final

import torch

from privet.errors import FaultyEnvironment, InputError
from privet.privacy.rules import FLOAT32, Rounding
from privet.privacy.rules.forms import tf32


@final
@dataclass(frozen=True, kw_only=True)
class Precision:
    """By name, with what rounding may do to a gradient after it was measured.

    `close` is how far two ways to compute one clipped gradient may be apart: rounding turns some
    ReLU over, or decides on the last bit of an operand.
    """

    name: str
    rounding: Rounding
    close: float
    halves: bool = False

    def passes(self, device: torch.device) -> AbstractContextManager[object]:
        """For the model's forward pass; the backward pass follows it."""
        if self.halves:
            return torch.autocast(device.type, dtype=torch.bfloat16)
        return nullcontext()

    def products(self, device: torch.device) -> AbstractContextManager[None]:
        """For everything else. No TF32 unless it is allowed, whatever PyTorch is set to.

        It can be used in matrix products and in cuDNN's convolutions, one of which adds up the
        gradients of large kernels.
        """
        return tf32(allowed=self is not FULL and device.type == "cuda")


_TF32_SUMS: Final = 2.0**-8 + 2.0**-16
FULL: Final = Precision(name="float32", rounding=FLOAT32, close=1e-3)
TF32: Final = Precision(name="tf32", rounding=Rounding(sums=_TF32_SUMS, outputs=2.0**-8), close=0.3)
BF16: Final = Precision(
    name="bf16", rounding=Rounding(sums=_TF32_SUMS, outputs=2.0**-6), close=0.3, halves=True
)
PRECISIONS: Final = {precision.name: precision for precision in (FULL, TF32, BF16)}


def find_precision(name: str, device: torch.device) -> Precision:
    """By name; refused where the device does not know it."""
    if name not in PRECISIONS:
        raise InputError(
            "unknown precision", got=f"'{name}'", expected=f"one of {', '.join(PRECISIONS)}"
        )
    if name == "tf32" and device.type != "cuda":
        raise InputError(
            "no TF32 here",
            got=f"device {device.type}",
            expected="a CUDA device",
            fix="float32 or bf16",
        )
    if name == "bf16" and device.type == "cpu":
        _require_halves_on_cpu()
    return PRECISIONS[name]


@cache
def _require_halves_on_cpu() -> None:
    """Tried in a process of its own, which dies where a machine announces AMX but lacks it."""
    trial = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); print(x @ x)"
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    if done.returncode:
        raise FaultyEnvironment(
            "bfloat16 products end the process on this processor",
            got=f"exit code {done.returncode} of a trial",
            fix="set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment, or use float32",
        )
