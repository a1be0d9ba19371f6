"""The whole protocol: the sum, whoever drops out and when, and going on after a kill."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.federation.secure_sum import SecureClient, SecureServer, Stage, safe_threshold
from privet.federation.secure_sum.server import ORDER

# What the fixture gives is a function, which makes a cohort anew for each example.
RELAXED = [HealthCheck.function_scoped_fixture]


def _plain_sum(cohort, names):
    """Without masks: what double precision says of the shortened updates."""
    point = cohort.terms.fixed_point
    return sum(point.shortened(cohort.changes[name]) for name in names)


def _assert_sum(cohort, names):
    found = cohort.server.result
    assert found.clients == tuple(sorted(names))
    error = cohort.terms.fixed_point.error(found.count) + 1e-12
    np.testing.assert_allclose(found.total, _plain_sum(cohort, names), atol=error, rtol=0)


@settings(max_examples=40, deadline=None, suppress_health_check=RELAXED)
@given(data=st.data())
def test_the_sum_is_that_of_those_whose_updates_came(cohort, data):
    """Any cohort, any threshold, anyone dropping out anywhere: the sum, or none."""
    n = data.draw(st.integers(3, 9), label="n")
    made = cohort(
        n,
        threshold=data.draw(st.integers(max(3, n // 2 + 1), n), label="threshold"),
        size=data.draw(st.integers(1, 40), label="size"),
        longest=data.draw(st.sampled_from((1e-6, 0.5, 1.0, 300.0)), label="longest"),
        bits=data.draw(st.sampled_from((32, 64)), label="bits"),
        seed=data.draw(st.integers(0, 2**32 - 1), label="seed"),
    )
    few = data.draw(st.booleans(), label="no more than may")
    most = n - made.terms.threshold if few else n
    leavers = data.draw(st.permutations(sorted(made.clients)))[: data.draw(st.integers(0, most))]
    leaves = dict.fromkeys(made.clients) | {
        name: data.draw(st.sampled_from(ORDER), label=name) for name in leavers
    }
    drops = {s: {name for name, at in leaves.items() if at is s} for s in ORDER}
    server = made.run(drops)
    left = [
        {name for name, at in leaves.items() if at is None or ORDER.index(at) > i}
        for i in range(len(ORDER))
    ]
    if any(len(here) < made.terms.threshold for here in left):
        assert not few
        assert server.stage is Stage.GIVEN_UP
        with pytest.raises(ValueError, match="there is no sum"):
            server.result  # noqa: B018
        return
    assert server.stage is Stage.DONE
    _assert_sum(made, left[ORDER.index(Stage.INPUTS)])


@pytest.mark.parametrize("pattern", list(itertools.product((None, *ORDER), repeat=2)))
def test_every_way_in_which_two_of_five_can_drop_out(cohort, pattern):
    made = cohort(5, threshold=3)
    drops = {s: {f"c{i + 1:02}" for i, at in enumerate(pattern) if at is s} for s in ORDER}
    made.run(drops)
    early = (Stage.KEYS, Stage.SHARES, Stage.INPUTS)
    _assert_sum(made, {n for n in made.clients if not any(n in drops[s] for s in early)})


@pytest.mark.parametrize("stage", ORDER)
def test_below_the_threshold_it_is_given_up_and_nothing_is_kept(cohort, stage):
    made = cohort(5, threshold=3)
    server = made.run({stage: {"c01", "c02", "c03"}})
    assert server.stage is Stage.GIVEN_UP
    assert not server.expected
    assert server.for_client("c05") is None
    # the state tells nothing of what was sent, masked or not
    again = SecureServer.restored(server.state())
    assert not again._total.any()
    memory = again._memory
    kept = (memory.advertised, memory.shares, memory.unmasks, memory.signatures)
    assert not any(kept)


def test_the_sum_of_a_large_cohort_within_the_error_and_not_closer(many_keys, cohort):
    """Without rounding towards zero the error would not always have one sign."""
    made = cohort(12, threshold=9, size=1000)
    made.run({Stage.INPUTS: {"c03"}, Stage.UNMASKING: {"c12"}})
    names = set(made.clients) - {"c03"}
    _assert_sum(made, names)
    positive = {name: abs(change) for name, change in made.changes.items()}
    other = cohort(12, threshold=9, size=1000, changes=positive)
    other.run()
    lost = _plain_sum(other, other.clients) - other.server.result.total
    assert 0 < lost.mean() < other.terms.fixed_point.error(12)
    assert lost.min() > -1e-12


def test_killed_and_restored_between_all_messages(cohort):
    """Server and clients, after every message of the protocol: the same sum."""
    made = cohort(4, threshold=3)
    while made.server.stage in ORDER:
        for name in sorted(made.server.expected):
            sign = made.device_keys[name].sign
            made.clients[name] = SecureClient.restored(made.clients[name].state(), sign)
            answer = made.answer(name)
            made.clients[name] = SecureClient.restored(made.clients[name].state(), sign)
            made.server.take(answer)
            made.server = SecureServer.restored(made.server.state())
            made.server.take(answer)  # and it is not counted twice
        made.server.close()
        made.server = SecureServer.restored(made.server.state())
    _assert_sum(made, made.clients)


def test_the_answer_after_a_kill_is_the_answer_before_it(cohort):
    """Byte for byte: other shares, or another update under the same masks, would leak."""
    made = cohort(4, threshold=3).until(Stage.INPUTS)
    client, inbox = made.clients["c01"], made.server.for_client("c01")
    keys_answer = made.said["c01", Stage.SHARES]
    first = client.mask(inbox, made.changes["c01"])
    again = SecureClient.restored(client.state(), made.device_keys["c01"].sign)
    assert again.mask(inbox, np.ones(7)) == first
    assert again._memory.share == keys_answer


def test_the_order_of_messages_does_not_matter(cohort):
    made = cohort(4, threshold=3).until(Stage.INPUTS)
    states, backwards = made.server.state(), SecureServer.restored(made.server.state())
    assert states == backwards.state()
    made.stage()
    for name in sorted(made.clients, reverse=True):
        backwards.take(made.said[name, Stage.INPUTS])
    backwards.close()
    np.testing.assert_array_equal(backwards._total, made.server._total)


def test_secrets_are_forgotten_after_the_last_answer(cohort):
    made = cohort(4, threshold=3)
    secrets = {n: (c._memory.seed, c._memory.mask_secret) for n, c in made.clients.items()}
    made.run()
    for name, client in made.clients.items():
        assert client._memory.seed == client._memory.mask_secret == b""
        assert not client._memory.held
        assert not any(secret.hex() in client.state().hex() for secret in secrets[name])
    assert made.server.stage is Stage.DONE


@pytest.mark.parametrize(("n", "t"), [(3, 3), (4, 3), (5, 4), (6, 5), (9, 7), (100, 67)])
def test_the_safe_threshold_is_above_two_thirds(n, t):
    assert safe_threshold(n) == t


@pytest.mark.parametrize(("n", "t"), [(2, 2), (3, 2), (6, 3), (5, 6), (12, 6)])
def test_thresholds_that_protect_nobody_are_refused(cohort, n, t):
    """Half of the clients or fewer: a server could ask one half for b_v and one for s_v."""
    with pytest.raises(InputError, match="bad threshold"):
        cohort(n, threshold=t)


def test_two_devices_with_one_key_are_refused(cohort):
    terms = cohort(3).terms
    roster = dict.fromkeys(terms.roster, terms.roster["c01"])
    with pytest.raises(InputError, match="same key"):
        type(terms)(model="m", round=1, base_version=0, size=1, longest=1.0, threshold=3,
                    roster=roster)  # fmt: skip


def test_terms_differ_in_every_fact(cohort):
    """Also where only the session does: a round that is tried again has other keys."""
    facts = [{}, {"round": 5}, {"size": 8}, {"longest": 2.5}, {"threshold": 4}, {"bits": 64}]
    digests = {cohort(5, **fact, session="s").terms.digest for fact in facts}
    digests |= {cohort(5, session="t").terms.digest, cohort(6, threshold=4).terms.digest}
    assert len(digests) == len(facts) + 2
