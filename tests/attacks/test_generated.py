"""Attacks by trained networks: what they make, whom they refuse, how they are named."""

import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import privet
from privet.attacks import create
from privet.attacks.generated import Generated, opened
from privet.attacks.losses import Goal
from privet.classifiers import open_classifier
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models.attacked import Attacked, attacked_name
from privet.models.perturbers import create_perturber
from privet.release import Release

SHAPE = (1, 8, 8)
BARE = "ain-4-without-attention-residual-label-noise-smooth"
BOUNDS = (0.3, 0.2, 0.1)
SIZES = (0.0123, 0.1, 0.15, 0.2, 0.25, 0.3, 0.7)  # below, between and above the bounds
ROUNDING = 2.0**-25  # of one sum in [0, 1], float32


def constant(out):
    """A perturber that changes every pixel by `out`, or by the bound where that is less."""
    made = create_perturber(BARE, SHAPE, 10)
    last = [m for m in made.modules() if isinstance(m, nn.ConvTranspose2d)][-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(out)
    return made


def restless(seed):
    """One that sees nothing but its own noise: every pixel goes to either end of the ball."""
    made = create_perturber("ain-4", SHAPE, 10, init_seed=seed)
    last = [m for m in made.modules() if isinstance(m, nn.ConvTranspose2d)][-1]
    with torch.no_grad():
        for parameter in made.encoder.parameters():
            parameter.zero_()
        last.weight.mul_(1000)
    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory, digits):
    """A folder with a network, trained for a moment against a module of one's own, and what it
    takes to plant others with its card."""
    folder = tmp_path_factory.mktemp("networks")
    options = {"epochs": 1, "out": folder / "ain", "ledger": Ledger(folder / "ledger.db")}
    release = privet.train(
        "ain", privet.data.load("digits"), classifier=digits.classifier.module,
        perturber="ain-4", bounds="0.3,0.2", imitation_steps=1, **options,
    )  # fmt: skip

    def plant(path, name, perturbers, bounds=BOUNDS, target=None):
        model = Attacked(perturbers, bounds, digits.classifier.module, SHAPE)
        config = {**release.config, "model": attacked_name(name, bounds, "custom")}
        provenance = release.trust["provenance"]
        asked = {**provenance["config"], "target": target}
        trust = {**release.trust, "provenance": {**provenance, "config": asked}}
        Release(model=model, config=config, trust=trust).save(path)
        return str(path)

    paths = SimpleNamespace(
        trained=str(folder / "ain"),
        restless=plant(folder / "restless", "ain-4", [restless(seed) for seed in range(3)]),
        constant=plant(folder / "still", BARE, [constant(o) for o in (0.03, 0.02, 0.01)]),
        eight=plant(folder / "eight", "ain-4", [restless(0)], (0.3,), target="8"),
    )
    return SimpleNamespace(folder=folder, plant=plant, **vars(paths))


def falling(dtype=torch.float32):
    """A classifier that holds a little less the brighter the image, and never falls."""

    def scores(x):
        lead = 10 - x.flatten(1).mean(1, keepdim=True)
        return torch.cat([lead, torch.zeros(len(x), 9, dtype=x.dtype)], 1)

    x = torch.full((4, *SHAPE), 0.25, dtype=dtype)
    return scores, x, torch.zeros(4).long()


# --- what is made -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("which", ["trained", "restless"])
def test_what_is_found_obeys_the_bound_and_the_box(home, digits, which, size):
    x, y = digits.x[:60], digits.y[:60]
    found = Generated(source=vars(home)[which], draws=2)(digits.classifier, x, y, size=size)
    change = (found.double() - x.double()).abs().max()
    assert change <= float(np.float32(size)) + ROUNDING
    assert found.min() >= 0
    assert found.max() <= 1
    if which == "restless":
        assert change > 0.99 * size


@pytest.mark.parametrize(
    ("size", "change"),
    [
        (0.005, 0.005), (0.0123, 0.01), (0.1, 0.01), (0.15, 0.01), (0.2, 0.02), (0.25, 0.02),
        (0.3, 0.03), (0.7, 0.03), (5.0, 0.03),
    ],
)  # fmt: skip
def test_the_perturber_of_the_largest_bound_within_the_size_attacks(
    home, make_classifier, size, change
):
    """Each perturber makes a step of its own, which always helps here; none is cut off but one."""
    scores, x, y = falling()
    victim = make_classifier(scores, SHAPE, 10)
    found = Generated(source=home.constant)(victim, x, y, size=size)
    assert torch.allclose(found - x, torch.tensor(change), rtol=0, atol=1e-7)


def test_nothing_is_returned_that_is_worse_than_the_input(home, digits):
    """Here what the network makes is often worse; it is kept only where it is not."""
    x, y = digits.x[:100], digits.y[:100].clone()
    y[:10] = (y[:10] + 1) % 10  # wrong from the start
    goal = Goal(labels=y, targeted=False)

    def margin(z):
        with torch.no_grad():
            return goal.margin(digits.classifier.scores(z))

    network, _ = opened(home.restless)
    draws, labels = torch.Generator().manual_seed(0), digits.classifier.labels(x)
    with torch.no_grad():
        raw = network.perturbed(x, labels, 0.1, draws)
    assert (margin(raw) > margin(x)).sum() > 5
    found = Generated(source=home.restless)(digits.classifier, x, y, size=0.1)
    assert (margin(found) <= margin(x)).all()
    assert (margin(found) < margin(x)).sum() > 30
    wrong = digits.classifier.labels(x) != y
    assert torch.equal(found[wrong], x[wrong])


def test_more_draws_fool_more_images(home, digits):
    x, y = digits.x[:150], digits.y[:150]

    def fallen(draws):
        attack = Generated(source=home.restless, draws=draws)
        return digits.classifier.labels(attack(digits.classifier, x, y, size=0.2)) != y

    one, four = fallen(1), fallen(4)
    assert (one <= four).all()
    assert four.sum() > one.sum() > (digits.classifier.labels(x) != y).sum()


def test_a_seed_decides_what_is_drawn(home, digits):
    x, y = digits.x[:40], digits.y[:40]

    def found(source, seed):
        return Generated(source=source, seed=seed)(digits.classifier, x, y, size=0.2)

    assert torch.equal(found(home.restless, 1), found(home.restless, 1))
    assert not torch.equal(found(home.restless, 1), found(home.restless, 2))
    assert torch.equal(found(home.constant, 1), found(home.constant, 2))  # no noise inside


def test_the_network_is_told_what_the_classifier_says_and_not_the_truth(home, digits, monkeypatch):
    told, perturbed = [], Attacked.perturbed

    def listening(network, x, labels, *rest):
        told.append(labels)
        return perturbed(network, x, labels, *rest)

    monkeypatch.setattr(Attacked, "perturbed", listening)
    x = digits.x[:20]
    target = torch.full((20,), 8)
    y = (target + 1) % 10
    Generated(source=home.eight)(digits.classifier, x, y, size=0.001, target=target)
    said = digits.classifier.labels(x)
    assert torch.equal(told[0], said[said != 8])


def test_a_classifier_in_double_precision_is_attacked(home, make_classifier):
    scores, x, y = falling(torch.float64)
    victim = make_classifier(scores, SHAPE, 10)
    found = Generated(source=home.constant)(victim, x, y, size=0.3)
    assert found.dtype == torch.float64
    assert torch.allclose(found - x, torch.tensor(0.03, dtype=torch.float64), rtol=0, atol=1e-7)


def test_a_classifier_without_gradients_is_attacked(home, digits):
    blind = digits.through(lambda s: s.detach(), differentiable=False)
    x, y = digits.x[:40], digits.y[:40]
    given = Generated(source=home.restless)
    assert torch.equal(given(blind, x, y, size=0.2), given(digits.classifier, x, y, size=0.2))


# --- who is refused -----------------------------------------------------------------------------


def refused(call):
    """What is said, in one line."""
    with pytest.raises(InputError) as error:
        call()
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def no_eights(digits):
    keep = digits.y[:40] != 8
    return digits.x[:40][keep], digits.y[:40][keep]


def attacked(source, digits, **options):
    return privet.attack(source, digits.classifier, *no_eights(digits), sizes=0.3, **options)


def test_a_network_for_one_target_refuses_another(home, digits):
    _, y = no_eights(digits)
    others = torch.where(y == 3, 4, 3)
    said = refused(lambda: attacked(home.eight, digits, target=others))
    assert "another target: got class 3, 4 to reach, expected class 8, the network's" in said
    others[:-1] = 8
    assert "another target" in refused(lambda: attacked(home.eight, digits, target=others))
    assert attacked(home.eight, digits, target=8).attacks == ("eight",)
    assert attacked(home.eight, digits).attacks == ("eight",)  # any wrong class will do


def test_a_network_without_a_target_refuses_one(home, digits):
    said = refused(lambda: attacked(home.restless, digits, target=8))
    assert "another target: got class 8 to reach, expected none: it is for any wrong" in said


def test_other_inputs_and_other_classes_are_refused(home, make_classifier):
    for shape, classes in [((1, 9, 9), 10), ((3, 8, 8), 10), (SHAPE, 12), (SHAPE, 2)]:
        victim = make_classifier(
            lambda z, k=classes: torch.eye(k)[torch.full((len(z),), k - 1)], shape, classes
        )
        y = torch.full((3,), classes - 1)
        said = refused(
            lambda: Generated(source=home.restless)(victim, torch.rand(3, *shape), y, size=0.1)  # noqa: B023
        )
        assert f"shape {shape}, {classes} classes" in said
        assert f"expected shape {SHAPE}, 10 classes" in said


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_other_norms_are_refused(home, digits, norm):
    assert "does not work in this norm" in refused(lambda: attacked(home.eight, digits, norm=norm))
    assert "unknown norm" in refused(lambda: attacked(home.eight, digits, norm="l3"))


@pytest.mark.parametrize("draws", [0, -1, 1.5])
def test_bad_draws_are_refused(home, draws):
    said = refused(lambda: Generated(source=home.eight, draws=draws))
    assert "bad draws of eight" in said


def test_a_release_that_does_not_attack_is_refused(home, digits):
    data, folder = privet.data.load("digits"), home.folder / "plain"
    ledger = Ledger(home.folder / "ledger.db")
    privet.train("plain", data, model="linear", epochs=1, out=folder, ledger=ledger)
    for call in (
        lambda: attacked(str(folder), digits),
        lambda: Generated(source=str(folder)),
        lambda: create(str(folder)),
    ):
        said = refused(call)
        assert f"a release that does not attack: got {folder}, by 'plain'" in said
        assert "privet train ain --classifier" in said


def test_a_release_that_was_changed_is_refused(home, digits, tmp_path):
    """Even one that was opened before."""
    folder = shutil.copytree(home.restless, tmp_path / "copy")
    attacked(str(folder), digits)
    weights = load_file(folder / "weights.safetensors")
    first = next(name for name in weights if name.startswith("perturbers."))
    save_file(weights | {first: weights[first] + 1}, folder / "weights.safetensors")
    said = refused(lambda: attacked(str(folder), digits))
    assert "the release was changed after it was made: got weights.safetensors" in said


def test_weights_that_are_no_numbers_are_refused(home, tmp_path):
    """It would change nothing, and whoever was attacked would look robust."""
    source = home.plant(tmp_path / "broken", BARE, [constant(0.01), constant(math.nan)], (0.3, 0.2))
    assert "weights that are no numbers" in refused(lambda: Generated(source=source))


def test_another_release_in_the_same_place_is_opened_anew(home, make_classifier, tmp_path):
    scores, x, y = falling()
    victim = make_classifier(scores, SHAPE, 10)
    for change in (0.01, 0.04):
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        source = home.plant(tmp_path / "here", BARE, [constant(change)], (0.3,))
        found = Generated(source=source)(victim, x, y, size=0.3)
        assert torch.allclose(found - x, torch.tensor(change), rtol=0, atol=1e-7)


def test_an_unfinished_run_says_how_to_finish_it(home, digits, tmp_path):
    """A folder with nothing but what a killed process left."""
    (tmp_path / "run" / "internal").mkdir(parents=True)
    (tmp_path / "run" / "internal" / "run.json").write_text("{}")
    said = refused(lambda: attacked(str(tmp_path / "run"), digits))
    assert "the run is unfinished" in said
    assert "privet resume" in said


@pytest.mark.parametrize("name", ["ain", "atn", "advgan", "AIN"])
def test_a_method_is_no_network(digits, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(lambda: attacked(name, digits))
    method = name.lower()
    assert f"{method} needs a network that is trained for it" in said
    assert f"privet train {method} --classifier RELEASE --out runs/{method}" in said


def test_a_folder_without_a_release_is_an_unknown_attack(digits, tmp_path):
    assert "unknown attack" in refused(lambda: attacked(str(tmp_path), digits))


# --- by name, by object, in one call ------------------------------------------------------------


def test_a_folder_and_a_configured_attack_give_the_same(home, digits):
    by_name = attacked(home.restless, digits, keep=True)
    by_object = attacked(Generated(source=home.restless), digits, keep=True)
    assert by_name.attacks == by_object.attacks == ("restless",)
    assert by_name.accuracy("restless")[0.3] < by_name.clean_accuracy
    assert torch.equal(by_name.holds["restless"], by_object.holds["restless"])
    assert torch.equal(by_name.adversarials["restless"], by_object.adversarials["restless"])
    assert by_name.settings == by_object.settings


def test_settings_are_plain_values(home, digits):
    """Even of a path that is no string."""
    given = Generated(source=home.folder / "restless", draws=2, seed=5)  # type: ignore[arg-type]
    record = json.loads(json.dumps(attacked(given, digits).to_json()))
    assert record["attacks"][0]["settings"] == {
        "norm": "linf", "eot": 1, "seed": 5, "source": home.restless, "draws": 2,
    }  # fmt: skip


def test_settings_of_a_network_are_set_by_name(home):
    made = create(home.restless, draws=3, seed=2)
    assert (made.source, made.draws, made.seed) == (home.restless, 3, 2)
    for unknown in ({"steps": 3}, {"source": home.eight}):
        assert "unknown setting" in refused(lambda: create(home.restless, **unknown))  # noqa: B023


def test_steps_are_for_others(home, digits):
    result = attacked(["pgd", home.restless], digits, steps=3)
    assert result.settings["pgd"]["steps"] == 3
    assert "steps" not in result.settings["restless"]


def test_two_networks_stand_side_by_side(home, digits):
    result = attacked(["fgsm", home.restless, home.constant], digits)
    assert result.attacks == ("fgsm", "restless", "still")
    alone = attacked(home.constant, digits)
    assert torch.equal(result.holds["still"], alone.holds["still"])
    assert torch.equal(result.worst, torch.stack(list(result.holds.values())).all(0))


def test_two_folders_of_one_name_are_refused(home, digits, tmp_path):
    other = shutil.copytree(home.restless, tmp_path / "restless")
    said = refused(lambda: attacked([home.restless, str(other)], digits))
    assert home.restless in said
    assert str(other) in said
    assert "once" in said


def test_a_folder_has_a_name_however_it_is_written(home, monkeypatch):
    monkeypatch.chdir(home.restless)
    assert Generated(source=".").name == "restless"
    assert Generated(source="../restless/").name == "restless"


# --- with and without its classifier ------------------------------------------------------------


def test_it_needs_no_classifier_that_only_its_maker_can_build(home, digits):
    """Loading the release does; an attack does not ask for it."""
    assert "pass it: privet.load" in refused(lambda: Release.load(home.restless))
    network, target = opened(home.eight)
    given = Release.load(home.eight, model=digits.classifier.module).model
    assert target == 8
    assert network.bounds == given.bounds == (0.3,)
    x, labels = digits.x[:10], digits.y[:10]
    one, other = (
        made.perturbed(x, labels, 0.3, torch.Generator().manual_seed(0))
        for made in (network, given.eval())
    )
    assert torch.equal(one, other)


def test_it_attacks_classifiers_that_it_was_not_trained_against(home, digits):
    """By transfer; what is found is judged by the classifier that is attacked."""
    other = open_classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), shape=SHAPE)
    x = digits.x[:60]
    y = other.labels(x)
    result = privet.attack(home.restless, other, x, y, sizes=0.3, keep=True)
    assert result.clean_accuracy == 1
    assert result.accuracy("restless")[0.3] < 1
    holds = other.labels(result.adversarials["restless"][0]) == y
    assert torch.equal(holds, result.holds["restless"][0])


def test_a_random_classifier_is_offered_all_draws(home, digits):
    """Success may be luck: rows go on although they have fallen."""
    asked = []
    lucky = replace(digits.through(lambda s: asked.append(len(s)) or s), random=True)
    x, y = digits.x[:30], digits.y[:30]
    Generated(source=home.restless, draws=3)(lucky, x, y, size=0.3)
    assert asked == [30] * 5  # the clean ones, their labels, three draws
