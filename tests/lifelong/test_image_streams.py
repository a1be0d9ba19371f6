"""Streams made of images: who is in which task, and what the ledger makes of it."""

import gzip
import struct
from dataclasses import replace

import numpy as np
import pytest

from privet.data import catalogue, load
from privet.data.identity import enter_in_ledger, set_digest
from privet.errors import InputError
from privet.ledger import Ledger
from privet.lifelong.tasks import load_stream
from privet.lifelong.transforms import permutation, rotate

DIGITS = load("digits")


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


def undone(x, task, seed=0):
    """The images before task number `task` (from 0) permuted them."""
    order = permutation(64, seed=seed, task=task)
    return x.reshape(len(x), -1)[:, np.argsort(order)].reshape(x.shape)


def test_shards_are_slices_of_the_files_each_permuted_in_its_own_way():
    stream = load_stream("permuted-digits", n_tasks=4, seed=3)
    assert (len(stream), stream.shared, stream.shape) == (4, False, (1, 8, 8))
    for i, task in enumerate(stream):
        part = slice(i * 359, (i + 1) * 359)
        assert np.array_equal(undone(task.data.train.x, i, 3), DIGITS.train.x[part])
        assert np.array_equal(task.data.train.y, DIGITS.train.y[part])
        assert np.array_equal(undone(task.data.test.x, i, 3), DIGITS.test.x), "the same for both"
        assert np.array_equal(task.data.test.y, DIGITS.test.y)
        assert (task.data.nominal_size, task.identities) == (359, None)
        assert task.data.name == f"{stream.name}/{task.name}"
        assert task.data.train.x.dtype == np.uint8
        assert (task.data.bounds, task.data.classes) == (DIGITS.bounds, DIGITS.classes)


def test_shared_tasks_have_the_same_images_under_the_same_identities():
    stream = load_stream("permuted-digits", n_tasks=3, shared=True)
    assert stream.shared
    for i, task in enumerate(stream):
        assert np.array_equal(undone(task.data.train.x, i), DIGITS.train.x)
        assert np.array_equal(task.identities, np.arange(1437))
        assert task.data.nominal_size == 1437
    one, other = (task.data.train.x for task in stream.tasks[:2])
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("shared", [False, True])
def test_fewer_records_are_the_first_of_the_files(shared):
    stream = load_stream("permuted-digits", n_tasks=3, records=100, shared=shared)
    for i, task in enumerate(stream):
        start = 0 if shared else 100 * i
        assert np.array_equal(undone(task.data.train.x, i), DIGITS.train.x[start : start + 100])
        assert task.data.nominal_size == 100


def test_more_tasks_of_the_same_size_leave_the_earlier_ones_as_they_are():
    few = load_stream("permuted-digits", n_tasks=2, records=50)
    many = load_stream("permuted-digits", n_tasks=6, records=50)
    for one, other in zip(few.tasks, many.tasks[:2], strict=True):
        assert np.array_equal(one.data.train.x, other.data.train.x)
        assert np.array_equal(one.data.test.x, other.data.test.x)


def test_the_cuts_are_declared_and_not_counted(monkeypatch):
    """Of 1,437 digits, declared as 2,000: the last task has what is left, and one more nothing."""
    more = replace(catalogue.CATALOGUE["digits"], nominal_size=2000)
    monkeypatch.setitem(catalogue.CATALOGUE, "digits", more)
    stream = load_stream("permuted-digits", n_tasks=3)
    assert [task.data.nominal_size for task in stream] == [666, 666, 666]
    assert [len(task.data.train) for task in stream] == [666, 666, 105]
    with pytest.raises(InputError, match="has zero examples"):
        load_stream("permuted-digits", n_tasks=4)


def test_rotated_tasks_are_equally_spaced_below_half_a_turn():
    stream = load_stream("rotated-digits", n_tasks=4)
    assert [task.name for task in stream] == ["1-0deg", "2-45deg", "3-90deg", "4-135deg"]
    for i, task in enumerate(stream):
        part = DIGITS.train.x[i * 359 : (i + 1) * 359]
        assert np.array_equal(task.data.train.x, rotate(part, 45.0 * i))
        assert np.array_equal(task.data.test.x, rotate(DIGITS.test.x, 45.0 * i))
    assert np.array_equal(stream.tasks[0].data.test.x, DIGITS.test.x)


def test_angles_can_be_chosen():
    stream = load_stream("rotated-digits:90-0-22.5", shared=True)
    assert [task.name for task in stream] == ["1-90deg", "2-0deg", "3-22.5deg"]
    assert np.array_equal(stream.tasks[0].data.train.x, np.rot90(DIGITS.train.x, axes=(-2, -1)))
    assert len(load_stream("rotated-digits:90-0-22.5", n_tasks=2)) == 2


@pytest.mark.parametrize("order", ["0-x", "0-0", "0-360", "", "nan"])
def test_bad_angles_are_refused(order):
    with pytest.raises(InputError, match="angle"):
        load_stream(f"rotated-digits:{order}")


@pytest.mark.parametrize(
    ("n_tasks", "groups"),
    [
        (None, ["0-1", "2-3", "4-5", "6-7", "8-9"]),
        (3, ["0-1-2-3", "4-5-6", "7-8-9"]),
        (1, ["0-1-2-3-4-5-6-7-8-9"]),
    ],
)
def test_split_tasks_have_their_classes_and_all_labels(n_tasks, groups):
    stream = load_stream("split-digits", n_tasks=n_tasks)
    assert [task.name for task in stream] == groups
    assert stream.classes == DIGITS.classes
    for task, group in zip(stream, groups, strict=True):
        classes = {int(c) for c in group.split("-")}
        for part, whole in ((task.data.train, DIGITS.train), (task.data.test, DIGITS.test)):
            assert set(part.y.tolist()) == classes
            assert np.array_equal(part.x, whole.x[np.isin(whole.y, list(classes))])
        assert task.data.nominal_size == 1437 * len(classes) // 10


def test_fewer_records_of_classes_are_those_of_a_first_part_of_the_files():
    """One record less among them must not draw in another one: 5 x 20 places are looked at."""
    stream = load_stream("split-digits", records=20)
    for task, group in zip(stream, ([0, 1], [2, 3], [4, 5], [6, 7], [8, 9]), strict=True):
        chosen = np.isin(DIGITS.train.y[:100], group)
        assert np.array_equal(task.data.train.x, DIGITS.train.x[:100][chosen])
        assert task.data.nominal_size == 20


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("permuted-digits", {"n_tasks": 0}, "bad number of tasks: got 0"),
        ("permuted-digits", {"n_tasks": 2.0}, "bad number of tasks"),
        ("permuted-digits", {"n_tasks": 1438}, r"not so many tasks.*1\.\.1437"),
        ("permuted-digits", {"records": 0}, "bad number of records"),
        ("permuted-digits", {"n_tasks": 5, "records": 288}, r"records.*1\.\.287"),
        ("permuted-digits", {"records": 1438, "shared": True}, r"records.*1\.\.1437"),
        ("permuted-digits", {"seed": -1}, "bad seed"),
        ("permuted-digits:1-2", {}, "no order to choose"),
        ("split-digits", {"n_tasks": 6}, r"not so many tasks.*1\.\.5"),
        ("split-digits", {"records": 288}, r"records.*1\.\.287"),
        ("split-digits", {"shared": True}, "no unit of 'split-digits' is in two tasks"),
        ("rotated-digits:0-90", {"n_tasks": 3}, "not so many tasks"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name, asked, message):
    with pytest.raises(InputError, match=message):
        load_stream(name, **asked)


@pytest.mark.parametrize("name", ["permuted-digits", "rotated-digits", "split-digits"])
def test_disjoint_tasks_are_related_to_the_set_and_not_to_each_other(name, ledger):
    """By the records, as they were before they were made over. No two digits are equal."""
    stream = load_stream(name, n_tasks=3)
    for task in stream:
        enter_in_ledger(task.data, ledger)
        assert ledger.account(task.data.name).related == ()
    enter_in_ledger(DIGITS, ledger)
    for task in stream:
        assert ledger.account(task.data.name).related == ("digits",)
    assert len(ledger.account("digits").related) == 3


@pytest.mark.parametrize("name", ["permuted-digits", "rotated-digits"])
def test_shared_tasks_are_all_related(name, ledger):
    stream = load_stream(name, n_tasks=3, shared=True, records=40)
    for task in stream:
        enter_in_ledger(task.data, ledger)
    names = {task.data.name for task in stream}
    for name in names:
        assert set(ledger.account(name).related) == names - {name}


def test_permuted_images_are_not_those_of_another_set(ledger, make_data):
    enter_in_ledger(make_data(), ledger)
    task = load_stream("permuted-digits").tasks[0]
    enter_in_ledger(task.data, ledger)
    assert ledger.account(task.data.name).related == ()


def test_the_digest_of_a_task_is_that_of_its_own_values():
    """A release of task 1 must not pass for one of the images as they were."""
    (task,) = load_stream("permuted-digits", n_tasks=1)
    key = b"k" * 32
    assert set_digest(task.data, key) != set_digest(DIGITS, key)
    assert set_digest(task.data, key) == set_digest(replace(task.data, originals=None), key)


def write_idx(folder, name):
    (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for stem, count in (("train", 40), ("t10k", 20)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            packed = gzip.compress(header + array.tobytes())
            (folder / name / f"{stem}-{kind}-ubyte.gz").write_bytes(packed)


@pytest.mark.parametrize("kind", ["permuted", "split"])
@pytest.mark.parametrize("base", ["mnist", "fashion-mnist"])
def test_streams_of_files_are_found_in_the_named_folder(tmp_path, kind, base):
    """40 images where 60,000 are declared; the sizes of tasks are those declared."""
    write_idx(tmp_path, base)
    stream = load_stream(f"{kind}-{base}", n_tasks=1, data_dir=tmp_path)
    assert stream.tasks[0].data.nominal_size == 60_000
    assert len(stream.tasks[0].data.train) == 40
    again = load_stream(**stream.reference)
    assert np.array_equal(again.tasks[0].data.train.x, stream.tasks[0].data.train.x)
