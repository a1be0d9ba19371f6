"""A classifier behind networks that attack it: bounds, who attacks when, and releases."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.data.dataset import Split
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.attacked import Attacked, attacked_name
from privet.models.fixed_classifier import FixedClassifier
from privet.models.own_classifier import has_own_classifier
from privet.models.perturbers import Perturber, create_perturber
from privet.release import Release

SHAPE = (1, 8, 8)
BOUNDS = (0.3, 0.2, 0.1)
SIZES = (0.0123, 0.1, 0.15, 0.2, 0.25, 0.3, 0.7, 1.0)  # below, between and above
ROUNDING = 2.0**-25  # of one sum in [0, 1], float32


class Constant(Perturber):
    """Changes every pixel by the same, and notes what it is told."""

    def __init__(self, out):
        super().__init__()
        self.out, self.told = out, []

    def forward(self, x, labels, generator=None):
        self.told.append(labels)
        return torch.full_like(x, self.out)


def classifier(init_seed=4):
    return create("cnn-tiny", SHAPE, 3, init_seed=init_seed)


def wild(name, seed):
    """First weights, but large at the end: outputs go far beyond every bound."""
    made = create_perturber(name, SHAPE, 3, init_seed=seed)
    last = [m for m in made.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)][-1]
    with torch.no_grad():
        last.weight.mul_(1000)
    return made


def trio(name="ain-4"):
    return Attacked([wild(name, seed) for seed in range(3)], BOUNDS, classifier(), SHAPE).eval()


def images(n=40):
    """Some pixels at the very ends of the box."""
    x = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(0))
    return (1.6 * x - 0.3).clamp(0, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ain-4", "ain-4-without-smooth", "atn-4", "advgan"])
def test_whatever_is_made_obeys_the_bound_and_the_box(name, size):
    model, x = trio(name), images()
    made = model.perturbed(x, torch.arange(len(x)) % 3, size).double()
    change = (made - x.double()).abs().max()
    assert change <= float(np.float32(size)) + ROUNDING
    assert change > 0.95 * size  # and uses it
    assert made.min() >= 0
    assert made.max() <= 1


@pytest.mark.parametrize(
    ("size", "out"),
    [
        (0.0123, 0.001), (0.1, 0.001), (0.15, 0.001), (0.2, 0.002), (0.25, 0.002), (0.3, 0.003),
        (0.7, 0.003), (1.0, 0.003),
    ],
)  # fmt: skip
def test_the_largest_bound_within_the_size_chooses_who_attacks(size, out):
    """Below the smallest bound it is the smallest one's."""
    model = Attacked([Constant(o) for o in (0.003, 0.002, 0.001)], BOUNDS, classifier(), SHAPE)
    x = torch.full((2, *SHAPE), 0.5)
    made = model.perturbed(x, torch.zeros(2).long(), size)
    assert torch.equal(made, x + torch.tensor(out))


def test_scores_are_those_of_inputs_perturbed_under_the_smallest_bound():
    """The perturber is told the classifier's own answers."""
    large, small = Constant(-0.5), Constant(0.5)
    model, x = Attacked([large, small], (0.3, 0.1), classifier(), SHAPE), images()
    labels = classifier()(x).argmax(1)
    assert len(set(labels.tolist())) > 1
    assert torch.allclose(model(x), classifier()((x + 0.1).clamp(0, 1)), atol=1e-6)
    assert torch.equal(small.told[0], labels)
    assert large.told == []


def test_noise_inside_is_drawn_from_the_generator():
    model, x, labels = trio(), images(), torch.zeros(40).long()

    def made(seed):
        return model.perturbed(x, labels, 0.3, torch.Generator().manual_seed(seed))

    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))


def test_only_the_perturbers_can_be_trained():
    normed = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3))
    model = Attacked([wild("ain-4", 0)], [0.2], normed, SHAPE).train()
    before = {name: value.clone() for name, value in normed.state_dict().items()}
    model(images())[:, 0].sum().backward()
    given = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert given == {"perturbers"}
    assert any(p.grad.abs().sum() > 0 for p in model.perturbers.parameters() if p.grad is not None)
    assert all(torch.equal(normed.state_dict()[name], value) for name, value in before.items())


def test_a_fixed_classifier_is_not_wrapped_again():
    fixed = FixedClassifier(classifier(), gain=2.0)
    assert Attacked([Constant(0.0)], [0.2], fixed, SHAPE).classifier is fixed


@pytest.mark.parametrize(
    "bounds",
    [(0.3, 0.2), (1.0,), (1e-5,), tuple(n / 255 for n in (16, 8, 4)), (0.1234567, 0.12345)],
    ids=str,
)
def test_a_name_keeps_every_bound_exactly(bounds):
    """Rounded to six digits, 16/255 would grow, and a size of 16/255 would miss its network."""
    built = create(attacked_name("ain-4", bounds, "linear"), SHAPE, 3)
    assert built.bounds == bounds
    assert len(built.perturbers) == len(bounds)


def test_names_are_written_short():
    assert attacked_name("ain-16", (0.3, 0.2), "cnn") == "attacked:ain-16@0.3+0.2:cnn"
    assert attacked_name("atn-12", (1.0,), "cnn") == "attacked:atn-12@1:cnn"


def test_it_is_built_by_its_name():
    """Even before another network that attacks; first weights are those of the public seed."""
    one, same, other = (
        create("attacked:atn-4@0.3+0.2:cnn-tiny", SHAPE, 3, init_seed=seed) for seed in (1, 1, 2)
    )
    x = images()
    assert torch.equal(one(x), same(x))
    assert not torch.equal(one(x), other(x))
    twice = create("attacked:atn-4@0.3:attacked:advgan@0.1:linear", SHAPE, 3)
    assert isinstance(twice.classifier.network, Attacked)
    assert twice.classifier.network.bounds == (0.1,)
    assert twice(x).shape == (40, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("attacked:ain-4@0.2:custom", "pass it: privet.load"),
        ("attacked:ain-3@0.2:linear", "no perturber of such a width"),
        ("attacked:ian-4@0.2:linear", "unknown perturber"),
        ("attacked:ain-4@0.2:lineer", "did you mean 'linear'"),
        ("attacked:ain-4@wide:linear", "bad bounds of a network that attacks: got 'wide'"),
        ("attacked:ain-4@0.2+:linear", "bad bounds"),
        ("attacked:ain-4@0.2+0.3:linear", "the largest first"),
        ("attacked:ain-4@0.2+0.2:linear", "the largest first"),
        ("attacked:ain-4@2:linear", "at most 1"),
        ("attacked:ain-4@0:linear", "above 0"),
        ("attacked:ain-4@nan:linear", "above 0"),
        ("attacked:ain-4:linear", "unknown model"),
        ("attacked:ain-4@0.2", "unknown model"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, said):
    with pytest.raises(InputError, match=said):
        create(name, SHAPE, 3)


def test_only_names_of_this_kind_need_a_classifier():
    assert has_own_classifier("attacked:ain-4@0.3+0.2:custom")
    for name in ("attacked:ain-4@0.2:linear", "attacked:ain-4:custom", "attacked:custom"):
        assert not has_own_classifier(name)


# --- releases -----------------------------------------------------------------------------------


class Own(nn.Module):
    """What nobody but its maker can build."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.inner = nn.Linear(64, 10)

    def forward(self, x):
        return self.inner(x.flatten(1)).tanh()


@pytest.fixture(scope="module")
def few():
    """Sixty digits: enough for a card."""
    data = privet.data.load("digits")
    part = Split(x=data.train.x[:60], y=data.train.y[:60])
    return replace(data, name="few digits", train=part, nominal_size=60)


def trained(few, folder, **options):
    """A network for two bounds, and the release that was handed back."""
    made = privet.train(
        "ain", few, perturber="ain-4-without-noise", bounds="0.3,0.2", epochs=1,
        imitation_steps=1, out=folder, ledger=Ledger(folder.parent / "ledger.db"), **options,
    )  # fmt: skip
    return made, torch.from_numpy(few.bounds.clamp_and_scale(few.test.x[:20]))


def test_a_release_is_loaded_again(few, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    privet.train("plain", few, model="linear", epochs=1, out=tmp_path / "F", ledger=ledger)
    made, x = trained(few, tmp_path / "r", classifier=tmp_path / "F")
    loaded = Release.load(tmp_path / "r")
    assert loaded.config["model"] == "attacked:ain-4-without-noise@0.3+0.2:linear"
    assert loaded.model.bounds == (0.3, 0.2)
    assert loaded.model.shape == SHAPE
    assert torch.equal(loaded.model(x), made.model(x))
    fixed = Release.load(tmp_path / "F").model
    assert torch.equal(loaded.model.classifier(x), fixed(x))


def test_a_release_with_a_users_own_classifier_is_loaded_with_it(few, tmp_path):
    own = Own()  # kept here: the run knows it only as long as somebody does
    made, x = trained(few, tmp_path / "r", classifier=own)
    assert made.config["model"].endswith(":custom")
    with pytest.raises(InputError, match=r"pass it: privet\.load"):
        privet.load(tmp_path / "r")
    given = Own(seed=1)
    loaded = privet.load(tmp_path / "r", model=given)
    assert isinstance(loaded.model, Attacked)
    assert loaded.model.classifier.network is given
    assert loaded.model.bounds == (0.3, 0.2)
    assert torch.equal(loaded.model(x), made.model(x))
    assert torch.equal(given(x), own(x))
    with pytest.raises(InputError, match="do not fit"):
        privet.load(tmp_path / "r", model=nn.Linear(64, 3))


def test_a_network_that_attacks_is_no_classifier_of_a_users_own(few, tmp_path):
    own = Attacked([Constant(0.1)], [0.2], Own(), SHAPE)
    with pytest.raises(InputError, match="not a classifier"):
        trained(few, tmp_path / "r", classifier=own)
