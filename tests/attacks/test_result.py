import csv
import io
import json

import pytest
import torch

from privet.attacks.plot import accuracy_plot
from privet.attacks.result import WORST, AttackResult
from privet.errors import InputError


@pytest.fixture
def result():
    def held(*rows):
        return torch.tensor([[letter == "+" for letter in row] for row in rows])

    return AttackResult(
        classifier="made up",
        norm="l2",
        sizes=(0.5, 1.0),
        right=held("+++-")[0],
        holds={"fgsm": held("++--", "+---"), "pgd": held("+-+-", "+---")},
        settings={"fgsm": {"eot": 1}, "pgd": {"eot": 1, "steps": 7}},
        warnings=("beware",),
    )


def test_accuracies_are_counted(result):
    assert result.clean_accuracy == 0.75
    assert result.accuracy("fgsm") == {0.5: 0.5, 1.0: 0.25}
    assert result.accuracy("pgd") == {0.5: 0.5, 1.0: 0.25}
    assert result.robust_accuracy == {0.5: 0.25, 1.0: 0.25}  # lower than either
    assert [name for name, _ in result.rows()] == ["fgsm", "pgd", WORST]


def test_an_attack_that_was_not_run_is_refused(result):
    with pytest.raises(InputError, match="got cw, expected one of fgsm, pgd"):
        result.accuracy("cw")


def test_the_record_says_it_all(result):
    told = json.loads(json.dumps(result.to_json()))
    assert told == {
        "classifier": "made up",
        "norm": "l2",
        "sizes": [0.5, 1.0],
        "examples": 4,
        "clean_accuracy": 0.75,
        "attacks": [
            {"attack": "fgsm", "settings": {"eot": 1}, "accuracy": [0.5, 0.25]},
            {"attack": "pgd", "settings": {"eot": 1, "steps": 7}, "accuracy": [0.5, 0.25]},
        ],
        "robust_accuracy": [0.25, 0.25],
        "warnings": ["beware"],
    }


def test_the_table_has_a_line_for_each_attack_and_size(result):
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert len(rows) == 9
    assert rows[-1] == {
        "attack": WORST, "norm": "l2", "size": "1", "accuracy": "0.250000", "examples": "4"
    }  # fmt: skip
    assert {row["accuracy"] for row in rows if row["size"] == "0"} == {"0.750000"}


def test_the_plot_names_every_line_and_is_the_same_each_time(result):
    drawn = accuracy_plot(result).decode()
    assert drawn == accuracy_plot(result).decode()
    for word in ("fgsm", "pgd", WORST, "size (l2)", "accuracy"):
        assert f">{word}<" in drawn
