"""How good a trial is: correct answers on units that no trial trains on, plus noise.

Guarantee. Every unit is held out or not by a draw of its own from the secret stream, so the others'
draws say nothing about it and its presence moves nobody. A held-out unit answers for at most 1: its
record is right or wrong, or, where it has several, the share of them that is right. So the sum over
units has sensitivity 1 under add/remove neighbours, and `GaussianNoise` covers it.
"""

import numpy as np
import torch

from privet.data.dataset import Split
from privet.privacy.noise import GaussianNoise
from privet.privacy.randomness import SecretStream
from privet.release import Release


def hold_out(records: Split, share: float, stream: SecretStream) -> tuple[Split, Split]:
    """The units that train, and the units that score; one draw for all trials."""
    drawn = stream.uniform(records.n_units, purpose="holdout", step=0)
    held = (drawn < share)[records.unit_of_record]
    return records.part(~held), records.part(held)


def correct_answers(release: Release, scoring: Split) -> float:
    """The sum over units of the share of their records that the model gets right."""
    if len(scoring) == 0:  # as good as any other model, whoever scores
        return 0.0
    right = (release.predict(scoring.x) == scoring.y).astype(np.float64)
    units = scoring.unit_of_record
    return float((np.bincount(units, weights=right) / np.bincount(units)).sum())


def noisy(score: float, multiplier: float, *, trial: int, stream: SecretStream) -> float:
    """The score of a trial as it may be compared; its noise is bound to it and to the trial."""
    noise = GaussianNoise(multiplier=multiplier, sensitivity=1.0)
    total = torch.tensor([score], dtype=torch.float64)
    return float(noise.add_to(total, step=trial, stream=stream)[0])
