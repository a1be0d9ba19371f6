"""Whose records these are: ids from every format, and a split that keeps a unit whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.data import Split
from privet.data.tables import read_arrays, read_table, split_by_content
from privet.data.units import Records, grouped, require_apart
from privet.errors import InputError

CLASSES = ("healthy", "ill")


def owned_csv(tmp_path, ids, name="t.csv"):
    rows = [f"{i},{who},{i % 2 + 20},{'ill' if i % 2 else 'healthy'}" for i, who in enumerate(ids)]
    (tmp_path / name).write_text("\n".join(["age,patient,bmi,outcome", *rows, ""]))
    return tmp_path / name


def owned_parquet(tmp_path, ids):
    columns = {
        "patient": ids,
        "age": [float(i) for i in range(len(ids))],
        "bmi": [i % 2 + 20.0 for i in range(len(ids))],
        "outcome": ["ill" if i % 2 else "healthy" for i in range(len(ids))],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def owned_arrays(tmp_path, ids):
    x = np.array([[i, i % 2 + 20.0] for i in range(len(ids))])
    np.savez(tmp_path / "t.npz", x=x, y=np.arange(len(ids)) % 2, patient=ids)
    return tmp_path / "t.npz"


def read_owned(path, unit_column="patient"):
    if path.suffix == ".npz":
        return read_arrays(path, classes=CLASSES, unit_column=unit_column)
    return read_table(
        path,
        features=("age", "bmi"),
        label="outcome",
        classes=CLASSES,
        unit_column=unit_column,
    )


WRITERS = [owned_csv, owned_parquet, owned_arrays]


@pytest.mark.parametrize("write", WRITERS)
def test_a_unit_column_says_whose_each_record_is_and_is_no_feature(tmp_path, write):
    records = read_owned(write(tmp_path, ["b7", "a", "b7", "c", "a"]))
    assert records.split.units.tolist() == [0, 1, 0, 2, 1]
    assert records.split.units.dtype == np.int64
    assert records.ids == ("b7", "a", "c")
    assert records.split.x.tolist() == [[i, i % 2 + 20] for i in range(5)]


def test_whole_numbers_and_texts_are_the_same_ids_in_every_format(tmp_path):
    whole = [17, 3, 17, 240]
    read = [
        read_owned(owned_csv(tmp_path, whole)),
        read_owned(owned_csv(tmp_path, [f" {i} " for i in whole], "spaces.csv")),
        read_owned(owned_parquet(tmp_path, whole)),
        read_owned(owned_parquet(tmp_path, [float(i) for i in whole])),
        read_owned(owned_arrays(tmp_path, whole)),
        read_owned(owned_arrays(tmp_path, [str(i) for i in whole])),
    ]
    assert {records.ids for records in read} == {("17", "3", "240")}
    assert {tuple(records.split.units) for records in read} == {(0, 1, 0, 2)}


BAD_IDS = [
    (owned_csv, ["secret", ""]),
    (owned_csv, ["secret", "NA"]),
    (owned_csv, ["secret", " NaN "]),
    (owned_csv, ["secret", "NULL"]),
    (owned_parquet, ["secret", None]),
    (owned_parquet, [1.0, float("nan")]),
    (owned_parquet, [1.0, 2.5]),
    (owned_parquet, [1.0, 2.0**53]),
    (owned_parquet, [None, True]),
    (owned_arrays, np.array(["secret", ""])),
    (owned_arrays, np.array([1.0, np.nan])),
]


@pytest.mark.parametrize(("write", "ids"), BAD_IDS)
def test_a_record_without_an_id_is_refused(tmp_path, write, ids):
    """All records without an id would pass for one unit, and hardly be protected."""
    with pytest.raises(InputError, match=r"row [12], column 'patient' is no id") as caught:
        read_owned(write(tmp_path, ids))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_unit_column_or_a_misshapen_one_is_refused(tmp_path):
    for write in WRITERS:
        path = write(tmp_path, ["a", "b"])
        with pytest.raises(InputError, match=r"has no (column|array) 'user'"):
            read_owned(path, unit_column="user")
    with pytest.raises(InputError, match=r"'patient' cannot be used: got shape \(2, 2\)"):
        read_owned(owned_arrays(tmp_path, np.zeros((2, 2), int)))


def test_categories_of_a_parquet_file_are_texts(tmp_path):
    ids = pa.array(["b", "a", "b"]).dictionary_encode()
    assert read_owned(owned_parquet(tmp_path, ids)).ids == ("b", "a")


def owned_by(owners, kept):
    """Record i belongs to owners[i] and holds the number i; only those in `kept`."""
    numbers = np.array(kept, dtype=np.float64)
    split = Split(x=numbers[:, None], y=numbers.astype(np.int64) % 2)
    return grouped(Path("t.csv"), split, "who", [owners[i] for i in kept])


OWNERS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=30)


@settings(max_examples=100, derandomize=True)
@given(OWNERS, st.sampled_from("abcdefgh"), st.floats(0.05, 0.95))
def test_removing_a_unit_moves_no_other_and_no_unit_is_on_both_sides(owners, leaver, fraction):
    def side_of_owner(kept):
        side_of = {}
        for side, records in enumerate(split_by_content(owned_by(owners, kept), fraction)):
            part = records.split
            found = [owners[int(number)] for number in part.x[:, 0]]
            # What is numbered alike is one owner's, and without gaps.
            assert len(set(zip(found, part.units.tolist(), strict=True))) == len(set(found))
            assert sorted(set(part.units.tolist())) == list(range(len(set(found))))
            assert [records.ids[unit] for unit in part.units.tolist()] == found
            assert not set(found) & set(side_of), "one side for each unit"
            side_of |= dict.fromkeys(found, side)
        return side_of

    everyone = side_of_owner(range(len(owners)))
    assert set(everyone) == set(owners)
    others = [i for i, owner in enumerate(owners) if owner != leaver]
    everyone.pop(leaver, None)
    assert side_of_owner(others) == everyone


def test_a_split_by_content_of_each_record_would_be_caught():
    """It tears a unit apart: some of forty records of one person on either side."""
    whole = owned_by(["a"] * 40, range(40))
    torn = Records(split=replace(whole.split, units=None))
    assert min(len(part.split) for part in split_by_content(whole, 0.5)) == 0
    assert min(len(part.split) for part in split_by_content(torn, 0.5)) > 0


def test_the_share_of_units_is_about_the_fraction():
    """Binomial; a right split is further off than five deviations with probability 6e-7."""
    owners = [f"patient {i // 3}" for i in range(6000)]
    test = split_by_content(owned_by(owners, range(6000)), 0.2)[1].split
    assert test.n_units == pytest.approx(400, abs=5 * np.sqrt(2000 * 0.2 * 0.8))
    assert len(test) == 3 * test.n_units


def test_the_side_of_known_ids_is_the_same_on_every_machine(tmp_path):
    ids = [f"p{i}" for i in range(12)]
    test = split_by_content(read_owned(owned_csv(tmp_path, ids)), 0.4)[1].split
    assert [ids[int(age)] for age in test.x[:, 0]] == ["p3", "p5", "p7"]


def test_a_unit_in_both_files_is_refused():
    here, there = owned_by("aabc", range(4)), owned_by("dded", range(4))
    require_apart(here, there, "patient")
    with pytest.raises(InputError, match="a patient of the training records is also in the public"):
        require_apart(here, owned_by("dc", range(2)), "patient")
