import re
from dataclasses import fields

import pytest

from privet.cli import app
from privet.commands.options import OwnOptions, TrainingOptions, given
from privet.training.plain import PlainSettings
from privet.training.registry import METHODS
from privet.training.settings import Settings

FOUND = {  # by a run itself, never given
    f"{part}_{what}" for part in ("classifier", "start", "attacker") for what in ("digest", "data")
} | {"attacker_spent"}


def test_the_command_line_offers_every_setting_and_no_other():
    offered = {field.name for field in fields(TrainingOptions)}
    assert offered == {field.name for field in fields(Settings)} - {"epsilon", "delta"} - FOUND


def test_what_single_methods_have_is_offered_apart():
    offered = {field.name for field in fields(OwnOptions)}
    common = {field.name for field in fields(TrainingOptions)} | {"epsilon", "delta"}
    variants = [variant for method in METHODS.values() for variant in method.analyses.values()]
    learned = {"relevance", *FOUND}  # never given
    assert offered == set().union(*(variant.options for variant in variants)) - common - learned
    for name in offered:
        said = re.search(rf"\n    {name}\n        ([\w, -]+): ", OwnOptions.__doc__)
        methods = {
            method.name
            for method in METHODS.values()
            if any(name in variant.options for variant in method.analyses.values())
        }
        assert said, name
        assert set(said[1].split(", ")) == methods, name


def test_the_defaults_in_the_help_are_the_methods_own():
    stated = re.findall(r"(\w+)\n        [^\n]*default (\d[\d.]*\d|\d)", TrainingOptions.__doc__)
    defaults = {field.name: field.default for field in fields(Settings)}
    assert {name for name, _ in stated} == {
        "epochs", "learning_rate", "warmup", "momentum", "clip_norm", "contribution", "views",
        "bands", "init_seed",
    }  # fmt: skip
    for name, value in stated:
        assert float(value) == defaults[name]


def test_plain_training_has_no_setting_of_its_own():
    names = {field.name for field in fields(PlainSettings)} - FOUND
    assert names < {field.name for field in fields(TrainingOptions)}
    stated = re.findall(r"(\w+)\n        [^\n]*; plain: (\d[\d.]*\d|\d)", TrainingOptions.__doc__)
    assert stated == [("batch", "128"), ("learning_rate", "0.05")]
    assert PlainSettings().learning_rate == 0.05


def test_only_what_the_user_set_is_passed_on():
    assert given(TrainingOptions(), OwnOptions()) == {}
    assert given(TrainingOptions(keep_keys=False, epochs=2.0), OwnOptions(xi=3.0)) == {
        "keep_keys": False,
        "epochs": 2.0,
        "xi": 3.0,
    }


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["--compile"], {"compile": True}),
        (["--no-compile", "--precision", "bf16"], {"compile": False, "precision": "bf16"}),
    ],
)
def test_compiling_and_precision_are_read_off_the_command_line(written, expected):
    command = ["train", "dpsgd", "--data", "d", "--epsilon", "3", "--out", "x", *written]
    _, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
    assert given(bound.arguments["options"]) == expected
