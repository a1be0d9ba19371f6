"""Records dealt out to clients: all of them, once; skewed as asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privet
from privet.errors import InputError
from privet.federation.clients import sizes, skewed, users_of

LABELS = np.random.default_rng(0).integers(0, 5, 2000)


@given(
    st.integers(1, 60),
    st.sampled_from([None, 0.05, 0.3, 5.0]),
    st.integers(0, 3),
    st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_every_record_has_one_client(
    clients: int, alpha: float | None, lacking: int, seed: int
) -> None:
    labels = LABELS[:400]
    hands = skewed(labels, clients=clients, classes=5, alpha=alpha, lacking=lacking, seed=seed)
    assert np.array_equal(np.sort(np.concatenate(hands)), np.arange(400))
    assert sizes(hands).max() - sizes(hands).min() <= 1


def test_a_small_alpha_leaves_clients_hardly_more_than_one_class() -> None:
    """The share of a client's commonest class: near 1/5 without skew, near 1 with a lot of it."""

    def share(alpha: float | None) -> float:
        hands = skewed(LABELS, clients=40, classes=5, alpha=alpha, seed=1)
        return float(np.mean([np.bincount(LABELS[rows]).max() / len(rows) for rows in hands]))

    assert share(None) < 0.35
    assert 0.4 < share(0.5) < 0.8
    assert share(0.02) > 0.8  # not all: who comes last takes what is left


def test_lacking_classes_are_lacking_as_long_as_records_allow() -> None:
    hands = skewed(LABELS, clients=40, classes=5, alpha=None, lacking=2, seed=1)
    lacks = [5 - len(np.unique(LABELS[rows[: len(rows)]])) for rows in hands]
    assert np.mean(lacks) > 1.0  # records that are left at the end go to whoever is there


def test_users_are_the_datas_own() -> None:
    labels = np.array([0, 1, 0, 1, 0, 1])
    split = privet.data.Split(x=np.zeros((6, 2)), y=labels, units=np.array([1, 0, 1, 2, 0, 1]))
    data = privet.data.Dataset(
        name="d",
        train=split,
        test=split,
        bounds=privet.data.Bounds(low=(0.0,), high=(1.0,)),
        classes=("a", "b"),
        nominal_size=3,
        licence="",
        source="",
        unit="user",
    )
    assert [rows.tolist() for rows in users_of(data)] == [[1, 4], [0, 2, 5], [3]]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"clients": 0}, "number of clients"),
        ({"clients": 2001}, "number of clients"),
        ({"alpha": 0.0}, "bad skew"),
        ({"lacking": 5}, "lacking classes"),
    ],
)
def test_bad_deals_are_refused(fields: dict[str, object], words: str) -> None:
    base: dict[str, object] = {"clients": 4, "classes": 5, "alpha": 0.3}
    with pytest.raises(InputError, match=words):
        skewed(LABELS, **(base | fields))  # type: ignore[arg-type]


def test_data_without_users_says_how_to_have_clients() -> None:
    with pytest.raises(InputError, match="--clients N"):
        users_of(privet.data.load("digits"))
