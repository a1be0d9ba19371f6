"""A folder of task files: order, who comes back, and what is refused."""

import csv

import numpy as np
import pytest

from privet.data.description import Description, write_description
from privet.data.identity import enter_in_ledger
from privet.errors import InputError
from privet.ledger import Ledger
from privet.lifelong.tasks import load_stream

COLUMNS = ("age", "bmi", "who", "state")


def write_table(path, people, seed):
    """Two rows for each person."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(COLUMNS)
        for place, person in enumerate([p for p in people for _ in range(2)]):
            out.writerow(
                [rng.integers(1, 99), rng.uniform(15, 40), person, ("ill", "well")[place % 2]]
            )


def add_task(folder, name, people=("ann", "bob", "cid"), *, seed=None, grouped=True, **changes):
    """A table for training, another (of other people) for testing, and their description."""
    folder.mkdir(exist_ok=True)
    seed = sum(map(ord, name)) if seed is None else seed
    write_table(folder / f"{name}.csv", people, seed)
    write_table(folder / f"{name}-test.csv", ("zoe", "yan"), seed + 1)
    facts = {
        "name": f"my {name}",
        "train": f"{name}.csv",
        "test": f"{name}-test.csv",
        "classes": ("ill", "well"),
        "nominal_size": 3 if grouped else 6,
        "label": "state",
        "features": {"age": (0.0, 120.0), "bmi": (10.0, 60.0)},
        "unit": "patient" if grouped else "example",
        "unit_column": "who" if grouped else None,
    }
    write_description(Description(**(facts | changes)), folder / f"{name}.toml")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "clinic"


def test_tasks_come_in_the_order_of_names_and_numbers(folder):
    for number in (10, 9, 1):
        add_task(folder, f"task-{number}", [f"p{number}a", f"p{number}b"])
    stream = load_stream(folder)
    assert [task.name for task in stream] == ["task-1", "task-9", "task-10"]
    assert (stream.name, stream.shared, stream.unit) == ("clinic", False, "patient")
    assert [task.data.name for task in stream] == [f"clinic/{task.name}" for task in stream]
    assert [task.name for task in load_stream(str(folder), n_tasks=2)] == ["task-1", "task-9"]


def test_a_stream_file_names_tasks_in_their_order(folder):
    for name, people in (("a", "xy"), ("b", "uv"), ("c", "st")):
        add_task(folder, name, people)
    (folder / "stream.toml").write_text('tasks = ["c.toml", "a.toml"]\n')
    assert [task.name for task in load_stream(folder)] == ["c", "a"]


def test_who_comes_back_is_known_by_the_id(folder):
    """Numbered otherwise in every file: by place, bob is 1, 0 and 2."""
    add_task(folder, "1", ["ann", "bob", "cid"])
    add_task(folder, "2", ["bob", "dan"])
    add_task(folder, "3", ["eve", "ann", "bob"])
    (folder / "stream.toml").write_text("shared = true\n")
    one, two, three = (task.identities.tolist() for task in load_stream(folder))
    assert one[1] == two[0] == three[2]
    assert one[0] == three[1]
    assert len({*one, *two, *three}) == 5
    assert min(one) >= 0


def test_ids_are_the_same_in_every_format(folder):
    """7 in a table and 7 in an array are one patient."""
    add_task(folder, "1", [7, 8])
    x = np.random.default_rng(0).uniform(0, 60, (4, 2))
    np.savez(folder / "2.npz", x=x, y=np.arange(4) % 2, who=np.array([8, 8, 9, 9]))
    facts = {"classes": ("ill", "well"), "nominal_size": 2, "unit": "patient"}
    for name, train, how in (
        ("1", "1.csv", {"label": "state", "features": {"age": (0.0, 99.0), "bmi": (0.0, 99.0)}}),
        ("2", "2.npz", {"bounds": (0.0, 99.0)}),
    ):
        description = Description(
            name=name, train=train, test=train, unit_column="who", **facts, **how
        )
        write_description(description, folder / f"{name}.toml", overwrite=True)
    with pytest.raises(InputError, match="other columns than the first"):
        load_stream(folder, shared=True)
    (folder / "stream.toml").write_text('tasks = ["1.toml"]\n')
    (one,) = load_stream(folder, shared=True)
    (folder / "stream.toml").write_text('tasks = ["2.toml"]\n')
    (two,) = load_stream(folder, shared=True)
    assert one.identities[1] == two.identities[0]


def test_a_test_share_keeps_ids_with_their_units(folder):
    """Who is left for training after the split by id still has the identity of that id."""
    people = [f"p{i}" for i in range(12)]
    half = {"test": None, "test_fraction": 0.4}  # p3, p5 and p7, by the hash of their ids
    add_task(folder, "1", people, **half)
    add_task(folder, "2", people[::-1], **half)
    one, two = load_stream(folder, shared=True)
    assert len(one.identities) == 9
    assert one.identities.tolist() == two.identities.tolist()[::-1]
    add_task(folder, "3", ["p3", "p4"])
    alone = load_stream(folder, shared=True).tasks[2].identities
    assert alone[0] not in one.identities
    assert alone[1] in one.identities


@pytest.mark.parametrize("shared", [True, False])
def test_a_task_that_is_added_changes_no_earlier_one(folder, shared):
    add_task(folder, "1", ["ann", "bob"])
    add_task(folder, "2", ["cid", "ann"] if shared else ["cid", "dan"])
    before = load_stream(folder, shared=shared)
    add_task(folder, "3", ["zed", "ann"] if shared else ["zed", "una"])
    after = load_stream(folder, shared=shared)
    again = load_stream(**before.reference)
    assert (len(before), len(after), len(again)) == (2, 3, 2)
    for old, new, same in zip(before, after.tasks[:2], again, strict=True):
        assert old.name == new.name == same.name
        for other in (new, same):
            assert np.array_equal(old.data.train.x, other.data.train.x)
            assert np.array_equal(old.data.train.units, other.data.train.units)
            if shared:
                assert np.array_equal(old.identities, other.identities)


def test_who_comes_back_in_a_disjoint_stream_is_refused(folder):
    add_task(folder, "1", ["ann", "bob"])
    add_task(folder, "2", ["cid", "bob"])
    with pytest.raises(InputError, match="a patient of task '2' is in an earlier task") as refusal:
        load_stream(folder)
    assert "bob" not in str(refusal.value), "a message repeats no private value"
    assert load_stream(folder, shared=True).shared


def test_a_shared_stream_needs_ids(folder):
    add_task(folder, "1", grouped=False)
    assert not load_stream(folder).shared
    with pytest.raises(InputError, match="does not tell who comes back"):
        load_stream(folder, shared=True)


def test_nobody_in_public_test_records_trains_in_any_task(folder):
    add_task(folder, "1", ["ann", "bob"], test_is_public=True)
    load_stream(folder)
    add_task(folder, "2", ["zoe", "cid"], test="1-test.csv", test_is_public=False)
    with pytest.raises(InputError, match="public test records of task '1'"):
        load_stream(folder, shared=True)


def test_tasks_of_a_folder_are_related_by_their_records(folder, tmp_path):
    add_task(folder, "1", ["ann", "bob"], seed=1)
    add_task(folder, "2", ["cid", "dan"], seed=50)
    add_task(folder, "3", ["eve", "fay"], seed=50)  # other names, the same rows
    ledger = Ledger(tmp_path / "ledger.db")
    for task in load_stream(folder):
        enter_in_ledger(task.data, ledger)
    assert ledger.account("clinic/1").related == ()
    assert ledger.account("clinic/2").related == ("clinic/3",)
    ledger.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("ill", "well", "dead")}, "task '2' has another classes than the first"),
        ({"features": {"age": (0.0, 99.0), "bmi": (10.0, 60.0)}}, "another bounds"),
        ({"features": {"bmi": (10.0, 60.0), "age": (0.0, 120.0)}}, "task '2' has other columns"),
        ({"features": {"age": (0.0, 120.0)}}, "task '2' has other columns"),
        ({"unit": "person"}, "another unit"),
        ({"grouped": False}, "another unit"),
        ({"train": "missing.csv"}, r"file not found.*missing\.csv"),
    ],
)
def test_tasks_that_are_not_alike_are_refused(folder, changes, message):
    add_task(folder, "1", ["ann", "bob"])
    add_task(folder, "2", ["cid", "dan"], **changes)
    with pytest.raises(InputError, match=message) as refusal:
        load_stream(folder)
    assert "\n" not in str(refusal.value)


def test_a_ragged_file_is_refused_by_its_row(folder):
    add_task(folder, "1")
    with (folder / "1.csv").open("a") as stream:
        stream.write("34,21\n")
    with pytest.raises(InputError, match="row 7 is ragged"):
        load_stream(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = []", "bad 'tasks' or 'shared'"),
        ('tasks = ["1.toml", "1.toml"]', "bad 'tasks'"),
        ("tasks = 3", "bad 'tasks'"),
        ("tasks = [3]", "bad 'tasks'"),
        ('shared = "yes"', "bad 'tasks' or 'shared'"),
        ("share = true", "unknown key 'share'"),
        ("tasks = [", "not a readable TOML"),
        ('tasks = ["none.toml"]', "description file not found"),
        ("shared = false", "says otherwise"),
    ],
)
def test_a_bad_stream_file_is_refused(folder, text, message):
    add_task(folder, "1")
    (folder / "stream.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_stream(folder, shared=True)


def test_a_folder_without_tasks_or_with_too_few_is_refused(folder):
    folder.mkdir()
    with pytest.raises(InputError, match="no tasks in"):
        load_stream(folder)
    add_task(folder, "1")
    for wrong in (0, 2):
        with pytest.raises(InputError, match=r"bad number of tasks.*1\.\.1"):
            load_stream(folder, n_tasks=wrong)
    with pytest.raises(InputError, match="those of its files"):
        load_stream(folder, records=3)
