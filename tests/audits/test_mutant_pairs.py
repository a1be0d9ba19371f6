"""The auditor catches every mutant, without assumptions, at 99.9 %; and never the right trainer."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import binom

from privet.audits.mechanism import audit_mechanism, refutes, scores_of
from privet.audits.mutant_pairs import MUTANTS
from privet.audits.mutant_settings import DELTA, EPSILON
from privet.audits.trainers import Trainer

# What the audit finds, with room for another seed. Claimed is 1.
LEAST = {
    "batch-mean-clip": 4.5,
    "noise-over-batch": 2.5,
    "unclipped-bias": 6.0,
    "realised-normaliser": 4.0,
    "shuffled": 1.2,
    "reused-noise": 6.0,
    "batch-norm": 5.0,
    "split-partner": 1.2,
    "early-stopping": 3.5,
    "silent-encoder": 6.0,
    "alternate-noise": 6.0,
    "reseeded-noise": 6.0,
    "variance-as-scale": 1.15,
    "microbatch-clip": 1.15,
    "median-clip": 5.0,
    "layer-clip": 2.0,
    "raw-momentum": 1.2,
    "same-sample": 3.0,
    "best-of-runs": 6.0,
    "antithetic-noise": 6.0,
    "shared-noise": 6.0,
    "skipped-noise": 3.0,
    "uniform-noise": 3.5,
}


def righted(subject):
    """The right trainer, on the same records, with the same settings."""
    mutant = subject.sample
    return replace(
        subject, sample=Trainer(**{f.name: getattr(mutant, f.name) for f in fields(Trainer)})
    )


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_and_the_right_trainer_is_not(name):
    """A right trainer is accused with probability 0.001 at most, on any of the pairs."""
    subject = MUTANTS[name].make()
    assert (subject.name, subject.epsilon, subject.delta) == (name, EPSILON, DELTA)
    evidence = audit_mechanism(subject, seed=11)
    assert refutes(evidence, subject)
    assert evidence.confidence == 0.999
    assert evidence.epsilon >= LEAST[name]
    right = righted(subject)
    assert not refutes(audit_mechanism(right, runs=subject.runs // 4, seed=12), right)


@pytest.mark.parametrize(
    "name",
    ["noise-over-batch", "realised-normaliser", "shuffled", "reused-noise", "batch-norm",
     "alternate-noise", "reseeded-noise", "median-clip", "layer-clip", "best-of-runs",
     "antithetic-noise", "shared-noise"],
)  # fmt: skip
def test_an_auditor_who_does_not_know_the_flaw_finds_it_too(name):
    """The score is learned, and chosen, on a fifth of the runs instead of told."""
    subject = MUTANTS[name].make()
    assert refutes(audit_mechanism(subject, seed=13, statistic="learned"), subject)


@pytest.mark.parametrize("name", ["skipped-noise", "uniform-noise"])
def test_what_learned_statistics_do_not_see(name):
    """Said as it is: they look for shifts, spreads and peaks, not for the shape of the noise."""
    subject = MUTANTS[name].make()
    assert not refutes(audit_mechanism(subject, seed=13, statistic="learned"), subject)


@pytest.mark.parametrize("name", ["reused-noise", "shuffled", "layer-clip", "median-clip"])
def test_what_is_learned_does_not_accuse_the_right_trainer(name):
    """At 95 %: more than 4 alarms in 12 have probability below 0.0002."""
    assert binom.sf(4, 12, 0.05) < 2e-4
    right = righted(MUTANTS[name].make())
    accused = sum(
        refutes(
            audit_mechanism(right, runs=3000, seed=seed, confidence=0.95, statistic="learned"),
            right,
        )
        for seed in range(12)
    )
    assert accused <= 4


def test_reused_noise_cancels_exactly():
    scores = scores_of(MUTANTS["reused-noise"].make(), 4000, 0)
    assert scores.without.max() < 1e-12
    # Two updates differ unless the record joined all four steps or none: 1 - 2/16.
    assert np.mean(scores.with_ > 0.1) == pytest.approx(7 / 8, abs=0.025)


def test_the_record_is_in_one_shuffled_batch_exactly():
    subject = MUTANTS["shuffled"].make()
    samples = subject.sample.samples(500, 30, np.random.default_rng(0))
    np.testing.assert_array_equal(samples.sum(axis=1), 1.0)  # once each
    np.testing.assert_array_equal(samples.sum(axis=2), 1.0)  # batches of one size
    first = samples[:, :, 0].argmax(axis=1)
    assert np.bincount(first, minlength=30).max() < 45  # 500/30 each; 7 standard deviations
