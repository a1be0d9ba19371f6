"""Tables from cards: the right curve, the right number of steps, the right words."""

import csv

import pytest
from scipy.stats import norm

from privet.certification import after_changes, mean_lower
from privet.certification.poisoned_release import SAYS_NOT, poisoning_table, training_curve
from privet.errors import InputError
from privet.guarantee import Adjacency
from privet.privacy.accounting import sampled_gaussian, tradeoff_of
from privet.privacy.events import from_json, to_json
from privet.privacy.tradeoff import Stated


def statement(adjacency, epsilon=1.0, delta=1e-5, basis="proved"):
    return {
        "epsilon": epsilon,
        "delta": delta,
        "unit": "example",
        "adjacency": adjacency,
        "basis": basis,
        "accountant": "pld",
        "sampler": "poisson",
    }


GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 4.0}


def card(run="a", accuracy=0.9, adjacencies=("add-remove",), **changes):
    return {
        "method": "dpsgd",
        "analysis": "sound",
        "data": {"name": "d", "unit": "patient"},
        "mechanism": {"steps": 1},
        "events": [{"label": "training", "event": GAUSSIAN}],
        "privacy": [statement(a) for a in adjacencies],
        "withheld": [],
        "utility": {"test_accuracy": accuracy, "test_examples": 100},
        "provenance": {"run": run, "config": {"epochs": 3, "init_seed": 1}},
    } | changes


def test_a_changed_record_is_two_steps_of_an_add_remove_curve():
    """One Gaussian release with multiplier 4 is (1/4)-GDP: k records are k/4, changed ones 2k/4."""
    table = poisoning_table([card()], [1, 3], accuracy=0.9)
    for row in table.rows:
        quantile = norm.ppf(0.9)
        assert row.changed == pytest.approx(norm.cdf(quantile - 2 * row.records / 4), rel=1e-9)
        assert row.added_or_removed == pytest.approx(norm.cdf(quantile - row.records / 4), rel=1e-9)
    assert table.curve == "add-remove"
    assert table.unit == "patient"


def test_a_replace_one_curve_is_used_where_the_card_proves_one():
    """Both bounds hold; the better one is given."""
    event = sampled_gaussian(8.0, 0.2, 4)
    both = card(
        adjacencies=("add-remove", "replace-one"),
        events=[{"label": "training", "event": to_json(event)}],
    )
    row = poisoning_table([both], [2], accuracy=0.8).rows[0]
    one_step = after_changes(tradeoff_of(event, Adjacency.REPLACE_ONE), 2, 0.8)
    steps = tradeoff_of(event, Adjacency.ADD_REMOVE)
    assert row.changed == max(one_step, after_changes(steps, 4, 0.8))
    assert row.added_or_removed == after_changes(steps, 2, 0.8) > row.changed
    only = card(adjacencies=("replace-one",), events=both["events"])
    alone = poisoning_table([only], [2], accuracy=0.8).rows[0]
    assert (alone.changed, alone.added_or_removed) == (one_step, None)


def test_a_claimed_statement_gives_no_curve():
    claim = card(privacy=[statement("add-remove"), statement("replace-one", basis="claimed")])
    assert poisoning_table([claim], [1], accuracy=0.9).curve == "add-remove"


def test_where_the_mechanisms_were_not_fixed_beforehand_only_the_statement_counts():
    learned = {"label": "bounds", "event": {"type": "Laplace", "noise_multiplier": 10.0}}
    two = card(events=[learned, {"label": "training", "event": GAUSSIAN}])
    chosen = {"type": "Selection", "mean": 5.0, "shape": 1.0, "event": GAUSSIAN}
    search = card(events=[{"label": "search", "event": chosen}])
    for made in (two, search):
        assert training_curve(made, Adjacency.ADD_REMOVE) == Stated(1.0, 1e-5)
    plain = training_curve(card(), Adjacency.ADD_REMOVE)
    assert plain.mu == tradeoff_of(from_json(GAUSSIAN)).mu == 0.25


def test_several_releases_bound_the_mean_with_confidence():
    cards = [card(run=str(i), accuracy=a) for i, a in enumerate([0.9, 0.92, 0.88, 0.9])]
    table = poisoning_table(cards, [0, 1], alpha=0.05)
    assert table.accuracy == mean_lower([0.9, 0.92, 0.88, 0.9], 0.05) < 0.88
    assert table.rows[0].changed == table.accuracy
    assert table.alpha == 0.05
    assert "lower bound from 4 releases" in table.basis


def test_too_few_releases_for_a_bound_worth_having_are_told_so():
    """Said below half of the average, with numbers of releases that would reach what they name."""
    few = poisoning_table([card(run=str(i)) for i in range(3)], [1])
    assert few.accuracy < 0.06
    assert few.summary()["caution"] == few.caution
    for words in ("3 releases are too few at alpha 0.001", "their mean is 0.9", "is 0.0542"):
        assert words in few.caution
    for n, words in ((16, "16 would prove 0.45"), (226, "226 would prove 0.81")):
        assert words in few.caution
        enough = poisoning_table([card(run=str(i)) for i in range(n)], [0])
        assert enough.accuracy >= float(words.split()[-1])
        assert enough.caution == ""
        assert "caution" not in enough.summary()
        less = poisoning_table([card(run=str(i)) for i in range(n - 1)], [0])
        assert less.accuracy < float(words.split()[-1])
    for assumed in ([card()], {"accuracy": 0.1}), ([card(run=r) for r in "ab"], {"accuracy": 0.1}):
        assert poisoning_table(assumed[0], [1], **assumed[1]).caution == ""
    useless = [card(run=r, accuracy=0.0) for r in "ab"]
    assert poisoning_table(useless, [1]).caution == ""  # no number of them would help


def test_one_release_or_a_given_accuracy_is_called_an_assumption():
    own = poisoning_table([card()], [1])
    assert own.accuracy == 0.9
    assert own.alpha is None
    assert own.basis.startswith("assumed")
    given = poisoning_table([card(run=r) for r in "ab"], [1], accuracy=0.7)
    assert given.accuracy == 0.7
    assert given.basis.startswith("assumed")
    assert given.alpha is None
    assert "says nothing about the one model" in given.summary()["says_not"] == SAYS_NOT


def test_first_weights_may_differ_between_releases():
    other = card(run="b", provenance={"run": "b", "config": {"epochs": 3, "init_seed": 9}})
    assert poisoning_table([card(), other], [1]).releases == 2


@pytest.mark.parametrize(
    ("cards", "records", "options", "said"),
    [
        ([], [1], {}, "no release"),
        ([card()], [], {}, "numbers of records"),
        ([card()], [-1], {}, "numbers of records"),
        ([card()], [1], {"accuracy": 1.2}, "bad --accuracy"),
        ([card(), card()], [1], {}, "same run"),
        ([card(), card(run="b", mechanism={"steps": 2})], [1], {}, "other mechanism"),
        ([card(), card(run="b", data={"name": "e", "unit": "x"})], [1], {}, "other data"),
        ([card(), card(run="b", provenance={"run": "b", "config": {}})], [1], {}, "other settings"),
        ([card(utility={})], [1], {}, "--accuracy"),
        ([card(withheld=["seeded noise"])], [1], {"accuracy": 0.9}, "seeded noise"),
        ([card(privacy=[])], [1], {"accuracy": 0.9}, "proved epsilon"),
        ([card(events=[])], [1], {"accuracy": 0.9}, "card without events"),
        ([card()], [1], {"alpha": 0.0}, "bad alpha"),
        ([card()], [1], {"accuracy": float("nan")}, "bad --accuracy"),
        ([card(adjacencies=("zero-out",))], [1], {"accuracy": 0.9}, "proved epsilon"),
    ],
)
def test_what_proves_nothing_is_refused(cards, records, options, said):
    with pytest.raises(InputError, match=said):
        poisoning_table(cards, records, **options)


def test_the_file_has_a_row_for_each_number(tmp_path):
    table = poisoning_table([card()], [1, 5], accuracy=0.9)
    table.to_csv(tmp_path / "t.csv")
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert [int(row["records"]) for row in rows] == [1, 5]
    assert float(rows[1]["changed"]) == table.rows[1].changed
