"""The real command line: exit codes, one clear line, nothing on stdout but the result."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

sys.path.insert(0, str(Path(__file__).parent))
from command_line import Outcome, environment, privet, start
from privet import cli

TRAIN = ["train", "dpsgd", "--data", "digits"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def release(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases") / "digits"
    outcome = privet(
        *TRAIN, "--epsilon", "3", "--epochs", "5", "--model", "linear", "--out", folder, home=home
    )
    assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture
def copy(release, tmp_path):
    return shutil.copytree(release, tmp_path / "copy")


def one_line(outcome, code, *words):
    """Bad input: the exit code, nothing on stdout, one line on stderr, no traceback."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert len(outcome.err.strip().splitlines()) == 1, outcome.err
    assert outcome.err.startswith("privet: ")
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*TRAIN, "--epsilon", "0", "--out", "x"], ["bad epsilon", "0"]),
        ([*TRAIN, "--epsilon", "-1", "--out", "x"], ["bad epsilon", "-1"]),
        ([*TRAIN, "--epsilon", "nan", "--out", "x"], ["bad epsilon"]),
        ([*TRAIN, "--epsilon", "inf", "--out", "x"], ["bad epsilon"]),
        ([*TRAIN, "--epsilon", "three", "--out", "x"], ["epsilon", "three"]),
        ([*TRAIN, "--epsilon", "3", "--delta", "-1e-5", "--out", "x"], ["bad delta"]),
        ([*TRAIN, "--epsilon", "3", "--delta", "1", "--out", "x"], ["bad delta"]),
        ([*TRAIN, "--epsilon", "3", "--delta", "0", "--out", "x"], ["bad delta"]),
        ([*TRAIN, "--epsilon", "3", "--batch", "0", "--out", "x"], ["bad batch"]),
        ([*TRAIN, "--epsilon", "3", "--batch", "9999", "--out", "x"], ["bad batch", "1437"]),
        ([*TRAIN, "--epsilon", "3", "--epochs", "-1", "--out", "x"], ["bad epochs"]),
        ([*TRAIN, "--epsilon", "3", "--clip-norm", "0", "--out", "x"], ["bad clip_norm"]),
        ([*TRAIN, "--epsilon", "3", "--model", "cnm", "--out", "x"], ["unknown model", "'cnn'"]),
        (
            [*TRAIN, "--epsilon", "3", "--precision", "fp8", "--out", "x"],
            ["unknown precision", "'fp8'", "float32, tf32, bf16"],
        ),
        ([*TRAIN, "--epsilon", "3", "--precision", "tf32", "--out", "x"], ["TF32", "CUDA"]),
        ([*TRAIN, "--epsilon", "3"], ["--out"]),
        (["train", "dpsdg", "--data", "digits", "--epsilon", "3", "--out", "x"], ["'dpsgd'?"]),
        (["train", "dpsgd", "--data", "digitz", "--epsilon", "3", "--out", "x"], ["'digits'?"]),
        (["train", "dpsgd", "--data", "no.toml", "--epsilon", "3", "--out", "x"], ["not found"]),
        (["train", "dpsgd", "--data", "a.csv", "--epsilon", "3", "--out", "x"], ["declare"]),
        (["verify", "nowhere"], ["no such release"]),
        (["resume", "nowhere"], ["no run to resume"]),
        (["export", "nowhere", "x"], ["no such release"]),
        (["ledger", "cap", "digits", "--epsilon", "0", "--delta", "1e-5"], ["bad epsilon"]),
        (["ledger", "show", "nobody"], ["not in the ledger"]),
        (["ledger", "settle", "0000"], ["unknown run"]),
        (["frobnicate"], ["frobnicate"]),
    ],
)
def test_bad_arguments_give_one_line_and_exit_code_2(arguments, words, home, tmp_path):
    one_line(privet(*arguments, home=home, cwd=tmp_path), 2, *words)
    assert list(tmp_path.iterdir()) == []


def npz(folder, **changes):
    """A description of small made-up arrays; `changes` plant a fault."""
    rng = np.random.default_rng(0)
    arrays = {"x": rng.uniform(0, 1, (60, 3)), "y": np.arange(60) % 2} | changes
    np.savez(folder / "own.npz", **arrays)
    (folder / "own.toml").write_text(
        '[data]\nname = "own"\ntrain = "own.npz"\ntest_fraction = 0.2\nclasses = ["a", "b"]\n'
        "nominal_size = 48\nbounds = [0, 1]\n"
    )
    return ["train", "dpsgd", "--data", "own.toml", "--epsilon", "3", "--out", "x"]


FAULTY_ARRAYS = {
    "nan": ({"x": np.full((60, 3), np.nan)}, "NaN"),
    "inf": ({"x": np.full((60, 3), np.inf)}, "NaN or infinite"),
    "label out of range": ({"y": np.arange(60) % 3}, "label"),
    "negative label": ({"y": np.arange(60) % 2 - 1}, "label"),
    "one class": ({"y": np.zeros(60, dtype=int)}, "same class"),
    "zero examples": ({"x": np.zeros((0, 3)), "y": np.zeros(0, dtype=int)}, "zero examples"),
    "unequal lengths": ({"y": np.arange(59) % 2}, "59"),
    "text": ({"x": np.array([["a"] * 3] * 60)}, "numbers"),
    "objects": ({"x": np.array([{}] * 60, dtype=object)}, "own.npz"),
}


@pytest.mark.parametrize("where", ["out", "home"])
def test_a_folder_that_cannot_be_made_is_the_environments_fault(where, home, tmp_path):
    """Nobody can make folders in /proc, and a file is no folder; a file that is not there to be
    read stays bad input, as above."""
    out, at = (Path("/proc/x/y"), home) if where == "out" else (tmp_path / "r", Path("/dev/null"))
    found = privet(*TRAIN, "--epsilon", "3", "--model", "linear", "--out", out, home=at)
    named = "/proc/x/y" if where == "out" else "/dev/null"
    fix = "another folder" if where == "out" else "PRIVET_HOME"
    one_line(found, 3, "cannot make a folder", f"got {named}", "Fix: ", fix)


@pytest.mark.parametrize("fault", FAULTY_ARRAYS)
def test_bad_data_give_one_line_and_exit_code_2(fault, home, tmp_path):
    changes, word = FAULTY_ARRAYS[fault]
    arguments = npz(tmp_path, **changes)
    one_line(privet(*arguments, home=home, cwd=tmp_path), 2, word)
    assert not (tmp_path / "x").exists()


CSV = "age,bmi,ill\n" + "".join(f"{20 + i},{20 + i % 9},{'yn'[i % 2]}\n" for i in range(60))
FAULTY_TABLES = {
    "ragged": (CSV + "1,2\n", "row"),
    "missing column": (CSV.replace("bmi", "weight", 1), "bmi"),
    "not a number": (CSV + "old,20,y\n", "age"),
    "unknown label": (CSV + "20,20,maybe\n", "label"),
    "empty": ("", "own.csv"),
    "header only": ("age,bmi,ill\n", "own.csv"),
}


@pytest.mark.parametrize("fault", FAULTY_TABLES)
def test_bad_tables_give_one_line_and_exit_code_2(fault, home, tmp_path):
    content, word = FAULTY_TABLES[fault]
    (tmp_path / "own.csv").write_text(content)
    outcome = privet(
        "data", "declare", "own.csv", "--label", "ill", "--classes", "y", "n", "--feature",
        "age=0:110", "bmi=10:70", "--nominal-size", "48", "--test-fraction", "0.2",
        "--out", "own.toml", home=home, cwd=tmp_path,
    )  # fmt: skip
    one_line(outcome, 2, word)
    assert not (tmp_path / "own.toml").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights.safetensors", b"\x00" * 100),
        ("trust.json", b'{"method": "dpsgd", "privacy": ['),
        ("manifest.json", b""),
    ],
)
def test_a_corrupt_release_gives_one_line_and_exit_code_2(copy, name, content, home):
    (copy / name).write_bytes(content)
    one_line(privet("verify", copy, home=home), 2, name)


def halved_epsilon(folder):
    card = json.loads((folder / "trust.json").read_text())
    card["privacy"][0]["epsilon"] /= 2
    (folder / "trust.json").write_text(json.dumps(card))


def changed_weight(folder):
    weights = safetensors.torch.load_file(folder / "weights.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    safetensors.torch.save_file(weights, folder / "weights.safetensors")


def removed_event(folder):
    card = json.loads((folder / "trust.json").read_text())
    card["events"] = []
    (folder / "trust.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    ("tamper", "named"),
    [
        (halved_epsilon, "FAIL epsilon (add-remove, delta=1e-05): stated"),
        (changed_weight, "FAIL digest of weights.safetensors"),
        (removed_event, "FAIL events match the mechanism"),
    ],
)
def test_a_tampered_release_fails_with_exit_code_1_and_is_named(copy, tamper, named, home):
    tamper(copy)
    outcome = privet("verify", copy, home=home)
    assert outcome.code == 1
    assert named in outcome.out
    assert "CONTRADICTED" in outcome.out


def test_a_signed_release_through_the_command_line(copy, home, tmp_path):
    assert privet("keygen", tmp_path / "key", home=home).code == 0
    assert privet("sign", copy, "--key", tmp_path / "key", home=home).code == 0
    public = tmp_path / "key.pub"
    good = privet("verify", copy, "--key", public, "--json", home=home)
    assert (good.code, good.json["ok"]) == (0, True)
    (copy / "report.html").write_text("nothing to see")
    bad = privet("verify", copy, "--key", public, "--json", home=home)
    assert (bad.code, bad.json["ok"]) == (1, False)


def test_json_is_the_only_thing_on_stdout(home, tmp_path):
    outcome = privet(
        *TRAIN, "--epsilon", "3", "--epochs", "2", "--model", "linear", "--json",
        "--out", tmp_path / "run", home=home,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert outcome.json == json.loads((tmp_path / "run" / "trust.json").read_text())
    for listing in (["data", "list"], ["methods"], ["ledger", "show"]):
        assert privet(*listing, "--json", home=home).json


def test_a_second_run_does_not_overwrite_the_first(release, home):
    before = (release / "weights.safetensors").read_bytes()
    outcome = privet(*TRAIN, "--epsilon", "3", "--out", release, home=home)
    one_line(outcome, 2, "already there")
    assert (release / "weights.safetensors").read_bytes() == before


def test_a_folder_with_something_in_it_is_not_taken(home, tmp_path):
    (tmp_path / "patients.csv").write_text("precious")
    one_line(privet(*TRAIN, "--epsilon", "3", "--out", tmp_path, home=home), 2, "not empty")
    occupied = tmp_path / "patients.csv"
    one_line(privet(*TRAIN, "--epsilon", "3", "--out", occupied, home=home), 2, "not a folder")
    assert [p.name for p in tmp_path.iterdir()] == ["patients.csv"]


@pytest.mark.parametrize(
    ("sent", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_ctrl_c_and_sigterm_say_how_to_go_on(home, tmp_path, sent, code, word):
    process = start([*TRAIN, "--epsilon", "3", "--epochs", "500", "--out", tmp_path / "x"], home)
    journal, deadline = tmp_path / "x" / "internal" / "steps.log", time.monotonic() + 120
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(sent)
    outcome = Outcome(process)
    assert outcome.code == code
    assert f"privet: {word}; training goes on by `privet resume`, a stream of" in outcome.err
    assert "Traceback" not in outcome.err
    assert "unfinished" in privet("verify", tmp_path / "x", home=home).err


def test_a_run_over_the_cap_is_refused_with_exit_code_1(tmp_path):
    home = tmp_path / "home"
    assert (
        privet("ledger", "cap", "digits", "--epsilon", "1", "--delta", "1e-5", home=home).code == 0
    )
    outcome = privet(*TRAIN, "--epsilon", "3", "--out", tmp_path / "x", home=home)
    one_line(outcome, 1, "exceed the cap of 'digits'")


def test_data_refused_at_the_door_are_not_entered(tmp_path):
    """An image network on a table, a unit column left out, a cap below what is spent."""
    home, arguments = tmp_path / "home", npz(tmp_path)
    outcome = privet(*arguments, "--augment", "shift", home=home, cwd=tmp_path)
    assert outcome.code == 2, outcome.err
    assert privet("ledger", "show", "--json", home=home).json == []
    assert privet(*arguments, "--epochs", "2", home=home, cwd=tmp_path).code == 0
    own = (tmp_path / "own.toml").read_text()
    (tmp_path / "other.toml").write_text(own.replace('"own"', '"other"') + 'unit = "visit"\n')
    (tmp_path / "again.toml").write_text(own.replace('"own"', '"again"'))
    refused = privet(
        *arguments[:2], "--data", "other.toml", "--epsilon", "3", "--out", "y",
        home=home, cwd=tmp_path,
    )  # fmt: skip
    one_line(refused, 2, "'other' are in the ledger as 'own'")
    cap = ["ledger", "cap", "again.toml", "--epsilon", "0.1", "--delta", "1e-5"]
    one_line(privet(*cap, home=home, cwd=tmp_path), 1, "already spent on 'again'")
    for name in ([], ["own"], ["own.toml"]):
        (entry,) = privet("ledger", "show", *name, "--json", home=home, cwd=tmp_path).json
        assert (entry["name"], entry["related"]) == ("own", [])


def test_the_names_of_other_tools_are_understood_as_hints(home, tmp_path):
    lr = privet(*TRAIN, "--epsilon", "3", "--lr", "0.1", "--out", "x", home=home, cwd=tmp_path)
    one_line(lr, 2, "Unknown option: --lr. Did you mean --learning-rate?")
    joined = privet(*TRAIN, "--epsilon", "3", "--lr=0.1", "--out", "x", home=home, cwd=tmp_path)
    one_line(joined, 2, "Did you mean --learning-rate?")
    elsewhere = privet("verify", "x", "--lr", "1", home=home)
    assert "--learning-rate" not in elsewhere.err


def test_a_recipe_that_does_not_fit_the_data_is_named(home, tmp_path):
    outcome = privet(*TRAIN, "--epsilon", "3", "--recipe", "mnist", "--out", "x", home=home)
    one_line(outcome, 2, "batch of recipe 'mnist'", "1437", "--batch 287")


@pytest.mark.parametrize("width", [50, 80, 200])
@pytest.mark.parametrize("listing", ["recipes", "models", "methods"])
def test_listings_keep_their_columns_at_every_width(home, listing, width):
    process = subprocess.run(
        [sys.executable, "-m", "privet.cli", listing],
        env=environment(home) | {"COLUMNS": str(width)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.rstrip() for line in process.stdout.splitlines()]
    assert max(map(len, lines)) <= width
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    margin = max(map(len, names)) + 2
    for line in lines:
        assert line[:margin].strip() in ("", *names)
        assert line[margin - 1] == " " != line[margin]


def test_a_device_that_is_not_here_is_the_environments_fault(home, tmp_path):
    outcome = privet(
        *TRAIN, "--epsilon", "3", "--device", "meta:9x", "--out", tmp_path / "x", home=home
    )
    one_line(outcome, 3, "device not usable")


def test_a_missing_extra_is_the_environments_fault(home, tmp_path):
    """pyarrow hidden behind a module that fails to import, as if it were not installed."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyarrow.py").write_text("raise ModuleNotFoundError('no pyarrow', name='pyarrow')")
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    (tmp_path / "own.toml").write_text(
        '[data]\nname = "own"\ntrain = "own.parquet"\ntest_fraction = 0.2\nclasses = ["a", "b"]\n'
        'nominal_size = 48\nlabel = "y"\n[features]\nx = [0, 1]\n'
    )
    process = subprocess.run(
        [sys.executable, "-m", "privet.cli", "train", "dpsgd", "--data", "own.toml",
         "--epsilon", "3", "--out", "x"],
        env=environment(home) | {"PYTHONPATH": str(hidden)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 3, process.stderr
    assert "privet[parquet]" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own, 96 kB, that can be filled and made read-only; needs root on Linux."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_the_environments_fault(small_disk, home):
    (small_disk / "filler").write_bytes(b"x" * 88_000)
    outcome = privet(*TRAIN, "--epsilon", "3", "--out", small_disk / "run", home=home)
    one_line(outcome, 3, "No space left")


def test_a_read_only_folder_is_the_environments_fault(small_disk, home):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    outcome = privet(*TRAIN, "--epsilon", "3", "--out", small_disk / "run", home=home)
    one_line(outcome, 3, "Read-only")
    ledger_there = privet("ledger", "show", home=small_disk / "home")
    one_line(ledger_there, 3, "Read-only")


def test_help_teaches_and_is_quick(home):
    started = time.monotonic()
    outcome = privet("--help", home=home)
    elapsed = time.monotonic() - started
    assert outcome.code == 0
    assert "privet demo" in outcome.out
    assert elapsed < 5  # benchmarks/startup.py has the figure; here: nothing heavy
    loaded = subprocess.run(
        [sys.executable, "-c",
         "import sys, privet.cli; print([m for m in ('torch', 'dp_accounting', 'sklearn', 'scipy')"
         " if m in sys.modules])"],
        env=environment(home), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert loaded.stdout.strip() == "[]"
    assert "see `privet methods`" in privet("train", "--help", home=home).out


def test_the_demo_tells_the_whole_story(tmp_path):
    outcome = privet("demo", "--out", tmp_path / "demo", home=tmp_path / "home")
    assert outcome.code == 0, outcome.err
    assert "proved (ε = 3, δ = 1e-05)" in outcome.out
    assert "verified" in outcome.out
    assert (tmp_path / "demo" / "report.html").exists()
    card = json.loads((tmp_path / "demo" / "trust.json").read_text())
    assert card["utility"]["test_accuracy"] > 0.85


def test_a_wish_to_stop_that_falls_into_a_finaliser_is_repeated():
    class Finalised:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)  # here the handler runs, and Python drops what it raises

    def interrupted():
        with cli._terminated_like_interrupted():
            Finalised()
            time.sleep(10)

    with pytest.raises(cli.Terminated):
        interrupted()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
