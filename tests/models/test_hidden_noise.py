"""A layer of noise: what it draws, that nobody shares it, and that a release does not hold it."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import create
from privet.models.hidden_noise import (
    HiddenNoise,
    after_first_map,
    first_map,
    noise_of,
    with_noise,
)
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy, make_clipper
from privet.privacy.separation import require_separate_examples

SHAPE = (1, 8, 8)
NETWORKS = ["linear", "mlp", "cnn-tiny", "published", "published-gn"]


def noisy(name="cnn-tiny", kind="gaussian", scale=0.5, layer=1):
    return with_noise(create(name, SHAPE, 10), HiddenNoise(kind, torch.tensor(scale)), layer=layer)


def drawn(kind, scale, rows=4000):
    torch.manual_seed(0)
    return HiddenNoise(kind, scale).train()(torch.zeros(rows, *scale.shape))


# --- what is drawn -----------------------------------------------------------------------------


def test_every_entry_has_its_own_scale():
    """Deviations of 4000 draws are within 5 standard errors (1.1 %) of the truth each."""
    scale = torch.tensor([[0.1, 1.0], [2.0, 5.0]])
    gaussian, laplace = drawn("gaussian", scale), drawn("laplace", scale)
    assert torch.allclose(gaussian.std(0) / scale, torch.ones(2, 2), atol=5 * 0.0112)
    assert torch.allclose(laplace.std(0) / scale, torch.full((2, 2), 2**0.5), atol=5 * 0.025)
    assert torch.allclose(laplace.abs().mean(0) / scale, torch.ones(2, 2), atol=5 * 0.0158)
    assert (gaussian.mean(0).abs() < 5 * scale / 4000**0.5).all()


def test_laplace_draws_have_laplace_tails():
    """P(|z| > t) = exp(-t): a normal of the same deviation has 0.0047 beyond 4, not 0.0183."""
    z = drawn("laplace", torch.ones(10), rows=10_000).abs()
    for t in (1.0, 2.0, 4.0):
        expected = torch.tensor(-t).exp()
        error = (expected * (1 - expected) / z.numel()).sqrt()
        assert abs((z > t).float().mean() - expected) < 5 * error


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_examples_do_not_share_their_draws(kind):
    """Correlations of rows, of 4000 entries each, are within 5 standard errors of 0."""
    torch.manual_seed(0)
    rows = HiddenNoise(kind, torch.tensor(1.0)).train()(torch.zeros(20, 4000))
    off_diagonal = torch.corrcoef(rows) - torch.eye(20)
    assert off_diagonal.abs().max() < 5 / 4000**0.5


def test_in_evaluation_there_is_no_noise():
    network = create("cnn-tiny", SHAPE, 10).eval()
    x = torch.rand(3, *SHAPE)
    assert torch.equal(with_noise(network, HiddenNoise("gaussian", torch.ones(())))(x), network(x))


def test_draws_do_not_depend_on_how_rows_lie_in_memory():
    layer, x = HiddenNoise("gaussian", torch.ones(())).train(), torch.zeros(2, 3, 4, 4)
    torch.manual_seed(0)
    one = layer(x)
    torch.manual_seed(0)
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), one)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(InputError, match="scale of hidden noise"):
        HiddenNoise("gaussian", torch.tensor([1.0, scale]))
    with pytest.raises(InputError, match="unknown noise"):
        HiddenNoise("uniform", torch.tensor(1.0))


# --- where it is -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_keep_their_names(name):
    plain = create(name, SHAPE, 10)
    for layer in (0, 1):
        assert list(noisy(name, layer=layer).state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("name", NETWORKS)
def test_it_stands_behind_the_first_linear_map(name):
    network = create(name, SHAPE, 10)
    layer = HiddenNoise("gaussian", torch.tensor(1.0))
    whole = with_noise(network, layer)
    parts = list(whole.children())
    before = parts[parts.index(layer) - 1]
    assert isinstance(before, nn.Linear | nn.Conv2d)
    assert list(first_map(whole))[-1] is before is list(first_map(network))[-1]
    assert next(after_first_map(whole).children()) is layer is noise_of(whole)
    assert next(with_noise(network, layer, layer=0).children()) is layer


def test_networks_without_a_first_linear_map_are_refused():
    hidden_inside = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    for network in (create("wrn-10-1", (3, 32, 32), 10), hidden_inside, nn.Linear(4, 2)):
        with pytest.raises(InputError, match="no first linear map"):
            with_noise(network, HiddenNoise("gaussian", torch.tensor(1.0)))


# --- private training --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", ["mlp", "cnn-tiny", "published-gn"])
def test_private_training_takes_it_by_the_fast_clipper(name, kind):
    network = noisy(name, kind)
    probe = torch.rand(4, *SHAPE), torch.arange(4)
    require_separate_examples(network, probe[0])
    clipper = make_clipper(network, cross_entropy, 1.0, probe=probe)
    assert isinstance(clipper, FastClipper), clipper.note


def test_the_reference_clipper_draws_for_each_example_too():
    """Twins get gradients of their own; without the noise they have one."""
    network = noisy("mlp").train()
    x, y = torch.rand(1, *SHAPE).expand(2, *SHAPE), torch.zeros(2, dtype=torch.int64)
    rows = ReferenceClipper(network, cross_entropy, 1.0).per_example_gradients(x, y)
    assert (rows[0] - rows[1]).norm() > 0.01 * rows[0].norm()
    noise_of(network).eval()
    rows = ReferenceClipper(network, cross_entropy, 1.0).per_example_gradients(x, y)
    assert torch.allclose(rows[0], rows[1])


class SharedNoise(nn.Module):
    """The planted bug: one draw for all rows of a batch."""

    def forward(self, x):
        return x + 0.5 * torch.randn(x.shape[1:], device=x.device) if self.training else x


def test_noise_that_a_batch_shares_is_caught():
    parts = list(create("mlp", SHAPE, 10).children())
    broken = nn.Sequential(*parts[:3], SharedNoise(), *parts[3:])
    with pytest.raises(InputError, match="share"):
        require_separate_examples(broken, torch.rand(4, *SHAPE))
