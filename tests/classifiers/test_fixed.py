"""Fixed classifiers from everywhere: each is held against the network that it was made from."""

import contextlib
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import privet
from privet.classifiers.classifier import weights_digest
from privet.classifiers.fixed import open_fixed
from privet.errors import FaultyEnvironment, InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.denoised import Denoised
from privet.models.denoisers import create_denoiser
from privet.models.fixed_classifier import build_classifier

SHAPE = (1, 8, 8)
X = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))


def opened(source, **changes):
    return open_fixed(source, **{"shape": SHAPE, "classes": 3} | changes)


@pytest.fixture
def network():
    return create("cnn-tiny", SHAPE, 3, init_seed=9)


def written(network, path, prefix=""):
    """The weights of a network in a file, by its suffix."""
    state = {prefix + name: value.detach() for name, value in network.state_dict().items()}
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt", ".pth"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_network_by_name_with_the_weights_of_a_file(network, tmp_path, suffix, prefix):
    found = opened("cnn-tiny", weights=written(network, tmp_path / f"w{suffix}", prefix))
    assert torch.equal(found.module(X), network(X))
    assert (found.name, found.source, found.card) == ("cnn-tiny", "cnn-tiny", None)
    assert found.differentiable
    assert found.digest == weights_digest(found.module)


def test_the_state_dict_of_a_checkpoint(network, tmp_path):
    torch.save({"state_dict": network.state_dict(), "epoch": 3}, tmp_path / "c.pt")
    assert torch.equal(opened("cnn-tiny", weights=tmp_path / "c.pt").module(X), network(X))


def test_counters_of_batchnorm_may_lack_and_nothing_else(tmp_path):
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3))
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    del state["0.num_batches_tracked"]
    np.savez(tmp_path / "w.npz", **state)
    opened(network, weights=tmp_path / "w.npz")
    del state["0.running_var"]
    np.savez(tmp_path / "w.npz", **state)
    with pytest.raises(InputError, match=r"do not fit.*no '0.running_var'"):
        opened(network, weights=tmp_path / "w.npz")


def test_a_release(tmp_path, make_data):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as book:
        data = make_data()
        release = privet.train(
            "plain", data, model="mlp", epochs=2, out=tmp_path / "run", ledger=book
        )
    found = open_fixed(tmp_path / "run", shape=(4,), classes=2)
    x = torch.rand(5, 4)
    assert torch.equal(found.module(x), release.model(x))
    assert found.name == "mlp"
    assert found.source == str(tmp_path / "run")
    assert found.card["data"]["name"] == "made-up"
    with pytest.raises(InputError, match=r"a release for other inputs: got shape \(4,\)"):
        opened(tmp_path / "run")
    with pytest.raises(InputError, match=r"\(2, 2\) for 2 inputs, expected \(2, 3\)"):
        open_fixed(tmp_path / "run", shape=(4,), classes=3)
    with pytest.raises(InputError, match="weights of its own"):
        open_fixed(tmp_path / "run", shape=(4,), classes=2, weights=tmp_path / "w.pt")


@pytest.mark.parametrize("last", [[], ["Erf"]], ids=["known", "black box"])
def test_an_onnx_file(tmp_path, last):
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from onnx_files import small_network, write_small

    path = write_small(tmp_path / "h.onnx", small_network(), last=last)
    found = opened(path, low=-1.0)
    expected = small_network()(2 * X - 1)
    assert torch.allclose(found.module(X), torch.erf(expected) if last else expected, atol=1e-5)
    assert found.name == "onnx"
    assert found.differentiable == (not last)
    with pytest.raises(InputError, match="weights of its own"):
        opened(path, weights=tmp_path / "w.pt")
    # Of 9x9 pixels the layers make as many features; still the file was made for 8x8.
    with pytest.raises(InputError, match=r"an ONNX file for other inputs: got shape \(1, 8, 8\)"):
        opened(path, shape=(1, 9, 9))


def test_a_module_of_the_users_own(network, tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = create("cnn-tiny", SHAPE, 3, init_seed=1)

        def forward(self, x):
            return 2 * self.inner(x)

    own = Own()
    assert torch.equal(opened(own).module(X), 2 * own.inner(X))
    assert (opened(own).name, opened(own).source) == ("custom", "Own")
    found = opened(own, weights=written(network, tmp_path / "w.pt", "inner."))
    assert torch.equal(found.module(X), 2 * network(X))


def test_every_name_but_custom_builds_what_was_opened(network, tmp_path):
    """What a release rests on: name and state are enough."""
    found = opened(
        "cnn-tiny", weights=written(network, tmp_path / "w.npz"), mean=(0.5,), std=(2.0,)
    )
    model = Denoised(create_denoiser("unet-4", SHAPE), found.module)
    again = create(f"denoised:unet-4:{found.name}", SHAPE, 3, init_seed=5)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(X), model(X))


class Seen(nn.Module):
    """Two scores: the mean of the first and of the last channel."""

    def forward(self, x):
        return torch.stack([x[:, 0].mean((1, 2)), x[:, -1].mean((1, 2))], 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.25, 0.25]),
        ({"low": -1.0, "high": 1.0}, [-0.5, -0.5]),
        ({"high": 255.0}, [63.75, 63.75]),
        ({"mean": (0.5,)}, [-0.25, -0.25]),
        ({"std": (0.5,)}, [0.5, 0.5]),
        ({"mean": (0.5, 0.0, 0.25), "std": (0.5, 1.0, 2.0)}, [-0.5, 0.0]),
        ({"low": 0.0, "high": 2.0, "mean": (0.5,), "std": (0.25,)}, [0.0, 0.0]),
        ({"mean": (0.5,), "std": (0.5, 1.0, 0.25)}, [-0.5, -1.0]),
    ],
)
def test_what_the_network_sees_of_a_quarter(changes, expected):
    """(low + (high - low) / 4 - mean) / std, by hand."""
    found = open_fixed(Seen(), shape=(3, 4, 4), classes=2, **changes)
    assert found.module(torch.full((1, 3, 4, 4), 0.25))[0].tolist() == pytest.approx(expected)


def test_range_and_normalisation_count_in_the_digest(network):
    digests = {opened(network, **c).digest for c in ({}, {"high": 2.0}, {"mean": (0.1,)})}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"low": 1.0}, "bad range.*low < high"),
        ({"high": float("inf")}, "bad range"),
        ({"mean": (0.1, 0.2)}, "bad mean.*each of 1 channels"),
        ({"mean": ()}, "bad mean"),
        ({"std": (0.0,)}, "bad std.*above 0"),
        ({"std": (float("nan"),)}, "bad std"),
        ({"classes": 4}, r"\(2, 3\) for 2 inputs, expected \(2, 4\)"),
        ({"shape": (1, 9, 8, 8)}, "does not take such inputs"),
        ({"weights": Path("w.bin")}, r"unknown kind of weights.*\.npz"),
        ({"weights": Path("none.npz")}, "no such weights"),
    ],
)
def test_refusals(network, changes, said):
    with pytest.raises(InputError, match=said) as caught:
        opened(network, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("cnn-tiny", "a network without weights"),
        ("cnn-tny", "did you mean 'cnn-tiny'"),
        ("runs/nothing", "no such classifier"),
        ("nothing.onnx", "no such file"),
    ],
)
def test_sources_that_are_not_there(source, said):
    pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    with pytest.raises(InputError, match=said):
        opened(source)


def test_weights_of_another_network_are_refused(network, tmp_path):
    path = written(network, tmp_path / "w.pt")
    with pytest.raises(InputError, match="weights do not fit the classifier"):
        opened("mlp", weights=path)
    with pytest.raises(InputError, match="weights do not fit the classifier"):
        opened("cnn-tiny", weights=path, classes=4)


class Evil:
    """What a pickle could run."""

    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def test_no_code_of_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, "evil.pt")
    np.savez("evil.npz", a=np.array([Evil()], dtype=object))
    for name in ("evil.pt", "evil.npz"):
        with pytest.raises(InputError, match="weights that cannot be read") as caught:
            opened("cnn-tiny", weights=Path(name))
        assert "\n" not in str(caught.value)
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["b.npz", "b.pt", "b.safetensors"])
def test_broken_files_are_bad_input(tmp_path, name):
    (tmp_path / name).write_bytes(b"broken")
    with pytest.raises(InputError, match=r"cannot be read|corrupt weights"):
        opened("cnn-tiny", weights=tmp_path / name)


def test_a_file_that_holds_a_list_is_bad_input(tmp_path):
    torch.save([torch.ones(1)], tmp_path / "l.pt")
    with pytest.raises(InputError, match="other things than tensors by name"):
        opened("cnn-tiny", weights=tmp_path / "l.pt")


def test_weights_that_are_no_numbers_are_refused(network):
    with torch.no_grad():
        network[1].weight[0, 0, 0, 0] = float("nan")
    with pytest.raises(InputError, match=r"not finite: got 'network\.1\.weight'"):
        opened(network)


class Mixing(nn.Module):
    """Normalises by the batch."""

    def forward(self, x):
        flat = x.flatten(1)[:, :3]
        return flat - flat.mean(0)


def test_a_classifier_that_mixes_rows_is_refused():
    with pytest.raises(InputError, match="mixes the rows"):
        opened(Mixing())


def test_batchnorm_is_no_obstacle_for_it_stays_in_evaluation():
    found = opened(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 3)).train())
    assert torch.equal(found.module.train()(X)[:2], found.module(X[:2]))


def test_a_classifier_that_gives_several_things_is_refused():
    class Two(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3], x

    with pytest.raises(InputError, match="got tuple for 2 inputs"):
        opened(Two())


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_networks_of_other_packages(package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is no part of the project")
    network = build_classifier(f"{package}:resnet18", (3, 32, 32), 3).eval()
    path = written(network, tmp_path / "w.safetensors")
    found = open_fixed(f"{package}:resnet18", shape=(3, 32, 32), classes=3, weights=path)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(found.module(x), network(x))
    again = create(f"denoised:unet-4:{found.name}", (3, 32, 32), 3)
    again.classifier.load_state_dict(found.module.state_dict())
    assert torch.equal(again.classifier(x), network(x))


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "w.pt").touch()
    with pytest.raises(FaultyEnvironment, match="pip install timm"):
        opened("timm:resnet18", weights=tmp_path / "w.pt")
