"""Noise that hides one example in a sum, and how much of it a target needs.

Proof notes. A query with L2 sensitivity C plus N(0, (zC)^2 I) is mu-GDP with mu = 1/z; a query
with L1 sensitivity C plus Laplace noise of scale bC in each coordinate is (1/b, 0)-DP. The noise
is drawn in double precision and added in double precision before anything is rounded.

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
from privet.privacy.randomness import SecretStream
from privet.privacy.tags import secret_name
from privet.privacy.tradeoff import gaussian_delta

HASHED_AT_ONCE: Final = 2**20  # bytes
# Entries of a sum that stays on a GPU; fewer cross the bus sooner than 40 kernels are launched, or
# 450 where no single one draws the noise.
LEAST_BY_KERNEL: Final = 2**16
LEAST_BY_OPERATIONS: Final = 2**17


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


@dataclass(frozen=True, kw_only=True)
class LaplaceNoise:
    """Independent Laplace noise of scale `scale * sensitivity` in every coordinate (pure DP)."""

    scale: float
    sensitivity: float

    def __post_init__(self) -> None:
        check_scale("noise scale", self.scale)
        check_scale("sensitivity", self.sensitivity)

    def add_to(
        self, total: NDArray[np.float64], *, step: int, stream: SecretStream
    ) -> NDArray[np.float64]:
        """`total` plus noise; the draw is bound to the bytes of `total` and to the scale."""
        exact = np.ascontiguousarray(total, dtype=np.float64)
        scale = self.scale * self.sensitivity
        context = fingerprint(exact) + struct.pack("<d", scale)
        u = stream.uniform(exact.size, purpose="laplace", step=step, context=context)
        u = u.reshape(exact.shape)
        centred = u - 0.5 + 2.0**-54  # symmetric in (-1/2, 1/2): never exactly at the pole
        draw = -np.sign(centred) * np.log1p(-2.0 * np.abs(centred))
        return exact + scale * draw


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
