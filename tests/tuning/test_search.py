import hashlib
import itertools
from collections import Counter
from dataclasses import fields

import pytest
from scipy import stats

from privet.engine.plan import Plan
from privet.errors import InputError
from privet.privacy.randomness import SecretStream
from privet.training.settings import Settings
from privet.tuning.search import PLANNED, SEARCHABLE, Search, read_search

FIXED = {"epsilon": 3.0, "delta": 1e-5}
SEARCH = {"learning_rate": [0.1, 0.5, 1.0], "clip_norm": [0.1, 1.0], "epochs": 2}
STREAM = SecretStream(hashlib.blake2b(b"search", digest_size=32).digest())


def test_lists_are_searched_and_single_values_are_fixed():
    search = Search.of(SEARCH, FIXED)
    assert len(search) == 6
    pairs = {(s.learning_rate, s.clip_norm) for s in search.candidates()}
    assert pairs == {(rate, clip) for rate in (0.1, 0.5, 1.0) for clip in (0.1, 1.0)}
    assert {s.epochs for s in search.candidates()} == {2}
    assert {s.epsilon for s in search.candidates()} == {3.0}


def test_draws_are_uniform_over_all_combinations():
    """Uniform over the six pairs means uniform and independent. Fixed key; 1 in 1000 would fail."""
    search = Search.of(SEARCH, FIXED)
    drawn = [search.draw(trial, STREAM) for trial in range(3000)]
    seen = Counter((s.learning_rate, s.clip_norm) for s in drawn)
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3
    follows = Counter((a.learning_rate, b.learning_rate) for a, b in itertools.pairwise(drawn))
    assert stats.chisquare(list(follows.values())).pvalue > 1e-3


def test_a_trials_candidate_can_be_drawn_again():
    search = Search.of(SEARCH, FIXED)
    assert [search.draw(t, STREAM) for t in range(9)] == [search.draw(t, STREAM) for t in range(9)]


def test_every_candidate_is_the_same_event(make_data):
    """With correlated noise, whose shape follows the settings."""
    everything = {
        "schedule": ["linear", "constant"],
        "momentum": [0.0, 0.9],
        "optimizer": ["sgd", "adam"],
        "clip_norm": [0.01, 5.0],
        "bands": 2,
        "sampler": "cyclic-poisson",
        "batch": 20,
        "epochs": 2,
    }
    data = make_data()
    search = Search.of(everything, FIXED)
    search = search.filled(search.base.filled_for(data))
    plan = Plan(
        steps=8, sampling_rate=0.25, clip_norm=1.0, noise_multiplier=2.0, normaliser=20.0,
        delta=1e-5, sampler_name="cyclic-poisson", cycle=2, bands=(0.8, 0.6),
    )  # fmt: skip
    plans = {s.plan_like(plan) for s in search.candidates()}
    assert len({p.bands for p in plans}) > 1
    assert len({p.clip_norm for p in plans}) == 2
    assert {(p.event(), p.steps, p.normaliser) for p in plans} == {
        (plan.event(), plan.steps, plan.normaliser)
    }


def test_every_setting_is_known_to_be_one_or_the_other():
    """A new setting must be placed: does it change the event, is it searched, or neither?"""
    neither = {
        "epsilon", "delta", "recipe", "device", "precision", "compile", "keep_keys",
        "checkpoint_every", "noise_seed", "adversarial", "canaries", "attacker",
        "public_attacker", "private_attacker", "attacker_digest", "attacker_data", "attacker_spent",
    }  # fmt: skip
    known = {*SEARCHABLE, *PLANNED, *neither}
    assert known == {field.name for field in fields(Settings)}


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"epochs": [5, 10]}, "'epochs' cannot be searched.*same event"),
        ({"batch": [64, 128]}, "'batch' cannot be searched"),
        ({"sampler": ["poisson"], "clip_norm": [1, 2]}, "'sampler' cannot be searched"),
        ({"cycle": [2, 3]}, "'cycle' cannot be searched"),
        ({"bands": [1, 2]}, "'bands' cannot be searched"),
        ({"epsilon": [1, 2]}, "'epsilon' is no part of a search"),
        ({"noise_seed": 1, "clip_norm": [1, 2]}, "'noise_seed' is no part of a search"),
        ({"learnig_rate": [0.1, 0.2]}, "did you mean 'learning_rate'"),
        ({"learning_rate": [0.1]}, "bad number of candidates: got 1"),
        ({}, "bad number of candidates: got 1"),
        ({"learning_rate": []}, "bad candidates for 'learning_rate'"),
        ({"learning_rate": [0.1, 0.1]}, "none of them twice"),
        ({"learning_rate": [0.1, "much"]}, "bad value of 'learning_rate'.*much"),
        ({"learning_rate": [0.1, True]}, "bad value of 'learning_rate'"),
        ({"learning_rate": [0.1, -1.0]}, "bad learning_rate"),
        ({"optimizer": ["sgd", "lbfgs"]}, "unknown optimizer"),
        ({"views": [1, 4], "augment": ["none", "shift"]}, "several views of nothing"),
        ({"momentum": [0.9, 0.0], "clip_norm": 1}, "'clip_norm' is given twice"),
        ({"init_seed": list(range(20_000))}, "bad number of candidates: got 20000"),
    ],
)
def test_what_cannot_be_searched_is_refused(search, words):
    with pytest.raises(InputError, match=words):
        Search.of(search, FIXED | {"clip_norm": 0.5} if "twice" in words else FIXED)


def test_a_search_is_read_from_toml(tmp_path):
    path = tmp_path / "search.toml"
    path.write_text('learning_rate = [0.1, 0.5]\nmodel = "linear"\n')
    assert read_search(path) == {"learning_rate": [0.1, 0.5], "model": "linear"}
    path.write_text("learning_rate = [0.1,")
    with pytest.raises(InputError, match="corrupt TOML"):
        read_search(path)
    with pytest.raises(InputError, match="file not found"):
        read_search(tmp_path / "nowhere.toml")
