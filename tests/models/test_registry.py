"""Networks by name: sizes, public first weights, what is refused."""

import pytest
import torch

from privet.errors import InputError
from privet.models import create, default_model, names


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


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 33, 31)])
def test_every_network_gives_one_score_a_class(name, shape):
    scores = create(name, shape, 7)(torch.rand(2, *shape))
    assert scores.shape == (2, 7)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("name", names())
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
    [((4,), "mlp"), ((3, 4), "mlp"), ((1, 8, 8), "cnn-tiny"), ((1, 28, 28), "cnn")],
)
def test_the_default_follows_the_shape(shape, name):
    assert default_model(shape) == name
    assert create(name, shape, 2)(torch.rand(1, *shape)).shape == (1, 2)


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(InputError, match=r"unknown model: got 'cnn-tny'.*did you mean 'cnn-tiny'"):
        create("cnn-tny", (1, 8, 8), 2)


@pytest.mark.parametrize("name", [n for n in names() if n.startswith("cnn")])
def test_convolutions_refuse_tables_and_say_what_to_use(name):
    with pytest.raises(InputError, match=r"needs images.*--model mlp"):
        create(name, (12,), 2)
