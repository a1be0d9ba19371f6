"""Samplers: who is in a step, and what that is accounted as. Fixed key; each statistical test would
fail a perfect sampler with the probability it states."""

import gc
import math
import weakref

import dp_accounting as dp
import numpy as np
import pytest
from scipy import stats

from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy import sampling
from privet.privacy.accounting import epsilon_of
from privet.privacy.randomness import SecretStream
from privet.privacy.sampling import (
    SAMPLERS,
    CyclicPoissonSampler,
    FixedBatchSampler,
    PoissonSampler,
    ShuffledSampler,
    make_sampler,
    sampler_for,
    sampler_of,
)

STREAM = SecretStream(bytes(range(32)))


def membership(rate: float, n: int, steps: int) -> np.ndarray:
    """A table of steps by examples: who was in."""
    table = np.zeros((steps, n), dtype=bool)
    for step in range(steps):
        table[step, PoissonSampler(rate=rate).draw(n, step=step, stream=STREAM)] = True
    return table


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.97])
def test_inclusion_rate(rate):
    """Binomial test over all examples and steps, error rate 1e-6."""
    table = membership(rate, 2000, 100)
    assert stats.binomtest(int(table.sum()), table.size, rate).pvalue > 1e-6


def test_inclusion_rate_would_catch_two_percent():
    table = membership(0.5, 2000, 100)
    assert stats.binomtest(int(table.sum()), table.size, 0.51).pvalue < 1e-6


def test_batch_sizes_are_binomial_not_fixed():
    """The variance of 2,000 batch sizes, by chi-square, error rate 1e-6."""
    sizes = membership(0.2, 400, 2000).sum(axis=1)
    statistic = ((sizes - 80.0) ** 2).sum() / (400 * 0.2 * 0.8)
    # A binomial's kurtosis is within 1 % of the normal's here; the bounds are widened by 2 %.
    assert 0.98 * stats.chi2.ppf(5e-7, 2000) < statistic < 1.02 * stats.chi2.isf(5e-7, 2000)


def test_every_example_and_every_step_has_the_rate():
    """Each row and column total within 6 sigma: error rate 1e-5 in all."""
    table = membership(0.3, 500, 3000)
    for totals, trials in ((table.sum(axis=0), 3000), (table.sum(axis=1), 500)):
        assert np.abs(totals - 0.3 * trials).max() < 6 * math.sqrt(trials * 0.21)


def test_examples_are_pairwise_independent():
    """Correlations of 30 examples over 20,000 steps, each within 6 sigma: error rate 1e-6."""
    table = membership(0.3, 30, 20_000)
    r = np.corrcoef(table.T)[np.triu_indices(30, 1)]
    assert np.abs(r).max() < 6 / math.sqrt(20_000)


def test_steps_are_pairwise_independent():
    table = membership(0.3, 20_000, 30)
    r = np.corrcoef(table)[np.triu_indices(30, 1)]
    assert np.abs(r).max() < 6 / math.sqrt(20_000)


def test_pairs_meet_at_the_squared_rate():
    """Planted-bug power: drawing without replacement would meet less often by 1/(n-1)."""
    table = membership(0.5, 4, 20_000)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    for i, j in pairs:
        together = int((table[:, i] & table[:, j]).sum())
        assert stats.binomtest(together, 20_000, 0.25).pvalue > 1e-7
        assert stats.binomtest(together, 20_000, 0.5 * 1 / 3).pvalue < 1e-7


@pytest.mark.parametrize("step", [0, 1, 77])
def test_one_example_does_not_feel_how_many_others_there_are(step):
    sampler = PoissonSampler(rate=0.3)
    small = sampler.draw(1000, step=step, stream=STREAM)
    for n in (1001, 1002, 5000):
        large = sampler.draw(n, step=step, stream=STREAM)
        assert np.array_equal(small, large[large < 1000])


def test_a_draw_can_be_repeated():
    sampler = PoissonSampler(rate=0.3)
    one, again = (sampler.draw(1000, step=4, stream=STREAM) for _ in range(2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, sampler.draw(1000, step=5, stream=STREAM))
    assert not np.array_equal(one, sampler.draw(1000, step=4, stream=SecretStream(b"k" * 32)))


def test_a_higher_rate_keeps_who_was_in():
    low, high = (PoissonSampler(rate=r).draw(1000, step=0, stream=STREAM) for r in (0.2, 0.4))
    assert set(low) < set(high)


def test_rate_one_takes_everyone():
    for step in range(20):
        drawn = PoissonSampler(rate=1.0).draw(1000, step=step, stream=STREAM)
        assert np.array_equal(drawn, np.arange(1000))


def test_batches_may_be_empty():
    """At one expected example a share 1/e of batches is empty; binomial, error rate 1e-6."""
    empty = int((membership(0.01, 100, 2000).sum(axis=1) == 0).sum())
    assert stats.binomtest(empty, 2000, 0.99**100).pvalue > 1e-6
    assert PoissonSampler(rate=0.5).draw(0, step=0, stream=STREAM).size == 0


def test_the_threshold_is_the_rate_to_the_last_bit():
    class Near(SecretStream):
        def uniform(self, n, **address):
            return np.array([0.25 - 2.0**-53, 0.25, 0.0])

    drawn = PoissonSampler(rate=0.25).draw(3, step=0, stream=Near(bytes(32)))
    assert drawn.tolist() == [0, 2]


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0001, math.inf, math.nan])
def test_bad_rates_are_refused(rate):
    with pytest.raises(InputError, match="bad sampling rate"):
        PoissonSampler(rate=rate)


def test_noise_and_sampling_draw_apart():
    """The same key and step under another purpose says nothing about who is in."""
    u = STREAM.uniform(5000, purpose="gaussian", step=0)
    drawn = PoissonSampler(rate=0.5).draw(5000, step=0, stream=STREAM)
    member = np.isin(np.arange(5000), drawn)
    assert abs(np.corrcoef(u, member)[0, 1]) < 6 / math.sqrt(5000)


def table_of(sampler, n: int, steps: int) -> np.ndarray:
    table = np.zeros((steps, n), dtype=bool)
    for step in range(steps):
        table[step, sampler.draw(n, step=step, stream=STREAM)] = True
    return table


TURNS = {
    "cyclic-poisson": make_sampler("cyclic-poisson", rate=0.1, cycle=6),
    "fixed-batches": make_sampler("fixed-batches", rate=1 / 6, cycle=6),
    "shuffled": make_sampler("shuffled", rate=1 / 6, cycle=6),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_unit_joins_at_most_one_step_of_a_cycle(name):
    table = table_of(TURNS[name], 500, 30).reshape(5, 6, 500)
    joined = table.sum(axis=1)
    assert joined.max() == 1
    if name != "cyclic-poisson":
        assert joined.min() == 1


@pytest.mark.parametrize("name", ["cyclic-poisson", "fixed-batches"])
def test_turns_are_a_cycle_apart_so_that_banded_noise_is_valid(name):
    """In any 6 consecutive steps, not only in aligned ones; shuffling does not give this."""

    def most_in_any_window(sampler):
        table = table_of(sampler, 500, 60)
        return max(table[t : t + 6].sum(axis=0).max() for t in range(55))

    assert most_in_any_window(TURNS[name]) == 1
    assert most_in_any_window(TURNS["shuffled"]) > 1


@pytest.mark.parametrize("name", ["cyclic-poisson", "fixed-batches"])
def test_nobody_else_moves_when_one_joins_the_data(name):
    for step in range(12):
        small = TURNS[name].draw(1000, step=step, stream=STREAM)
        large = TURNS[name].draw(1001, step=step, stream=STREAM)
        assert np.array_equal(small, large[large < 1000])


def test_everybody_moves_when_one_joins_a_shuffle():
    """Why shuffling has no add/remove guarantee: one unit more, and others change batches."""
    moved = 0
    for step in range(6):
        small = TURNS["shuffled"].draw(1000, step=step, stream=STREAM)
        large = TURNS["shuffled"].draw(1001, step=step, stream=STREAM)
        moved += len(set(small) ^ set(large[large < 1000]))
    assert moved > 0
    assert Adjacency.ADD_REMOVE not in ShuffledSampler.adjacencies


def test_cyclic_turns_are_taken_at_the_stated_rate():
    """Binomial test, error rate 1e-6: of those whose turn it is, a share rate x cycle joins."""
    sampler = TURNS["cyclic-poisson"]
    table = table_of(sampler, 2000, 120).reshape(20, 6, 2000)
    taken = int(table.any(axis=1).sum())
    assert stats.binomtest(taken, 20 * 2000, sampler.turn_rate).pvalue > 1e-6
    assert sampler.turn_rate == pytest.approx(0.6)


def test_a_turn_is_taken_by_a_coin_that_the_group_says_nothing_about():
    """Binomial test in each of 12 steps, error rate 1e-6 each.

    Fixed batches deal the same groups under the same key, and so say whose turn it is.
    """
    sampler, dealt = TURNS["cyclic-poisson"], TURNS["fixed-batches"]
    for step in range(12):
        came = sampler.draw(20_000, step=step, stream=STREAM)
        group = dealt.draw(20_000, step=step, stream=STREAM)
        assert set(came) < set(group)
        assert stats.binomtest(len(came), len(group), sampler.turn_rate).pvalue > 1e-6


def test_the_coins_of_a_units_turns_are_independent():
    """Both of two turns are taken at the squared rate; binomial, error rate 1e-6 a pair."""
    sampler = TURNS["cyclic-poisson"]
    taken = table_of(sampler, 20_000, 24).reshape(4, 6, 20_000).any(axis=1)
    for i, j in ((0, 1), (0, 2), (1, 3), (2, 3)):
        both = int((taken[i] & taken[j]).sum())
        assert stats.binomtest(both, 20_000, sampler.turn_rate**2).pvalue > 1e-6


def test_a_lost_step_is_drawn_anew_only_where_units_have_no_turns():
    """A group dealt anew gives a unit turns in both deals; only a Poisson step stands alone."""
    redoable = {name: sampler.redoable for name, sampler in TURNS.items()}
    assert redoable == dict.fromkeys(TURNS, False)
    assert PoissonSampler(rate=0.1).redoable


def test_groups_are_dealt_evenly_and_independently():
    """Chi-square over group sizes, error rate 1e-6."""
    sizes = [len(TURNS["fixed-batches"].draw(60_000, step=t, stream=STREAM)) for t in range(6)]
    assert stats.chisquare(sizes).pvalue > 1e-6
    assert len(set(sizes)) > 1  # dealt one by one, not cut to size


def test_shuffled_batches_are_equal_and_their_order_is_new_each_epoch():
    table = table_of(TURNS["shuffled"], 600, 12).reshape(2, 6, 600)
    assert (table.sum(axis=2) == 100).all()
    first, second = table.argmax(axis=1)
    # 600 matches at rate 1/6 by chance; binomial, error rate 1e-6.
    assert stats.binomtest(int((first == second).sum()), 600, 1 / 6).pvalue > 1e-6


def test_events_say_what_the_samplers_do():
    gaussian = dp.GaussianDpEvent(2.0)
    expected = {
        "poisson": dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, gaussian), 20),
        "cyclic-poisson": dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, gaussian), 4),
        "fixed-batches": dp.SelfComposedDpEvent(gaussian, 4),
        "shuffled": dp.SelfComposedDpEvent(gaussian, 4),
    }
    for name, event in expected.items():
        cycle = 1 if name == "poisson" else 5
        rate = 0.1 if "poisson" in name else 1 / 5
        sampler = make_sampler(name, rate=rate, cycle=cycle)
        assert sampler.event(2.0, sampler.turns(20)) == event


def test_an_unfinished_cycle_counts_as_a_turn():
    assert [TURNS["fixed-batches"].turns(t) for t in (1, 6, 7, 12, 13)] == [1, 1, 2, 2, 3]


def test_shuffling_is_never_accounted_as_poisson():
    """At equal noise, batch and epochs the shuffled epsilon is the unamplified one."""
    shuffled = sampler_for("shuffled", batch=100, nominal_size=10_000)
    poisson = sampler_for("poisson", batch=100, nominal_size=10_000)
    steps = 300
    honest = epsilon_of(shuffled.event(1.0, shuffled.turns(steps)), 1e-5, Adjacency.ZERO_OUT)
    wished = epsilon_of(poisson.event(1.0, poisson.turns(steps)), 1e-5)
    assert honest == pytest.approx(
        epsilon_of(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 3), 1e-5)
    )
    assert honest > 4 * wished
    assert "PoissonSampled" not in repr(shuffled.event(1.0, 3))


def test_the_expected_batch_is_the_one_asked_for():
    for name in SAMPLERS:
        sampler = sampler_for(name, batch=100, nominal_size=1000)
        sizes = [len(sampler.draw(1000, step=t, stream=STREAM)) for t in range(200)]
        assert np.mean(sizes) == pytest.approx(100, rel=0.05)


def test_the_cycle_of_cyclic_poisson_follows_the_bands():
    assert sampler_for("cyclic-poisson", batch=10, nominal_size=1000, bands=7).cycle == 7
    assert sampler_for("cyclic-poisson", batch=10, nominal_size=1000, cycle=9, bands=7).cycle == 9
    assert sampler_for("cyclic-poisson", batch=10, nominal_size=1000).cycle == 100


@pytest.mark.parametrize("kind", [CyclicPoissonSampler, FixedBatchSampler, ShuffledSampler])
def test_bad_groups_are_refused(kind):
    for groups in (0, -1, 2.5):
        with pytest.raises(InputError, match="bad number of groups"):
            kind(rate=0.1, groups=groups)
    with pytest.raises(InputError, match="more than a group holds"):
        kind(rate=0.3, groups=4)


def test_a_card_leads_back_to_its_sampler():
    for name, sampler in TURNS.items():
        card = {"sampler": name, "sampling_rate": sampler.rate, "cycle": 6}
        assert sampler_of(card) == sampler
    with pytest.raises(InputError, match="unknown sampler"):
        sampler_of({"sampler": "round-robin", "sampling_rate": 0.1})
    with pytest.raises(InputError, match="knows no groups"):
        make_sampler("poisson", rate=0.1, cycle=3)


def test_an_order_goes_with_its_stream():
    """It and the key are secrets of one run; what the sampler keeps between steps is no more."""
    stream = SecretStream(bytes(32))
    ShuffledSampler(rate=0.25, groups=4).draw(100, step=0, stream=stream)
    kept = weakref.ref(stream)
    before = len(sampling._orders)
    del stream
    gc.collect()
    assert kept() is None
    assert len(sampling._orders) == before - 1


def test_orders_of_several_streams_sizes_and_epochs_are_not_mixed_up():
    """Asked in turns, each is what a stream that was asked for nothing else draws."""
    sampler, keys = ShuffledSampler(rate=0.25, groups=4), (bytes(32), bytes(range(32)))
    streams = [SecretStream(key) for key in keys]
    for n, step in ((40, 0), (40, 1), (44, 1), (40, 5), (40, 1)):
        for key, stream in zip(keys, streams, strict=True):
            alone = sampler.draw(n, step=step, stream=SecretStream(key))
            assert np.array_equal(sampler.draw(n, step=step, stream=stream), alone)
