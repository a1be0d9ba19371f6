"""What the server sees of one masked update: uniform bytes. And planted mistakes, which are caught.

The test is Pearson's chi-square of the 256 values that a byte can have. False alarms: 1e-6 for each
of the statistics here, so below 1e-4 in a run of this file. The updates are as telling as can be:
all coordinates the same.
"""

import numpy as np
import pytest
from scipy.stats import chi2

from privet.federation.secure_sum import Stage, client
from privet.federation.secure_sum.keys import public_of
from privet.federation.secure_sum.masks import add_mask, pair_key, self_key
from privet.federation.secure_sum.messages import Unmask

FALSE_ALARM = 1e-6
SIZE = 20_000


def _p_value(content: bytes) -> float:
    counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    expected = len(content) / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


def _constant(cohort, value=0.001):
    made = cohort(4, threshold=3, size=SIZE)
    made.changes = {name: np.full(SIZE, value) for name in made.clients}
    return made


def _difference(one: bytes, other: bytes) -> bytes:
    return (np.frombuffer(one, "<u4") - np.frombuffer(other, "<u4")).tobytes()


def _vectors(made):
    made.until(Stage.AGREEMENT)
    return {name: made.said[name, Stage.INPUTS].vector for name in made.clients}


def _views(vectors):
    """What one could look at: each by itself, and each against each other."""
    names = sorted(vectors)
    alone = {name: vectors[name] for name in names}
    pairs = {(a, b): _difference(vectors[a], vectors[b]) for a in names for b in names if a < b}
    return alone | pairs


def test_masked_updates_look_uniform_alone_and_against_one_another(cohort):
    views = _views(_vectors(_constant(cohort)))
    assert min(map(_p_value, views.values())) > FALSE_ALARM


def test_also_with_the_self_mask_alone(cohort):
    """All mask keys known, as if every other client colluded with the server."""
    made = _constant(cohort)
    vectors = _vectors(made)
    bare = _without_pairs(made, "c01", vectors["c01"])
    assert _p_value(bare) > FALSE_ALARM


def test_also_with_pair_masks_alone(cohort):
    """All seeds known, as they are after unmasking."""
    made = _constant(cohort)
    vectors = _vectors(made)
    for name in made.clients:
        assert _p_value(_without_self(made, name, vectors[name])) > FALSE_ALARM


def test_with_neither_the_update_is_plain(cohort):
    """The two tests above take away what they say: here is what is left."""
    made = _constant(cohort)
    vectors = _vectors(made)
    left = _without_self(made, "c01", _without_pairs(made, "c01", vectors["c01"]))
    point = made.terms.fixed_point
    np.testing.assert_array_equal(np.frombuffer(left, "<u4"), point.encoded(made.changes["c01"]))
    assert _p_value(left) < FALSE_ALARM


def test_planted_a_forgotten_self_mask_is_caught(cohort, monkeypatch):
    """Pair masks alone would pass as uniform until they are known: so they are taken away."""
    monkeypatch.setattr(client, "self_key", lambda seed, terms: None)
    monkeypatch.setattr(client, "add_mask", _skipping_none)
    made = _constant(cohort)
    vectors = _vectors(made)
    assert _p_value(_without_pairs(made, "c01", vectors["c01"])) < FALSE_ALARM


def test_planted_forgotten_pair_masks_are_caught(cohort, monkeypatch):
    monkeypatch.setattr(client, "pair_key", lambda *facts: None)
    monkeypatch.setattr(client, "add_mask", _skipping_none)
    made = _constant(cohort)
    vectors = _vectors(made)
    assert _p_value(_without_self(made, "c01", vectors["c01"])) < FALSE_ALARM


def test_planted_a_self_mask_for_all_is_caught(cohort, monkeypatch):
    """And with no pair masks, whose difference would hide it."""
    monkeypatch.setattr(client, "self_key", lambda seed, terms: bytes(32))
    monkeypatch.setattr(client, "pair_key", lambda *facts: None)
    monkeypatch.setattr(client, "add_mask", _skipping_none)
    views = _views(_vectors(_constant(cohort)))
    assert min(map(_p_value, views.values())) < FALSE_ALARM


def test_planted_masks_of_an_earlier_round_are_caught(cohort, monkeypatch):
    """The same secrets under the same terms twice: the difference is that of the updates."""
    honest = _vectors(_constant(cohort))["c01"], _vectors(_constant(cohort, 0.002))["c01"]
    assert _p_value(_difference(*honest)) > FALSE_ALARM
    monkeypatch.setattr(client, "self_key", lambda seed, terms: bytes(32))
    monkeypatch.setattr(client, "pair_key", lambda *facts: bytes(32))
    reused = _vectors(_constant(cohort))["c01"], _vectors(_constant(cohort, 0.002))["c01"]
    assert _p_value(_difference(*reused)) < FALSE_ALARM


def test_planted_a_narrow_mask_is_caught(cohort, monkeypatch):
    """A keystream whose top byte is never used, as if numbers were drawn below 2^24."""

    def narrow(total, key, *, sign):
        whole = np.zeros_like(total)
        add_mask(whole, key, sign=1)
        total += (whole & np.uint32(2**24 - 1)) * np.uint32(sign % 2**32)

    monkeypatch.setattr(client, "add_mask", narrow)
    views = _views(_vectors(_constant(cohort)))
    assert min(map(_p_value, views.values())) < FALSE_ALARM


def test_what_is_revealed_at_the_end_opens_the_sum_and_no_single_update(cohort):
    """All that the server has then: seeds of survivors, mask keys of those who are gone."""
    made = _constant(cohort)
    made.until(Stage.UNMASKING, {Stage.INPUTS: {"c04"}})
    made.stage()
    assert isinstance(made.said["c01", Stage.UNMASKING], Unmask)
    for name in ("c01", "c02", "c03"):
        vector = made.said[name, Stage.INPUTS].vector
        known = made.seeds[name]
        left = np.frombuffer(vector, "<u4").copy()
        add_mask(left, self_key(known, made.terms.digest), sign=-1)
        _take_pair(made, name, "c04", left)
        assert _p_value(left.tobytes()) > FALSE_ALARM


@pytest.fixture
def cohort(cohort):
    """With the secrets of before they are forgotten."""

    def make(*sizes, **facts):
        made = cohort(*sizes, **facts)
        made.seeds = {n: c._memory.seed for n, c in made.clients.items()}
        made.mask_secrets = {n: c._memory.mask_secret for n, c in made.clients.items()}
        return made

    return make


def _skipping_none(total, key, *, sign):
    if key is not None:
        add_mask(total, key, sign=sign)


def _without_self(made, name, vector):
    left = np.frombuffer(vector, "<u4").copy()
    add_mask(left, self_key(made.seeds[name], made.terms.digest), sign=-1)
    return left.tobytes()


def _without_pairs(made, name, vector):
    left = np.frombuffer(vector, "<u4").copy()
    for other in set(made.clients) - {name}:
        _take_pair(made, name, other, left)
    return left.tobytes()


def _take_pair(made, name, other, left):
    pair = made.terms.points[name], made.terms.points[other]
    peer = public_of(made.mask_secrets[other])
    key = pair_key(made.mask_secrets[name], peer, made.terms.digest, pair)
    add_mask(left, key, sign=-1 if pair[0] < pair[1] else 1)
