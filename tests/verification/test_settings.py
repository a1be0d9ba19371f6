import pytest

from privet.training import recipes
from privet.training.recipes import Recipe, tuning_of
from privet.verification.settings import check_settings


def test_our_cards_state_what_was_asked_for(sound, against):
    assert against(check_settings(sound)) == ""


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("poisson", {"sampler": "shuffled"}, "sampler shuffled was asked for, poisson is stated"),
        ("poisson", {"clip_norm": 10.0}, "clip_norm 10.0 was asked for, 1.0 is stated"),
        ("poisson", {"clipping": "per-layer"}, "clipping per-layer was asked for, flat"),
        ("poisson", {"epochs": 200}, "200 epochs make 1600 steps, 16 are stated"),
        ("poisson", {"epsilon": 0.1}, "epsilon 0.1 was asked for, 3 is stated"),
        ("poisson", {"epsilon": 30.0}, "epsilon 30 was asked for, 3 is stated"),
        ("poisson", {"delta": 1e-6}, "delta 1e-06 was asked for, 1e-05 is stated"),
        ("poisson", {"batch": 3}, "batch 3 was asked for, the normaliser is 10"),
        ("poisson", {"init_seed": 1}, "init_seed 1 was asked for, 0 is stated"),
        ("poisson", {"noise_seed": 7}, "noise from the known seed 7"),
        ("poisson", {"augment": "shift"}, "PyTorch draws the views (shift)"),
        ("poisson", {"search": {"momentum": [0.9]}}, "a search is recorded"),
        ("banded", {"bands": 2}, "bands 2 was asked for, 3 is stated"),
        ("banded", {"cycle": 3}, "cycle 3 was asked for, 4 is stated"),
        ("shuffled", {"batch": 20}, "batch 20 was asked for, the normaliser is 10"),
        ("fixed-batches", {"sampler": "shuffled"}, "sampler shuffled was asked for"),
        ("grouped", {"contribution": 99}, "contribution 99 was asked for, 2 is stated"),
        ("poisson", {"precision": "bf16"}, "precision bf16 was asked for, float32 is stated"),
        ("coarse", {"precision": "float32"}, "precision float32 was asked for, bf16 is stated"),
        ("learned", {"epsilon": 2.5}, "epsilon 2.5 was asked for, 3 is stated"),
    ],
)
def test_what_was_asked_for_is_not_stated_otherwise(card, against, name, asked, said):
    changed = card(name)
    changed["provenance"]["config"] |= asked
    assert said in against(check_settings(changed))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("banded", {"noise": "independent", "bands": []}, "bands 3 was asked for, 1 is stated"),
        ("poisson", {"sampler": "shuffled", "cycle": 8}, "sampler poisson was asked for"),
        ("fixed-batches", {"cycle": 16, "sampling_rate": 1 / 16, "normaliser": 5.0}, "batch 10"),
        ("poisson", {"steps": 8}, "2 epochs make 16 steps, 8 are stated"),
    ],
)
def test_nor_is_it_when_the_mechanism_was_changed(card, against, name, change, said):
    changed = card(name)
    changed["mechanism"] |= change
    assert said in against(check_settings(changed))


def test_each_record_a_unit_makes_the_contribution_one_whatever_was_asked_for(card, against):
    """So `train` does: the setting is for units of several records."""
    changed = card("poisson")
    changed["provenance"]["config"]["contribution"] = 99
    assert against(check_settings(changed)) == ""


def test_what_a_user_did_not_record_is_not_missed(card, against):
    changed = card("banded")
    changed["provenance"]["config"] = {"batch": 10, "remark": "my own loop"}
    assert against(check_settings(changed)) == ""
    changed["provenance"]["config"] = {}
    assert against(check_settings(changed)) == ""


def test_a_card_from_before_there_were_precisions_speaks_of_float32(card, against):
    earlier = card("poisson")
    del earlier["mechanism"]["precision"]
    assert against(check_settings(earlier)) == ""
    del earlier["provenance"]["config"]["precision"]
    assert against(check_settings(earlier)) == ""
    earlier["provenance"]["config"]["precision"] = "tf32"
    assert "precision tf32 was asked for, float32 is stated" in against(check_settings(earlier))


def stating(card, epsilon, **mechanism):
    card["privacy"][0]["epsilon"] = epsilon
    card["mechanism"] |= mechanism
    return check_settings(card)


def test_redone_steps_may_go_beyond_the_target(card, against):
    assert "epsilon 3 was asked for" in against(stating(card("poisson"), 3.4))
    assert against(stating(card("poisson"), 3.4, redone_steps=2)) == ""


def test_the_least_noise_may_stay_below_the_target(card, against):
    assert "epsilon 3 was asked for" in against(stating(card("poisson"), 2.5))
    assert against(stating(card("poisson"), 2.5, noise_multiplier=0.3)) == ""


def test_the_target_is_that_of_the_samplers_first_neighbours(card, against):
    changed = card("shuffled")
    assert changed["privacy"][0]["adjacency"] == "zero-out"
    assert "epsilon 3 was asked for" in against(stating(changed, 2.0))


# --- how the settings were chosen ------------------------------------------------------------


@pytest.fixture
def recipe(monkeypatch):
    made = Recipe(name="house", summary="", tuned_on="made-up", settings={"momentum": 0.9})
    monkeypatch.setattr(recipes, "RECIPES", {"house": made})


def choose(card, recipe, tuning):
    card["provenance"]["config"]["recipe"] = recipe
    card["tuning"] = tuning.to_json()
    return check_settings(card)


@pytest.mark.usefixtures("recipe")
def test_a_recipe_tuned_on_these_records_is_neither_declared_nor_public(card, against):
    here, elsewhere = (tuning_of("house", name, {}) for name in ("made-up", "other"))
    declared = tuning_of(None, "made-up", {})
    assert "but uncharged" in against(choose(card("poisson"), "house", declared))
    assert "but uncharged" in against(choose(card("poisson"), "house", elsewhere))
    assert against(choose(card("poisson"), "house", here)) == ""


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize("tuned_on", ["made-up", "other"])
def test_without_a_recipe_the_settings_are_declared(card, against, tuned_on):
    stated = tuning_of("house", tuned_on, {})
    assert "but declared" in against(choose(card("poisson"), None, stated))


@pytest.mark.usefixtures("recipe")
def test_a_recipe_that_is_not_known_is_named(card, against):
    stated = tuning_of("house", "other", {})
    assert "unknown recipe" in against(choose(card("poisson"), "garden", stated))


@pytest.mark.usefixtures("recipe")
def test_other_words_about_the_recipe_are_named(card, against):
    changed = card("poisson")
    changed["provenance"]["config"] |= {"recipe": "house", "momentum": 0.5}
    changed["tuning"] = tuning_of("house", "made-up", {}).to_json()
    assert "overridden: momentum 0.5" in against(check_settings(changed))


def test_the_assumption_belongs_to_the_kind(card, against):
    changed = card("poisson")
    changed["tuning"]["assumption"] = "x"
    assert "rests on another assumption" in against(check_settings(changed))


SELECTED = {"mean": 10.0, "shape": 1.0, "holdout": 0.1, "score_multiplier": 5.0}


@pytest.fixture
def searched(card):
    changed = card("poisson")
    changed["tuning"] |= {
        "kind": "charged",
        "selected": SELECTED,
        "assumption": "the candidates and the settings that were not searched were not chosen on"
        " these records, and the number of runs stays secret",
    }
    # As for data of which a tenth scores: 72 of 80 units train.
    changed["provenance"]["config"] |= {"search": {"momentum": [0.5, 0.9]}}
    return changed


def test_a_charged_search_is_recorded_and_found_what_was_used(searched, against):
    assert against(check_settings(searched)) == ""
    searched["provenance"]["config"]["momentum"] = 0.7
    assert "momentum 0.7 was chosen among [0.5, 0.9]" in against(check_settings(searched))
    del searched["provenance"]["config"]["search"]
    assert "none is recorded" in against(check_settings(searched))


@pytest.mark.usefixtures("recipe")
def test_a_charged_search_does_not_hide_an_uncharged_one(searched, against):
    searched["provenance"]["config"]["recipe"] = "house"
    assert "at no charge" in against(check_settings(searched))


@pytest.mark.parametrize("setting", [{"input_noise": 0.1}, {"adversarial": "madry"}])
def test_noise_and_adversaries_draw(card, against, setting):
    changed = card("poisson")
    changed["provenance"]["config"] |= setting
    assert "PyTorch draws the views" in against(check_settings(changed))
    changed["mechanism"]["torch_draws"] = True
    assert "PyTorch draws" not in against(check_settings(changed))
