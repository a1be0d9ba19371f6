"""`privet certify` on a release whose smoothed predictions are known."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import privet
from privet.cli import main
from privet.data.dataset import Bounds, Dataset, Split


def certify(*options):
    try:
        main(["certify", *map(str, options)])
    except SystemExit as end:
        return end.code or 0
    return 0


def made_up():
    """Two classes that a line tells apart."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = rng.uniform(0, 1, size=(80, 4)).astype(np.float32)
    x[:, 0] = np.where(y == 1, 0.9, 0.1)
    whole = Split(x=x, y=y.astype(np.int64))
    return Dataset(
        name="made-up",
        train=whole,
        test=Split(x=x[:20], y=whole.y[:20]),
        bounds=Bounds(low=(0.0,), high=(1.0,)),
        classes=("no", "yes"),
        nominal_size=80,
        licence="none",
        source="made up",
        test_is_public=True,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A linear model, trained for a moment."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVET_HOME", str(home))
        made = privet.train("dpsgd", made_up(), epsilon=8.0, delta=1e-3, epochs=4, model="linear")
    return made.save(home / "release")


@pytest.fixture
def release(trained, monkeypatch):
    monkeypatch.setattr("privet.data.load", lambda name, folder=None: made_up())
    return trained


def rows_of(folder):
    return list(csv.DictReader((folder / "certify.csv").read_text().splitlines()))


QUICK = ("--scale", "0.1", "--n", "2000", "--examples", "12")


def test_a_table_a_file_for_each_example_and_a_curve(release, tmp_path, capsys):
    folder = tmp_path / "certified"
    assert certify(release, *QUICK, "--out", folder) == 0
    printed = capsys.readouterr().out
    assert "certified accuracy on 12 examples (l2)" in printed
    rows = rows_of(folder)
    record = json.loads((folder / "certify.json").read_text())
    assert len(rows) == record["images"] == 12
    for point in record["certified_accuracy"]:
        held = [r for r in rows if r["correct"] == "True" and float(r["radius"]) >= point["radius"]]
        assert point["accuracy"] == pytest.approx(len(held) / 12)
    assert (folder / "certify.svg").read_bytes().startswith(b"<?xml")
    assert not (folder / "certify.npz").exists()  # a finished run has nothing to go on with


def test_radii_are_within_the_exact_margins(release, tmp_path):
    """The release is linear: its margin under Gaussian noise is the distance to the other class."""
    assert certify(release, *QUICK, "--alpha", "1e-9", "--out", tmp_path / "c", "--json") == 0
    model, data = privet.load(release).model, made_up()
    chosen = np.linspace(0, len(data.test) - 1, 12).round().astype(int)
    x = torch.from_numpy(data.test.x[chosen]).requires_grad_()
    lead = model(x)[:, 1] - model(x)[:, 0]
    slope = torch.autograd.grad(lead.sum(), x)[0].norm(dim=1)
    margins = (lead.abs() / slope).detach().numpy()
    found = np.array([float(row["radius"]) for row in rows_of(tmp_path / "c")])
    assert (found <= margins).all()
    assert found.max() > 0


def test_decisions_are_asked_at_one_radius_and_need_fewer_votes(release, capsys):
    votes = {}
    for mode in ("curve", "decision"):
        options = ("--mode", mode, "--radius", "0.1", "--n", "20000")
        assert certify(release, "--scale", "0.1", "--examples", "12", *options, "--json") == 0
        record = json.loads(capsys.readouterr().out)
        votes[mode] = record["samples"]
        if mode == "decision":
            assert [p["radius"] for p in record["certified_accuracy"]] == [0.1]
    assert votes["decision"] <= votes["curve"]


def test_a_run_that_was_stopped_goes_on(release, tmp_path, monkeypatch, capsys):
    from privet.certification import smoothing

    folder, judged = tmp_path / "c", []
    right = smoothing.collect

    def broken_off(*args, watch, **more):
        def then(tally):
            watch(tally)
            judged.append(int(tally.draws.sum()))
            if judged[-1] > 0:
                raise KeyboardInterrupt

        right(*args, watch=then, **more)

    monkeypatch.setattr(smoothing, "collect", broken_off)
    assert certify(release, *QUICK, "--out", folder) != 0
    saved = np.load(folder / "certify.npz")
    assert saved["draws"].sum() == judged[-1] > 0
    monkeypatch.setattr(smoothing, "collect", right)
    seen = []
    monkeypatch.setattr(
        smoothing,
        "collect",
        lambda *args, **more: (seen.append(int(args[3].draws.sum())), right(*args, **more))[1],
    )
    assert certify(release, *QUICK, "--out", folder) == 0
    assert seen == [judged[-1]]


def test_noise_on_a_grid(release, capsys):
    assert certify(release, *QUICK, "--grid", "255", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["noise"] == "grid gaussian"
    assert record["levels"] == 255
    assert 0.003 < record["rounding"] < 0.01  # sqrt(4) / 510, and the pixels' distance from bytes


def test_hidden_noise_is_certified_by_the_bound_of_its_path(release, capsys):
    """The release is linear: Centre, Flatten, Linear."""
    model = privet.load(release).model
    weight = 2 * model[2].weight.detach().double().numpy()
    quick = ("--n", "500", "--examples", "4", "--hidden-scale", "0.5", "--json")
    assert certify(release, *quick) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["scale"] == pytest.approx(0.5 / np.linalg.norm(weight, 2), rel=1e-6)
    assert certify(release, *quick, "--scale", "0.2") == 0
    record = json.loads(capsys.readouterr().out)
    both = np.hypot(0.2, 0.5 / np.linalg.norm(weight, 2))
    assert record["scale"] == pytest.approx(both, rel=1e-6)
    assert certify(release, *quick, "--noise", "laplace") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["norm"] == "l1"
    assert record["scale"] == pytest.approx(0.5 / np.abs(weight).sum(0).max(), rel=1e-6)


def test_noise_inside_is_named_by_what_is_drawn_and_what_it_is_worth(release, capsys):
    model = privet.load(release).model
    norm = 2 * np.linalg.norm(model[2].weight.detach().double().numpy(), 2)
    quick = ("--n", "500", "--examples", "4", "--hidden-scale", "0.5", "--scale", "0.2")
    assert certify(release, *quick) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for word in ("hidden gaussian 0.5", "0.2 at the input", f"{np.hypot(0.2, 0.5 / norm):.4g}"):
        assert all(part in said for part in word.split()), word


def test_the_noise_of_training_need_not_be_said_again(release, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path))
    options = {"epsilon": 8.0, "delta": 1e-3, "epochs": 4, "model": "linear"}
    made = privet.train("dpsgd", made_up(), **options, input_noise=0.2)
    noisy = made.save(tmp_path / "noisy")
    quick = ("--n", "500", "--examples", "4", "--json")
    assert certify(noisy, *quick, "--noise", "own") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["noise"], record["scale"]) == ("gaussian", 0.2)
    assert certify(release, *quick, "--noise", "own") == 2
    assert "trained without noise" in capsys.readouterr().err


def test_a_denoiser_precision_tolerance_and_the_compiler(release, tmp_path, monkeypatch, capsys):
    asked = {}

    def run(classifier, x, y, **terms):
        asked.update(terms)
        raise KeyboardInterrupt

    monkeypatch.setattr("privet.certification.certify", run)
    options = ("--denoiser", tmp_path / "d.onnx", "--precision", "bf16", "--compile")
    certify(release, *QUICK, *options, "--tolerance", "0.1")
    assert asked["denoiser"] == tmp_path / "d.onnx"
    assert asked["precision"] == "bf16"
    assert asked["compile"] is True
    assert asked["tolerance"] == 0.1


def test_a_failed_compilation_is_told_and_the_run_goes_on(release, monkeypatch, capsys):
    def broken(function, *, dynamic):
        raise RuntimeError("no compiler")

    monkeypatch.setattr("privet.classifiers.compiled.torch.compile", broken)
    assert certify(release, *QUICK, "--compile") == 0
    assert "not compiled: RuntimeError: no compiler" in capsys.readouterr().err


def test_poisoning(release, tmp_path, capsys):
    """The curves of the card, from an assumed mean of 0.9."""
    from privet.certification import after_changes
    from privet.guarantee import Adjacency
    from privet.privacy.accounting import tradeoff_of
    from privet.privacy.events import from_json

    folder = tmp_path / "p"
    options = ("--threat", "poisoning", "--records", "1,3", "--accuracy", "0.9", "--out", folder)
    assert certify(release, *options) == 0
    said = capsys.readouterr()
    assert "assumed: mean accuracy is at least 0.9" in said.out
    assert "says nothing about the one model" in said.err
    record = json.loads((folder / "certify.json").read_text())
    event = from_json(privet.load(release).trust["events"][-1]["event"])
    one, two = (tradeoff_of(event, a) for a in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE))
    found = [row["changed"] for row in record["least_mean_accuracy"]]
    by_hand = [(after_changes(one, k, 0.9), after_changes(two, 2 * k, 0.9)) for k in (1, 3)]
    assert found == [max(pair) for pair in by_hand]
    assert found[0] > found[1]
    assert [row["records"] for row in rows_of(folder)] == ["1", "3"]
    assert (folder / "certify.svg").read_bytes().startswith(b"<?xml")


def reissued(release, folder, **changes):
    """The same release with another card."""
    shutil.copytree(release, folder)
    card = json.loads((folder / "trust.json").read_text())
    (folder / "trust.json").write_text(json.dumps(card | changes))
    return folder


@pytest.fixture
def quick_curve(monkeypatch):
    """(1/4)-GDP in place of the card's own curve, which takes seconds."""
    from privet.privacy.tradeoff import Gaussian

    monkeypatch.setattr(
        "privet.certification.poisoned_release.training_curve", lambda *_: Gaussian(0.25)
    )


POISONING = ("--threat", "poisoning", "--records", "1")


def test_poisoning_asks_for_a_plan_with_events(release, tmp_path, capsys):
    empty = reissued(release, tmp_path / "empty", events=[])
    assert certify(empty, *POISONING) == 2
    assert "card without events" in capsys.readouterr().err


def test_poisoning_asks_for_a_measured_accuracy_or_an_assumed_one(
    release, tmp_path, capsys, quick_curve
):
    untested = reissued(release, tmp_path / "untested", utility={})
    assert certify(untested, *POISONING) == 2
    assert "without a test accuracy. Fix: say --accuracy" in capsys.readouterr().err
    assert certify(untested, *POISONING, "--accuracy", "0.9") == 0


@pytest.mark.parametrize(
    "asked", [QUICK, ("--threat", "poisoning", "--accuracy", "0.9")], ids=["evasion", "poisoning"]
)
@pytest.mark.parametrize("fault", ["changed", "removed", "no manifest", None])
def test_files_that_are_not_those_of_the_manifest_are_told(asked, fault, release, tmp_path, capsys):
    copy = shutil.copytree(release, tmp_path / "copy")
    if fault == "changed":
        weights = {k: 2 * v for k, v in load_file(copy / "weights.safetensors").items()}
        save_file(weights, copy / "weights.safetensors")
    elif fault is not None:
        (copy / {"removed": "report.html", "no manifest": "manifest.json"}[fault]).unlink()
    assert certify(copy, *asked, "--json") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)
    said = f"files are not those of its manifest: privet verify {copy} says which" in told.err
    assert said == (fault is not None)


def test_poisoning_of_a_model_trained_without_privacy_is_refused(release, tmp_path, capsys):
    made = privet.train("plain", made_up(), epochs=1, model="linear").save(tmp_path / "plain")
    assert certify(made, *POISONING, "--accuracy", "0.9") == 2
    said = capsys.readouterr().err
    assert "without a proved epsilon" in said
    assert "trained without privacy" in said


def test_three_releases_prove_next_to_nothing_and_it_is_said(
    release, tmp_path, capsys, quick_curve
):
    """Three accuracies of 0.9: 0.054 at alpha 0.001; 16 would prove half, 226 nine tenths."""
    plan = privet.load(release).trust["provenance"]
    three = [
        reissued(
            release,
            tmp_path / run,
            provenance=plan | {"run": run},
            utility={"test_accuracy": 0.9, "test_examples": 20},
        )
        for run in ("a", "b", "c")
    ]
    assert certify(*three, *POISONING, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["accuracy"] == pytest.approx(0.0543, abs=1e-4)
    for words in ("3 releases are too few at alpha 0.001", "16 would prove 0.45", "--accuracy"):
        assert words in record["caution"]
    assert certify(*three, *POISONING) == 0
    assert "3 releases are too few" in capsys.readouterr().err
    assert certify(*three, *POISONING, "--alpha", "0.3") == 0
    assert "too few" not in capsys.readouterr().err


def test_a_radius_out_of_reach_is_refused_before_any_vote(release, monkeypatch, capsys):
    monkeypatch.setattr(
        "privet.certification.votes.NoisyVotes.count", lambda *_: pytest.fail("voted")
    )
    asked = ("--scale", "0.1", "--n", "1000", "--mode", "decision", "--radius", "0.3")
    assert certify(release, *asked) == 2
    said = capsys.readouterr().err
    assert "n=1000 votes cannot prove at alpha 0.001 by a decision: got 0.3" in said
    assert "expected at most 0.243" in said
    assert "Fix: n=5560 would be enough" in said


def test_a_denoiser_for_other_data_is_refused(release, tmp_path, capsys):
    """One line and no votes; the file's operators would take any shape."""
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["n", 3]) for v in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(tmp_path / "d.onnx"))
    assert certify(release, *QUICK, "--denoiser", tmp_path / "d.onnx") == 2
    message = capsys.readouterr().err
    assert "got inputs of shape (3), expected (4), that of the data" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threat", "theft"), "unknown threat"),
        (("--threat", "poisoning", "--records", "1.5"), "whole numbers"),
        (("--threat", "poisoning", "--records", "nan"), "bad --records: got nan"),
        (("--threat", "poisoning", "--records", "inf"), "bad --records: got inf"),
        (("--threat", "poisoning", "--records=-1"), "bad --records: got -1"),
        (("--threat", "poisoning", "--records", ","), "bad --records: got none"),
        (("--threat", "poisoning", "--records", "a"), "bad records"),
        (("--threat", "poisoning", "--accuracy", "nan"), "bad --accuracy: got nan"),
        (("--threat", "poisoning", "--alpha", "nan"), "bad alpha: got nan"),
        (("--scale", "0.1", "--noise", "uniform", "--hidden-scale", "1"), "no certificate"),
        (
            ("--scale", "0.1", "--noise", "laplace", "--hidden-scale", "1"),
            "no certificate: got --noise laplace --scale 0.1 --hidden-scale 1",
        ),
        (
            ("--scale", "0.1", "--grid", "255", "--noise", "laplace"),
            "no certificate: got --noise laplace --scale 0.1 --grid 255",
        ),
        (("--scale", "0.1", "--grid", "255", "--hidden-scale", "1"), "no certificate"),
        (("--scale", "0.1", "--grid", "0"), "bad grid"),
        (("--hidden-scale", "0.1", "--layer", "2"), "no such layer"),
        (("--hidden-scale", "0.1", "--layer", "2"), "got --layer 2 of Sequential, 1 linear"),
        (("--hidden-scale", "0.1", "--layer", "0"), "expected 1 to 1"),
        (("--scale", "0.1", "--layer", "1"), "got --layer 1 and no --hidden-scale"),
        (("--layer", "2"), "got --layer 2 and no --hidden-scale"),
        (("--hidden-scale", "0"), "bad --hidden-scale: got 0"),
        (("--hidden-scale=-1",), "bad --hidden-scale: got -1"),
        (("--hidden-scale", "nan"), "bad --hidden-scale: got nan"),
        (("--hidden-scale", "0.1", "--scale", "nan"), "bad --scale: got nan"),
        (("--scale", "0.1", "--denoiser", "nothing.onnx"), "no such file"),
        (("--scale", "0.1", "--precision", "fp8"), "unknown precision"),
        ((), "got --scale 0 and no --hidden-scale"),
        (("--noise", "own", "--scale", "0.1"), "leave those out"),
        (("--noise", "own", "--layer", "1"), "leave those out"),
        (("--scale", "0"), "no noise to certify with"),
        (("--scale", "-0.1"), "bad --scale: got -0.1"),
        (("--scale", "nan"), "bad --scale: got nan"),
        (("--scale", "inf"), "bad --scale: got inf"),
        (
            ("--scale", "0.1", "--noise", "cauchy"),
            "got 'cauchy', expected one of gaussian, laplace, uniform, own",
        ),
        (("--scale", "0.1", "--mode", "guess"), "mode"),
        (("--scale", "0.1", "--alpha", "2"), "alpha"),
        (("--scale", "0.1", "--alpha", "nan"), "bad alpha"),
        (("--scale", "0.1", "--tolerance", "nan"), "bad tolerance"),
        (("--scale", "0.1", "--mode", "decision"), "radius"),
        (("--scale", "0.1", "--radius", "nan"), "bad radius"),
        (("--scale", "0.1", "--radii", "a"), "bad radii"),
        (("--scale", "0.1", "--radii=-1,0.1"), "bad --radii"),
        (("--scale", "0.1", "--radii", "nan"), "bad --radii"),
        (("--scale", "0.1", "--radii", ","), "bad --radii"),
        (("--scale", "0.1", "--examples", "0"), "bad number of examples"),
        (("--scale", "0.1", "--device", "abacus"), "no such device"),
    ],
)
def test_bad_input_is_one_line(release, options, said, capsys):
    assert certify(release, *options) == 2
    message = capsys.readouterr().err
    assert message.startswith("privet: ")
    assert said in message
    assert message.count("\n") == 1


def test_evasion_is_about_one_release(release, capsys):
    assert certify(release, release, "--scale", "0.1") == 2
    assert "one release" in capsys.readouterr().err
    assert certify("--scale", "0.1") == 2
    assert "0 folders" in capsys.readouterr().err


def test_the_same_run_twice_is_not_two(release, capsys):
    assert certify(release, release, "--threat", "poisoning") == 2
    assert "same run" in capsys.readouterr().err


def test_broken_votes_are_refused(release, tmp_path, capsys):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "certify.npz").write_bytes(b"nothing")
    assert certify(release, *QUICK, "--out", tmp_path / "c") == 2
    assert "remove the file" in capsys.readouterr().err
