"""A classifier behind a denoiser: one network, one part of which can be trained."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import privet
from privet.errors import InputError
from privet.models import create
from privet.models.denoised import Denoised
from privet.models.denoisers import create_denoiser
from privet.models.fixed_classifier import FixedClassifier
from privet.models.onnx_graph import file_content
from privet.models.onnx_network import OnnxNetwork
from privet.models.own_classifier import has_own_classifier
from privet.release import Release

SHAPE = (1, 8, 8)


def pair(classifier=None):
    torch.manual_seed(0)
    classifier = create("cnn-tiny", SHAPE, 3, init_seed=4) if classifier is None else classifier
    return Denoised(create_denoiser("unet-4", SHAPE, init_seed=3), classifier)


def saved(folder, model, name):
    """A release of this network, as far as loading it goes."""
    folder.mkdir()
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    from safetensors.torch import save_file

    save_file(weights, folder / "weights.safetensors")
    config = {"model": name, "shape": SHAPE, "classes": ["a", "b", "c"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "trust.json").write_text(json.dumps({"privacy": []}))
    return folder


def test_scores_are_those_of_the_classifier_on_denoised_images():
    model, x = pair(), torch.rand(5, *SHAPE)
    denoiser, classifier = (
        create_denoiser("unet-4", SHAPE, init_seed=3),
        create("cnn-tiny", SHAPE, 3, init_seed=4),
    )
    assert torch.allclose(model(x), classifier(denoiser(x)))


def test_only_the_denoiser_can_be_trained():
    classifier = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3))
    model, x = pair(classifier).train(), torch.rand(4, *SHAPE)
    before = {name: value.clone() for name, value in model.classifier.state_dict().items()}
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [f"denoiser.{name}" for name, _ in model.denoiser.named_parameters()]
    assert model.denoiser.training
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    first = model.denoiser.first.weight.clone()
    model(x)[:, 0].sum().backward()
    optimizer.step()
    assert not torch.equal(model.denoiser.first.weight, first)
    after = model.classifier.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_fixed_classifier_is_not_wrapped_again():
    fixed = FixedClassifier(create("cnn-tiny", SHAPE, 3), gain=2.0)
    assert pair(fixed).classifier is fixed


def test_names_of_its_weights():
    tops = {name.split(".")[0] for name in pair().state_dict()}
    assert tops == {"denoiser", "classifier"}
    assert {"classifier.gain", "classifier.shift"} < set(pair().state_dict())


def test_it_is_built_by_its_name():
    """Even before another denoiser; first weights are those of the public seed."""
    one, same, other = (
        create("denoised:unet-4:cnn-tiny", SHAPE, 3, init_seed=seed) for seed in (1, 1, 2)
    )
    x = torch.rand(2, *SHAPE)
    assert torch.equal(one(x), same(x))
    assert not torch.equal(one(x), other(x))
    twice = create("denoised:unet-4:denoised:unet-8:linear", SHAPE, 3)
    assert isinstance(twice.classifier.network, Denoised)
    assert twice(x).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("denoised:unet-4:custom", "pass it: privet.load"),
        ("denoised:unet-5:cnn-tiny", "no such U-Net"),
        ("denoised:nothing:cnn-tiny", "unknown denoiser"),
        ("denoised:unet-4:cnn-tny", "did you mean 'cnn-tiny'"),
        ("denoised:unet-4", "unknown model"),
        ("denoised:unet-4:12", "unknown model"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, said):
    with pytest.raises(InputError, match=said):
        create(name, SHAPE, 3)


def test_a_release_is_loaded_again(tmp_path):
    model, x = (
        pair(FixedClassifier(create("cnn-tiny", SHAPE, 3), gain=[2.0])),
        torch.rand(4, *SHAPE),
    )
    folder = saved(tmp_path / "r", model, "denoised:unet-4:cnn-tiny")
    assert torch.equal(Release.load(folder).model(x), model(x))


class Own(nn.Module):
    """What nobody but its maker can build."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 3)

    def forward(self, x):
        return self.inner(x.flatten(1)).tanh()


def test_a_release_with_a_users_own_classifier_is_loaded_with_it(tmp_path):
    model, x = pair(FixedClassifier(Own(), gain=0.5)), torch.rand(4, *SHAPE)
    folder = saved(tmp_path / "r", model, "denoised:unet-4:custom")
    with pytest.raises(InputError, match=r"pass it: privet\.load"):
        privet.load(folder)
    given = Own()
    loaded = privet.load(folder, model=given)
    assert isinstance(loaded.model, Denoised)
    assert loaded.model.classifier.network is given
    assert torch.equal(loaded.model(x), model(x))
    with pytest.raises(InputError, match="do not fit"):
        privet.load(folder, model=nn.Linear(64, 3))


def test_the_classifier_may_be_a_pair_of_its_own(tmp_path):
    """A user's own that happens to be of this kind is put behind the denoiser like any other."""
    model, x = pair(FixedClassifier(pair())), torch.rand(4, *SHAPE)
    folder = saved(tmp_path / "r", model, "denoised:unet-4:custom")
    assert torch.equal(privet.load(folder, model=pair()).model(x), model(x))


def test_only_names_of_this_kind_need_a_classifier():
    assert has_own_classifier("denoised:unet-4:custom")
    for name in ("custom", "denoised:unet-4:cnn", "denoised:unet-4:onnx", "denoised:custom"):
        assert not has_own_classifier(name)


@pytest.mark.parametrize("last", [[], ["Erf"]], ids=["known", "black box"])
def test_a_release_with_an_onnx_file_needs_nothing_else(tmp_path, last):
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from onnx_files import small_network, write_small

    path = write_small(tmp_path / "h.onnx", small_network(), last=last)
    model, x = pair(OnnxNetwork(file_content(path))), torch.rand(4, *SHAPE)
    expected = model(x)
    folder = saved(tmp_path / "r", model, "denoised:unet-4:onnx")
    path.unlink()
    assert torch.equal(Release.load(folder).model(x), expected)
