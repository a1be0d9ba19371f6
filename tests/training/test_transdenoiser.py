"""A denoiser in front of a fixed classifier: what it learns, what is stated, and about what."""

import contextlib
import dataclasses
import io
import json
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import privet
from privet.audits.twin import audited_twin
from privet.data.dataset import Split
from privet.data.identity import enter_in_ledger
from privet.engine.fixed_parts import digest_of
from privet.engine.generators import drawing_at
from privet.engine.handover import KNOWN_NOISE
from privet.errors import BudgetExceeded, InputError
from privet.guarantee import Basis
from privet.ledger import Ledger
from privet.models import create
from privet.models.denoised import Denoised
from privet.models.denoisers import slices
from privet.privacy.events import to_json
from privet.privacy.randomness import Randomness
from privet.release import Release, _write_card
from privet.reports.terminal import print_card
from privet.training import dpsgd
from privet.training.own_noise import own_noise
from privet.training.registry import find_method
from privet.training.settings import Settings
from privet.training.transdenoiser import (
    NoisyReconstruction,
    ReconstructionLoss,
    TransDenoiserSettings,
)
from privet.verification import verify

sys.path.insert(0, str(Path(__file__).parents[1]))
from made_up_images import image_data

STATEMENT = "trained on made-up images"
QUICK = {"epochs": 2, "batch": 20, "denoiser": "unet-4", "views": 2, "epsilon": 3.0}


def images(name="strokes", n=100, seed=0, **changes):
    """One bright line on a dark 8x8 image: across or upright."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.int64)
    x = rng.uniform(0, 0.2, size=(n, 1, 8, 8)).astype(np.float32)
    at = rng.integers(1, 7, n)
    for i in range(n):
        x[(i, 0, at[i]) if y[i] else (i, 0, slice(None), at[i])] = 0.9
    return image_data(name, x, y, ("upright", "across"), **changes)


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """A release on other images, whose classifier is the fixed one."""
    folder = tmp_path_factory.mktemp("public")
    with contextlib.closing(Ledger(folder / "ledger.db")) as book:
        privet.train(
            "plain", images("public strokes", seed=7), model="cnn-tiny", epochs=20,
            learning_rate=0.1, out=folder / "h", ledger=book,
        )  # fmt: skip
    return str(folder / "h")


@pytest.fixture
def private(public, ledger):
    """Train a denoiser for it."""

    def train(data=None, **changes):
        stated = {"public_classifier": STATEMENT, "classifier": public}
        data = images() if data is None else data
        return privet.train("transdenoiser", data, ledger=ledger, **QUICK | stated | changes)

    return train


@pytest.fixture(scope="module")
def trained(public, tmp_path_factory):
    """Two releases, by what was said of the classifier, and their ledger."""
    folder = tmp_path_factory.mktemp("trained")
    said = {"good": {"public_classifier": STATEMENT}, "seen": {"private_classifier": True}}
    with contextlib.closing(Ledger(folder / "ledger.db")) as book:
        for name, words in said.items():
            privet.train(
                "transdenoiser", images(), ledger=book, out=folder / name, sigma=0.2,
                classifier=public, **QUICK | words,
            )  # fmt: skip
        yield folder, book


@pytest.fixture
def copied(trained, tmp_path):
    """A release of one's own to spoil."""

    def copy(name):
        return Path(shutil.copytree(trained[0] / name, tmp_path / name))

    return copy


# --- what is learned -----------------------------------------------------------------------------


class Passed(nn.Module):
    """g(z) = z."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1, 1, 1))

    def forward(self, z):
        return z + self.shift


def test_the_error_of_a_denoiser_that_does_nothing():
    """|b|^2 has mean 64 sigma^2 and deviation sigma^2 sqrt(128): 4 of the mean's over 4,000."""
    network = NoisyReconstruction(Passed(), 0.25, None).train()
    torch.manual_seed(0)
    found = network(torch.rand(4000, 1, 8, 8)).squeeze(1)
    deviation = 0.0625 * np.sqrt(128 / 4000)
    assert float(found.detach().mean()) == pytest.approx(4.0, abs=4 * deviation)
    assert float(found.detach().std()) == pytest.approx(0.0625 * np.sqrt(128), rel=0.1)
    assert torch.equal(network.eval()(torch.rand(3, 1, 8, 8)), torch.zeros(3, 1))


def test_the_loss_by_hand():
    """Scores (0, ln 3) of two classes: the second has probability 3/4."""
    outputs = torch.tensor([[5.0, 0.0, np.log(3.0), 9.0, 1.0]])
    label = torch.tensor([1])
    by_answer = ReconstructionLoss(mse_weight=2.0, stability=0.5, by_labels=False)
    by_label = ReconstructionLoss(mse_weight=2.0, stability=0.5, by_labels=True)
    assert by_answer(outputs, label).tolist() == pytest.approx([10.0 + 0.5 * np.log(4.0)])
    assert by_label(outputs, label).tolist() == pytest.approx([10.0 + 0.5 * np.log(4.0 / 3.0)])
    alone = ReconstructionLoss(mse_weight=2.0, stability=0.0, by_labels=False)
    assert alone(outputs[:, :1], label).tolist() == [10.0]


def test_the_judge_learns_nothing_and_stays_as_it_evaluates():
    judge = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 2))
    network = NoisyReconstruction(Passed(), 0.1, judge).train()
    outputs = network(torch.rand(6, 1, 8, 8))
    assert outputs.shape == (6, 5)
    outputs.sum().backward()
    assert network.denoiser.shift.grad is not None
    assert all(p.grad is None for p in judge.parameters())
    assert float(judge[1].running_mean.abs().max()) == 0.0
    assert not judge.training


@pytest.mark.parametrize(
    ("stability", "noise_at"), [(0.0, "image"), (2.0, "image"), (2.0, "layer")]
)
def test_one_image_moves_the_sum_by_at_most_the_clip_norm(public, stability, noise_at):
    """By at most twice that if it is replaced; the draws of all others stay as they are."""
    data = images(n=20)
    odd = data.train.x.copy()
    odd[3] = 1.0
    settings = TransDenoiserSettings(
        **QUICK | {"clip_norm": 0.01, "batch": 20, "views": 3}, noise_seed=3, stability=stability,
        classifier=public, public_classifier=STATEMENT, noise_at=noise_at,
    )  # fmt: skip
    first, second = (
        _sum_of(images(n=20, train=Split(x=x, y=data.train.y)), settings)
        for x in (data.train.x, odd)
    )
    assert 0.001 < float((first - second).norm()) <= 2 * 0.01


@pytest.mark.parametrize("denoiser", ["unet-4", "unet-8"])
def test_noise_in_a_layer_is_securesgd_for_the_denoiser(private, public, denoiser):
    """Behind the first convolution, in training alone; never more than norm one before it."""
    settings = TransDenoiserSettings(
        **QUICK | {"denoiser": denoiser}, noise_at="layer", mse_weight=0.0, stability=1.0,
        stability_target="labels", classifier=public, public_classifier=STATEMENT,
    )  # fmt: skip
    data = images()
    network = settings.filled_for(data).network(data)
    seen, x = [], torch.rand(4, 1, 8, 8)
    network.denoiser.first.register_forward_hook(lambda _, given, made: seen.append((given, made)))
    network.denoiser.after_first.register_forward_hook(lambda _, given, __: seen.append(given))
    with torch.no_grad():
        network.train()(x)
        network.eval()(x)
    ((image,), first), (noisy,) = seen[0], seen[1]
    assert torch.equal(image, 2.0 * x - 1.0)
    assert float((noisy - first).std()) == pytest.approx(0.25, rel=0.1)
    assert not torch.equal((noisy - first)[0], (noisy - first)[1])
    assert torch.equal(seen[2][1], seen[3][0])
    release = private(denoiser=denoiser, noise_at="layer", learning_rate=5.0)
    for trained in (network.denoiser, release.model.denoiser):
        assert _norm_of_first(trained) <= 1.0


def test_a_classifier_with_batchnorm_judges(ledger):
    """Fixed, it is a scale for each channel, and mixes no images."""
    h = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    kept = {name: value.clone() for name, value in h.state_dict().items()}
    release = privet.train(
        "transdenoiser", images(), ledger=ledger, classifier=h, public_classifier=STATEMENT,
        stability=1.0, **QUICK,
    )  # fmt: skip
    assert release.privacy.basis is Basis.PROVED
    held = release.model.classifier.network.state_dict()
    assert all(torch.equal(value, held[name]) for name, value in kept.items())


def test_the_classifier_follows_the_denoiser_to_its_device(public):
    """The classifier is read into memory; a denoiser may be trained elsewhere."""
    data = images()
    settings = TransDenoiserSettings(**QUICK, classifier=public, public_classifier=STATEMENT)
    filled = settings.filled_for(data)
    whole = filled.made_of(filled.network(data).to("meta"), data, filled.plan_for(data))
    assert {p.device.type for p in (*whole.parameters(), *whole.buffers())} == {"meta"}


def _norm_of_first(denoiser):
    """Of x -> first(2x) on 8x8 images: by its matrix."""
    with torch.no_grad():
        pixels = 2.0 * torch.eye(64).view(64, 1, 8, 8)
        matrix = denoiser.first(pixels) - denoiser.first.bias[:, None, None]
    return float(torch.linalg.matrix_norm(matrix.flatten(1).double(), ord=2))


def _sum_of(data, settings):
    """Of all 20 images; every draw follows from the seed and the place of its row."""
    filled, streams = settings.filled_for(data), Randomness.seeded(3, 0)
    plan = filled.plan_for(data)
    trainer = dpsgd.build(data, filled, plan, account=None, randomness=streams)
    draws = partial(drawing_at, streams.sampling, torch.device("cpu"), step=0)
    return trainer._summing.of(torch.arange(20), draws, lambda: None).double()


def test_only_the_named_slices_move(private, public):
    data = images()
    settings = TransDenoiserSettings(
        **QUICK, classifier=public, public_classifier=STATEMENT
    ).filled_for(data)
    before = {k: [p.clone() for p in v] for k, v in slices(settings.first_denoiser(data)).items()}
    after = slices(private(slices="first,last").model.denoiser)
    for name, moved in (("first", True), ("middle", False), ("last", True)):
        same = all(torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True))
        assert same is not moved


def test_it_learns_to_take_noise_away(private):
    """Under weak privacy: on fresh noise less error than a denoiser that does nothing has, 64
    sigma^2 = 4 an image, and more of the classifier's answers."""
    data = images(n=200)
    changes = {"epsilon": 100.0, "epochs": 30, "learning_rate": 0.5, "noise_seed": 1}
    release = private(data, batch=50, **changes)
    torch.manual_seed(0)
    x, y = torch.from_numpy(data.test.x).repeat(20, 1, 1, 1), np.tile(data.test.y, 20)
    z = x + 0.25 * torch.randn(x.shape)
    with torch.no_grad():
        error = (release.model.denoiser(z) - x).square().flatten(1).sum(1).mean()
        alone, together = (
            float((scores.argmax(1).numpy() == y).mean())
            for scores in (release.model.classifier(z), release.model(z))
        )
    assert float(error) < 2.0
    assert together > alone


# --- what is released ----------------------------------------------------------------------------


def test_the_release_is_the_pair_and_verifies(trained, public):
    folder, book = trained
    data, loaded = images(), Release.load(folder / "good")
    plan = Settings(epsilon=3.0, epochs=2, batch=20).plan_for(data)
    assert loaded.trust["events"] == [{"label": "train", "event": to_json(plan.event())}]
    assert 2.97 < loaded.privacy.epsilon <= 3.0
    assert loaded.trust["mechanism"]["torch_draws"]
    assert verify(folder / "good", ledger=book).ok
    assert isinstance(loaded.model, Denoised)
    behind = Release.load(public).model
    expected = behind(loaded.model.denoiser(torch.from_numpy(data.test.x)))
    assert torch.allclose(loaded.scores(data.test.x), expected, atol=1e-6)
    assert own_noise(loaded).scale == 0.2


@pytest.mark.parametrize("part", ["classifier", "classifier_weights", "start"])
def test_an_audit_elsewhere_says_which_part_it_needs_and_where(copied, part):
    """The card names it as training did, which may be from another folder."""
    card = json.loads((copied("good") / "trust.json").read_text())
    card["provenance"]["config"][part] = "runs/h"
    if part == "start":
        card["provenance"]["config"]["public_start"] = STATEMENT
    with pytest.raises(InputError, match=rf"twin needs the {part} .*runs/h.*ln -s"):
        audited_twin(card, canaries=5)


def test_the_statement_is_an_assumption_of_every_figure(trained):
    release = Release.load(trained[0] / "good")
    (part,) = release.trust["fixed_parts"]
    assert (part["part"], part["public"], part["statement"]) == ("classifier", True, STATEMENT)
    assert part["digest"] == digest_of(release.model.classifier.state_dict())
    assert len(release.guarantees) == 2
    for stated in release.guarantees:
        assert any(STATEMENT in assumption for assumption in stated.assumptions)


def test_a_classifier_that_saw_the_records_leaves_the_whole_without_epsilon(trained):
    folder, book = trained
    release = Release.load(folder / "seen")
    assert release.privacy is None
    assert release.trust["privacy"] == []
    (reason,) = release.trust["withheld"]
    assert "covers the denoiser only, by itself (ε = 3, δ = 1e-05)-DP (add-remove)" in reason
    assert verify(folder / "seen", ledger=book).ok


def test_the_card_shows_the_classifier(trained):
    report = (trained[0] / "seen" / "report.html").read_text()
    assert "NOT public: it may have seen these records" in report
    stream = io.StringIO()
    print_card(Release.load(trained[0] / "good").trust, Console(file=stream, width=80))
    assert f"public: {STATEMENT}" in " ".join(stream.getvalue().split())


def rewritten(folder, change):
    """A card that somebody has changed, with a manifest that fits."""
    trust = json.loads((folder / "trust.json").read_text())
    change(trust)
    _write_card(folder, trust)
    return verify(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("fixed_parts"), "the classifier is not named"),
        (lambda t: t["fixed_parts"][0].update(statement="mine"), "not the one that was made"),
        (lambda t: t["fixed_parts"][0].update(digest="0" * 64), "not the one that was asked for"),
        (lambda t: t["fixed_parts"][0].update(public=False), "stated otherwise"),
        (
            lambda t: [
                t["fixed_parts"][0].update(digest="0" * 64),
                t["provenance"]["config"].update(classifier_digest="0" * 64),
            ],
            "not those that the card names",
        ),
        (lambda t: [g["assumptions"].pop() for g in t["privacy"]], "not stated: 'the classifier"),
        (
            lambda t: [
                t["fixed_parts"][0].update(data=["strokes"]),
                t["provenance"]["config"].update(classifier_data="strokes"),
            ],
            "is called public, and was made of 'strokes'",
        ),
        (
            lambda t: [  # every trace of it on the card; its weights are still there
                t.pop("fixed_parts"),
                [g["assumptions"].pop() for g in t["privacy"]],
                [t["provenance"]["config"].pop(k) for k in list(t["provenance"]["config"])
                 if "classifier" in k],
            ],
            "the classifier is not named",
        ),
    ],
)  # fmt: skip
def test_a_card_that_hides_the_classifier_is_caught(copied, change, said):
    found = rewritten(copied("good"), change)
    assert any(said in f.detail for f in found.findings if not f.ok)


def test_a_part_that_is_named_twice_is_refused(copied):
    with pytest.raises(InputError, match="named twice"):
        rewritten(copied("good"), lambda t: t["fixed_parts"].append(dict(t["fixed_parts"][0])))


def test_a_release_with_a_classifier_that_saw_the_records_has_no_room_under_a_cap(private, ledger):
    """Its weights are published: for the ledger an access without privacy."""
    data = images()
    enter_in_ledger(data, ledger)
    ledger.cap(data.name, 10.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        private(data, public_classifier=None, private_classifier=True)
    assert private(data, noise_seed=None).privacy is not None


def test_known_noise_leaves_no_figure_for_the_denoiser_either(private):
    words = {"public_classifier": None, "private_classifier": True}
    withheld = private(noise_seed=1, **words).trust["withheld"]
    assert withheld[0] == KNOWN_NOISE
    assert "may have seen these records" in withheld[1]
    assert not any("ε" in reason for reason in withheld)


def test_a_classifier_without_gradients_cannot_judge(private, public, monkeypatch):
    fixed = TransDenoiserSettings.fixed
    monkeypatch.setattr(
        TransDenoiserSettings,
        "fixed",
        lambda own, data: dataclasses.replace(fixed(own, data), differentiable=False),
    )
    with pytest.raises(InputError, match="no gradient goes through"):
        private(stability=1.0)


def test_a_classifier_whose_card_was_changed_is_refused(private, public, tmp_path):
    copy = Path(shutil.copytree(public, tmp_path / "h"))
    trust = json.loads((copy / "trust.json").read_text())
    trust["data"]["name"] = "somewhere else"
    (copy / "trust.json").write_text(json.dumps(trust))
    with pytest.raises(InputError, match="was changed after it was made"):
        private(classifier=str(copy))


def test_a_classifier_that_saw_the_records_is_not_whitewashed(trained, copied):
    good = Release.load(trained[0] / "good").trust

    def whitewash(trust):
        trust["withheld"], trust["privacy"] = [], good["privacy"]

    found = rewritten(copied("seen"), whitewash)
    details = [f.detail for f in found.findings if not f.ok]
    assert any("does not say what that means" in detail for detail in details)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classifier": None}, "no classifier"),
        ({"public_classifier": None}, "must be said"),
        ({"public_classifier": "  "}, "must be said"),
        ({"private_classifier": True}, "must be said"),
        (
            {"public_classifier": None, "private_classifier": True, "stability": 1.0},
            "into every gradient",
        ),
        ({"sigma": 0.0}, "bad sigma"),
        ({"sigma": float("nan")}, "bad sigma"),
        ({"stability": -1.0}, "bad stability"),
        ({"mse_weight": 0.0}, "nothing to learn"),
        ({"slices": "first,second"}, "unknown slices"),
        ({"slices": ""}, "unknown slices"),
        ({"stability_target": "labels"}, "a target without the term"),
        ({"noise_at": "nowhere"}, "one of image, layer"),
        ({"denoiser": "unet-100000"}, "no such U-Net"),
        ({"classifier": "cnn", "classifier_weights": "w.pt"}, "cannot take examples"),
        ({"input_noise": 0.1}, "under its own noise"),
        ({"adversarial": "madry"}, "under its own noise"),
        ({"model": "cnn-tiny"}, "not a classifier"),
        ({"classifier_mean": "a,b"}, "bad classifier_mean"),
        ({"classifier": "no/such/folder"}, "no such|unknown model|not a classifier"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"start": "runs/start"}, "say so: got --start 'runs/start', no --public-start, expected"),
        ({"public_start": "made"}, "say so: got no --start, --public-start 'made', expected both"),
    ],
)
def test_refusals(private, changes, said):
    with pytest.raises(InputError, match=said):
        private(**changes)


def test_a_classifier_whose_card_contradicts_the_statement_is_refused(private, public):
    """It was trained on these very records, under this name or another."""
    same = images("public strokes", seed=7)
    with pytest.raises(InputError, match=r"is not public.*or --private-classifier"):
        private(same)
    with pytest.raises(InputError, match=r"is not public.*Fix: take another one$"):
        private(same, stability=1.0)  # with which a private one is refused
    by_file = {"classifier": "cnn-tiny", "classifier_weights": f"{public}/weights.safetensors"}
    with pytest.raises(InputError, match="is not public"):
        private(same, **by_file)
    assert private(same, public_classifier=None, private_classifier=True).privacy is None


def test_the_same_records_under_another_name_are_recognised(ledger, tmp_path):
    h = privet.train(
        "plain", images("one", seed=7), model="linear", epochs=1, ledger=ledger, out=tmp_path / "h"
    )
    assert h.privacy is None
    stated = {"classifier": str(tmp_path / "h"), "public_classifier": STATEMENT}
    with pytest.raises(InputError, match="shares records"):
        privet.train("transdenoiser", images("two", seed=7), ledger=ledger, **QUICK | stated)
    assert "two" not in ledger.names()


# --- starts --------------------------------------------------------------------------------------


def test_a_run_starts_from_a_public_denoiser(private, ledger, tmp_path, public):
    privet.train(
        "transdenoiser", images("elsewhere", seed=5), ledger=ledger, out=tmp_path / "start",
        classifier=public, public_classifier=STATEMENT, **QUICK,
    )  # fmt: skip
    started = {"start": str(tmp_path / "start"), "public_start": "made elsewhere"}
    release = private(denoiser=None, slices="last", out=tmp_path / "run", **started)
    begun = Release.load(tmp_path / "start").model.denoiser
    for name in ("first", "middle"):
        pairs = zip(slices(begun)[name], slices(release.model.denoiser)[name], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert [p["part"] for p in release.trust["fixed_parts"]] == ["classifier", "first denoiser"]
    assert any("made elsewhere" in a for a in release.privacy.assumptions)
    assert verify(tmp_path / "run", ledger=ledger).ok
    with pytest.raises(InputError, match="the start is not public"):
        private(images("elsewhere", seed=5), **started)
    with pytest.raises(InputError, match="another denoiser"):
        private(denoiser="unet-8", **started)
    with pytest.raises(InputError, match="no denoiser to start from"):
        private(start=public, public_start="made elsewhere")
    # What the start was made of counts too: these records come back in a part of a part.
    other = images("third", seed=9)
    private(other, out=tmp_path / "third", **started)
    for part in ("start", "classifier"):
        again = {part: str(tmp_path / "third"), f"public_{part}": "made elsewhere"}
        with pytest.raises(InputError, match=f"the {part} is not public.*made of 'elsewhere'"):
            private(images("elsewhere", seed=5), **again)


# --- resuming, and modules of one's own ----------------------------------------------------------


def weights(release):
    return torch.cat([p.detach().flatten() for p in release.model.parameters()])


def test_a_resumed_run_ends_as_if_nothing_had_happened(private, ledger, tmp_path):
    known = {"checkpoint_every": 3, "noise_seed": 5}

    def stop(trainer):
        if trainer.next_step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        private(out=tmp_path / "cut", watch=stop, **known)
    resume = find_method("transdenoiser").under("sound").resume
    cut = resume(tmp_path / "cut", images(), ledger=ledger)
    assert torch.equal(weights(cut), weights(private(**known)))


def test_a_run_is_not_resumed_with_another_classifier(private, ledger, tmp_path):
    h = create("linear", (1, 8, 8), 2)

    def stop(trainer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        private(classifier=h, out=tmp_path / "cut", watch=stop)
    with torch.no_grad():
        h[2].bias += 1.0
    with pytest.raises(InputError, match="classifier changed"):
        find_method("transdenoiser").under("sound").resume(
            tmp_path / "cut", images(), ledger=ledger
        )


def test_a_module_of_ones_own(private, tmp_path):
    h = create("linear", (1, 8, 8), 2, init_seed=4)
    data = images()
    release = private(data, classifier=h, out=tmp_path / "run")
    loaded = privet.load(tmp_path / "run", model=create("linear", (1, 8, 8), 2))
    assert torch.equal(loaded.scores(data.test.x), release.scores(data.test.x))
    expected = h(release.model.denoiser(torch.from_numpy(data.test.x)))
    assert torch.allclose(release.scores(data.test.x), expected, atol=1e-6)
    with pytest.raises(InputError, match="model="):
        privet.load(tmp_path / "run")
