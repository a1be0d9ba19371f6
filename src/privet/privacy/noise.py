"""Noise that hides one example in a sum, and how much of it a target needs.

Proof notes. A query with L2 sensitivity C plus N(0, (zC)^2 I) is mu-GDP with mu = 1/z; a query
with L1 sensitivity C plus Laplace noise of scale bC in each coordinate is (1/b, 0)-DP. Gaussian
noise is drawn in double precision and added in double precision before anything is rounded; Laplace
noise is drawn in whole steps of a grid.

A long sum on a GPU stays there: it is named (`tags`) and its noise drawn (`chacha`) on the device.
Any other is hidden on the processor, with SHA-256 for its name and AES-256 for its noise.
"""

import hashlib
import math
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from privet.errors import InputError
from privet.guarantee import check_target
from privet.privacy.chacha import fused_uniform
from privet.privacy.geometric import rounded_laplace
from privet.privacy.randomness import SecretStream
from privet.privacy.tags import secret_name
from privet.privacy.tradeoff import gaussian_delta

HASHED_AT_ONCE: Final = 2**20  # bytes
# Entries of a sum that stays on a GPU; fewer cross the bus sooner than 40 kernels are launched, or
# 450 where no single one draws the noise.
LEAST_BY_KERNEL: Final = 2**16
LEAST_BY_OPERATIONS: Final = 2**17
# Of Laplace noise: steps of the grid in a sensitivity, for each coordinate; the largest sum, in
# steps; how far a draw may go, in spreads; what rounding may cost, of the scale and of epsilon.
STEPS: Final = 2**20
MOST_STEPS: Final = 2.0**52
REACH: Final = 2.0**9
ROUNDED_UP: Final = 1 + 1e-6
DRAWN_TO: Final = 1e-10


@dataclass(frozen=True, kw_only=True)
class GaussianNoise:
    """Independent N(0, (multiplier * sensitivity)^2) in every coordinate."""

    multiplier: float
    sensitivity: float

    def __post_init__(self) -> None:
        check_scale("noise multiplier", self.multiplier)
        check_scale("sensitivity", self.sensitivity)

    def add_to(self, total: torch.Tensor, *, step: int, stream: SecretStream) -> torch.Tensor:
        """`total` (one flat vector) plus noise, in double precision, where its noise was drawn.

        The draw is bound to the bytes of `total` and to the scale: the same sum at the same step
        repeats the same output exactly, and any other sum meets noise that has nothing to do with
        it. (One draw at two scales would be two equations in it and the sum.)
        """
        exact = brought_to_its_noise(total)
        scale = self.multiplier * self.sensitivity
        context = name_of(exact, stream) + struct.pack("<d", scale)
        z = normal_beside(exact, stream, purpose="gaussian", step=step, context=context)
        return z.mul_(scale).add_(exact)

    def mean_deviation(self, steps: int) -> float:
        """The deviation of the average of the noise of the first so many steps."""
        return self.multiplier * self.sensitivity / math.sqrt(steps)


@dataclass(frozen=True, kw_only=True)
class LaplaceNoise:
    """Independent Laplace noise of scale `scale * sensitivity` in every coordinate (pure DP).

    Nothing is lost to floating point: what is released are whole multiples of a public step g, a
    power of two at most sensitivity / (n 2^20) for n coordinates, and the noise is drawn in whole
    steps (`geometric`). A sum plus a continuous draw would be rounded to a double whose low bits
    tell the sum (Mironov, 2012).

    Proof. Rounding changes a difference of two coordinates by at most one step. So neighbouring
    sums, in steps, are at most L = sensitivity / g + n apart in L1; cutting sums off at 2^52 steps
    brings them no further apart. To such a sum a Laplace draw of scale t = scale * L is added that
    was rounded to whole steps: the Laplace mechanism, post-processed. t is larger by `ROUNDED_UP`
    and `DRAWN_TO`, which covers what sums and draws lose to rounding. A draw stays within 2^9 t;
    what lies beyond has probability e^-512, which no double tells from 0.
    """

    scale: float
    sensitivity: float

    def __post_init__(self) -> None:
        check_scale("noise scale", self.scale)
        check_scale("sensitivity", self.sensitivity)

    def step_for(self, n: int) -> float:
        """The g of sums of n coordinates."""
        return float(2.0 ** math.floor(math.log2(self.sensitivity / (max(n, 1) * STEPS))))

    def add_to(
        self, total: NDArray[np.float64], *, step: int, stream: SecretStream
    ) -> NDArray[np.float64]:
        """`total` plus noise; the draw is bound to `total` in whole steps and to the scale."""
        g = self.step_for(total.size)
        whole = np.clip(np.rint(np.asarray(total, np.float64) / g), -MOST_STEPS, MOST_STEPS)
        apart = self.sensitivity / g + total.size
        spread = self.scale * apart * (ROUNDED_UP + DRAWN_TO * self.scale)
        draws = rounded_laplace(
            total.size,
            spread=spread,
            reach=REACH * spread,
            stream=stream,
            context=b"laplace" + fingerprint(whole) + struct.pack("<dq", spread, step),
        )
        # Added as whole numbers: as doubles, a far draw would be rounded before the sum is.
        return np.asarray((whole.astype(np.int64) + draws.reshape(whole.shape)) * g)


def stays_on_device(values: torch.Tensor) -> bool:
    """Whether a vector is named, and its noise drawn, on the GPU where it lies."""
    if values.device.type != "cuda":
        return False
    fused = fused_uniform(values.device) is not None
    return values.numel() >= (LEAST_BY_KERNEL if fused else LEAST_BY_OPERATIONS)


def brought_to_its_noise(total: torch.Tensor) -> torch.Tensor:
    """A sum where its noise will be drawn: on its own device, or on the processor."""
    total = total.detach()
    return (total if stays_on_device(total) else total.cpu()).contiguous()


def normal_beside(
    total: torch.Tensor, stream: SecretStream, *, purpose: str, step: int, context: bytes
) -> torch.Tensor:
    """A standard normal double for each entry of a sum that was brought to its noise."""
    n = total.numel()
    if stays_on_device(total):
        return stream.normal_on(total.device, n, purpose=purpose, step=step, context=context)
    return torch.from_numpy(stream.normal(n, purpose=purpose, step=step, context=context))


def name_of(values: torch.Tensor, stream: SecretStream) -> bytes:
    """A name of a vector, to bind noise to it or to know it again under the same key."""
    if stays_on_device(values):
        return secret_name(values, stream)
    return fingerprint(values.detach().cpu().numpy())


def fingerprint(values: NDArray[Any]) -> bytes:
    """A collision-resistant name of an array of numbers, to bind noise to it.

    SHA-256 of the pieces' SHA-256: pieces are hashed side by side, as this holds up every step.
    """
    data = np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
    pieces = [data[start : start + HASHED_AT_ONCE] for start in range(0, len(data), HASHED_AT_ONCE)]
    hashed = map(_digest, pieces) if len(pieces) < 2 else _hashers().map(_digest, pieces)
    return _digest(b"".join(hashed))


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()  # by the processor's own instructions on most machines


@cache
def _hashers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="fingerprint")


def analytic_gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier that makes one Gaussian release (epsilon, delta)-DP.

    Balle and Wang (2018): exact for every epsilon > 0, unlike sqrt(2 log(1.25/delta))/epsilon,
    which is wrong above epsilon = 1. The result is rounded up, never down.
    """
    check_target(epsilon, delta)

    def excess(log_multiplier: float) -> float:
        return gaussian_delta(math.exp(-log_multiplier), epsilon) - delta

    low, high = math.log(1e-4), math.log(1e8)
    if not excess(high) < 0 < excess(low):
        raise InputError(
            "privacy target out of range",
            got=f"epsilon={epsilon}, delta={delta}",
            expected="one that a noise multiplier between 1e-4 and 1e8 meets",
        )
    root = brentq(excess, low, high, xtol=1e-13)
    return math.exp(float(root)) * (1 + 1e-10)


def check_scale(name: str, value: float) -> None:
    """Refuse a size that noise or a bound cannot have."""
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"bad {name}", got=value, expected="a positive, finite number")
