import re
from dataclasses import fields

from privet.commands.options import TrainingOptions
from privet.training.settings import Settings


def test_the_command_line_offers_every_setting_and_no_other():
    offered = {field.name for field in fields(TrainingOptions)}
    assert offered == {field.name for field in fields(Settings)} - {"epsilon", "delta"}


def test_the_defaults_in_the_help_are_the_methods_own():
    stated = re.findall(r"(\w+)\n        [^\n]*default (\d[\d.]*\d|\d)", TrainingOptions.__doc__)
    defaults = {field.name: field.default for field in fields(Settings)}
    assert {name for name, _ in stated} == {
        "epochs", "learning_rate", "warmup", "momentum", "clip_norm", "contribution", "views",
        "bands", "init_seed",
    }  # fmt: skip
    for name, value in stated:
        assert float(value) == defaults[name]


def test_only_what_the_user_set_is_passed_on():
    assert TrainingOptions().given() == {}
    assert TrainingOptions(keep_keys=False, epochs=2.0).given() == {
        "keep_keys": False,
        "epochs": 2.0,
    }
