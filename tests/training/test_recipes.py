"""Recipes: complete settings, honest about what they were tuned on."""

from dataclasses import asdict, fields

import pytest

from privet.data.catalogue import available
from privet.errors import InputError
from privet.models import names
from privet.models.registry import builder_of
from privet.training.recipes import RECIPES, TUNED_NETWORKS, find_recipe, settings_of, tuning_of
from privet.training.settings import Settings


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda r: r.name)
def test_a_recipe_is_valid_and_names_what_exists(recipe):
    known = {field.name for field in fields(Settings)}
    assert set(recipe.settings) <= known - {"epsilon", "delta", "recipe", "device", "noise_seed"}
    Settings(epsilon=3.0, recipe=recipe.name, **recipe.settings)
    assert recipe.settings.get("model", "cnn") in names()
    assert recipe.tuned_on in {entry.name for entry in available()}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda r: r.name)
def test_on_the_data_it_was_tuned_on_the_choice_is_uncharged(recipe):
    at_home = tuning_of(recipe.name, recipe.tuned_on, recipe.settings)
    assert at_home.kind == "uncharged"
    assert "without charge" in at_home.assumption
    abroad = tuning_of(recipe.name, "somebody's records", recipe.settings)
    assert abroad.kind == "public"
    assert recipe.tuned_on in abroad.detail
    assert "overridden" not in at_home.detail + abroad.detail


@pytest.mark.parametrize("half", ["mnist/first", "mnist/second"])
def test_a_half_of_the_data_it_was_tuned_on_is_no_other_data(half):
    assert tuning_of("mnist", half, {}).kind == "uncharged"
    assert tuning_of(None, half, {"model": "still-cnn"}).kind == "uncharged"
    assert tuning_of("mnist", half.replace("mnist", "fashion-mnist"), {}).kind == "public"


def test_without_a_recipe_the_settings_are_the_users_word():
    assert tuning_of(None, "mnist", {}).kind == "declared"


@pytest.mark.parametrize("name", TUNED_NETWORKS)
def test_a_network_that_was_chosen_on_these_records_says_so(name):
    """Without a recipe, too; elsewhere it is as good as any."""
    assert name in names() or builder_of(name)
    home = TUNED_NETWORKS[name]
    assert tuning_of(None, home, {"model": name}).kind == "uncharged"
    assert tuning_of(None, f"{home}/first", {"model": name}).kind == "uncharged"
    assert tuning_of(None, "digits", {"model": name}).kind == "declared"
    assert tuning_of(None, "mnist", {"model": "cnn"}).kind == "declared"
    assert "not chosen on these records" in tuning_of(None, "mnist", {}).assumption


def test_an_unknown_recipe_is_bad_input_with_a_hint():
    with pytest.raises(InputError, match="unknown recipe") as caught:
        find_recipe("mnst")
    assert "did you mean 'mnist'" in str(caught.value)


@pytest.mark.parametrize("data", ["mnist", "somebody's records"])
def test_what_was_set_otherwise_than_in_the_recipe_is_listed(data):
    own = asdict(Settings(epsilon=3.0, momentum=0.1, **find_recipe("mnist").settings))
    detail = tuning_of("mnist", data, own | {"batch": 200, "ema": 0.5}).detail
    assert detail.endswith("; overridden: batch 200, ema 0.5")


def test_a_recipe_gives_way_to_what_is_given():
    recipe = find_recipe("mnist").settings
    assert settings_of("mnist", (), 60_000) == recipe
    assert settings_of("mnist", ("batch", "device"), 60_000).keys() == recipe.keys() - {"batch"}
    assert settings_of(None, (), 1) == {}


def test_a_batch_larger_than_the_data_is_traced_to_its_recipe():
    batch = find_recipe("mnist").settings["batch"]
    assert settings_of("mnist", (), batch)["batch"] == batch
    with pytest.raises(InputError, match=f"batch of recipe 'mnist' is larger.*{batch}") as caught:
        settings_of("mnist", (), batch - 1)
    assert f"--batch {(batch - 1) // 5}" in str(caught.value)
    assert "batch" not in settings_of("mnist", ("batch",), 1437)
