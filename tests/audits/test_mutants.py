"""Each mutant differs from the right trainer in one method; where that is harmless, in nothing."""

from dataclasses import fields, replace

import numpy as np
import pytest

from privet.audits.further_mutants import (
    AlternateNoise,
    AntitheticNoise,
    BestOfRuns,
    LayerClip,
    MedianClip,
    MicrobatchClip,
    RawMomentum,
    ReseededNoise,
    SameSample,
    SharedNoise,
    SkippedNoise,
    UniformNoise,
    VarianceAsScale,
)
from privet.audits.mutant_pairs import MUTANTS
from privet.audits.mutant_settings import trainer
from privet.audits.mutants import (
    BatchMeanClip,
    BatchNorm,
    EarlyStopping,
    NoiseOverBatch,
    RealisedNormaliser,
    ReusedNoise,
    Shuffled,
    SilentEncoder,
    SplitPartner,
    UnclippedBias,
)
from privet.audits.trainers import Records, Trainer

NOBODY = Records.of([], 2)
# Columns of mean 0 and variance 1.
STANDARD = Records.of([((a, b), 0.3 * a + b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)], 2)

# Gradients of the length to which they are clipped, at first.
ALIKE = Records.of([((1.0, 0.0), 1.0), ((0.0, -1.0), 1.0), ((0.6, 0.8), -1.0)], 2)

# Where the flaw has nothing to bite on: (mutant, settings, whether the target is there).
HARMLESS = {
    "one record, divided by 1": (BatchMeanClip, {"others": NOBODY, "normaliser": 1.0}, True),
    "divided by 1": (NoiseOverBatch, {"normaliser": 1.0}, True),
    "no bias": (UnclippedBias, {"intercept": 0.0}, True),
    "all drawn": (RealisedNormaliser, {"rate": 1.0, "normaliser": 8.0}, False),
    "one batch": (Shuffled, {"steps": 1, "rate": 1.0}, True),
    "one step": (ReusedNoise, {"steps": 1}, True),
    "features of mean 0 and variance 1": (BatchNorm, {"others": STANDARD, "rate": 1.0}, False),
    "no partner": (SplitPartner, {"partner_size": 0.0}, True),
    "one model to choose": (
        EarlyStopping,
        {"steps": 1, "held_out": STANDARD, "releases": "weights"},
        True,
    ),
    "no encoder": (SilentEncoder, {"encoder": 0}, True),
    "one step, of noise": (AlternateNoise, {"steps": 1}, True),
    "one epoch": (ReseededNoise, {"epoch": 4}, True),
    "variance 1": (VarianceAsScale, {"noise_multiplier": 1.0}, True),
    "microbatches of one": (MicrobatchClip, {"size": 1}, True),
    "gradients of norm 1": (MedianClip, {"others": ALIKE, "intercept": 0.0, "steps": 1}, False),
    "one layer": (LayerClip, {"others": NOBODY, "intercept": 0.0}, True),
    "one step, of momentum": (RawMomentum, {"steps": 1}, True),
    "all join": (SameSample, {"rate": 1.0}, True),
    "one step, of either sign": (AntitheticNoise, {"steps": 1}, True),
    "no noise to share": (SharedNoise, {"noise_multiplier": 0.0}, True),
    "no noise to skip": (SkippedNoise, {"noise_multiplier": 0.0, "rate": 1.0}, True),
    "no noise to draw": (UniformNoise, {"noise_multiplier": 0.0, "rate": 1.0}, True),
    "one run": (BestOfRuns, {"tries": 1, "releases": "weights"}, True),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_a_mutant_is_the_right_trainer_where_its_flaw_cannot_bite(case):
    kind, changes, included = HARMLESS[case]
    known = {field.name for field in fields(Trainer)}
    right = replace(trainer(), **{k: v for k, v in changes.items() if k in known})
    mutant = kind(**{name: getattr(right, name) for name in known}, **_beyond(changes, known))
    np.testing.assert_array_equal(mutant(included, 50, 7), right(included, 50, 7))


def _beyond(changes, known):
    return {name: value for name, value in changes.items() if name not in known}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_replaces_one_method(name):
    kind = type(MUTANTS[name].make().sample)
    assert kind.__mro__[1] is Trainer
    own = {n for n, value in vars(kind).items() if callable(value) and not n.startswith("__")}
    assert len(own) == 1
    assert own < set(vars(Trainer))


def test_every_mutant_has_a_harmless_case():
    kinds = {kind for kind, _, _ in HARMLESS.values()}
    assert kinds == {type(entry.make().sample) for entry in MUTANTS.values()}
