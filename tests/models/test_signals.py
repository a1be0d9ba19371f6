"""Networks for signals: published sizes, what clipping and stacking need, statistics by hand."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.federation.flat import flat
from privet.federation.local_work import LocalWork, Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.together import Together
from privet.models import create
from privet.models.signals import Statistics, signal_shape
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy, make_clipper
from privet.privacy.separation import require_separate_examples

SHAPE = (3, 100)
APART = ("har-wild-32", "har-wild-64", "bilstm", "cnn-ig", "cnn-ig-featureless")


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("har-wild-64-bn", 60_613),  # FLSys's
        ("har-wild-32-bn", 20_453),
        ("har-wild-128-bn", 202_373),
        ("har-wild-64", 60_229),
        ("har-wild-32", 20_261),
        ("har-wild-128", 201_605),
        ("bilstm", 2 * 4 * 64 * (3 + 64 + 2) + 128 * 5 + 5),
        ("cnn-ig-featureless", 196 * (3 * 16 + 1) + (196 * 25 + 1) * 1024 + 1025 * 5),
        ("cnn-ig", 196 * (3 * 16 + 1) + (196 * 25 + 39 + 1) * 1024 + 1025 * 5),
    ],
)
def test_sizes_at_five_classes(name, weights):
    assert count(create(name, SHAPE, 5)) == weights


def test_the_size_of_the_head_for_sentiment():
    model = create("sentiment-head", (768,), 2)
    assert count(model) == 98_690
    assert model(torch.rand(3, 768)).shape == (3, 2)
    with pytest.raises(InputError, match="needs features"):
        create("sentiment-head", SHAPE, 2)


@pytest.mark.parametrize("name", [*APART, "har-wild-64-bn"])
def test_channels_by_time_with_or_without_an_axis_of_one(name):
    model = create(name, (6, 60), 4).eval()
    assert count(create(name, (1, 6, 60), 4)) == count(model)
    x = torch.rand(2, 6, 60)
    assert model(x).shape == (2, 4)
    assert torch.equal(model(x), model(x[:, None]))


@pytest.mark.parametrize("shape", [(12,), (3, 13), (3, 32, 32)])
@pytest.mark.parametrize("name", ["har-wild-64", "bilstm", "cnn-ig", "cnn-ig-featureless"])
def test_what_is_no_signal_is_refused(name, shape):
    with pytest.raises(InputError, match=r"needs signals.*--model mlp"):
        create(name, shape, 2)
    assert signal_shape((3, 14)) == (3, 14)


def test_other_widths_are_refused():
    with pytest.raises(InputError, match="got har-wild-48, expected N = 32, 64, 128"):
        create("har-wild-48", SHAPE, 2)
    with pytest.raises(InputError, match="unknown model"):
        create("har-wild-64-gn", SHAPE, 2)


@pytest.mark.parametrize("name", [*APART, "sentiment-head"])
def test_first_weights_depend_on_the_init_seed_alone(name):
    shape = (20,) if name == "sentiment-head" else SHAPE
    one, same, other = (flat(create(name, shape, 3, init_seed=s)) for s in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", APART)
def test_examples_are_treated_apart(name):
    probe = torch.rand(2, 3, 40, generator=torch.Generator().manual_seed(0))
    require_separate_examples(create(name, (3, 40), 4), probe)


def test_batchnorm_is_refused_by_private_runs():
    model = create("har-wild-32-bn", SHAPE, 4)
    with pytest.raises(InputError, match="BatchNorm"):
        require_separate_examples(model, torch.rand(2, *SHAPE))


@pytest.mark.parametrize("name", ["har-wild-32", "bilstm", "cnn-ig"])
def test_clipped_sums_are_those_of_the_reference(name):
    """By the rules, layer by layer, and not by the slow way around."""
    model = create(name, (3, 40), 4).eval()  # dropout would draw other masks
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(6, 3, 40, generator=draw), torch.arange(6) % 4
    assert isinstance(make_clipper(model, cross_entropy, 0.3, probe=(x, y)), FastClipper)
    fast, slow = (
        kind(model, cross_entropy, 0.3).clipped_sum(x, y)
        for kind in (FastClipper, ReferenceClipper)
    )
    assert float(fast.norm()) > 0.3
    torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-4)


def test_clients_of_a_federation_can_be_stacked():
    """HAR-Wild by vmap is HAR-Wild client by client; dropout is off, since masks are drawn anew."""
    draw = np.random.default_rng(0)
    material = Material(
        x=torch.from_numpy(draw.random((30, *SHAPE), dtype=np.float32)),
        y=torch.from_numpy(draw.integers(0, 5, 30)),
        clients=[np.arange(0, 12), np.arange(12, 30)],
        pool=np.arange(0),
        classes=5,
    )
    model, work = create("har-wild-32", SHAPE, 5), LocalWork(epochs=1, batch=8, learning_rate=0.1)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    teacher, weights = Teacher(material, work, seed=1), flat(model)
    lessons = [teacher.lesson(client, 0) for client in range(2)]
    changes = [
        kind(model, material, work).changes(weights, lessons) for kind in (OneByOne, Together)
    ]
    torch.testing.assert_close(*changes, atol=1e-5, rtol=1e-4)
    assert float(changes[0].norm()) > 1e-3


@pytest.mark.parametrize("bn", ["", "-bn"])
def test_two_branches_written_out(bn):
    """From the weights alone, in their order: deep, shallow, dense; BatchNorm before the ReLU."""
    model = create(f"har-wild-32{bn}", SHAPE, 5).eval()
    weights = iter(dict(model.named_parameters()).values())

    def layer(h):
        h = F.conv1d(h, next(weights), next(weights))
        if bn:  # of means 0 and variances 1, as it begins
            scale, shift = next(weights), next(weights)
            h = scale[:, None] * h / (1 + 1e-5) ** 0.5 + shift[:, None]
        return h.clamp_min(0)

    x = torch.rand(2, *SHAPE)
    centred = 2 * x - 1
    deep = layer(layer(centred)).mean(2)
    both = torch.cat([deep, layer(centred).mean(2)], 1)
    hidden = F.linear(both, next(weights), next(weights)).clamp_min(0)
    torch.testing.assert_close(model(x), F.linear(hidden, next(weights), next(weights)))


def test_the_lstm_ends_at_both_ends_of_time():
    """The last state forth and the last state back, which is that of the first sample."""
    model = create("bilstm", SHAPE, 5).eval()
    lstm, x = model[1].lstm, torch.rand(2, *SHAPE)
    _, (ends, _) = lstm((2 * x - 1).transpose(1, 2))
    expected = model[3](torch.cat([ends[0], ends[1]], 1))
    torch.testing.assert_close(model(x), expected)


def test_dropout_is_that_of_the_settings():
    for name, share in (("har-wild-64", 0.4), ("bilstm", 0.2), ("cnn-ig", 0.05)):
        found = [m.p for m in create(name, SHAPE, 5).modules() if isinstance(m, nn.Dropout)]
        assert found == [share]


def test_statistics_by_hand():
    """A channel of -1, -1, 0.05, 0.95: bins are a fifth wide, and the last one takes 1."""
    x = torch.tensor([[[-1.0, -1.0, 0.05, 0.95], [1.0, 1.0, 1.0, 1.0]]])
    found = Statistics()(x)[0]
    values = np.array([-1.0, -1.0, 0.05, 0.95])
    assert found[[0, 2, 4]].tolist() == pytest.approx(
        [values.mean(), values.std(), np.abs(values).mean()]
    )
    first, second = found[6:].reshape(2, 10)
    assert first.tolist() == pytest.approx([0.5, 0, 0, 0, 0, 0.25, 0, 0, 0, 0.25])
    assert second.tolist() == pytest.approx([0.0] * 9 + [1.0])


def test_attacks_get_gradients_through_a_still_signal():
    x = torch.full((1, *SHAPE), 0.5, requires_grad=True)
    create("cnn-ig", SHAPE, 3)(x)[0, 0].backward()
    assert torch.isfinite(x.grad).all()


def test_an_onnx_file_of_it_says_the_same(tmp_path):
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    from privet.models.onnx_graph import read_onnx

    model = create("har-wild-64", SHAPE, 4).eval()
    x = torch.rand(3, *SHAPE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's older exporter
        torch.onnx.export(model, (x[:1],), tmp_path / "m.onnx", dynamo=False)
    found = read_onnx((tmp_path / "m.onnx").read_bytes(), device=torch.device("cpu"))
    assert found.differentiable
    torch.testing.assert_close(found.apply(x), model(x), atol=1e-4, rtol=1e-3)


def test_the_page_on_networks_tells_their_true_sizes():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    table = page.split("## Signals")[1].split("## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \|", table, flags=re.M)
    listed = {name: int(size.replace(",", "")) for name, size in rows}
    assert {*APART, "har-wild-128", "har-wild-64-bn", "sentiment-head"} <= set(listed)
    for name, size in listed.items():
        shape, classes = ((768,), 2) if name == "sentiment-head" else (SHAPE, 5)
        assert count(create(name, shape, classes)) == size, name
