"""Digests, signatures and reports are tested through `verify`, in tests/test_verification.py."""

import json

import pytest

from privet.verification.files import CONFIGURED, check_config


@pytest.fixture
def said_of(tmp_path, card, against):
    """What is said against a card beside a config.json for this model."""

    def said(model, **provenance):
        trust = card("poisson")
        trust["provenance"] |= provenance
        config = {name: trust["data"][name] for name in CONFIGURED} | {"model": model}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return against(check_config(tmp_path, trust))

    return said


def test_the_model_is_the_one_that_was_asked_for(said_of):
    assert said_of("linear") == ""
    assert said_of("mlp") == "model mlp, where the settings name linear"


def test_weights_that_were_brought_have_no_seed_here(said_of):
    """Else the assumption about where they come from could be left out."""
    assert said_of("custom", init_seed=None) == ""
    assert "no seed here that makes its first weights" in said_of("custom")
