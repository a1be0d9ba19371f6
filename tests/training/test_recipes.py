"""Recipes: complete settings, honest about what they were tuned on."""

from dataclasses import fields

import pytest

from privet.data.catalogue import available
from privet.errors import InputError
from privet.models import names
from privet.training.recipes import RECIPES, find_recipe, tuning_of
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
    at_home = tuning_of(recipe.name, recipe.tuned_on)
    assert at_home.kind == "uncharged"
    assert "without charge" in at_home.assumption
    abroad = tuning_of(recipe.name, "somebody's records")
    assert abroad.kind == "public"
    assert recipe.tuned_on in abroad.detail


def test_without_a_recipe_the_settings_are_the_users_word():
    assert tuning_of(None, "mnist").kind == "declared"
    assert "not chosen on these records" in tuning_of(None, "mnist").assumption


def test_an_unknown_recipe_is_bad_input_with_a_hint():
    with pytest.raises(InputError, match="unknown recipe") as caught:
        find_recipe("mnst")
    assert "did you mean 'mnist'" in str(caught.value)
