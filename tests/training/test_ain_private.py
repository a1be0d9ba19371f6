"""A network that attacks, learned privately: what its gradient is made of, and what is stated."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.fixed_classifier import FixedClassifier
from privet.models.perturbers import create_perturber
from privet.privacy.separation import require_separate_examples
from privet.release import Release
from privet.training.ain import CONFIDENT
from privet.training.ain_private import Fooling, FoolingLoss, PrivateAinSettings
from privet.training.registry import find_method
from privet.verification import verify
from privet.verification.fixed_parts import check_fixed_parts

sys.path.insert(0, str(Path(__file__).parents[1]))
from made_up_images import image_data

SHAPE = (1, 8, 8)
STATEMENT = "trained on made-up public images"
ASKED = {"epsilon": 3.0, "classifier": "h", "public_classifier": STATEMENT}


def images(name, seed, n=60):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 3).astype(np.int64)
    x = rng.uniform(0, 0.3, size=(n, *SHAPE)).astype(np.float32)
    x[np.arange(n), 0, 2 * y + 1] = 0.8
    return image_data(name, x, y, ("low", "middle", "high"))


def fooling(target=None, name="ain-4", bound=0.3):
    """Weights that are not the first ones: those of the last layer would hide much."""
    torch.manual_seed(1)
    perturber = create_perturber(name, SHAPE, 3)
    for parameter in perturber.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Fooling(perturber, FixedClassifier(create("mlp", SHAPE, 3, init_seed=4)), bound, target)


def batch(n=12):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("target", [None, 1])
def test_the_terms_are_length_and_margin_of_what_the_perturber_makes(target):
    module, x = fooling(target).eval(), batch()
    found = module(x)
    with torch.no_grad():
        labels = module.classifier(x).argmax(1)
        tried = module.perturber.perturbed(x, labels, 0.3)
        scores = module.classifier(tried).double().numpy()
    for row in range(len(x)):
        own, others = labels[row].item(), [0, 1, 2]
        if target is not None and own == target:
            assert found[row].tolist() == [0.0, 0.0]
            continue
        wanted = own if target is None else target
        rival = max(scores[row, k] for k in others if k != wanted)
        lead = scores[row, wanted] - rival
        margin = max(lead if target is None else -lead, -CONFIDENT)
        length = np.linalg.norm((tried[row] - x[row]).double().numpy())
        assert found[row].tolist() == pytest.approx([length, margin], abs=1e-5)
    assert target is None or (found == 0).all(1).any()  # the branch above was taken


def test_images_of_the_target_class_give_no_gradient():
    module, x = fooling(target=1).eval(), batch(40)
    with torch.no_grad():
        own = module.classifier(x).argmax(1)
    assert (own == 1).any()
    loss = FoolingLoss(distance=1.0, margin=1.0)(module(x[own == 1]), own[own == 1])
    slopes = torch.autograd.grad(loss.sum(), list(module.perturber.parameters()), allow_unused=True)
    assert all(slope is None or not slope.any() for slope in slopes)


def test_true_labels_play_no_part_and_weights_count():
    outputs = torch.tensor([[2.0, -1.0], [0.5, 3.0]])
    loss = FoolingLoss(distance=0.1, margin=2.0)
    for labels in (torch.tensor([0, 1]), torch.tensor([2, 0])):
        assert loss(outputs, labels).tolist() == pytest.approx([-1.8, 6.05])


def test_the_weights_are_those_of_the_settings():
    """Both odd, and neither a default: a weight that is ignored shows."""
    found = PrivateAinSettings(**ASKED, distance=0.37, margin=2.3).loss
    assert found == FoolingLoss(distance=0.37, margin=2.3)


def test_noise_is_drawn_in_training_and_by_the_release_but_not_in_evaluation():
    module, x = fooling(), batch()
    assert torch.equal(module.eval()(x), module(x))
    assert not torch.equal(module.train()(x), module(x))


@pytest.mark.parametrize("training", [True, False])
def test_images_are_treated_apart(training):
    require_separate_examples(fooling().train(training), batch(4))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    ledger = Ledger(folder / "ledger.db")
    privet.train("plain", images("public", 0), epochs=5, out=folder / "h", ledger=ledger)
    asked = ASKED | {"classifier": str(folder / "h"), "perturber": "ain-4", "bounds": "0.3"}
    privet.train(
        "ain", images("secret", 1), analysis="sound", epochs=2, batch=20, out=folder / "ain",
        ledger=ledger, **asked,
    )  # fmt: skip
    return folder


def test_the_release_has_a_proof_that_rests_on_the_statement(house):
    release = Release.load(house / "ain")
    assert release.trust["analysis"] == "sound"
    assert release.privacy.epsilon <= 3.0
    assert any(STATEMENT in assumption for assumption in release.privacy.assumptions)
    assert verify(house / "ain", ledger=Ledger(house / "ledger.db")).ok


def test_a_card_of_a_classifier_that_has_seen_the_records_fails(house):
    trust = dict(Release.load(house / "ain").trust)
    provenance, (part,) = dict(trust["provenance"]), trust["fixed_parts"]
    changed = {"public_classifier": None, "private_classifier": True}
    provenance["config"] = provenance["config"] | changed
    trust |= {"provenance": provenance, "fixed_parts": [part | {"public": False}]}
    (finding,) = check_fixed_parts(house / "ain", trust)
    assert "has had a part in every gradient" in finding.detail


def test_what_is_released_attacks_within_its_bound_with_noise_of_its_own(house):
    data = images("secret", 1)
    x, y = torch.from_numpy(data.test.x), torch.from_numpy(data.test.y)
    model = Release.load(house / "ain").model.eval()
    first, second = (model.perturbed(x, y, 0.3) for _ in range(2))
    assert not torch.equal(first, second)
    assert 0 < (first - x).abs().max() <= 0.3 + 2**-24
    result = privet.attack(str(house / "ain"), str(house / "h"), x, y, sizes=[0.3])
    assert list(result.holds) == ["ain"]


def test_what_is_made_of_a_network_under_evaluation_has_its_noise_back(house):
    asked = ASKED | {"classifier": str(house / "h"), "bounds": "0.3"}
    data = images("secret", 1)
    model = PrivateAinSettings(**asked).made_of(fooling().eval(), data, None).eval()
    x, y = torch.from_numpy(data.test.x), torch.from_numpy(data.test.y)
    assert not torch.equal(model.perturbed(x, y, 0.3), model.perturbed(x, y, 0.3))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bounds": "0.2,0.3"}, "learns one bound"),
        ({"public_classifier": None}, 'must be said.*Fix: --public-classifier "[^"]*"$'),
        ({"public_classifier": None, "private_classifier": True}, "into every gradient"),
        ({"adversarial": "madry"}, "from images as they are"),
        ({"augment": "shift"}, "from images as they are"),
        ({"margin": 0.0}, "bad weights"),
        ({"distance": -1.0}, "bad weights"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        PrivateAinSettings(**ASKED | changes)


def test_a_classifier_that_these_records_made_is_refused(house):
    asked = ASKED | {"classifier": str(house / "h"), "perturber": "ain-4", "analysis": "sound"}
    with pytest.raises(InputError, match="the classifier is not public") as caught:
        privet.train(
            "ain",
            images("public", 0),
            ledger=Ledger(house / "ledger.db"),
            **asked,
        )
    assert str(caught.value).endswith("Fix: take another one")  # a private one is refused, too


def test_without_the_analysis_a_target_is_refused_and_the_way_named():
    assert find_method("ain").under(None).settings is not PrivateAinSettings
    with pytest.raises(InputError, match="Fix: --analysis sound"):
        privet.train("ain", images("public", 0), epsilon=1.0, classifier="h")
