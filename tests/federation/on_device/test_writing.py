"""The folder for phones: whole, tried, and refused once it was changed."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_phones import SHAPES, handed

from privet.errors import FaultyEnvironment, InputError
from privet.federation.flat import flat, travelling
from privet.federation.on_device import programs, writing
from privet.federation.on_device.networks import ByPlaces
from privet.federation.on_device.running import MANIFEST, OnPhone, digest_of, read_manifest
from privet.federation.on_device.writing import made, parameters_of, write
from privet.models import create
from privet.release import Release
from privet.training import train

sys.path.insert(0, str(Path(__file__).parents[2]))
from command_line import run

PLAN = """
[model]
name = "mood"
network = "sentiment-head"
shape = [12]
classes = ["sad", "glad"]
bounds = [-1.0, 1.0]
seed = 4

[rounds]
rule = "fedprox"
proximal = 0.25
cohort = 5
rounds = 3

[work]
epochs = 2
batch = 6
learning_rate = 0.02
optimizer = "adam"
"""


@pytest.fixture
def plan(tmp_path):
    pytest.importorskip("pydantic", reason="needs the extra 'server'")
    path = tmp_path / "mood.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture
def release(make_data, tmp_path):
    folder = tmp_path / "run"
    train("plain", make_data(), epochs=1, model="mlp", out=folder)
    return folder


def test_a_plan_becomes_a_folder_that_trains(executorch, plan, tmp_path):
    written = write(plan, tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    assert manifest == written.manifest
    assert set(manifest["files"]) == {
        "training.pte", "inference.pte", "inference.onnx", "README.md",
    }  # fmt: skip
    assert (
        manifest["work"] | {"optimizer": "adam", "batch": 6, "proximal": 0.25} == manifest["work"]
    )
    assert (manifest["batch"], manifest["shape"], manifest["classes"]) == (6, [12], ["sad", "glad"])
    assert manifest["bounds"] == {"low": [-1.0], "high": [1.0]}
    assert manifest["versions"]["torch"] == torch.__version__
    first = flat(create("sentiment-head", (12,), 2, init_seed=4))  # as the server's first version
    assert torch.equal(OnPhone.load(tmp_path / "out").weights(), first)
    assert manifest["start"]["sha256"] == digest_of(first)
    assert "FedProx: add 0.25 times" in (tmp_path / "out" / "README.md").read_text()


def test_a_release_becomes_a_folder_with_its_weights(executorch, release, make_data, tmp_path):
    write(release, tmp_path / "out", batch=8)
    phone, trained = OnPhone.load(tmp_path / "out"), Release.load(release)
    assert torch.equal(phone.weights(), flat(trained.model))
    x = make_data().test.x[:5]
    _, scores, _ = phone.gradients(torch.from_numpy(x), torch.zeros(5, dtype=torch.int64))
    torch.testing.assert_close(scores, trained.scores(x), atol=1e-5, rtol=1e-4)
    assert read_manifest(tmp_path / "out")["work"] is None
    assert OnPhone.load(tmp_path / "out").batch == 8


def test_a_changed_release_is_refused(release, tmp_path):
    config = json.loads((release / "config.json").read_text())
    (release / "config.json").write_text(json.dumps(config | {"classes": ["yes", "no"]}))
    with pytest.raises(InputError, match="was changed after it was made"):
        write(release, tmp_path / "out", formats="onnx")
    assert not (tmp_path / "out").exists()


def test_parameters_are_in_the_order_of_an_update():
    network = create("har-wild-32", (3, 40), 4)
    vector = flat(network)
    for parameter, tensor in zip(parameters_of(network), travelling(network).values(), strict=True):
        part = vector[parameter.offset : parameter.offset + parameter.size]
        assert torch.equal(part.reshape(parameter.shape), tensor)


@pytest.mark.parametrize("name", ["training.pte", "inference.pte", "README.md"])
def test_a_corrupt_file_is_refused(folder_of, tmp_path, name):
    place = shutil.copytree(folder_of("sentiment-head"), tmp_path / "copy")
    content = bytearray((place / name).read_bytes())
    content[len(content) // 2] ^= 1
    (place / name).write_bytes(content)
    with pytest.raises(InputError, match=f"was changed.*{name}"):
        OnPhone.load(place)
    (place / name).unlink()
    with pytest.raises(InputError, match=f"is missing.*{name}"):
        OnPhone.load(place)


@pytest.mark.parametrize(
    "content", ['{"format": "privet-manifest/1", "files": {}}', '{"format": "privet-phone/1"}']
)
def test_a_folder_of_something_else_is_refused(tmp_path, content):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(InputError, match=r"not a phone's folder.*privet federate to-phone"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["har-wild-32", "sentiment-head"])
def test_both_files_for_scores_give_pytorchs(executorch, tmp_path, name):
    """Of another number of examples than they were made with, and without dropout."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    subject = handed(name, SHAPES[name], seed=2)
    x = torch.rand(7, *SHAPES[name])
    expected = subject.network.eval()(x).detach()
    onnx = onnxruntime.InferenceSession(writing.inference_onnx(subject.network, SHAPES[name]))
    found = torch.from_numpy(onnx.run(["scores"], {"x": x.numpy()})[0])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    program = writing.inference_program(subject.network, SHAPES[name])
    with programs.quiet():
        module = _load_for_executorch_from_buffer(program.content)
        found = torch.cat([module.forward([one[None]])[0] for one in x])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_onnx_alone_needs_no_executorch_and_takes_other_networks(monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    without(monkeypatch, "executorch")
    files, manifest = made(handed("cnn-tiny", (1, 8, 8)), formats="onnx", batch=4)
    assert set(files) == {"inference.onnx", "README.md"}
    assert "parameters" not in manifest
    assert "executorch" not in manifest["versions"]
    assert b"training.pte" not in files["README.md"]


def test_a_folder_without_training_says_so(folder_of, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    files, manifest = made(handed("linear", (5,)), formats="onnx", batch=4)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"no training program.*--format executorch"):
        OnPhone.load(tmp_path)


def test_a_program_that_computes_something_else_is_never_written(executorch, monkeypatch, tmp_path):
    """A mistake in a rewritten layer: here a convolution that reads its kernel backwards."""
    program = writing.training_program

    def mistaken(learner, inputs):
        kernels = [layer.weight for layer in learner.modules() if isinstance(layer, ByPlaces)]
        with torch.no_grad():
            for kernel in kernels:
                kernel.copy_(kernel.flip(2))
        found = program(learner, inputs)
        with torch.no_grad():
            for kernel in kernels:
                kernel.copy_(kernel.flip(2))
        return found

    monkeypatch.setattr(writing, "training_program", mistaken)
    with pytest.raises(FaultyEnvironment, match="does not compute what PyTorch does"):
        made(handed("har-wild-32", (3, 20)), formats="executorch", batch=4)


# The command line


def test_the_command_says_what_it_made(executorch, plan, tmp_path, capsys):
    assert run("federate", "to-phone", plan, "--out", tmp_path / "out") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "sentiment-head, from a plan of mood" in said
    assert "an update 1,922 numbers" in said
    assert "gradients are PyTorch's to" in said
    assert run("federate", "to-phone", plan, "--out", tmp_path / "more", "--json") == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest == json.loads((tmp_path / "more" / MANIFEST).read_text())


def test_nothing_of_executorchs_talk_is_on_the_screen(executorch, plan, tmp_path, capfd):
    assert run("federate", "to-phone", plan, "--out", tmp_path / "out") == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "tflite"], "unknown format: got tflite"),
        (["--batch", "7"], "another batch than the plan's: got 7, expected 6"),
        (["--out", "PLACE"], "the folder is not empty"),
    ],
)
def test_bad_input_is_told_before_anything_is_made(plan, tmp_path, capsys, words, said):
    place = [str(tmp_path) if word == "PLACE" else word for word in words]
    out = [] if "--out" in words else ["--out", tmp_path / "out"]
    assert run("federate", "to-phone", plan, *place, *out) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_network_with_batchnorm_is_refused(executorch, tmp_path, capsys):
    plan = tmp_path / "bn.toml"
    text = PLAN.replace("sentiment-head", "har-wild-32-bn").replace("[12]", "[3, 40]")
    plan.write_text(text.replace('"fedprox"\nproximal = 0.25', '"fedavg"'))
    assert run("federate", "to-phone", plan, "--out", tmp_path / "out") == 2
    assert "BatchNorm, which mixes the records of a batch" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("package", "extra"), [("executorch", "phone"), ("onnxruntime", "onnx"), ("pydantic", "server")]
)
def test_a_missing_package_is_told_with_its_extra(
    monkeypatch, plan, tmp_path, capsys, package, extra
):
    without(monkeypatch, package)
    assert run("federate", "to-phone", plan, "--out", tmp_path / "out") == 3
    assert f"pip install 'privet[{extra}]'" in capsys.readouterr().err


def without(monkeypatch, package):
    """As if it was not installed."""
    find = importlib.util.find_spec
    for module in ("programs", "handed"):
        monkeypatch.setattr(
            f"privet.federation.on_device.{module}.find_spec",
            lambda name: None if name == package else find(name),
        )


def test_digests_are_of_little_endian_single_precision():
    import hashlib

    vector = torch.tensor([1.0, -2.5])
    expected = hashlib.sha256(np.array([1.0, -2.5], dtype="<f4").tobytes()).hexdigest()
    assert digest_of(vector) == expected


def test_a_network_that_onnx_cannot_say_is_bad_input(monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

    class Unsayable(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x[:, :2, None] * x[:, None, :2]).real

    with pytest.raises(InputError, match="ONNX cannot do this"):
        programs.inference_onnx(Unsayable(), (2,))


def test_what_makes_records_is_no_classifier(release, tmp_path, monkeypatch):
    config = json.loads((release / "config.json").read_text())
    del config["classes"]
    (release / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("privet.federation.on_device.handed.require_unchanged", lambda _: "")
    with pytest.raises(InputError, match="no classifier"):
        write(release, tmp_path / "out", formats="onnx")
