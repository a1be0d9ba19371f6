import pytest

from privet.data.catalogue import available
from privet.errors import InputError
from privet.studies.robust_private import choices
from privet.studies.robust_private.choices import choices_for
from privet.studies.robust_private.known import SETTINGS
from privet.training.recipes import find_recipe
from privet.training.registry import find_method

OPTIONS = {"dpsgd": {"epochs", "batch", "model", "epsilon"}, "plain": {"epochs", "momentum"}}


def test_later_layers_and_more_special_names_win(tmp_path, monkeypatch):
    table = {"mnist": {"all": {"epochs": 1, "batch": 1}, "dpsgd": {"epochs": 2, "model": "cnn"}}}
    monkeypatch.setattr(choices, "SETTINGS", table)
    file = tmp_path / "study.toml"
    file.write_text('[all]\nepochs = 3\n["dpsgd@0.5"]\nepochs = 4.5\nbatch = 7\n')
    found = choices_for("mnist", file, ["dpsgd@2.0.batch=9", "plain.momentum=0.5"])
    found.require_known(OPTIONS)
    by = {e: found.of("dpsgd", e, OPTIONS["dpsgd"]) for e in (0.5, 1.0, 2.0)}
    assert by == {
        0.5: {"epochs": 4.5, "batch": 7, "model": "cnn"},
        1.0: {"epochs": 3, "batch": 1, "model": "cnn"},
        2.0: {"epochs": 3, "batch": 9, "model": "cnn"},
    }
    assert found.of("plain", None, OPTIONS["plain"]) == {"epochs": 3, "momentum": 0.5}
    assert choices_for("digits", None, []).of("dpsgd", 1.0, OPTIONS["dpsgd"]) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("10", 10), ("0.5", 0.5), ("true", True), ("cnn-tiny", "cnn-tiny"), ('"7"', "7")],
)
def test_values_of_the_command_line(text, value):
    found = choices_for("digits", None, [f"stobatch:paper.adversarial-steps={text}"])
    assert found.asked == {"stobatch:paper": {"adversarial_steps": value}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("epochs=3", "METHOD.OPTION=VALUE"),
        ("dpsgd.epochs", "METHOD.OPTION=VALUE"),
        ("dpsgd.epoch=3", "did you mean 'epochs'"),
        ("dpsdg.epochs=3", "did you mean 'dpsgd'"),
        ("all.widht=3", "unknown setting of 'all'"),
        ("dpsgd.epsilon=3", "--epsilons"),
        ("all.init_seed=3", "--seeds"),
        ("dpsgd@one.epochs=3", "no number"),
    ],
)
def test_what_is_no_setting_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        choices_for("digits", None, [given]).require_known(OPTIONS)


@pytest.mark.parametrize(
    ("content", "said"), [("epochs = 3", r"write \[all\]"), ("[all", "no TOML")]
)
def test_bad_files(tmp_path, content, said):
    file = tmp_path / "study.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        choices_for("digits", file, [])
    with pytest.raises(InputError, match="no such settings file"):
        choices_for("digits", tmp_path / "none.toml", [])


def test_one_file_serves_smaller_studies(tmp_path):
    """It may set a method that does not take part; the command line may not, nor a wrong name."""
    file = tmp_path / "study.toml"
    file.write_text('["stobatch:paper"]\nepochs = 4\n[dpsgd]\nbatch = 7\n')
    others = {"stobatch:paper"}
    found = choices_for("digits", file, [])
    found.require_known(OPTIONS, others)
    assert found.of("dpsgd", 1.0, OPTIONS["dpsgd"]) == {"batch": 7}
    with pytest.raises(InputError, match="does not take part"):
        found.require_known(OPTIONS)
    with pytest.raises(InputError, match="does not take part"):
        choices_for("digits", None, ["stobatch:paper.epochs=4"]).require_known(OPTIONS, others)


def test_known_settings_of_methods_that_do_not_take_part_do_no_harm():
    found = choices_for("mnist", None, ["dpsgd.batch=7"])
    found.require_known(OPTIONS)
    assert found.of("dpsgd", 1.0, {"recipe", "batch"}) == {"recipe": "mnist", "batch": 7}
    assert found.of("dpsgd", 0.2, {"recipe"}) == {"recipe": "mnist-small-epsilon"}


def test_known_settings_are_those_of_methods_and_data_that_there_are():
    for data, table in SETTINGS.items():
        assert data in {one.name for one in available(None)}
        for key, settings in table.items():
            options = find_method(key.partition("@")[0]).under(None).options
            recipe = find_recipe(settings["recipe"])
            assert set(settings) | set(recipe.settings) <= options
            assert recipe.tuned_on == data
