"""Mechanisms that keep their claim: what an audit must not contradict, and how near it gets.

`gaussian` and `laplace` are the noise that Privet adds in earnest (`privacy.noise`); the trainer is
the model of `trainers`. All claim the curve that is proved for them.
"""

from typing import Final

import numpy as np
import torch

from privet.audits.mechanism import Entry, Floats, Subject
from privet.audits.mutant_settings import DELTA, EPSILON, shifted_by, trainer
from privet.audits.statistics import along
from privet.privacy.accounting import tradeoff_of
from privet.privacy.noise import GaussianNoise, LaplaceNoise, analytic_gaussian_multiplier
from privet.privacy.randomness import Randomness, SecretStream
from privet.privacy.tradeoff import Gaussian, Laplace

ONE_NUMBER: Final = "a sum of 0, and of 1, with sensitivity 1: nothing is further apart."


def gaussian() -> Subject:
    """Gaussian noise, epsilon 1 at delta 1e-5 by the analytic formula."""
    z = analytic_gaussian_multiplier(EPSILON, DELTA)
    noise = GaussianNoise(multiplier=z, sensitivity=1.0)

    def sample(included: bool, runs: int, seed: int) -> Floats:
        sums = torch.full((runs,), float(included), dtype=torch.float64)
        return noise.add_to(sums, step=0, stream=_stream(seed)).numpy()[:, None]

    return Subject(
        name="gaussian", claim=Gaussian(1 / z), pair=ONE_NUMBER, sample=sample, statistic=along([1])
    )


def laplace() -> Subject:
    """Laplace noise, pure epsilon 1."""
    noise = LaplaceNoise(scale=1 / EPSILON, sensitivity=1.0)

    def sample(included: bool, runs: int, seed: int) -> Floats:
        return noise.add_to(np.full((runs, 1), float(included)), step=0, stream=_stream(seed))

    return Subject(
        name="laplace", claim=Laplace(EPSILON), pair=ONE_NUMBER, sample=sample, statistic=along([1])
    )


def dpsgd_step() -> Subject:
    """One step of the right trainer."""
    return _trained("dpsgd-step", steps=1)


def dpsgd_training() -> Subject:
    """All of its steps."""
    return _trained("dpsgd-training", steps=4)


def _trained(name: str, *, steps: int) -> Subject:
    run = trainer(steps=steps)
    return Subject(
        name=name,
        claim=tradeoff_of(run.event),
        pair="a record of full norm, at right angles to all others; all updates are seen.",
        sample=run,
        statistic=shifted_by(1.0, run),
    )


def _stream(seed: int) -> SecretStream:
    return Randomness.seeded(seed).noise


SOUND: Final[dict[str, Entry]] = {
    "gaussian": Entry(kind="sound", summary="Gaussian noise on a number.", make=gaussian),
    "laplace": Entry(kind="sound", summary="Laplace noise on a number.", make=laplace),
    "dpsgd-step": Entry(kind="sound", summary="One step of DP-SGD.", make=dpsgd_step),
    "dpsgd-training": Entry(kind="sound", summary="Four steps of DP-SGD.", make=dpsgd_training),
}
