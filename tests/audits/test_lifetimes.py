"""A canary's lifetime: what is accounted is kept and nearly reached, and what is not is found."""

import json
import math
from pathlib import Path as File

import dp_accounting as dp
import numpy as np
import pytest
from scipy.stats import binom, norm

from privet.audits.lifetimes import LIFETIMES, SELDOM, USUAL, ByRead, Path, Retossed
from privet.audits.mechanism import audit_mechanism, refutes
from privet.lifelong.lifetime import Lifetime, Own, Recall

TRIALS, ALARMS = 40, 8  # at 95 %: more than 8 alarms in 40 have probability below 0.001
SOUND = ["lifelong-coin", "lifelong-forced"]
BROKEN = [name for name in LIFETIMES if name not in SOUND]


@pytest.fixture(scope="module", params=SOUND)
def sound(request):
    return LIFETIMES[request.param].make()


def test_the_stated_error_of_this_file():
    assert binom.sf(ALARMS, TRIALS, 0.05) < 0.001


def test_neither_bound_is_violated(sound):
    accused = sum(
        refutes(audit_mechanism(sound, runs=4000, confidence=0.95, seed=seed), sound)
        for seed in range(TRIALS)
    )
    assert accused <= ALARMS


@pytest.mark.parametrize(("delta", "least"), [(1e-5, 0.45), (1e-3, 0.6), (0.01, 0.7)])
def test_the_audit_comes_near_what_is_accounted(sound, delta, least):
    """A score that looked the wrong way, or not at the memory, would find next to nothing."""
    found = audit_mechanism(sound, runs=100_000, delta=delta, seed=1)
    assert least * sound.claim.epsilon(delta) < found.epsilon <= sound.claim.epsilon(delta)


@pytest.mark.parametrize("name", BROKEN)
def test_a_planted_mistake_is_caught(name):
    subject = LIFETIMES[name].make()
    assert subject.flaw
    assert refutes(audit_mechanism(subject, runs=100_000, confidence=0.999), subject)


def test_what_is_forced_shows_more_than_a_coin_hides():
    coin, forced = (LIFETIMES[name].make() for name in ("lifelong-coin", "lifelong-forced"))
    found = audit_mechanism(forced, runs=50_000)
    assert found.epsilon > audit_mechanism(coin, runs=50_000).epsilon
    # Were the coin's figure stated for it, the audit would say so.
    assert found.epsilon > coin.claim.epsilon(0.01) or (
        audit_mechanism(forced, runs=50_000, delta=0.01).epsilon > coin.claim.epsilon(0.01)
    )


def test_the_score_is_the_likelihood_ratio_of_the_mixture():
    """Of densities that are written out: own steps by theirs, the memory's as one mixture."""
    own = Own(rate=0.3, steps=2, multiplier=1.5)
    recall = Recall(
        first_rate=0.6, steps=1, multiplier=0.7, admission=0.25, horizon=3, shared=False
    )
    path = Path(lifetime=Lifetime(tasks=(own,), recall=recall, shared=False))
    rows = np.random.default_rng(0).normal(size=(50, 4))

    def ratio(y, rate, noise):
        return 1 - rate + rate * norm.pdf(y, 1, noise) / norm.pdf(y, 0, noise)

    first = ratio(rows[:, 0], 0.3, 1.5) * ratio(rows[:, 1], 0.3, 1.5)
    read = ratio(rows[:, 2], 0.6, 0.7) * ratio(rows[:, 3], 0.3, 0.7)
    assert path.score(rows) == pytest.approx(np.log(first * (0.75 + 0.25 * read)))
    forced = Path(lifetime=path.lifetime, forced=True)
    assert forced.score(rows) == pytest.approx(np.log(first * read))


def test_one_coin_holds_for_a_lifetime():
    rng = np.random.default_rng(0)
    once = np.broadcast_to(Path(lifetime=SELDOM).admitted(20_000, rng), (20_000, 8))
    anew = Retossed(lifetime=SELDOM).admitted(20_000, rng)[:, :: SELDOM.recall.steps]
    assert once.mean() == pytest.approx(0.04, abs=0.005)
    assert anew.mean() == pytest.approx(0.04, abs=0.005)
    assert (once.any(1) == once.all(1)).all()
    assert anew.any(1).mean() > 5 * anew.all(1).mean()


def test_what_is_seen_is_every_step_that_the_lifetime_counts():
    path = Path(lifetime=USUAL)
    counted = path.event
    assert isinstance(counted, dp.ComposedDpEvent)
    own, behind = counted.events
    reads = sum(part.count for part in behind.event.events)
    assert path(True, 3, 0).shape == (3, own.count + reads)
    assert len(path.rates) == reads == len(ByRead(lifetime=USUAL).event.events) - 1


def test_the_page_has_the_figures_of_the_record():
    """Found ones rounded down, claimed ones up; of broken ones at the delta that shows them."""
    root = File(__file__).parents[2]
    record = json.loads((root / "benchmarks" / "results" / "lifelong_audits.json").read_text())
    page = (root / "docs" / "methods" / "l2dp.md").read_text()
    section = page.split("## Canaries")[1].split("\n## ")[0]
    for row in record["rows"]:
        broken = bool(row["flaw"])
        assert broken or not row["refuted"]
        if row["mechanism"] in LIFETIMES and row["refuted"] == broken:
            shown = not broken or row["delta"] != 0.01
            claimed = f"| {math.ceil(100 * row['claimed']) / 100:g} |"
            found = f"≥ {math.floor(100 * row['found']) / 100:g}"
            lines = [line for line in section.splitlines() if claimed in line and found in line]
            assert lines or not shown, (row["mechanism"], claimed, found)
