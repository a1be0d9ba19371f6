"""The rewritten network is the network: the same parameters, scores and gradients."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from privet.errors import InputError
from privet.federation.on_device.networks import Chosen, Learner
from privet.federation.on_device.programs import drawn_kept, made_up_batch
from privet.models import create

TRAINABLE = {
    "har-wild-32": (3, 100),
    "har-wild-64": (1, 3, 40),
    "har-wild-128": (3, 14),
    "sentiment-head": (768,),
    "mlp": (2, 9),
    "linear": (12,),
}


@pytest.fixture(params=TRAINABLE)
def pair(request):
    shape = TRAINABLE[request.param]
    network = create(request.param, shape, 4, init_seed=3)
    torch.manual_seed(1)
    for parameter in network.parameters():  # biases begin at 0, which would hide their loss
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return network, Learner(network), shape


def test_parameters_are_the_same_objects_under_the_same_names(pair):
    network, learner, _ = pair
    theirs = list(learner.network.named_parameters())
    for (name, own), (other, shared) in zip(network.named_parameters(), theirs, strict=True):
        assert name == other
        assert own is shared


def test_the_network_itself_stays_as_it_is(pair):
    network, _, shape = pair
    assert not any(type(m).__module__.endswith("on_device.networks") for m in network.modules())
    assert network.eval()(torch.rand(2, *shape)).shape == (2, 4)


def test_scores_and_gradients_are_those_of_the_network(pair):
    """With dropout: the same draws, by PyTorch's generator."""
    network, learner, shape = pair
    x, y, share = made_up_batch(shape, 4, 9)
    torch.manual_seed(7)
    kept = drawn_kept(learner.rates, learner.kept_shapes(x))
    loss, scores = learner(x, y, share, *kept)
    found = torch.autograd.grad(loss, list(network.parameters()))
    torch.manual_seed(7)
    expected = cross_entropy(network.train()(x), y)
    torch.testing.assert_close(loss, expected)
    for gradient, other in zip(
        found, torch.autograd.grad(expected, list(network.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, other, atol=1e-6, rtol=1e-4)
    assert not scores.requires_grad


def test_without_factors_nothing_is_dropped(pair):
    network, learner, shape = pair
    x = torch.rand(5, *shape)
    torch.testing.assert_close(learner.network(x), network.eval()(x), atol=1e-6, rtol=1e-5)


def test_a_record_of_share_0_is_not_there(pair):
    _, learner, shape = pair
    x, y, _ = made_up_batch(shape, 4, 6)
    ones = tuple(torch.ones(s) for s in learner.kept_shapes(x))
    share = torch.tensor([0.25] * 4 + [0.0] * 2)
    whole, _ = learner(x, y, share, *ones)
    x[4:], y[4:] = 0.0, 0
    assert learner(x, y, share, *ones)[0] == whole
    four, _ = learner(x[:4], y[:4], share[:4], *(o[:4] for o in ones))
    torch.testing.assert_close(whole, four)


def test_relu_is_relu_to_the_bit_at_zero_and_where_there_is_no_number():
    x = torch.tensor([-1.0, -0.0, 0.0, 2.0, float("nan")], requires_grad=True)
    (slope,) = torch.autograd.grad(Chosen()(x).sum(), x)
    (expected,) = torch.autograd.grad(nn.functional.relu(x).sum(), x)
    assert torch.equal(slope[:4], expected[:4])
    assert torch.equal(Chosen()(x)[:4], nn.functional.relu(x)[:4])
    assert Chosen()(x)[4].isnan()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("har-wild-32-bn", "BatchNorm, which mixes the records of a batch"),
        ("bilstm", "LastOfBoth"),
        ("cnn-ig", "ZeroPad1d"),
        ("cnn-ig-featureless", "ZeroPad1d"),
    ],
)
def test_what_a_phone_cannot_train_is_refused_by_its_layer(name, said):
    with pytest.raises(InputError, match=f"{said}.*har-wild-32.*--format onnx"):
        Learner(create(name, (3, 100), 4))


@pytest.mark.parametrize("how", [{"padding": 1}, {"stride": 2}, {"dilation": 2}, {"groups": 2}])
def test_other_convolutions_are_refused_not_computed_wrongly(how):
    with pytest.raises(InputError, match="padding, strides, dilation or groups"):
        Learner(nn.Sequential(nn.Conv1d(2, 4, 3, **how)))


def test_frozen_parameters_are_refused():
    """They would not travel, and the order of an update would be another."""
    network = create("mlp", (6,), 2)
    network[2].bias.requires_grad_(False)
    with pytest.raises(InputError, match="frozen"):
        Learner(network)
