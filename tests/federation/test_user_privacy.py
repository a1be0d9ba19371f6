"""Users' privacy: the figures of the specification, oracles, and shifts that are enumerated."""

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InputError
from privet.federation import Capped, Coordinator, Sampled, Update, UserPrivacy, rule_named
from privet.federation.coordinator import Answer, Closing
from privet.guarantee import Adjacency
from privet.privacy.participation import adjacencies
from privet.privacy.randomness import SecretStream
from privet.privacy.tradeoff import gaussian_delta


def _capped(k: int, z: float, **more: object) -> UserPrivacy:
    participation = Capped(times=k, apart=int(more.pop("apart", 1)))  # type: ignore[call-overload]
    return UserPrivacy(
        clip=1.0,
        multiplier=z,
        participation=participation,
        divisor=10.0,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("k", "z", "expected"), [(30, 8, 3.19), (30, 16, 1.49), (300, 16, 5.35)])
def test_capped_participation_is_gdp_of_root_k_over_z(k: int, z: float, expected: float) -> None:
    epsilon = _capped(k, z).epsilon(1e-6)
    assert epsilon == pytest.approx(expected, abs=0.01)
    assert gaussian_delta(math.sqrt(k) / z, epsilon) == pytest.approx(1e-6, rel=1e-3)


def test_replace_one_is_twice_the_shift() -> None:
    epsilon = _capped(30, 16).epsilon(1e-6, Adjacency.REPLACE_ONE)
    assert gaussian_delta(2 * math.sqrt(30) / 16, epsilon) == pytest.approx(1e-6, rel=1e-3)


def test_sampled_participation_is_the_oracles() -> None:
    privacy = UserPrivacy(
        clip=1.0, multiplier=1.0, participation=Sampled(rate=500 / 10_000, steps=1000), divisor=500
    )
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 1000)
    )
    assert privacy.epsilon(4e-5) == pytest.approx(accountant.get_epsilon(4e-5), rel=2e-3)


def test_the_same_noise_without_sampling_is_far_more() -> None:
    """What is lost where phones select themselves: 1,000 rounds at z = 1."""
    sampled = UserPrivacy(
        clip=1.0, multiplier=1.0, participation=Sampled(rate=0.05, steps=1000), divisor=1
    )
    assert _capped(1000, 1.0).epsilon(4e-5) > 40 * sampled.epsilon(4e-5)


def test_calibrated_noise_keeps_the_target_and_no_more() -> None:
    privacy = UserPrivacy.calibrated(
        epsilon=2.0, delta=1e-5, participation=Capped(times=20), clip=0.5, divisor=9.0
    )
    assert 1.999 < privacy.epsilon(1e-5) <= 2.0


def test_the_odometer_says_what_each_client_spent() -> None:
    privacy = _capped(30, 8)
    spent = privacy.odometer(1e-6, {"a": 30, "b": 1, "c": 0})
    assert spent["a"] == pytest.approx(privacy.epsilon(1e-6))
    assert gaussian_delta(1 / 8, spent["b"]) == pytest.approx(1e-6, rel=1e-3)
    assert spent["c"] == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_counts_as_zero_and_is_not_refused(bad: float) -> None:
    """To refuse it would tell that its client took part; to keep what is left would be too long."""
    privacy, change = _capped(3, 8.0), torch.tensor([bad, 7.0])
    assert privacy.clipped(change).tolist() == [0.0, 0.0]
    rule, stream = rule_named("flsys", seconds=10.0, quorum=0), SecretStream(bytes(32))
    coordinator = Coordinator(torch.zeros(2), rule, rounds=2, privacy=privacy, stream=stream)
    for client, total in (("alone", None), ("with its sum", change.sum())):
        update = Update(client=client, base_version=0, change=change, total=total)
        assert coordinator.receive(update, 1.0)[0] is Answer.ACCEPTED
    assert coordinator.state()["gathering"]["total"].tolist() == [0.0, 0.0]
    closed = coordinator.advance(10.0)
    assert closed is not None
    assert closed.how is Closing.PUBLISHED


@pytest.mark.parametrize("size", [1e-30, 0.3, 1.0, 30.0, 3e38, 1e300])
def test_no_update_is_longer_than_the_clip_norm(size: float) -> None:
    change = torch.tensor([3.0, -4.0], dtype=torch.float64) / 5 * size
    expected = change * min(1.0, 1.0 / size) if size < 1e154 else torch.zeros(2)  # squares overflow
    clipped = _capped(3, 8.0).clipped(change)
    assert float(clipped.norm()) <= 1.0 + 1e-12
    torch.testing.assert_close(clipped, expected.double(), rtol=1e-12, atol=0.0)


def test_only_a_clock_lets_clients_come_and_go() -> None:
    assert adjacencies(by_clock=True) == (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    assert adjacencies(by_clock=False) == (Adjacency.ZERO_OUT,)


@pytest.mark.parametrize(
    ("name", "options", "by_clock"),
    [
        ("flsys", {"quorum": 0}, True),
        ("flsys", {"quorum": 5}, False),
        ("fedbuff", {}, False),
        ("fedavg", {}, False),
        ("fedavg", {"rate": 0.1}, False),
        ("fedavg", {"rate": 0.1, "patient": True}, True),
        ("fedavg", {"rate": 0.1, "patient": True, "quorum": 2}, False),
        ("fedavg", {"cohort": 4, "patient": True}, False),  # one takes another's place
    ],
)
def test_which_rules_end_rounds_by_the_clock_alone(
    name: str, options: dict[str, float], by_clock: bool
) -> None:
    assert rule_named(name, **options).pacing.by_clock is by_clock


@given(
    st.lists(st.booleans(), min_size=4, max_size=14),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_no_client_moves_the_rows_by_more_than_the_proof_says(
    wishes: list[bool], times: int, apart: int, seed: int
) -> None:
    """Every row that noise is added to, with the client and without, in units of z C.

    The noise is so small that what is published is the sum; multiplying by the strategy matrix
    gives the rows of the proof, whose differences are added up.
    """
    bands = np.random.default_rng(seed).normal(size=apart)
    bands[0] = abs(bands[0]) + 0.1
    c = tuple((bands / np.linalg.norm(bands) * 0.999).tolist())
    privacy = UserPrivacy(
        clip=2.0,
        multiplier=1e-12,
        participation=Capped(times=times, apart=apart),
        divisor=1.0,
        bands=c,
    )
    published = [_published(privacy, wishes, there=there) for there in (True, False)]
    x = np.diff(published[0] - published[1], axis=0, prepend=0.0)  # what the client moved, by step
    rows = [sum(c[j] * x[t - j] for j in range(min(len(c), t + 1))) for t in range(len(x))]
    assert np.sum(np.square(rows)) <= times * 2.0**2 * (1 + 1e-5)


def _published(privacy: UserPrivacy, wishes: list[bool], *, there: bool) -> np.ndarray:
    coordinator = Coordinator(
        torch.zeros(2, dtype=torch.float64),
        rule_named("flsys", seconds=10.0, quorum=0),
        rounds=len(wishes),
        privacy=privacy,
        stream=SecretStream(bytes(32)),
    )
    versions = []
    for step, wish in enumerate(wishes):
        now = 10.0 * step
        for client, joins in (("one", wish and there), ("other", step % 2 == 0)):
            change = torch.tensor([5.0, float(step)], dtype=torch.float64)
            update = Update(client=client, base_version=coordinator.version, change=change)
            if joins:
                coordinator.receive(update, now + 1)
        coordinator.advance(now + 10.0)
        versions.append(coordinator.weights.numpy().copy())
    return np.array(versions)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"clip": 0.0}, "bad clip norm"),
        ({"divisor": float("inf")}, "bad divisor"),
        ({"multiplier": 0.0}, "noise multiplier"),
        ({"bands": (0.9, 0.1)}, "outlasts the separation"),
        ({"bands": (2.0,)}, "raise the sensitivity"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, object], words: str) -> None:
    base: dict[str, object] = {
        "clip": 1.0,
        "multiplier": 1.0,
        "participation": Capped(times=3),
        "divisor": 4.0,
    }
    with pytest.raises(InputError, match=words):
        UserPrivacy(**(base | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda: Capped(times=0), lambda: Sampled(rate=0.0, steps=3)])
def test_bad_participation_is_refused(make: object) -> None:
    with pytest.raises(InputError, match="bad"):
        make()  # type: ignore[operator]
