"""Description files: round trips, the data behind them, and what is refused."""

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.data import Description, load, load_description, write_description
from privet.data.dataset import LearnedFact
from privet.data.description import read_description
from privet.errors import FaultyEnvironment, InputError

CLINIC = """
[data]
name = "clinic"
train = "clinic.csv"
test = "clinic_test.csv"
label = "outcome"
classes = ["healthy", "ill"]
nominal_size = 1200
unit = "patient"
licence = "internal"
test_is_public = true

[features]
bmi = [10, 70]
age = [0, 110]

[[learned]]
name = "bounds of age"
epsilon = 0.1
"""
SCAN = """
[data]
name = "scan"
train = "scan.npz"
test_fraction = 0.3
classes = ["no", "yes"]
nominal_size = 100
bounds = [0, 255]
"""


@pytest.fixture
def clinic(tmp_path):
    (tmp_path / "clinic.csv").write_text("age,bmi,outcome\n30,20,ill\n40,30,healthy\n")
    (tmp_path / "clinic_test.csv").write_text("bmi,age,outcome\n25,50,ill\n")
    (tmp_path / "clinic.toml").write_text(CLINIC)
    return tmp_path / "clinic.toml"


@pytest.fixture
def scan(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (60, 1, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "scan.npz", x=x, y=np.arange(60) % 2)
    (tmp_path / "scan.toml").write_text(SCAN)
    return tmp_path / "scan.toml"


def test_a_table_is_loaded_with_its_declared_facts(clinic, monkeypatch):
    monkeypatch.chdir(clinic.parent.parent)  # paths are relative to the file, not to us
    data = load_description(clinic)
    assert data.train.x.tolist() == [[20, 30], [30, 40]]
    assert data.test.x.tolist() == [[25, 50]]
    assert data.train.y.tolist() == [1, 0]
    assert (data.bounds.low, data.bounds.high) == ((10, 0), (70, 110))
    assert data.nominal_size == 1200, "the declared size, not the number of rows"
    assert (data.name, data.unit, data.licence) == ("clinic", "patient", "internal")
    assert data.test_is_public
    assert data.learned == (LearnedFact(name="bounds of age", epsilon=0.1),)
    assert data.source == "clinic.toml"


def test_arrays_are_loaded_and_split_by_content(scan):
    data = load(scan)
    assert len(data.train) + len(data.test) == 60
    assert 5 <= len(data.test) <= 31
    assert data.shape == (1, 4, 4)
    assert not data.test_is_public
    assert data.unit == "example"
    again = load(str(scan))
    assert np.array_equal(again.test.x, data.test.x)


def test_removing_a_record_leaves_the_others_in_their_part(scan):
    whole = load_description(scan)
    with np.load(scan.with_suffix(".npz")) as arrays:
        x, y = arrays["x"][1:], arrays["y"][1:]
    np.savez(scan.with_suffix(".npz"), x=x, y=y)
    less = load_description(scan)
    sizes = [(len(a), len(b)) for a, b in ((whole.train, less.train), (whole.test, less.test))]
    for (before, after), old, new in zip(
        sizes, (whole.train, whole.test), (less.train, less.test), strict=True
    ):
        assert np.array_equal(new.x, old.x[before - after :])
    assert sum(before - after for before, after in sizes) == 1


TEXT = st.text(min_size=1).filter(lambda t: t.strip())
NUMBER = st.floats(-1e9, 1e9)
PAIR = st.tuples(NUMBER, NUMBER).filter(lambda p: p[0] < p[1])
TABLES = st.builds(
    Description,
    name=TEXT,
    train=st.just("a.csv"),
    test_fraction=st.floats(0.01, 0.99),
    label=st.just("the label"),
    classes=st.lists(TEXT, min_size=2, unique=True).map(tuple),
    features=st.dictionaries(
        TEXT.filter(lambda t: t not in ("the label", "the unit")), PAIR, min_size=1
    ),
    nominal_size=st.integers(1, 10**9),
    unit=TEXT.filter(lambda t: t != "example"),
    unit_column=st.none() | st.just("the unit"),
    licence=TEXT,
    test_is_public=st.booleans(),
    learned=st.lists(
        st.builds(LearnedFact, name=TEXT, epsilon=st.floats(1e-9, 1e9)), max_size=2
    ).map(tuple),
)


@given(TABLES)
def test_what_is_written_is_read(tmp_path_factory, description):
    path = tmp_path_factory.mktemp("d") / "d.toml"
    write_description(description, path)
    again = read_description(path)
    assert again == description
    assert list(again.features) == list(description.features), "the order of the columns"


def test_arrays_round_trip_with_numbers_of_numpy(tmp_path):
    bounds = (np.float64(0.5), np.float64(1e-7 + 1))
    facts = Description(
        name="a", train="a.npz", test="b.npz", classes=("x", "y"), nominal_size=9, bounds=bounds
    )
    write_description(facts, tmp_path / "a.toml")
    assert read_description(tmp_path / "a.toml") == facts


def test_an_existing_file_is_kept_unless_told(clinic):
    description = read_description(clinic)
    before = clinic.read_text()
    with pytest.raises(InputError, match="exists"):
        write_description(description, clinic)
    assert clinic.read_text() == before
    write_description(description, clinic, overwrite=True)
    assert clinic.read_text() != before
    assert tomllib.loads(clinic.read_text())["features"]["age"] == [0, 110]
    assert read_description(clinic) == description


def test_a_failed_write_leaves_nothing_behind(clinic, monkeypatch):
    description = read_description(clinic)
    before = sorted(path.name for path in clinic.parent.iterdir())
    content = clinic.read_text()

    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(FaultyEnvironment, match="No space left"):
        write_description(description, clinic, overwrite=True)
    assert sorted(path.name for path in clinic.parent.iterdir()) == before
    assert clinic.read_text() == content


def test_a_folder_that_cannot_take_the_file_is_named(clinic):
    description = read_description(clinic)
    for folder in (clinic, clinic.parent / "void"):
        with pytest.raises(FaultyEnvironment, match="cannot write"):
            write_description(description, folder / "a.toml")


BAD = [
    ("[data]", "[data", "not a readable TOML"),
    ("[data]", "[date]", "unknown key 'date' in the file.*write 'data'"),
    ("[features]", "[feature]", "unknown key 'feature'.*write 'features'"),
    ('label = "outcome"', 'lable = "outcome"', "unknown key 'lable'.*write 'label'"),
    ('name = "clinic"', "", "key 'name' is missing in .data.*expected a text"),
    ('train = "clinic.csv"', "", "key 'train' is missing"),
    ("nominal_size = 1200", "", "key 'nominal_size' is missing"),
    ('classes = ["healthy", "ill"]', "", "key 'classes' is missing"),
    ('name = "clinic"', "name = 3", "bad 'name': got 3, expected a text"),
    ('name = "clinic"', 'name = " "', "bad 'name'"),
    ("= 1200", '= "1200"', "bad 'nominal_size': got '1200', expected a whole number"),
    ("= 1200", "= 1200.0", "bad 'nominal_size'"),
    ("= 1200", "= true", "bad 'nominal_size'"),
    ("= 1200", "= 0", "bad 'nominal_size': got 0, expected a positive"),
    ("test_is_public = true", "test_is_public = 1", "bad 'test_is_public'.*true or false"),
    ('["healthy", "ill"]', '"healthy"', "bad 'classes'.*a list of texts"),
    ('["healthy", "ill"]', "[0, 1]", "bad 'classes'.*a list of texts"),
    ('["healthy", "ill"]', '["ill", "ill"]', "bad 'classes'.*two different"),
    ('["healthy", "ill"]', '["ill"]', "bad 'classes'.*two different"),
    ('test = "clinic_test.csv"', "", "bad 'test': got neither"),
    ('test = "', 'test_fraction = 0.2\ntest = "', "bad 'test': got both"),
    ('test = "clinic_test.csv"', "test_fraction = 1.0", "bad 'test_fraction': got 1.0"),
    ('test = "clinic_test.csv"', "test_fraction = nan", "bad 'test_fraction'"),
    ('test = "clinic_test.csv"', 'test = "t.npz"', "bad 'test': got t.npz"),
    ('train = "clinic.csv"', 'train = "clinic.pkl"', "bad 'train'.*ending in .csv"),
    ('label = "outcome"', "", "bad 'label': got nothing"),
    ('label = "outcome"', 'label = "age"', "bad 'label': got age.*not also a feature"),
    ('unit = "patient"', "bounds = [0, 1]", "bad 'bounds'.*for .npz, only"),
    ("[features]\nbmi = [10, 70]\nage = [0, 110]", "", "bad 'features': got nothing"),
    ("age = [0, 110]", "age = 110", "bad 'age': got 110, expected a pair of numbers"),
    ("age = [0, 110]", "age = [0, 110, 1]", "bad 'age'"),
    ("age = [0, 110]", "age = [0, 1" + "0" * 400 + "]", "bad 'age'"),
    ("age = [0, 110]", "age = [110, 0]", "bad 'age': got .110.0, 0.0.*low < high"),
    ("age = [0, 110]", "age = [0, inf]", "bad 'age'.*finite"),
    ("[features]\n", "[[features]]\n", "bad 'features'.*a section"),
    ("[[learned]]", "[learned]", "bad 'learned'"),
    ("epsilon = 0.1", "epsilon = -0.1", "bad 'epsilon': got -0.1"),
    ("epsilon = 0.1", "epsilon = inf", "bad 'epsilon'"),
    ("epsilon = 0.1", 'epsilon = "0.1"', "bad 'epsilon'.*a number"),
    ("epsilon = 0.1", "delta = 0.1", "unknown key 'delta'"),
    ("epsilon = 0.1", "", "key 'epsilon' is missing"),
    ('train = "clinic.csv"', 'train = "void.csv"', "file not found.*void.csv"),
    ("age = [0, 110]", "height = [0, 110]", "has no column 'height'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_a_bad_description_is_refused_in_one_line(clinic, old, new, message):
    assert old in CLINIC
    clinic.write_text(CLINIC.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        load_description(clinic)
    assert "\n" not in str(caught.value)


BAD_ARRAYS = [
    ("bounds = [0, 255]", "", "bad 'bounds': got nothing"),
    ("bounds = [0, 255]", 'bounds = [0, 255]\nlabel = "y"', "bad 'label': got y"),
    ("bounds = [0, 255]", "bounds = [0, 255]\n[features]\na = [0, 1]", "bad 'features'"),
    ("bounds = [0, 255]", "bounds = [9, 9]", "bad 'bounds'.*low < high"),
    ("test_fraction = 0.3", "test_fraction = 1e-15", "scan/test has zero examples"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_ARRAYS)
def test_a_bad_description_of_arrays_is_refused(scan, old, new, message):
    scan.write_text(SCAN.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_description(scan)


def test_a_missing_or_unreadable_file_is_named(tmp_path):
    for path in (tmp_path / "void.toml", tmp_path):
        with pytest.raises(InputError, match="description file not found"):
            load_description(path)
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a readable TOML"):
        load_description(tmp_path / "a.toml")


OWNED = CLINIC.replace('unit = "patient"', 'unit = "patient"\nunit_column = "who"')


@pytest.fixture
def owned(tmp_path):
    (tmp_path / "clinic.csv").write_text(
        "age,who,bmi,outcome\n30,p1,20,ill\n40,p2,30,healthy\n31,p1,21,healthy\n"
    )
    (tmp_path / "clinic_test.csv").write_text("bmi,age,outcome,who\n25,50,ill,p9\n")
    (tmp_path / "clinic.toml").write_text(OWNED)
    return tmp_path / "clinic.toml"


def test_a_unit_column_groups_the_records_and_is_no_feature(owned):
    data = load_description(owned)
    assert data.train.units.tolist() == [0, 1, 0]
    assert data.test.units.tolist() == [0]
    assert data.train.x.tolist() == [[20, 30], [30, 40], [21, 31]]
    assert (data.unit, data.features, data.nominal_size) == ("patient", ("bmi", "age"), 1200)


def test_arrays_have_a_unit_array_and_a_unit_is_on_one_side(scan):
    text = SCAN + 'unit = "user"\nunit_column = "who"\n'
    scan.write_text(text)
    x = np.arange(60).reshape(60, 1)
    np.savez(scan.with_suffix(".npz"), x=x, y=np.arange(60) % 2, who=np.arange(60) // 4)
    data = load_description(scan)
    sides = [set((part.x[:, 0] // 4).tolist()) for part in (data.train, data.test)]
    assert [part.n_units for part in (data.train, data.test)] == [len(side) for side in sides]
    assert sides[0] | sides[1] == set(range(15))
    assert not sides[0] & sides[1]


def test_a_patient_on_both_sides_is_refused_where_test_figures_are_published(owned):
    owned.with_name("clinic_test.csv").write_text("bmi,age,outcome,who\n25,50,ill,p2\n")
    with pytest.raises(InputError, match=r"a patient of the training records.*test_is_public"):
        load_description(owned)
    owned.write_text(OWNED.replace("test_is_public = true", "test_is_public = false"))
    assert load_description(owned).test.n_units == 1


BAD_UNITS = [
    ('unit = "patient"\n', "", "bad 'unit': got example, expected a name for whose.*'who'"),
    ('= "who"', '= "age"', "bad 'unit_column': got age.*nothing else"),
    ('= "who"', '= "outcome"', "bad 'unit_column': got outcome"),
    ('= "who"', '= "whom"', "has no column 'whom'"),
    ('= "who"', "= 3", "bad 'unit_column': got 3, expected a text"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_UNITS)
def test_a_bad_unit_column_is_refused(owned, old, new, message):
    owned.write_text(OWNED.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        load_description(owned)


@pytest.mark.parametrize("part", ["clinic.csv", "clinic_test.csv"])
def test_a_record_that_is_nobodys_is_refused_in_both_parts(owned, part):
    path = owned.with_name(part)
    path.write_text(path.read_text().replace("p1", "").replace("p9", ""))
    with pytest.raises(InputError, match=f"{part}: the cell in row 1, column 'who' is no id"):
        load_description(owned)
