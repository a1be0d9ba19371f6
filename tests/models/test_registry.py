"""Networks by name: sizes, public first weights, what is refused."""

import re
from pathlib import Path

import pytest
import torch

from privet.errors import InputError
from privet.models import create, default_model, describe, names
from privet.models.registry import SMALL
from privet.privacy.separation import require_separate_examples


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("linear", (1, 8, 8), 64 * 10 + 10),
        ("mlp", (20,), 20 * 64 + 64 + 64 * 10 + 10),
        ("cnn-tiny", (1, 8, 8), 16 * 9 + 16 + 32 * 16 * 9 + 32 + 512 * 10 + 10),
        ("cnn", (1, 28, 28), 26_010),  # the figure of Papernot et al. and Tramer and Boneh
    ],
)
def test_networks_have_the_published_number_of_parameters(name, shape, parameters):
    assert count(create(name, shape, 10)) == parameters


# For signals and for features; the others take images. Their tests are in test_signals.py.
OTHERS = ("bilstm", "cnn-ig", "cnn-ig-featureless", "sentiment-head")
IMAGES = [name for name in names() if name not in OTHERS]


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 33, 31)])
def test_every_network_gives_one_score_a_class(name, shape):
    scores = create(name, shape, 7)(torch.rand(2, *shape))
    assert scores.shape == (2, 7)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("name", IMAGES)
def test_first_weights_depend_on_the_init_seed_alone(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = create(name, (3, 32, 32), 4, init_seed=5)
    assert torch.equal(torch.get_rng_state(), before)  # the global stream is left alone
    torch.manual_seed(2)
    same, other = (create(name, (3, 32, 32), 4, init_seed=s) for s in (5, 6))
    weights = [torch.cat([p.flatten() for p in m.parameters()]) for m in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_linear_network_is_centred_logistic_regression():
    model = create("linear", (2,), 2)
    layer = model[-1]
    x = torch.tensor([[0.0, 1.0]])
    expected = torch.tensor([[-1.0, 1.0]]) @ layer.weight.T + layer.bias
    assert torch.allclose(model(x), expected)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        *(((4,), "mlp"), ((3, 4), "mlp"), ((28, 28), "mlp")),
        *(((1, 8, 8), "cnn-tiny"), ((1, 28, 28), "cnn")),
        *(((3, 100), "har-wild-64"), ((6, 100), "har-wild-64"), ((20, 100), "mlp")),
    ],
)
def test_the_default_follows_the_shape(shape, name):
    assert default_model(shape) == name
    assert create(name, shape, 2)(torch.rand(1, *shape)).shape == (1, 2)


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(InputError, match=r"unknown model: got 'cnn-tny'.*did you mean 'cnn-tiny'"):
        create("cnn-tny", (1, 8, 8), 2)


@pytest.mark.parametrize("name", sorted(set(IMAGES) - {"adlm", "linear", "mlp"}))
def test_convolutions_refuse_tables_and_say_what_to_use(name):
    with pytest.raises(InputError, match=r"needs images.*--model mlp"):
        create(name, (12,), 2)


MIXING = ("adlm", "published", "published-lifelong", "published-noised")  # without privacy
LIGHT = [*(name for name in IMAGES if name not in ("wrn-16-4", *MIXING)), "wrn-10-1"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, shape) for shape in ((1, 28, 28), (3, 32, 32)) for name in LIGHT),
        ("wrn-16-4", (3, 8, 8)),  # a size at which the many passes of the probe take seconds
    ],
)
def test_every_network_treats_examples_apart(name, shape):
    probe = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    require_separate_examples(create(name, shape, 10), probe)


@pytest.mark.parametrize("name", MIXING)
def test_a_network_that_mixes_examples_is_refused_by_private_runs(name):
    probe = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="BatchNorm"):
        require_separate_examples(create(name, (1, 8, 8), 10), probe)


def test_a_family_is_built_by_its_numbers():
    slim, deep = (create(name, (1, 8, 8), 3, init_seed=1) for name in ("wrn-10-1", "wrn-16-1"))
    assert count(deep) > count(slim)
    again = create("wrn-10-1", (1, 8, 8), 3, init_seed=1)
    assert all(
        torch.equal(a, b) for a, b in zip(slim.parameters(), again.parameters(), strict=True)
    )
    with pytest.raises(InputError, match=r"unknown model: got 'wrn-10'.*wrn-D-K"):
        create("wrn-10", (1, 8, 8), 3)


FAMILIES = {  # each with a member
    "attacked:PERTURBER@BOUNDS:CLASSIFIER": "attacked:ain-12@0.2:cnn",
    "cosines-S-N": "cosines-2-512",
    "denoised:DENOISER:CLASSIFIER": "denoised:unet-16:cnn",
    "local-P-HEAD": "local-7-linear",
    "resnet-cifar-N": "resnet-cifar-20",
    "wrn-D-K": "wrn-40-4",
}


def test_every_network_and_family_is_described_in_one_line():
    listed = dict(describe())
    assert set(listed) == {*names(), *FAMILIES, "har-wild-N"}
    assert list(listed) == sorted(listed)
    assert all(10 < len(line) < 100 and line.endswith(".") for line in listed.values())


def test_the_page_on_networks_tells_their_true_sizes():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    table = page.split("## ")[0]
    rows = re.findall(r"^\| `([\w:@-]+)`.*?\| ([\d,]+) \| ([\d,]+) \|", table, flags=re.M)
    listed = {name: [int(n.replace(",", "")) for n in sizes] for name, *sizes in rows}
    assert set(listed) == {*IMAGES, *FAMILIES}
    for name, sizes in listed.items():
        member = FAMILIES.get(name, name)
        built = [create(member, shape, 10) for shape in ((1, 28, 28), (3, 32, 32))]
        assert [count(model) for model in built] == sizes, name


def test_the_default_stays_small():
    """So that a first run on two cores takes seconds."""
    assert all(count(create(default_model(s), s, 10)) < 40_000 for s in ((1, 28, 28), (3, 32, 32)))


def test_an_image_too_small_for_a_network_is_bad_input():
    said = r"cannot take examples of this shape: got \(1, 8, 8\), expected larger images. Fix: use"
    with pytest.raises(InputError, match=f"{said} --model cnn-tiny or mlp or linear$"):
        create("cnn", (1, 8, 8), 10)
    for name in SMALL:
        create(name, (1, 8, 8), 10)
    with pytest.raises(InputError, match=f"{said} --model mlp$"):
        create("cnn", (1, 8, 8), 10, instead=("mlp",))
