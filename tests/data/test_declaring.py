import numpy as np
import pytest

from privet.data import load
from privet.data.declaring import declare
from privet.errors import BudgetExceeded, InputError
from privet.ledger import Ledger
from privet.training import train


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    ages, sexes = rng.integers(18, 90, 1500), rng.integers(0, 2, 1500)
    rows = [f"{a},{s},{'yes' if a > 50 else 'no'}" for a, s in zip(ages, sexes, strict=True)]
    file = tmp_path / "clinic.csv"
    file.write_text("age,sex,ill\n" + "\n".join(rows) + "\n")
    return file


def options(**changes):
    return {
        "name": "clinic",
        "classes": ("no", "yes"),
        "label": "ill",
        "features": {"age": (0.0, 110.0), "sex": (0.0, 1.0)},
        "bounds": None,
        "nominal_size": 1200,
        "test_fraction": 0.2,
        "learn_epsilon": None,
    } | changes


def test_declared_facts_cost_nothing_and_are_what_training_sees(table, ledger, tmp_path):
    declare(table, tmp_path / "clinic.toml", ledger=ledger, **options())
    data = load(tmp_path / "clinic.toml")
    assert ledger.names() == []
    assert (data.nominal_size, data.bounds.high, data.learned) == (1200, (110.0, 1.0), ())


def test_a_release_names_the_columns_in_order(table, ledger, tmp_path):
    declare(table, tmp_path / "clinic.toml", ledger=ledger, **options())
    data = load(tmp_path / "clinic.toml")
    release = train("dpsgd", data, epsilon=3.0, epochs=1, model="linear", ledger=ledger)
    assert release.config["features"] == release.trust["data"]["features"] == ["age", "sex"]


@pytest.mark.parametrize(
    ("missing", "word"), [("label", "--label"), ("test_fraction", "--test-fraction")]
)
def test_a_forgotten_option_is_named(table, ledger, tmp_path, missing, word):
    with pytest.raises(InputError, match=word):
        declare(table, tmp_path / "clinic.toml", ledger=ledger, **options(**{missing: None}))


def test_a_missing_fact_is_refused_without_a_budget(table, ledger, tmp_path):
    with pytest.raises(InputError, match="nominal size and bounds of age"):
        declare(
            table, tmp_path / "clinic.toml", ledger=ledger,
            **options(nominal_size=None, features={"age": None, "sex": (0.0, 1.0)}),
        )  # fmt: skip
    assert not (tmp_path / "clinic.toml").exists()


def test_learned_facts_are_charged_and_counted_in_every_release(table, ledger, tmp_path):
    declare(
        table, tmp_path / "clinic.toml", ledger=ledger,
        **options(nominal_size=None, features={"age": None, "sex": (0.0, 1.0)}, learn_epsilon=0.5),
    )  # fmt: skip
    data = load(tmp_path / "clinic.toml")
    assert abs(data.nominal_size - 1200) < 150
    assert data.bounds.low[0] >= 16.0
    assert data.bounds.high[0] == 128.0
    assert [fact.epsilon for fact in data.learned] == [0.25, 0.25]
    labels = [run.label for run in ledger.account("clinic").runs]
    assert labels == ["learn nominal size", "learn bounds of age"]
    release = train("dpsgd", data, epsilon=3.0, epochs=2, model="linear", ledger=ledger)
    assert 2.9 < release.privacy.epsilon <= 3.0  # of which 0.5 went into the facts
    training_alone = release.trust["events"][-1]
    assert training_alone["label"] == "train"
    assert len(release.trust["events"]) == 3


def test_nothing_is_written_when_the_cap_has_no_room(table, ledger, tmp_path):
    declare(
        table,
        tmp_path / "first.toml",
        ledger=ledger,
        **options(nominal_size=None, learn_epsilon=0.1),
    )
    ledger.cap("clinic", 0.5, 1e-5)
    with pytest.raises(BudgetExceeded):
        declare(
            table, tmp_path / "second.toml", ledger=ledger,
            **options(nominal_size=None, learn_epsilon=5.0),
        )  # fmt: skip
    assert not (tmp_path / "second.toml").exists()


def test_even_a_failure_to_learn_is_charged(tmp_path, ledger):
    """Whether the data suffice is an answer about them."""
    file = tmp_path / "few.csv"
    rows = [f"{i},0,{'yes' if i % 2 else 'no'}" for i in range(20)]
    file.write_text("\n".join(["age,sex,ill", *rows]) + "\n")
    with pytest.raises(InputError, match="too little data"):
        declare(
            file, tmp_path / "few.toml", ledger=ledger,
            **options(features={"age": None, "sex": (0.0, 1.0)}, learn_epsilon=0.1),
        )  # fmt: skip
    assert [run.label for run in ledger.account("clinic").runs] == ["learn bounds of age"]


def test_bounds_of_arrays_are_learned_from_each_records_ends(ledger, tmp_path):
    x = np.random.default_rng(0).uniform(0, 200, (800, 5, 5))
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(800) % 2)
    declare(
        tmp_path / "own.npz", tmp_path / "own.toml", ledger=ledger,
        **options(label=None, features={}, learn_epsilon=1.0),
    )  # fmt: skip
    bounds = load(tmp_path / "own.toml").bounds
    assert bounds.high == (256.0,)
    assert 0.0 <= bounds.low[0] <= 16.0


def test_an_existing_description_is_not_overwritten(table, ledger, tmp_path):
    declare(table, tmp_path / "clinic.toml", ledger=ledger, **options())
    with pytest.raises(InputError, match="exists"):
        declare(
            table, tmp_path / "clinic.toml", ledger=ledger,
            **options(nominal_size=None, learn_epsilon=1.0),
        )  # fmt: skip
    assert ledger.names() == []  # and nothing was charged for it


@pytest.fixture
def visits(tmp_path):
    """700 patients with 1 to 6 visits each, and one with 400 visits at the age of a million."""
    rng = np.random.default_rng(0)
    lines = ["patient,age,sex,ill"]
    for patient in range(700):
        for _ in range(rng.integers(1, 7)):
            age = rng.integers(18, 90)
            lines.append(f"p{patient},{age},{patient % 2},{'yes' if age > 50 else 'no'}")
    lines += [f"p700,1000000,0,{'yes' if i % 2 else 'no'}" for i in range(400)]
    file = tmp_path / "visits.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def by_patient(**changes):
    return options(
        unit="patient", unit_column="patient", features={"age": None, "sex": (0.0, 1.0)}
    ) | ({"nominal_size": None, "learn_epsilon": 3.0} | changes)


def test_facts_about_units_are_learned_for_units(visits, ledger, tmp_path):
    """Fails by chance with probability below 1e-6: Laplace noise of scale 1/1.5."""
    declare(visits, tmp_path / "visits.toml", ledger=ledger, **by_patient())
    data = load(tmp_path / "visits.toml")
    assert data.train.n_units + data.test.n_units == 701
    assert abs(data.nominal_size - data.train.n_units) <= 10, "patients, not visits"
    assert data.bounds.high[0] == 128.0, "400 visits of one patient do not show"
    assert (data.unit, ledger.account("clinic").unit.name) == ("patient", "patient")


def test_a_release_is_stated_for_the_unit_and_names_the_contribution(visits, ledger, tmp_path):
    declare(
        visits, tmp_path / "visits.toml", ledger=ledger,
        **by_patient(learn_epsilon=0.5, features={"age": (0.0, 110.0), "sex": (0.0, 1.0)}),
    )  # fmt: skip
    data = load(tmp_path / "visits.toml")
    release = train(
        "dpsgd", data, epsilon=3.0, epochs=2, model="linear", contribution=3, ledger=ledger
    )
    assert {guarantee.unit for guarantee in release.guarantees} == {"patient"}
    assert 2.9 < release.privacy.epsilon <= 3.0
    assert release.trust["data"]["unit"] == "patient"
    assert release.trust["mechanism"]["contribution"] == 3
    assert "p700" not in str(release.trust)
    assert "patient" not in release.trust["data"]["features"]


def test_a_table_spent_on_record_by_record_is_not_declared_by_patient(visits, ledger, tmp_path):
    """Declared twice, once for each unit: the second is refused before it learns anything."""
    declare(
        visits, tmp_path / "visits.toml", ledger=ledger,
        **options(nominal_size=None, learn_epsilon=0.5),
    )  # fmt: skip
    spent = ledger.account("clinic").runs
    with pytest.raises(InputError, match="in the ledger as 'clinic', with another unit"):
        declare(visits, tmp_path / "other.toml", ledger=ledger, **by_patient(name="other"))
    with pytest.raises(InputError, match="registered with another unit"):
        declare(visits, tmp_path / "other.toml", ledger=ledger, **by_patient())
    assert not (tmp_path / "other.toml").exists()
    assert ledger.account("clinic").runs == spent
    assert ledger.names() == ["clinic"]


def test_a_unit_column_needs_a_name_for_what_it_groups(visits, ledger, tmp_path):
    facts = by_patient() | {"unit": "example"}
    with pytest.raises(InputError, match=r"--unit-column patient without.*Fix: add --unit NAME"):
        declare(visits, tmp_path / "visits.toml", ledger=ledger, **facts)
    assert ledger.names() == []


def test_learning_over_a_cap_leaves_no_entry(visits, ledger, tmp_path):
    declare(visits, tmp_path / "visits.toml", ledger=ledger, **by_patient())
    ledger.cap("clinic", 100.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        declare(
            visits, tmp_path / "other.toml", ledger=ledger,
            **by_patient(name="other", learn_epsilon=500.0),
        )  # fmt: skip
    assert ledger.names() == ["clinic"]
