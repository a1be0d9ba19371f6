"""AIN, ATN and AdvGAN: their objectives by hand, runs that are resumed, and what is released."""

import contextlib
import dataclasses
import json
import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.data.dataset import Split
from privet.engine.fixed_parts import digest_of
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models.attacked import Attacked
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import create_perturber, discriminator
from privet.release import Release
from privet.training import advgan, ain, atn
from privet.training.advgan import Adversarial, AdvGanSettings
from privet.training.ain import AinSettings, Imitation, imitation_of
from privet.training.atn import AtnSettings, Reranking, reranked
from privet.training.bound_decay import BoundDecay
from privet.training.perturbing import Images, Tried
from privet.training.unprotected import NO_PRIVACY
from privet.verification import verify

METHODS = {
    "ain": (ain, {"perturber": "ain-4", "bounds": "0.6,0.4", "imitation_steps": 5}),
    "atn": (atn, {"perturber": "atn-4", "target": "8"}),
    "advgan": (advgan, {"target": "3"}),
}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


@pytest.fixture(scope="module")
def few(digits):
    """Six batches of twenty."""
    part = Split(x=digits.train.x[:120], y=digits.train.y[:120])
    return dataclasses.replace(digits, name="few digits", train=part, nominal_size=120)


@pytest.fixture(scope="module")
def classifier(digits, tmp_path_factory):
    """Folder of the one that all of them attack."""
    folder = tmp_path_factory.mktemp("classifier")
    with contextlib.closing(Ledger(folder / "ledger.db")) as book:
        privet.train(
            "plain", digits, model="cnn-tiny", epochs=5, learning_rate=0.1, out=folder / "f",
            ledger=book,
        )  # fmt: skip
    return str(folder / "f")


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def tried(n=6, classes=5, seed=0, side=4):
    """What a step might have tried, at places 9, 8, ... of ten images."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, side, side, generator=draws)
    return Tried(
        places=torch.arange(9, 9 - n, -1),
        x=x,
        labels=torch.arange(n) % classes,
        perturbed=(x + 0.6 * torch.rand(x.shape, generator=draws) - 0.3).clamp(0, 1),
        scores=3 * torch.randn(n, classes, generator=draws),
    )


def norms(d):
    d = d.double().numpy()
    return np.sqrt((d.reshape(len(d), -1) ** 2).sum(1))


def margins(found, target, floor):
    """Of the rows one by one."""
    expected = []
    for row, label in zip(found.scores.double().numpy(), found.labels.tolist(), strict=True):
        wanted = label if target is None else target
        rival = max(score for place, score in enumerate(row) if place != wanted)
        lead = row[wanted] - rival if target is None else rival - row[wanted]
        expected.append(max(lead, floor))
    return np.array(expected)


# --- the objective of AIN ------------------------------------------------------------------------


def imitation(target=None, **changes):
    """Ten examples; every other one of them fools."""
    draws = torch.Generator().manual_seed(1)
    none = dict.fromkeys(("distance", "pixels", "logits", "margin"), 0.0)
    return Imitation(
        settings=AinSettings(classifier="f", **none | changes),
        target=target,
        examples=torch.rand(10, 1, 4, 4, generator=draws),
        scores=3 * torch.randn(10, 5, generator=draws),
        fooling=torch.arange(10) % 2 == 0,
    )


def terms(objective, found):
    """Each of them, with NumPy."""
    at = found.places
    apart = norms(found.scores - objective.scores[at])
    return {
        "distance": norms(found.perturbed - found.x),
        "pixels": norms(found.perturbed - objective.examples[at]),
        "logits": np.where(objective.fooling[at].numpy(), apart, 0.0),
        "margin": margins(found, objective.target, -2.0),
    }


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize("term", ["distance", "pixels", "logits", "margin"])
def test_each_term_of_ain_by_itself(term, target):
    objective, found = imitation(target, **{term: 3.0}), tried()
    expected = 3.0 * terms(objective, found)[term]
    assert len(set(expected)) > 1
    assert objective(found).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("target", [None, 2])
def test_the_objective_of_ain_is_the_weighted_sum_of_its_terms(target):
    shares = {"distance": 0.3, "pixels": 0.7, "logits": 0.2, "margin": 1.1}
    objective, found = imitation(target, **shares), tried(seed=3)
    by_hand = terms(objective, found)
    expected = sum(share * by_hand[term] for term, share in shares.items())
    assert objective(found).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_a_margin_that_is_won_clearly_counts_no_more_than_the_floor():
    found = dataclasses.replace(
        tried(n=2), scores=torch.tensor([[-9.0, 9, 0, 0, 0], [0, 9, 0, 0, 0]])
    )
    assert imitation(margin=1.0)(found).tolist() == [-2.0, 9.0]
    assert imitation(1, margin=1.0)(found).tolist() == [-2.0, -2.0]
    assert imitation(margin=1.0, confidence=5.0)(found).tolist() == [-5.0, 9.0]
    assert imitation(1, margin=1.0, confidence=50.0)(found).tolist() == [-9.0, -9.0]


def test_scores_are_not_imitated_where_the_example_does_not_fool():
    objective = imitation(logits=1.0)
    found = tried()
    found.scores.requires_grad_()
    objective(found).sum().backward()
    fooling = objective.fooling[found.places]
    assert bool((found.scores.grad[~fooling] == 0).all())
    assert bool((found.scores.grad[fooling] != 0).any(1).all())


def two_classes():
    """Scores +-(w x - b) of images with four pixels."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        network[1].weight[:] = torch.tensor([[-1.0, 2.0, -0.5, 1.0], [1.0, -2.0, 0.5, -1.0]])
        network[1].bias[:] = torch.tensor([-0.7, 0.7])
    return FixedClassifier(network)


@pytest.mark.parametrize("target", [None, 1])
def test_what_is_imitated_takes_all_its_steps_to_the_smallest_bound(target):
    """Between two classes the gradient has one sign everywhere: the path is known."""
    fixed = two_classes()
    x = torch.rand(60, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images = Images(x=x, labels=fixed(x).argmax(1))
    if target is not None:
        images = images.at((images.labels != target).nonzero()[:, 0])
    settings = AinSettings(classifier="f", bounds="0.3,0.2", imitation_steps=4)
    made = imitation_of(images, fixed, target, settings=settings)
    signs = np.sign([-1.0, 2.0, -0.5, 1.0])
    for image, label, found in zip(images.x, images.labels.tolist(), made.examples, strict=True):
        away = signs if label else -signs
        moved = np.clip(image.numpy().ravel() + 0.2 * away, 0, 1)
        assert np.allclose(found.numpy().ravel(), moved, atol=1e-6)
    answers = fixed(made.examples)
    assert torch.equal(made.scores, answers)
    assert torch.equal(made.fooling, answers.argmax(1) != images.labels)
    assert 0 < int(made.fooling.sum()) < len(images), "some hold"


def test_steps_of_what_is_imitated_turn_where_the_slope_does():
    """Scores 0.15 and |x - 0.5|: from 0.55 to 0.5 and back, in steps of 0.1, and not farther."""

    class Valley(nn.Module):
        def forward(self, x):
            return torch.stack([torch.full((len(x),), 0.15), (x.flatten(1)[:, 0] - 0.5).abs()], 1)

    x = torch.tensor([0.75, 0.55]).view(2, 1, 1, 1)
    images = Images(x=x, labels=torch.tensor([1, 0]))
    settings = AinSettings(classifier="f", bounds="0.4", imitation_steps=4)
    made = imitation_of(images, FixedClassifier(Valley()), None, settings=settings)
    # 0.75, 0.65, 0.55, 0.45, 0.55: away from its class, and back over the valley
    # 0.55, 0.65, 0.75, 0.85, 0.95: up the slope to the bound
    assert made.examples.flatten().tolist() == pytest.approx([0.55, 0.95])
    assert made.fooling.tolist() == [True, True]


def test_nothing_is_searched_for_where_nothing_is_imitated(monkeypatch):
    fixed, x = two_classes(), torch.rand(8, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    images = Images(x=x, labels=fixed(x).argmax(1))
    alone = AinSettings(classifier="f", bounds="0.3", pixels=0.0, logits=0.0)
    monkeypatch.setattr(ain, "_walked", None)  # whoever calls it fails
    made = imitation_of(images, fixed, None, settings=alone)
    assert torch.equal(made.examples, images.x)
    with pytest.raises(TypeError):
        imitation_of(images, fixed, None, settings=dataclasses.replace(alone, logits=0.1))
    assert not made.examples.requires_grad
    assert not made.scores.requires_grad


# --- that of ATN ---------------------------------------------------------------------------------


def test_reranked_probabilities_by_hand():
    said = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    expected = [[0.5 / 1.55, 0.3 / 1.55, 0.75 / 1.55], [0.1 / 1.4, 0.1 / 1.4, 1.2 / 1.4]]
    found = reranked(said, 2, 1.5)
    assert np.allclose(found.numpy(), expected, atol=1e-6)
    assert said[0].tolist() == pytest.approx([0.5, 0.3, 0.2]), "what was said stays"


def test_the_objective_of_atn_by_hand():
    draws, found = torch.Generator().manual_seed(2), tried()
    wanted = torch.softmax(torch.randn(10, 5, generator=draws), 1)
    settings = AtnSettings(classifier="f", target="1", distance=0.4)
    powers = np.exp(found.scores.double().numpy())
    said = powers / powers.sum(1, keepdims=True)
    apart = np.sqrt(((said - wanted[found.places].numpy()) ** 2).sum(1))
    expected = 0.4 * norms(found.perturbed - found.x) + apart
    objective = Reranking(settings=settings, wanted=wanted)
    assert objective(found).tolist() == pytest.approx(expected, rel=1e-5)


def test_atn_wants_the_answers_to_clean_images_reranked(few, classifier):
    settings = AtnSettings(classifier=classifier, perturber="atn-4", target="8", boost=2.0)
    trainer = atn.ATN.build(few, settings.filled_for(few))
    fixed = FixedClassifier(Release.load(classifier).model)
    training, _ = Images.of(few, fixed, 8, torch.device("cpu")).apart(0)
    said = torch.softmax(fixed(training.x), 1)
    wanted = trainer.objective.wanted
    assert torch.allclose(wanted.sum(1), torch.ones(len(training)))
    assert bool((wanted.argmax(1) == 8).all())
    others = [place for place in range(10) if place != 8]
    for row, clean in zip(wanted, said, strict=True):
        assert float(row[8] / row[others].max()) == pytest.approx(2.0, rel=1e-4)
        shares = (row[others] / clean[others]).tolist()
        assert shares == pytest.approx([shares[0]] * 9, rel=1e-3)


# --- that of AdvGAN ------------------------------------------------------------------------------


def adversarial(judge, target=None, **changes):
    return Adversarial(AdvGanSettings(classifier="f", **changes), target, judge)


def linear_judge():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Flatten(0))


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize(
    ("margin", "realism", "hinge", "free"),
    [(1, 0.0, 0.0, 0.0), (1, 2.0, 0.0, 0.0), (0, 0.0, 3.0, 0.7), (4, 1, 1, 0.7)],
)
def test_the_objective_of_advgan_by_hand(target, margin, realism, hinge, free):
    judge, found = linear_judge(), tried()
    objective = adversarial(
        judge, target, margin=margin, realism=realism, hinge=hinge, free_length=free
    )
    values = objective(found).tolist()
    weight, bias = (p.detach().double().numpy() for p in judge[1].parameters())
    score = found.perturbed.flatten(1).double().numpy() @ weight[0] + bias[0]
    beyond = np.maximum(norms(found.perturbed - found.x) - free, 0)
    if free:
        assert 0 < (beyond == 0).sum() < len(beyond)
    expected = margin * margins(found, target, 0.0) + realism * (1 - score) ** 2 + hinge * beyond
    assert values == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_discriminator_takes_one_step_of_adam_on_least_squares():
    """It says 1/4 of everything; pixels 0 to 7 are bright in clean images, others in made ones.

    The slopes of 9/16 + 1/16 are -3/2 of the former and 1/2 of the latter, -1 of the bias; the
    first step of Adam is as long as the rate, whatever they are.
    """
    judge, lit = linear_judge(), torch.arange(16).view(1, 4, 4) < 8
    with torch.no_grad():
        judge[1].weight[:], judge[1].bias[:] = 0.0, 0.25
    shown = torch.ones(6, 1, 4, 4)
    found = dataclasses.replace(tried(), x=shown * lit, perturbed=shown * ~lit)
    adversarial(judge, learning_rate=0.01)(found)
    weight, bias = (p.detach()[0] for p in judge[1].parameters())
    assert weight.tolist() == pytest.approx([0.01] * 8 + [-0.01] * 8, rel=1e-5)
    assert float(bias) == pytest.approx(0.26, rel=1e-5)


def judged(judge, found):
    """What the discriminator is to make small."""
    with torch.no_grad():
        clean, made = judge(found.x), judge(found.perturbed)
    return float((1 - clean).square().mean() + made.square().mean())


def test_the_discriminator_learns_to_tell_both_apart():
    """By stripes, which it is shown sixty times."""
    found, judge = tried(n=10, side=8), discriminator((1, 8, 8))
    stripes = torch.tensor([0.3, -0.3]).repeat(4)
    found = dataclasses.replace(found, perturbed=(found.x + stripes).clamp(0, 1))
    objective, first = adversarial(judge, learning_rate=0.01), judged(judge, found)
    for _ in range(60):
        objective(found)
    assert first > 0.4
    assert judged(judge, found) < 0.1


def test_the_gradient_of_the_perturber_leaves_the_discriminator_alone():
    """Neither at once nor by its next step: a twin that never saw that gradient stays equal."""
    found, other = tried(), tried(seed=5)
    found.perturbed.requires_grad_()
    judge, twin = linear_judge(), linear_judge()
    objective, undisturbed = adversarial(judge), adversarial(twin)
    value = objective(found).mean()
    undisturbed(found)
    after = weights(judge)
    value.backward()
    assert float(found.perturbed.grad.abs().max()) > 0
    assert same(after, weights(judge))
    objective(other)
    undisturbed(other)
    assert same(weights(judge), weights(twin))


# --- resuming ------------------------------------------------------------------------------------


def watching(found, stop=None):
    """Remember the trainer and its steps; be killed after one of them."""

    def watch(trainer):
        found["trainer"] = trainer
        found.setdefault("steps", []).append(trainer.next_step)
        if trainer.next_step == stop:
            raise KeyboardInterrupt

    return watch


def assert_resumed_exactly(method, data, options, folder, ledger, *, stop, checkpoint):
    module, _ = METHODS[method]
    options = options | {"checkpoint_every": 7, "ledger": ledger}
    whole, cut = {}, {}
    expected = privet.train(method, data, watch=watching(whole), **options)
    with pytest.raises(KeyboardInterrupt):
        privet.train(method, data, out=folder, watch=watching({}, stop), **options)
    found = module.resume(folder, data, ledger=ledger, watch=watching(cut))
    assert cut["steps"] == list(range(checkpoint + 1, 25)), "24 in all"
    assert cut["trainer"].history == whole["trainer"].history
    assert len(whole["trainer"].history) == 4
    assert same(weights(found.model), weights(expected.model))
    assert same(weights(cut["trainer"].model), weights(whole["trainer"].model))
    assert cut["trainer"].decay.state() == whole["trainer"].decay.state()
    return cut["trainer"], whole["trainer"]


@pytest.mark.parametrize(
    ("method", "stop", "checkpoint"),
    [("ain", 10, 7), ("ain", 22, 21), ("atn", 5, 0), ("advgan", 16, 14)],
)
def test_a_resumed_run_ends_as_if_nothing_had_happened(
    few, classifier, ledger, tmp_path, method, stop, checkpoint
):
    """Six steps are an epoch: killed in the second, in the last, in the first, in the third."""
    options = {"classifier": classifier, "epochs": 4, "batch": 20, "learning_rate": 5e-3}
    cut, whole = assert_resumed_exactly(
        method, few, options | METHODS[method][1], tmp_path / "cut", ledger,
        stop=stop, checkpoint=checkpoint,
    )  # fmt: skip
    assert json.dumps(cut.history) == json.dumps(whole.history)
    if method == "advgan":
        objectives = cut.objective, whole.objective
        assert same(*(weights(o.discriminator) for o in objectives))
    assert verify(tmp_path / "cut", ledger=ledger).ok
    with pytest.raises(InputError, match="finished"):
        METHODS[method][0].resume(tmp_path / "cut", few, ledger=ledger)


def test_an_epoch_is_taken_back_after_a_kill_as_well(
    few, classifier, ledger, tmp_path, monkeypatch
):
    """Every epoch but the first one: the weights of its end come back from the checkpoint."""

    def after(self, success):
        self.epoch += 1
        return self.epoch > 1

    monkeypatch.setattr(BoundDecay, "after", after)
    options = {"classifier": classifier, "epochs": 4, "batch": 20} | METHODS["ain"][1]
    cut, whole = assert_resumed_exactly(
        "ain", few, options, tmp_path / "cut", ledger, stop=10, checkpoint=7
    )
    assert [epoch["taken_back"] for epoch in cut.history] == [False, True, True, True]
    first = create_perturber("ain-4", (1, 8, 8), 10)
    assert not same(weights(first), weights(whole.model))
    once = {}
    with pytest.raises(KeyboardInterrupt):
        privet.train("ain", few, ledger=ledger, watch=watching(once, 6), **options)
    assert same(weights(once["trainer"].model), weights(whole.model))


# --- what is learned -----------------------------------------------------------------------------

LEARNING = {"batch": 64, "epochs": 4, "learning_rate": 5e-3}


def fooled(release, data, network, bound, target=None):
    """Share of the test images, but those of the target, that are."""
    x = torch.from_numpy(data.test.x.astype(np.float32) / 16)
    with torch.no_grad():
        labels = release.model.classifier(x).argmax(1)
        made = network.perturbed(x, labels, bound, torch.Generator().manual_seed(0))
        said = release.model.classifier(made).argmax(1)
    if target is None:
        return float((said != labels).float().mean())
    return float((said == target)[labels != target].float().mean())


@pytest.mark.parametrize("target", [None, "8"])
def test_ain_learns_to_fool_images_that_it_has_not_seen(digits, classifier, ledger, target):
    release = privet.train(
        "ain", digits, classifier=classifier, perturber="ain-4", bounds="0.4", imitation_steps=10,
        target=target, ledger=ledger, **LEARNING,
    )  # fmt: skip
    place = None if target is None else 8
    first = create_perturber("ain-4", (1, 8, 8), 10)
    assert fooled(release, digits, first, 0.4, place) < 0.15
    assert fooled(release, digits, release.model, 0.4, place) > 0.6
    hits = release.predict(digits.test.x) == digits.test.y
    assert float(np.mean(hits)) < 0.5, "the release is the classifier under this attack"


@pytest.mark.parametrize(
    ("method", "bound", "options"),
    [
        ("atn", 1.0, {"perturber": "atn-4"}),
        ("atn", 0.4, {"perturber": "atn-4", "bounds": "0.4", "distance": 0.02}),
        ("advgan", 0.4, {"bounds": "0.4"}),
    ],
)
def test_its_rivals_learn_to_reach_the_target(digits, classifier, ledger, method, bound, options):
    release = privet.train(
        method, digits, classifier=classifier, target="8", ledger=ledger, **LEARNING | options
    )
    first = create_perturber(options.get("perturber", "advgan"), (1, 8, 8), 10)
    assert fooled(release, digits, first, bound, 8) < 0.15
    assert fooled(release, digits, release.model, bound, 8) > 0.4


# --- what is released ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=METHODS)
def released(request, digits, classifier, tmp_path_factory):
    """One of each, with its folder and ledger."""
    folder, (_, options) = tmp_path_factory.mktemp(request.param), METHODS[request.param]
    with contextlib.closing(Ledger(folder / "ledger.db")) as book:
        release = privet.train(
            request.param, digits, classifier=classifier, epochs=2, ledger=book,
            out=folder / "run", **options,
        )  # fmt: skip
        yield request.param, release, folder / "run", book


def test_the_card_states_no_privacy_and_what_was_done(released):
    method, release, _, _ = released
    trust = release.trust
    assert (trust["method"], trust["analysis"]) == (method, "none")
    assert (trust["privacy"], trust["withheld"]) == ([], [NO_PRIVACY])
    assert release.privacy is None
    assert trust["events"] == [{"label": "train", "event": {"type": "NonPrivate"}}]
    assert "epsilon" not in json.dumps(trust["provenance"])
    stated = {
        "ain": {"target": "any wrong class", "bounds": [0.6, 0.4], "decay": "adaptive"},
        "atn": {"target": "8", "bounds": [1.0]},
        "advgan": {"target": "3", "bounds": [0.3]},
    }
    common = {
        "steps": 14, "steps_run": 14, "batch": 200, "precision": "float32", "contribution": 1,
        "noise": "none",
    }  # fmt: skip
    assert trust["mechanism"] == common | stated[method], "1437 digits: 7 batches of 200 or more"


def test_the_classifier_is_named_as_a_part_that_was_not_learned(released, classifier):
    _, release, _, _ = released
    (part,) = release.trust["fixed_parts"]
    own = FixedClassifier(Release.load(classifier).model)
    assert part["part"] == "classifier"
    assert part["digest"] == digest_of(own.state_dict())
    assert (part["source"], part["public"], part["data"]) == (classifier, False, ["digits"])
    assert same(weights(release.model.classifier), weights(own))


def test_the_release_verifies_and_loads_as_it_was(released, digits):
    method, release, folder, book = released
    found = verify(folder, ledger=book)
    assert found.ok, [f for f in found.findings if not f.ok]
    loaded = Release.load(folder)
    bounds = {"ain": "0.6+0.4", "atn": "1", "advgan": "0.3"}[method]
    perturber = METHODS[method][1].get("perturber", "advgan")
    assert loaded.config["model"] == f"attacked:{perturber}@{bounds}:cnn-tiny"
    assert isinstance(loaded.model, Attacked)
    assert loaded.model.bounds == tuple(release.trust["mechanism"]["bounds"])
    assert len(loaded.model.perturbers) == len(loaded.model.bounds)
    assert same(weights(loaded.model), weights(release.model))


def test_the_ledger_holds_one_access_without_privacy(released):
    method, _, _, book = released
    (run,) = book.account("digits").runs
    assert (run.step_event, run.planned, run.charged) == (dp.NonPrivateDpEvent(), 1, 1)
    assert (run.status, run.label) == ("settled", f"{method} run")


def test_the_smallest_bound_is_reached_after_half_of_the_epochs():
    settings = AinSettings(classifier="f", bounds="0.3,0.2", first_bound=0.9)
    decay = settings.decay_for(40)
    assert (decay.first, decay.stops, decay.epochs) == (0.9, (0.3, 0.2), 20)
    assert decay.kind == "adaptive"
    assert settings.decay_for(1).epochs == 1
    wide = AinSettings(classifier="f", bounds="0.95", first_bound=0.9)
    assert wide.decay_for(40).bound == 0.95, "it begins with no bound below the first that counts"


def test_rivals_train_under_one_bound_from_the_first_epoch_on():
    found = AdvGanSettings(classifier="f", bounds="0.25").decay_for(3)
    assert (found.bound, found.stops) == (0.25, (0.25,))
    without = AtnSettings(classifier="f", target="1").decay_for(3)
    assert (without.bound, without.stops) == (1.0, (1.0,))
    for decay in (found, without):
        bound = decay.bound
        assert not any(decay.after(success) for success in (0.9, 0.1, 0.5))
        assert math.isclose(decay.bound, bound)
