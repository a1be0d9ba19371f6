"""`privet certify` on a release whose smoothed predictions are known."""

import csv
import json

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scale", "0"), "bad"),
        (("--scale", "0.1", "--noise", "cauchy"), "unknown smoothing noise"),
        (("--scale", "0.1", "--mode", "guess"), "mode"),
        (("--scale", "0.1", "--alpha", "2"), "alpha"),
        (("--scale", "0.1", "--mode", "decision"), "radius"),
        (("--scale", "0.1", "--radii", "a"), "bad radii"),
        (("--scale", "0.1", "--examples", "0"), "bad number of examples"),
        (("--scale", "0.1", "--device", "abacus"), "no such device"),
    ],
)
def test_bad_input_is_one_line(release, options, said, capsys):
    assert certify(release, *options) == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("privet: ")
    assert said in message
    assert "\n" not in message


def test_broken_votes_are_refused(release, tmp_path, capsys):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "certify.npz").write_bytes(b"nothing")
    assert certify(release, *QUICK, "--out", tmp_path / "c") == 2
    assert "remove the file" in capsys.readouterr().err
