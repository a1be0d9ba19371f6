"""The loop that AIN, ATN and AdvGAN share: on which images, by which step, and what is kept."""

import contextlib
import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.data.dataset import Split
from privet.errors import InputError, PrivetError
from privet.ledger import Ledger
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import create_perturber
from privet.release import Release
from privet.training.advgan import ADVGAN, AdvGanSettings
from privet.training.ain import AIN, AinSettings
from privet.training.atn import ATN, AtnSettings
from privet.training.perturbing import (
    Images,
    fooling_entropy,
    fooling_margin,
    length,
    probabilities,
)

CPU = torch.device("cpu")
QUICK = {"perturber": "ain-4", "epochs": 2, "batch": 30, "bounds": "0.4", "imitation_steps": 2}
WAYS = {
    "ain": (AIN, AinSettings, {"perturber": "ain-4", "imitation_steps": 2}),
    "atn": (ATN, AtnSettings, {"perturber": "atn-4", "target": "8"}),
    "advgan": (ADVGAN, AdvGanSettings, {}),
}


def some(n, **changes):
    """So many digits, under a name of their own."""
    data = privet.data.load("digits")
    few = Split(x=data.train.x[:n], y=data.train.y[:n])
    facts = {"name": "few digits", "train": few, "nominal_size": n}
    return dataclasses.replace(data, **(facts | changes))


@pytest.fixture(scope="module")
def digits():
    """Four batches of 30."""
    return some(120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a classifier of all digits."""
    where = tmp_path_factory.mktemp("classifier")
    with contextlib.closing(Ledger(where / "ledger.db")) as book:
        privet.train(
            "plain", privet.data.load("digits"), model="linear", epochs=5, learning_rate=0.1,
            out=where / "f", ledger=book,
        )  # fmt: skip
    return str(where / "f")


@pytest.fixture
def fixed(folder):
    """The same as a module."""
    return FixedClassifier(Release.load(folder).model)


@pytest.fixture
def build(digits, folder):
    """A trainer of AIN."""

    def made(data=digits, **changes):
        settings = AinSettings(classifier=folder, **QUICK | changes)
        return AIN.build(data, settings.filled_for(data))

    return made


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def take(trainer, steps):
    for _ in range(steps):
        trainer.step()


# --- which images --------------------------------------------------------------------------------


def test_labels_are_the_classifiers_own_answers(folder, fixed):
    data = privet.data.load("digits")
    images = Images.of(data, fixed, None, CPU)
    answers = Release.load(folder).predict(data.train.x)
    assert 20 < (answers != data.train.y).sum() < 200, "some of them are wrong"
    assert np.array_equal(images.labels.numpy(), answers)
    assert np.array_equal(images.x.numpy(), data.train.x.astype(np.float32) / 16)


def test_images_that_the_classifier_takes_for_the_target_are_left_out(folder, fixed):
    data = privet.data.load("digits")
    images = Images.of(data, fixed, 8, CPU)
    answers = Release.load(folder).predict(data.train.x)
    assert 50 < (answers == 8).sum() < 300
    assert np.array_equal(images.labels.numpy(), answers[answers != 8])
    assert np.array_equal(images.x.numpy(), data.train.x[answers != 8].astype(np.float32) / 16)


def test_validation_takes_a_tenth_that_is_not_trained_on(fixed):
    images = Images.of(some(500), fixed, None, CPU)
    for seed in (0, 1):
        training, validation = images.apart(seed)
        assert (len(training), len(validation)) == (450, 50)
        parts = [
            sorted(
                (*x.flatten().tolist(), int(y)) for x, y in zip(part.x, part.labels, strict=True)
            )
            for part in (training, validation, images)
        ]
        assert sorted(parts[0] + parts[1]) == parts[2], "every image with its label, once"
        assert len(set(parts[2])) == 500
    assert not torch.equal(images.apart(0)[1].x, images.apart(1)[1].x)


def test_one_record_of_each_unit_is_used(fixed):
    units = np.repeat(np.arange(20), 6)
    data = some(120)
    own = dataclasses.replace(data.train, units=units)
    images = Images.of(some(120, train=own, nominal_size=20, unit="user"), fixed, None, CPU)
    assert len(images) == 20
    for unit, x in enumerate(images.x.numpy()):
        its = data.train.x[units == unit].astype(np.float32) / 16
        assert any(np.array_equal(x, record) for record in its)


def test_too_few_images_are_refused():
    """All but one are taken for the target, or all of them."""

    class ByFirstPixel(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(x[:, 0, 0, 0].long(), 10).float()

    x = np.zeros((6, 1, 8, 8), np.uint8)
    x[0] = 16
    data = some(6, train=Split(x=x, y=np.arange(6)))
    for target, left in ((0, 1), (1, 5)):
        images = Images.of(data, FixedClassifier(ByFirstPixel()), target, CPU)
        assert len(images) == left
        if left == 1:
            with pytest.raises(InputError, match="too few images to attack: got 1, expected 2"):
                images.apart(0)


# --- what a step does ----------------------------------------------------------------------------


def test_lengths_are_of_one_image_each():
    d = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]).requires_grad_()
    found = length(d)
    assert found.tolist() == pytest.approx([5.0, 0.0], abs=2e-6)
    found.sum().backward()
    assert d.grad.flatten().tolist() == pytest.approx([0.6, 0, 0, 0.8, 0, 0, 0, 0])


def test_margins_by_hand():
    scores = torch.tensor([[1.0, 5.0, 3.0], [2.0, 0.0, 9.0]])
    labels = torch.tensor([1, 0])

    def margins(target, confidence):
        return fooling_margin(scores, labels, target, confidence=confidence).tolist()

    assert margins(None, 100.0) == [2.0, -7.0]
    assert margins(2, 100.0) == [2.0, -7.0]
    assert margins(0, 100.0) == [4.0, 7.0]
    assert margins(None, 2.0) == [2.0, -2.0]
    assert margins(2, 0.0) == [2.0, 0.0]


def test_entropies_by_hand():
    scores = torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.5, 0.0]])
    labels = torch.tensor([2, 0])
    shares = np.exp(scores.double().numpy())
    shares /= shares.sum(1, keepdims=True)
    reached = fooling_entropy(scores, labels, 1)
    assert reached.tolist() == pytest.approx((-np.log(shares[:, 1])).tolist(), rel=1e-5)
    away = fooling_entropy(scores, labels, None)
    own = shares[[0, 1], [2, 0]]
    assert away.tolist() == pytest.approx((-np.log(1 - own)).tolist(), rel=1e-5)


def test_entropy_has_a_slope_where_the_classifier_is_sure():
    scores = torch.tensor([[60.0, 0.0, -10.0]], requires_grad=True)
    fooling_entropy(scores, torch.tensor([0]), None).sum().backward()
    assert scores.grad.tolist()[0] == pytest.approx([1, -1, 0], abs=1e-3)


def test_a_margin_at_its_floor_has_no_slope():
    scores = torch.tensor([[0.0, 2.9], [0.0, 3.1]]).requires_grad_()
    fooling_margin(scores, torch.tensor([0, 0]), None, confidence=3.0).sum().backward()
    assert scores.grad.tolist() == [[1.0, -1.0], [0.0, 0.0]]


def test_probabilities_of_clean_images(fixed):
    images = Images.of(some(30), fixed, None, CPU)
    scores = fixed(images.x).double().numpy()
    powers = np.exp(scores - scores.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    assert np.allclose(probabilities(images, fixed).numpy(), expected, atol=1e-6)


def test_a_step_descends_the_mean_objective_under_the_present_bound(build, fixed, digits):
    """One batch of all training images, and the margin alone: its gradient by a second way."""
    trainer = build(
        batch=120, perturber="ain-4-without-noise", optimizer="sgd", momentum=0.0,
        learning_rate=1.0, distance=0.0, pixels=0.0, logits=0.0, margin=0.01,
    )  # fmt: skip
    images, _ = Images.of(digits, fixed, None, CPU).apart(0)
    twin = create_perturber("ain-4-without-noise", (1, 8, 8), 10)
    assert same(weights(twin), weights(trainer.model))
    moved = images.x + 0.8 * torch.tanh(twin(images.x, images.labels))
    x = moved + (moved.clamp(0, 1) - moved).detach()  # gradients pass the ends of the box
    scores = fixed(x)
    own = scores[torch.arange(len(x)), images.labels]
    others = scores - 1e9 * nn.functional.one_hot(images.labels, 10)
    (0.01 * (own - others.amax(1)).clamp_min(-2.0).mean()).backward()
    assert 1e-4 < nn.utils.get_total_norm([p.grad for p in twin.parameters()]) < 1.0
    before = weights(trainer.model)
    trainer.step()
    for name, parameter in twin.named_parameters():
        moved = trainer.model.get_parameter(name).detach() - before[name]
        assert torch.allclose(moved, -parameter.grad, atol=3e-7), name  # rounding of weights


def test_no_step_follows_a_gradient_that_is_longer_than_one(build):
    trainer = build(optimizer="sgd", momentum=0.0, learning_rate=1.0, margin=1e6)
    before = weights(trainer.model)
    trainer.step()
    after = weights(trainer.model)
    moved = torch.cat([(after[name] - before[name]).flatten() for name in after])
    assert float(moved.norm()) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_reach_the_perturber_alone(folder, way):
    kind, settings, options = WAYS[way]
    data = some(60)
    filled = settings(classifier=folder, epochs=2, batch=20, **options).filled_for(data)
    trainer = kind.build(data, filled)
    released = trainer.released_model()
    first, fixed = weights(trainer.model), weights(released.classifier)
    take(trainer, trainer.plan.steps)
    assert not same(first, weights(trainer.model))
    assert same(fixed, weights(released.classifier))
    assert same(fixed, weights(FixedClassifier(Release.load(folder).model)))
    for parameter in released.classifier.parameters():
        assert parameter.grad is None
        assert not parameter.requires_grad


@pytest.mark.parametrize("way", WAYS)
def test_steps_follow_from_the_nominal_size_and_may_be_empty(folder, way):
    """Nine images or fewer to train on, and twenty batches of one: most have none."""
    kind, settings, options = WAYS[way]
    data = some(10, nominal_size=20)
    filled = settings(classifier=folder, epochs=2, batch=1, **options).filled_for(data)
    trainer = kind.build(data, filled)
    assert trainer.plan.steps == 40
    first = weights(trainer.model)
    take(trainer, 9)
    learned = weights(trainer.model)
    take(trainer, 10)
    assert not same(first, learned)
    assert same(learned, weights(trainer.model)), "a step without images moves nothing"
    take(trainer, 21)
    assert len(trainer.history) == 2


def test_success_counts_the_validation_images_that_are_fooled(build, fixed, digits):
    """By a perturbation that makes every image black: the classifier then says one class."""
    _, validation = Images.of(digits, fixed, None, CPU).apart(0)
    said = int(fixed(torch.zeros(1, 1, 8, 8)).argmax())
    fooled = float((validation.labels != said).float().mean())
    trainer = build()
    trainer.model.perturbed = lambda x, labels, bound, draws: (x - bound).clamp(0, 1)
    assert 0 < fooled <= 1
    assert trainer.success(1.0) == pytest.approx(fooled)
    assert trainer.success(1e-6) == 0.0
    targeted = build(target=digits.classes[said])
    targeted.model.perturbed = trainer.model.perturbed
    assert targeted.success(1.0) == 1.0
    beside = build(target=digits.classes[said - 1])
    beside.model.perturbed = trainer.model.perturbed
    assert beside.success(1.0) == 0.0, "wrong, and not the target"


# --- what is kept and what is taken back ---------------------------------------------------------


class Planned:
    """Bounds and verdicts that were decided beforehand."""

    def __init__(self, bounds, stops, taken_back=()):
        self.bounds, self.stops, self.taken_back = list(bounds), tuple(stops), taken_back
        self.ended = 0

    @property
    def bound(self):
        return self.bounds[min(self.ended, len(self.bounds) - 1)]

    def after(self, success):
        self.ended += 1
        return self.ended - 1 in self.taken_back


def planned(trainer, shares, *, wider=None, **plan):
    """Run the epochs of a plan; the weights with which each of them ended.

    `shares` are successes under each epoch's own bound, `wider` under any larger one.
    """
    ended, trainer.decay = [], Planned(**plan)

    def success(bound):
        if bound != trainer.decay.bound:
            return (wider or [0.0] * len(shares))[len(ended) - 1]
        ended.append(weights(trainer.model))
        return shares[len(ended) - 1]

    trainer.success = success
    take(trainer, 4 * len(shares))
    return ended


def test_an_epoch_that_is_taken_back_leaves_the_weights_of_the_one_before(build):
    trainer = build()
    first = weights(trainer.model)
    everything = range(3)
    ended = planned(trainer, [0.5] * 3, bounds=[0.8], stops=[0.4], taken_back=everything)
    assert not any(same(first, found) for found in ended)
    assert same(first, weights(trainer.model))
    assert [epoch["taken_back"] for epoch in trainer.history] == [True] * 3


def test_weights_go_back_to_the_last_epoch_that_was_kept(build):
    trainer = build()
    ended = planned(trainer, [0.5] * 4, bounds=[0.8], stops=[0.4], taken_back=(2, 3))
    assert same(ended[1], weights(trainer.model))
    assert not same(ended[1], ended[3])


def test_under_each_bound_the_epoch_with_the_largest_success_is_kept(build):
    """Of two that are as good the later one; an epoch that is taken back may be the best one."""
    trainer = build()
    shares = [1.0, 0.7, 0.6, 0.7, 0.5, 0.2, 0.4, 0.3]
    bounds = [0.8, 0.5, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3]
    ended = planned(trainer, shares, bounds=bounds, stops=(0.5, 0.3), taken_back=(6,))
    released = trainer.released_model()
    assert released.bounds == (0.5, 0.3)
    assert same(weights(released.perturbers[0]), ended[3])
    assert same(weights(released.perturbers[1]), ended[6])
    assert [(e["bound"], e["success"]) for e in trainer.history] == list(
        zip(bounds, shares, strict=True)
    )


def test_an_epoch_under_a_tighter_bound_is_kept_for_a_wider_one_where_it_is_better(build):
    trainer = build()
    bounds, plan = [0.5, 0.4, 0.3, 0.3], {"stops": (0.5, 0.3)}
    ended = planned(
        trainer, [0.7, 0.1, 0.2, 0.3], wider=[0.0, 0.6, 0.9, 0.8], bounds=bounds, **plan
    )
    released = trainer.released_model()
    assert same(weights(released.perturbers[0]), ended[2])
    assert same(weights(released.perturbers[1]), ended[3])


def test_an_epoch_under_a_wider_bound_is_not_asked_about_a_tighter_one(build):
    """It has not learned to keep within it, and may be thought good by chance."""
    trainer, asked = build(), []
    trainer.decay = Planned(bounds=[0.8, 0.5], stops=(0.5, 0.3))
    trainer.success = lambda bound: asked.append(bound) or 0.5
    take(trainer, 8)
    assert asked == [0.8, 0.5]


def test_for_a_bound_that_was_never_reached_the_last_weights_are_released(build):
    trainer = build()
    ended = planned(trainer, [0.7, 0.6], bounds=[0.5, 0.45], stops=(0.5, 0.3))
    released = trainer.released_model()
    assert same(weights(released.perturbers[0]), ended[0])
    assert same(weights(released.perturbers[1]), ended[1])


def test_every_pixel_stays_within_the_bound(build, fixed, digits):
    trainer = build(bounds="0.4,0.2", epochs=4, learning_rate=0.05)
    take(trainer, trainer.plan.steps)
    images, released = Images.of(digits, fixed, None, CPU), trainer.released_model()
    for bound in (0.8, 0.4, 0.3, 0.2, 0.1):
        with torch.no_grad():
            made = released.perturbed(images.x, images.labels, bound)
        assert 0.9 * bound < float((made - images.x).abs().max()) <= bound + 1e-6
        assert 0 <= float(made.min()) <= float(made.max()) <= 1


def test_the_best_success_is_that_of_the_kept_networks(build):
    trainer = build(bounds="0.4,0.2", epochs=4, first_bound=0.5)
    take(trainer, 16)
    assert set(trainer.best) == {0.4, 0.2}
    reached = [e["success"] for e in trainer.history if e["bound"] == 0.2]
    assert trainer.best[0.2] == max(reached)


def test_success_is_that_of_the_network_without_dropout_and_training_goes_on_with_it(build):
    trainer, seen = build(), []
    usual = trainer.model.perturbed

    def watched(*given):
        seen.append(trainer.model.training)
        return usual(*given)

    trainer.model.perturbed = watched
    trainer.success(0.2)
    trainer.step()
    assert seen == [False, True]


def test_a_network_that_diverged_fools_nothing_and_ends_the_run(build):
    """Scores that are no numbers would name class 0: wrong for nine images of ten."""
    trainer = build()
    take(trainer, 3)
    for parameter in trainer.model.parameters():
        parameter.data.fill_(math.nan)
    assert trainer.success(0.2) == 0.0
    with pytest.raises(InputError, match=r"diverged: got .* after epoch 1\. Fix: a lower"):
        trainer.step()
    assert trainer.best == {}


def test_coarser_passes_learn_other_weights_that_are_still_whole_numbers_of_bits(build):
    fine, coarse = build(), build(precision="bf16")
    for trainer in (fine, coarse):
        take(trainer, 3)
    ours, its = weights(fine.model), weights(coarse.model)
    assert not same(ours, its)
    for name, value in its.items():
        assert value.dtype == torch.float32
        assert torch.allclose(value, ours[name], atol=0.02), "three steps of at most 1e-3 each"


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "said", "fix"),
    [
        ("ain", {"bounds": "0"}, "bad bounds: got '0', expected numbers above 0", "--bounds"),
        ("ain", {"bounds": "a"}, "bad bounds: got 'a'", "--bounds"),
        ("ain", {"bounds": ""}, "bad bounds: got ''", "--bounds"),
        ("ain", {"bounds": "nan"}, "bad bounds: got 'nan'", "--bounds"),
        ("ain", {"bounds": "0.3,2"}, "bad bounds: got '0.3,2'", "--bounds"),
        ("ain", {"target": "10"}, "no such class to reach: got target '10'", "--target 0"),
        ("ain", {"classifier": None}, "no classifier", "--classifier"),
        ("ain", {"decay": "none", "bounds": "0.3,0.2"}, "one bound is learned", "--bounds 0.2"),
        ("ain", {"ema": 0.9}, "'ain' does not know this: got ema 0.9", "leave it out"),
        ("ain", {"precision": "tf32"}, "no TF32 here: got device cpu", "float32 or bf16"),
        ("ain", {"input_noise": 0.1}, "got input_noise 0.1", "leave it out"),
        ("ain", {"model": "mlp"}, "a network that attacks is trained", "--perturber"),
        ("ain", {"epsilon": 3.0}, "gives no privacy, and takes no target", "--analysis sound"),
        ("atn", {}, "atn has no attack without a target", "--target CLASS"),
        ("atn", {"target": "1", "bounds": "0.3,0.2"}, "atn learns one bound", "--bounds 0.2"),
        ("advgan", {"bounds": "0.3,0.2"}, "advgan learns one bound", "--bounds 0.2"),
        ("advgan", {"augment": "shift"}, "'advgan' does not know this: got augment", "leave it"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(
    digits, folder, tmp_path, method, options, said, fix
):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as book:
        with pytest.raises(InputError) as caught:
            privet.train(
                method, digits, ledger=book, out=tmp_path / "run",
                **{"classifier": folder} | options,
            )  # fmt: skip
        assert book.names() == []
    assert said in str(caught.value)
    assert f"Fix: {fix}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("ain", {"decay": "linear"}, "unknown decay: got 'linear', expected one of adaptive"),
        ("ain", {"first_bound": 0.0}, "bad first_bound: got 0.0, expected a positive"),
        ("ain", {"first_bound": 1.5}, "bad bounds: got 0.2, beginning with 1.5"),
        ("ain", {"imitation_steps": 0}, "bad imitation_steps: got 0, expected a whole number"),
        ("ain", {"pixels": -1.0}, "bad weights of the objective: got 0.01, -1, 0.1, 1, expected"),
        ("ain", dict.fromkeys(("distance", "pixels", "logits", "margin"), 0.0), "not all 0"),
        ("ain", {"perturber": "unet-4"}, "unknown perturber: got 'unet-4', expected one of"),
        ("ain", {"batch": 121}, "bad batch: got 121, expected a whole number, 1 to the nominal"),
        (
            "atn",
            {"target": "1", "boost": 1.0},
            "bad boost: got 1.0, expected a finite number above",
        ),
        ("atn", {"target": "1", "distance": 0.0}, "bad distance: got 0.0, expected a positive"),
        ("ain", {"fooling": "hinge"}, "unknown fooling: got 'hinge', expected one of margin, ent"),
        ("advgan", {"hinge": -1.0}, "bad weights of the objective: got 10, 1, -1, 3, expected"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    digits, folder, tmp_path, method, options, said
):
    with pytest.raises(PrivetError) as caught:
        privet.train(method, digits, out=tmp_path / "run", classifier=folder, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", WAYS)
def test_tables_are_refused(make_data, folder, method):
    options = {"target": "yes"} if method == "atn" else {}
    said = f"^'{method}' is for images: got examples of shape .*Fix: .* --attacks fgsm,pgd$"
    with pytest.raises(InputError, match=said):
        privet.train(method, make_data(), classifier=folder, **options)


def test_a_classifier_without_gradients_cannot_be_attacked(digits, folder, monkeypatch):
    fixed = AinSettings.fixed
    monkeypatch.setattr(
        AinSettings,
        "fixed",
        lambda own, data: dataclasses.replace(fixed(own, data), differentiable=False),
    )
    with pytest.raises(InputError, match="no gradient goes through the classifier"):
        AinSettings(classifier=folder, **QUICK).filled_for(digits)
