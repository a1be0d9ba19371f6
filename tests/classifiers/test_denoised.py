"""A denoiser in front: order, shapes, NaNs, and radii that rise exactly as predicted."""

import numpy as np
import pytest
import torch
from torch import nn

from privet.certification import Gaussian, certify
from privet.classifiers import Classifier, denoised, open_classifier
from privet.errors import InputError


class Known(nn.Module):
    """It knows that the second coordinate of every clean input is 0.7."""

    def forward(self, x):
        return torch.stack([x[:, 0], torch.full_like(x[:, 1], 0.7)], dim=1)


@pytest.fixture
def diagonal():
    """Class 1 where x0 + x1 > 1; scores are signed l2 distances."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]) / 2**0.5 / 2)
        model.bias.copy_(torch.tensor([1.0, -1.0]) / 2**0.5 / 2)
    return model


POINTS = torch.tensor([[0.5, 0.7], [0.4, 0.7], [0.1, 0.7]])
ASKED = {"noise": Gaussian(0.1), "n": 20_000, "seed": 1, "batch": 2000, "reference": True}


def test_radii_rise_exactly_as_predicted(diagonal):
    """Without: |x0 + x1 - 1| / sqrt(2). With: only noise along x0 is left, |x0 - 0.3|."""
    labels = torch.tensor([1, 1, 0])
    plain = certify(diagonal, POINTS, labels, **ASKED)
    helped = certify(diagonal, POINTS, labels, **ASKED, denoiser=Known())
    gap = (POINTS[:, 0].numpy() - 0.3).astype(float)
    assert np.all(helped.radius <= np.abs(gap))
    assert helped.radius == pytest.approx(np.abs(gap), rel=0.05)
    assert plain.radius == pytest.approx(np.abs(gap) / 2**0.5, rel=0.05)
    assert helped.prediction.tolist() == [1, 1, 0]


def test_noise_then_denoiser_then_classifier():
    """Who sees what: the denoiser noisy inputs, the classifier what it made of them."""
    seen = {"denoiser": [], "classifier": []}

    class Rounding(nn.Module):
        def forward(self, x):
            seen["denoiser"].append(x.clone())
            return x.round()

    def scores(x):
        seen["classifier"].append(x.clone())
        return torch.stack([x[:, 0], -x[:, 0]], dim=1)

    inner = Classifier(name="t", scores=scores, shape=(2,), classes=2, device=torch.device("cpu"))
    certify(inner, torch.ones(1, 2), torch.tensor([0]), noise=Gaussian(0.1), denoiser=Rounding())
    noisy, made = torch.cat(seen["denoiser"][1:]), torch.cat(seen["classifier"])
    assert noisy.std() == pytest.approx(0.1, rel=0.1)
    assert torch.equal(made, noisy.round())


def test_what_the_denoiser_cannot_do_votes_for_nobody():
    """A NaN that the classifier would hide is still a vote against."""

    class Broken(nn.Module):
        def forward(self, x):
            return torch.where(x > 0.5, torch.nan, x)

    def scores(x):
        return torch.stack([x.nan_to_num()[:, 0] + 1, x.nan_to_num()[:, 0]], dim=1)

    inner = Classifier(name="t", scores=scores, shape=(1,), classes=2, device=torch.device("cpu"))
    found = denoised(inner, Broken()).scores(torch.tensor([[0.2], [0.9]]))
    assert found[0].tolist() == pytest.approx([1.2, 0.2])
    assert found[1].isnan().all()
    run = certify(
        inner,
        torch.tensor([[0.2], [0.9]]),
        torch.tensor([0, 0]),
        noise=Gaussian(0.01),
        denoiser=Broken(),
        n=1000,
        seed=0,
    )
    assert run.prediction.tolist() == [0, -1]


def test_a_denoiser_is_put_in_evaluation_mode(diagonal):
    model = nn.Sequential(nn.Dropout(0.5))
    pair = denoised(open_classifier(diagonal, shape=(2,)), model)
    assert torch.equal(pair.scores(POINTS), diagonal(POINTS))
    assert pair.differentiable
    assert pair.module is None
    assert "Sequential" in pair.name


@pytest.mark.parametrize(
    ("denoiser", "said"),
    [
        (nn.Linear(2, 3), "another shape"),
        (nn.Linear(3, 3), "does not take"),
        ("images.pt", "not a denoiser"),
    ],
)
def test_what_does_not_fit_is_refused(diagonal, denoiser, said):
    with pytest.raises(InputError, match=said):
        denoised(open_classifier(diagonal, shape=(2,)), denoiser)


def test_a_file_is_a_denoiser(diagonal, tmp_path):
    """x -> clip(x, 0, 1), by its ONNX operators and by onnxruntime."""
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    from onnx import TensorProto, helper, numpy_helper

    def file(name, *operators):
        ends = [numpy_helper.from_array(np.float32(v), n) for n, v in (("l", 0.0), ("h", 1.0))]
        kind = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["n", 2]) for v in "xy"]
        graph = helper.make_graph(list(operators), "g", kind[:1], kind[1:], ends)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.save(model, str(tmp_path / name))
        return tmp_path / name

    clip = helper.make_node("Clip", ["x", "l", "h"], ["y"])
    twice = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Clip", ["a", "l", "h"], ["y"]),
    ]
    x = torch.tensor([[1.5, 0.2], [0.4, 2.0]])
    inner = open_classifier(diagonal, shape=(2,))
    for path, known in ((file("clip.onnx", clip), True), (file("abs.onnx", *twice), False)):
        pair = denoised(inner, path)
        assert torch.allclose(pair.scores(x), inner.scores(x.clamp(0, 1)))
        assert pair.differentiable == known
        assert path.name in pair.name


def test_votes_with_another_denoiser_are_not_resumed():
    """The pair has one name whatever its weights are: the digests tell them apart."""
    torch.manual_seed(0)
    model, first, second = nn.Linear(4, 2), nn.Linear(4, 4), nn.Linear(4, 4)
    opened = open_classifier(model, shape=(4,))
    pairs = [denoised(opened, first), denoised(opened, second)]
    assert pairs[0].name == pairs[1].name
    assert pairs[0].digest() == denoised(opened, first).digest() != pairs[1].digest()
    before = pairs[0].digest()
    with torch.no_grad():
        model.bias.add_(1.0)
    assert pairs[0].digest() != before


def declared(path, inputs, outputs, *operators, more=(), kind=1):
    """A file from `x` to `y` that declares these shapes."""
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    from onnx import helper

    ends = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, shape in (("x", inputs), ("y", outputs), *((name, inputs) for name in more))
    ]
    graph = helper.make_graph(list(operators), "g", [ends[0], *ends[2:]], ends[1:2])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


def node(operator, *names, **attributes):
    from onnx import helper

    return helper.make_node(operator, names[:-1], names[-1:], **attributes)


@pytest.mark.parametrize(
    ("inputs", "outputs", "operator", "said"),
    [
        (["n", 3], ["n", 3], "Relu", r"inputs of shape \(3\), expected \(2\)"),
        (["n", 2, 1], ["n", 2, 1], "Relu", r"inputs of shape \(2, 1\)"),
        (["n", 1, 28, 28], ["n", 10], "Flatten", r"inputs of shape \(1, 28, 28\)"),
        (["n", 2], ["n", 10], "Relu", r"outputs of shape \(10\), expected \(2\)"),
        (["n", 2], ["n", "m", 2], "Relu", r"outputs of shape \(\?, 2\)"),
    ],
)
def test_a_file_that_declares_another_shape_is_refused_before_it_is_run(
    diagonal, tmp_path, monkeypatch, inputs, outputs, operator, said
):
    """An operator that would take any shape hides nothing: the file says what it was made for."""
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    path = declared(tmp_path / "d.onnx", inputs, outputs, node(operator, "x", "y"))
    monkeypatch.setattr("privet.models.onnx_graph._session", lambda content: pytest.fail("run"))
    with pytest.raises(InputError, match=said) as caught:
        denoised(open_classifier(diagonal, shape=(2,)), path)
    assert "\n" not in str(caught.value)


def test_sizes_that_a_file_leaves_open_are_found_out_by_running_it(diagonal, tmp_path):
    """Declared (n, m), gives one column: the made-up inputs show it."""
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    summed = node("ReduceMean", "x", "y", axes=[1])
    path = declared(tmp_path / "d.onnx", ["n", 2], ["n", "m"], summed)
    with pytest.raises(InputError, match="a denoiser of another shape"):
        denoised(open_classifier(diagonal, shape=(2,)), path)


def test_a_file_with_two_inputs_or_of_other_numbers_is_refused(diagonal, tmp_path):
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    inner = open_classifier(diagonal, shape=(2,))
    both = declared(tmp_path / "2.onnx", ["n", 2], ["n", 2], node("Add", "x", "z", "y"), more="z")
    whole = declared(tmp_path / "i.onnx", ["n", 2], ["n", 2], node("Abs", "x", "y"), kind=7)
    for path in (both, whole):
        with pytest.raises(InputError, match="one input of float32") as caught:
            denoised(inner, path)
        assert "\n" not in str(caught.value)
