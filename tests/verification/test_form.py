import pytest

from privet.errors import InputError
from privet.verification.form import require_form


def test_every_card_of_ours_has_the_form(sound):
    require_form(sound)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("mechanism.contribution", 0, "a whole number, at least 1"),
        ("mechanism.contribution", "any", "a whole number, at least 1"),
        ("mechanism.contribution", True, "a whole number, at least 1"),
        ("mechanism.steps", 16.0, "a whole number, at least 1"),
        ("mechanism.redone_steps", -1, "a whole number, at least 0"),
        ("mechanism.steps_run", 1.5, "a whole number, at least 0"),
        ("mechanism.noise", "loud", "one of independent, correlated"),
        ("mechanism.clipping", "flat", "a record"),
        ("mechanism.clip_norm", -1.0, "a positive, finite number"),
        ("mechanism.noise_multiplier", float("nan"), "a positive, finite number"),
        ("mechanism.torch_draws", "no", "true or false"),
        ("mechanism.precision", "fp8", "one of float32, tf32, bf16"),
        ("mechanism.precision", None, "one of float32, tf32, bf16"),
        ("analysis", "whatever", "one of sound, paper"),
        ("data.grouped", 0, "true or false"),
        ("data.unit", "", "a text"),
        ("data.nominal_size", 80.0, "a whole number, at least 1"),
        ("provenance.init_seed", "0", "a whole number, or null"),
        ("provenance.config", None, "a record"),
        ("withheld", "no", "a list of texts"),
    ],
)
def test_a_field_of_another_kind_is_named_in_one_line(card, place, value, expected):
    changed = card("poisson")
    *parts, name = place.split(".")
    part = changed[parts[0]] if parts else changed
    part[name] = value
    with pytest.raises(InputError) as caught:
        require_form(changed)
    assert f"malformed trust.json: '{place}'" in str(caught.value)
    assert f"expected {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", "3"),
        ("accountant", ""),
        ("assumptions", "none"),
        ("assumptions", None),
        ("basis", "hoped"),
        ("adjacency", "some"),
    ],
)
def test_so_it_is_in_every_statement(card, field, value):
    changed = card("poisson")
    changed["privacy"][1][field] = value
    with pytest.raises(InputError, match=f"'privacy.{field}'"):
        require_form(changed)


@pytest.mark.parametrize("epsilon", [-1, 0, "1", None])
def test_and_in_every_learned_fact(card, epsilon):
    changed = card("learned")
    changed["data"]["learned"][0]["epsilon"] = epsilon
    with pytest.raises(InputError, match=r"'data\.learned\.epsilon'"):
        require_form(changed)


@pytest.mark.parametrize("place", ["mechanism.clipping", "data.grouped", "provenance.init_seed"])
def test_a_field_that_is_missing_is_named(card, place):
    changed = card("poisson")
    part, name = place.split(".")
    del changed[part][name]
    with pytest.raises(InputError, match=f"no '{place}'"):
        require_form(changed)


def test_a_card_from_before_there_were_precisions_has_the_form(card):
    earlier = card("poisson")
    del earlier["mechanism"]["precision"]
    require_form(earlier)
