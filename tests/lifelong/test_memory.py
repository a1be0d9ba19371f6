"""Who is kept for the memory, and what the memory is made of."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).parent))
from small_streams import small_data, small_stream

from privet.errors import InputError
from privet.lifelong.memory import Kept, admitted, kept_of, memory_of
from privet.lifelong.stream import Stream, Task
from privet.privacy.randomness import SecretStream

COINS = SecretStream(bytes(32))


def test_a_unit_has_one_coin_for_all_tasks_of_a_shared_stream():
    stream = small_stream(3, shared=True, n=200)
    chosen = [admitted(t, i, chance=0.3, coins=COINS) for i, t in enumerate(stream, 1)]
    assert 0 < chosen[0].sum() < 200
    assert (chosen[0] == chosen[1]).all()
    assert (chosen[0] == chosen[2]).all()


def test_a_coin_goes_with_the_identity_and_not_with_the_place():
    task = small_stream(1, shared=True, n=200).tasks[0]
    turned = Task(name="1", data=task.data, identities=np.arange(200)[::-1].copy())
    there = admitted(task, 1, chance=0.3, coins=COINS)
    assert (admitted(turned, 1, chance=0.3, coins=COINS) == there[::-1]).all()


def test_tasks_of_a_disjoint_stream_have_coins_of_their_own():
    stream = small_stream(2, n=200)
    first, second = (admitted(t, i, chance=0.3, coins=COINS) for i, t in enumerate(stream, 1))
    assert (first != second).any()


def test_the_chance_is_the_one_that_is_accounted():
    """20,000 coins of 0.2; a wrong chance of 0.21 would be seen with probability above 0.9."""
    task = Task(name="1", data=small_data("many", 20_000, 0))
    lucky = int(admitted(task, 1, chance=0.2, coins=COINS).sum())
    assert binomtest(lucky, 20_000, 0.2).pvalue > 1e-3


def test_the_chance_of_a_shared_stream_is_the_same_one():
    """As above; coins of identities are tossed by another function."""
    whole = small_stream(1, shared=True, n=20_000).tasks[0]
    lucky = int(admitted(whole, 1, chance=0.2, coins=COINS).sum())
    assert binomtest(lucky, 20_000, 0.2).pvalue > 1e-3


def test_all_records_of_a_user_share_a_coin():
    units = np.arange(60) // 6
    task = Task(name="1", data=small_data("users", 60, 0, units=units))
    chosen = admitted(task, 1, chance=0.5, coins=COINS)
    by_user = chosen.reshape(10, 6)
    assert (by_user == by_user[:, :1]).all()
    assert 0 < by_user[:, 0].sum() < 10


def test_others_coins_do_not_move_when_a_unit_is_gone():
    """Disjoint: the last record removed; shared: any one removed."""
    whole = Task(name="1", data=small_data("d", 60, 0))
    part = Task(name="1", data=small_data("d", 60, 0).training_on(
        whole.data.train.part(np.arange(60) < 59), nominal_size=60
    ))  # fmt: skip
    assert (admitted(part, 1, chance=0.5, coins=COINS)
            == admitted(whole, 1, chance=0.5, coins=COINS)[:59]).all()  # fmt: skip
    shared = small_stream(1, shared=True).tasks[0]
    left = np.arange(60) != 17
    data = shared.data.training_on(shared.data.train.part(left), nominal_size=60)
    less = Task(name="1", data=data, identities=np.arange(60)[left])
    assert (admitted(less, 1, chance=0.5, coins=COINS)
            == admitted(shared, 1, chance=0.5, coins=COINS)[left]).all()  # fmt: skip


def test_a_disjoint_memory_has_all_that_was_kept_and_a_declared_size():
    stream = small_stream(3, n=100)
    parts = [kept_of(t, i, chance=0.3, coins=COINS) for i, t in enumerate(stream, 1)]
    memory = memory_of(stream, parts[:2], chance=0.3)
    assert len(memory.train) == len(parts[0].y) + len(parts[1].y)
    assert memory.nominal_size == 60  # 0.3 of two declared sizes, whatever the coins said
    assert memory.train.units is None


def test_in_a_shared_memory_the_records_of_a_unit_are_one():
    stream = small_stream(3, shared=True, n=100)
    parts = [kept_of(t, i, chance=0.3, coins=COINS) for i, t in enumerate(stream, 1)]
    memory = memory_of(stream, parts, chance=0.3)
    assert memory.nominal_size == 30
    assert memory.train.n_units == len(parts[0].y)
    assert (np.bincount(memory.train.units) == 3).all()


def test_users_of_two_tasks_with_the_same_number_are_two():
    units = np.arange(60) // 6
    tasks = tuple(
        Task(name=f"{i}", data=small_data(f"users/{i}", 60, i, units=units)) for i in (1, 2)
    )
    stream = Stream(name="users", tasks=tasks, shared=False)
    parts = [kept_of(t, i, chance=1.0, coins=COINS) for i, t in enumerate(stream, 1)]
    assert memory_of(stream, parts, chance=1.0).train.n_units == 20


def test_there_and_back_on_disk(tmp_path):
    kept = kept_of(small_stream(1).tasks[0], 1, chance=0.5, coins=COINS)
    kept.save(tmp_path / "memory.npz")
    found = Kept.load(tmp_path / "memory.npz")
    assert (found.x == kept.x).all()
    assert (found.owners == kept.owners).all()
    assert (tmp_path / "memory.npz").stat().st_mode & 0o077 == 0
    (tmp_path / "memory.npz").write_bytes(b"broken")
    with pytest.raises(InputError, match="corrupt memory"):
        Kept.load(tmp_path / "memory.npz")
    with pytest.raises(InputError, match="not there"):
        Kept.load(tmp_path / "other.npz")


def test_identities_may_be_as_long_as_hashes():
    task = small_stream(1, shared=True).tasks[0]
    long = np.arange(60) * 2**57 + 12345
    chosen = admitted(Task(name="1", data=task.data, identities=long), 1, chance=0.5, coins=COINS)
    assert 10 < chosen.sum() < 50
