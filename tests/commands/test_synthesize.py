"""`privet synthesize` through the command line: one private run, looked at from all sides."""

import contextlib
import json
import re
import shutil
import signal
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import card, privet, run, start
from privet.cli import app
from privet.commands.synthesize_options import FamilyOptions, GeneratingOptions
from privet.commands.synthesize_published import PublishedOptions
from privet.commands.synthesize_records import noted
from privet.data.records import ReadingNotes, read_records, read_schema, write_records, write_schema
from privet.data.records.parts import parted
from privet.data.records.simulator import simulate
from privet.release import RELEASED_FILES, sha256
from privet.synthesis.family import FAMILY
from privet.synthesis.fitting import METHODS

TINY = ("--model", "rows-16-0", "--epochs", "1")
IMAGES = {"augment", "views", "input_noise", "recipe", "attacker", "public_attacker",
          "private_attacker", "attacker_digest", "attacker_data", "attacker_spent"}  # fmt: skip


def made_up(folder):
    """Records of 200 simulated patients, at most 5 rows a stay, as a user would have them."""
    records = simulate(200)
    schema = replace(records.schema, name="stays", max_steps=5)
    records = replace(records, schema=schema).first_steps(5)
    write_records(records, folder / "stays.csv")
    write_schema(schema, folder / "stays.toml")
    return records


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with records, a home, and a private run that set 30 % of the patients aside."""
    folder = tmp_path_factory.mktemp("synthesize")
    made_up(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVET_HOME", str(folder / "home"))
        patch.chdir(folder)  # paths of the run are relative; it must be found from elsewhere
        code = run("synthesize", "fit", "autoregressive", "--data", "stays.csv",
                   "--schema", "stays.toml", "--epsilon", 3, "--holdout", 0.3, *TINY,
                   "--out", "run")  # fmt: skip
    assert code == 0
    return folder


@pytest.fixture
def at_home(place, monkeypatch):
    monkeypatch.setenv("PRIVET_HOME", str(place / "home"))
    return place


def refused(capfd, *arguments, code=2):
    """One line on stderr, none on stdout."""
    assert run(*arguments) == code
    told = capfd.readouterr()
    assert told.out == ""
    (line,) = [
        line for line in told.err.splitlines() if line and not line.startswith("privet: read")
    ]
    assert line.startswith("privet: ")
    return line


def test_a_private_fit_verifies_and_its_card_speaks_of_records(at_home, capfd):
    assert run("verify", at_home / "run") == 0
    capfd.readouterr()
    trust = card(at_home / "run")
    assert trust["method"] == "autoregressive"
    assert 2.99 < trust["privacy"][0]["epsilon"] <= 3.0
    assert trust["privacy"][0]["unit"] == "patient"
    assert (trust["data"]["nominal_size"], trust["data"]["grouped"]) == (140, True)
    report = (at_home / "run" / "report.html").read_text()
    assert "sinus tachycardia" in report
    assert "Truth of single records" in report
    for foreign in ("accuracy is published", "Certified robustness", "shape of one example"):
        assert foreign not in report


def test_what_reading_did_is_told_and_a_run_without_privacy_verifies(tmp_path, capfd):
    made_up(tmp_path)
    header, *rows = (tmp_path / "stays.csv").read_text().splitlines()
    places = header.split(",")
    high = rows[3].split(",")
    high[places.index("sbp")] = "999"
    first = [row for row in rows if row.startswith(rows[0].split(",")[0] + ",")]
    assert len(first) > 1
    rows = [*reversed(first), *rows[len(first) :], rows[-1]]
    rows[3 if len(first) <= 3 else 0] = ",".join(high)
    (tmp_path / "stays.csv").write_text("\n".join([header, *rows, ""]))
    code = run("synthesize", "fit", "autoregressive", "--data", tmp_path / "stays.csv", "--schema",
               tmp_path / "stays.toml", "--analysis", "none", *TINY, "--out", tmp_path / "run",
               "--json")  # fmt: skip
    assert code == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["withheld"]
    assert "of 200 patients" in told.err
    assert "dropped: 1 rows" in told.err
    assert "sorted: " in told.err
    assert "nearest bound: sbp 1" in told.err
    assert run("verify", tmp_path / "run") == 0
    assert "proves no privacy" in capfd.readouterr().out


def sample(place, *more):
    return run("synthesize", "sample", place / "run", *more)


def test_samples_are_read_back_in_the_columns_of_the_input(place, tmp_path, capfd):
    assert sample(place, "--n", 40, "--seed", 3, "--out", tmp_path / "new" / "s.csv") == 0
    assert "wrote 40 stays" in capfd.readouterr().out
    files = (place / "stays.csv", tmp_path / "new" / "s.csv")
    real, made = (file.read_text().splitlines()[0] for file in files)
    assert made == real
    records = read_records(tmp_path / "new/s.csv", read_schema(place / "stays.toml"))
    assert records.stays.tolist() == [str(k) for k in range(1, 41)]
    assert sample(place, "--n", 40, "--seed", 3, "--out", tmp_path / "again.csv") == 0
    assert sha256(tmp_path / "again.csv") == sha256(tmp_path / "new" / "s.csv")


def test_conditions_are_met_and_the_draws_counted(place, tmp_path, capfd):
    conditions = ("--where", "age>=60", "--where", "disposition=home")
    assert sample(place, "--n", 30, *conditions, "--out", tmp_path / "s.parquet", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["stays"], told["format"]) == (30, "parquet")
    assert told["tried"] > told["kept"] >= 30
    assert told["begun"] > told["let_in"] >= told["tried"]
    schema = read_schema(place / "stays.toml")
    records = read_records(tmp_path / "s.parquet", schema, keep_duplicates=True)
    names = [feature.name for feature in schema.static]
    assert (records.static[:, names.index("age")] >= 60).all()
    assert (records.outcomes[:, 0] == 0).all()


def test_many_are_written_part_after_part(place, tmp_path, monkeypatch, capfd):
    from privet.data.records.writing import RecordWriter
    from privet.synthesis import sampling

    sizes, write = [], RecordWriter.write
    monkeypatch.setattr(sampling, "CHUNK", 10)
    monkeypatch.setattr(
        RecordWriter, "write", lambda self, part: (sizes.append(len(part)), write(self, part))
    )
    assert sample(place, "--n", 25, "--out", tmp_path / "s.csv") == 0
    assert sizes == [10, 10, 5]
    made = read_records(tmp_path / "s.csv", read_schema(place / "stays.toml"), keep_duplicates=True)
    assert len(set(made.patients.tolist())) == 25


def test_a_broken_off_sample_leaves_nothing(place, tmp_path, monkeypatch, capfd):
    from privet.synthesis import sampling

    drawn, left = sampling.Sampler.drawn, [True]

    def break_off(self, n):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return drawn(self, n)

    monkeypatch.setattr(sampling, "CHUNK", 10)
    monkeypatch.setattr(sampling.Sampler, "drawn", break_off)
    (tmp_path / "out").mkdir()
    assert sample(place, "--n", 25, "--out", tmp_path / "out" / "s.csv") == 130
    assert list((tmp_path / "out").iterdir()) == []


def test_a_release_that_was_changed_makes_nothing(place, tmp_path, capfd):
    shutil.copytree(place / "run", tmp_path / "run")
    changed = tmp_path / "run"
    config = (changed / "config.json").read_text()
    (changed / "config.json").write_text(config.replace('"sbp"', '"zbp"').replace("250", "251"))
    assert sample(tmp_path, "--n", 5, "--out", tmp_path / "s.csv") == 2
    assert "was changed after it was made" in capfd.readouterr().err
    assert not (tmp_path / "s.csv").exists()


def test_omop_tables(place, tmp_path, capfd):
    assert sample(place, "--n", 12, "--format", "omop", "--out", tmp_path / "tables") == 0
    persons = (tmp_path / "tables" / "person.csv").read_text().splitlines()
    assert len(persons) == 13


BAD_SAMPLES = {
    "a file that is there": (("--out", "stays.csv"), "the file exists"),
    "an ending that says nothing": (("--out", "s.txt"), "does not tell the format"),
    "a format that nobody knows": (("--format", "xls", "--out", "s.csv"), "unknown format"),
    "a format that the name denies": (("--format", "omop", "--out", "s.csv"), "does not fit"),
    "nothing to make": (("--n", 0, "--out", "s.csv"), "bad number of records"),
    "an unknown column": (("--where", "agee>=60", "--out", "s.csv"), "no such column"),
    "a value that cannot be": (("--where", "age>=600", "--out", "s.csv"), "cannot be met"),
    "a temporal column": (("--where", "sbp>=60", "--out", "s.csv"), "static columns and outcomes"),
    "a place in the release": (("--out", "run/s.csv"), "a release is in that folder"),
    "a layout that nobody knows": (("--layout", "tall", "--out", "s.csv"), "unknown layout"),
    "a layout of tables": (("--layout", "long", "--format", "omop", "--out", "t"), "of its own"),
}


@pytest.mark.parametrize("case", BAD_SAMPLES)
def test_bad_samples_are_refused_in_one_line(case, place, capfd, monkeypatch):
    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    arguments, words = BAD_SAMPLES[case]
    assert words in refused(capfd, "synthesize", "sample", "run", *arguments)
    assert sorted(place.iterdir()) == before


BAD_FITS = {
    "no target": ((), "no privacy target"),
    "a file alone": (("--data", "stays.csv", "--epsilon", 1), "--schema"),
    "an unknown source": (("--data", "simulater", "--epsilon", 1), "did you mean 'simulator'"),
    "no such file": (("--data", "no.csv", "--schema", "stays.toml", "--epsilon", 1), "no.csv"),
    "no such schema": (("--data", "stays.csv", "--schema", "no.toml", "--epsilon", 1), "no.toml"),
    "a schema for a named source": (("--schema", "stays.toml", "--epsilon", 1), "of its own"),
    "a bad delta": (("--delta", 2, "--epsilon", 1), "delta"),
    "a setting that cannot be, before anything is read": (
        ("--data", "no.csv", "--schema", "no.toml", "--epsilon", 1, "--holdout", 2),
        "bad holdout",
    ),
    "an unknown method": (("--epsilon", 1), "did you mean 'autoregressive'"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_fits_are_refused_before_anything_is_made(case, place, capfd, monkeypatch):
    monkeypatch.chdir(place)
    arguments, words = BAD_FITS[case]
    method = "autoregresive" if case == "an unknown method" else "autoregressive"
    line = refused(capfd, "synthesize", "fit", method, *arguments, "--out", "new")
    assert words in line
    assert not (place / "new").exists()


def test_verbs_for_classifiers_refuse_a_generator(at_home, capfd):
    release = at_home / "run"
    assert "makes records" in refused(capfd, "attack", release, "--sizes", "0.1")
    assert "makes records" in refused(capfd, "certify", release, "--scale", 0.1)
    poisoned = refused(capfd, "certify", release, "--threat", "poisoning", "--records", 1)
    assert "makes records" in poisoned
    assert "synthesize fit --canaries 5000" in refused(capfd, "audit", release)
    assert "makes records" in refused(capfd, "audit", release, "--membership")


def test_a_classifier_makes_no_records(make_data, tmp_path, capfd):
    from privet import train

    train("plain", make_data(), epochs=1, model="linear", out=tmp_path / "run")
    line = refused(capfd, "synthesize", "sample", tmp_path / "run", "--out", tmp_path / "s.csv")
    assert "makes no records" in line
    assert "makes no records" in refused(capfd, "synthesize", "evaluate", tmp_path / "run")


def evaluate(folder, *more):
    return run("synthesize", "evaluate", folder, "--measures", "timing", *more)


def test_figures_of_fidelity_stay_inside_and_divide_as_the_run_did(at_home, capfd):
    release = at_home / "run"
    before = {name: sha256(release / name) for name in RELEASED_FILES}
    assert evaluate(release) == 0  # of its own records, from another folder than it was begun in
    told = capfd.readouterr()
    assert "time between rows" in told.out
    assert "not for release" in told.err
    kept = json.loads((release / "internal" / "fidelity.json").read_text())
    whole = read_records(at_home / "stays.csv", read_schema(at_home / "stays.toml"))
    train, test = parted(whole, 0.3)
    expected = {"train": len(train), "test": len(test), "synthetic": len(train)}
    assert {name: kept["stays"][name] for name in expected} == expected
    assert kept["cautions"] == []  # the ledger knows the run, and its records
    page = release / "internal" / "fidelity.html"
    assert page.stat().st_mode & 0o077 == 0
    assert {name: sha256(release / name) for name in RELEASED_FILES} == before
    assert run("verify", release) == 0


def test_an_exported_release_takes_no_figures(at_home, tmp_path, capfd):
    assert run("export", at_home / "run", tmp_path / "out") == 0
    capfd.readouterr()
    assert "have no place here" in refused(capfd, "synthesize", "evaluate", tmp_path / "out")
    line = refused(capfd, "synthesize", "evaluate", tmp_path / "out", "--out", tmp_path / "figures")
    assert "--real" in line
    line = refused(capfd, "synthesize", "evaluate", at_home / "run", "--out", tmp_path / "out")
    assert "a release is in that folder" in line
    real = ("--real", at_home / "stays.csv")  # under the release's own schema
    assert evaluate(tmp_path / "out", *real, "--out", tmp_path / "figures", "--json") == 0
    assert json.loads(capfd.readouterr().out)["holdout"] == 0.3
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        "fidelity.json",
        "fidelity.html",
    }


def test_other_records_or_another_division_are_called_so(at_home, tmp_path, capfd):
    header, *rows = (at_home / "stays.csv").read_text().splitlines()
    (tmp_path / "fewer.csv").write_text("\n".join([header, *rows[20:], ""]))
    release, out = at_home / "run", ("--out", tmp_path / "figures")
    assert evaluate(release, "--real", tmp_path / "fewer.csv", *out, "--json") == 0
    (caution,) = json.loads(capfd.readouterr().out)["cautions"]
    assert "nobody could check" in caution
    line = refused(capfd, "synthesize", "evaluate", release, "--holdout", 0.1)
    assert "expected 0.3" in line


def test_a_run_that_set_nobody_aside_is_called_so(at_home, tmp_path, capfd, monkeypatch):
    folder, trust = tmp_path / "run", card(at_home / "run")
    trust["provenance"]["config"]["holdout"] = 0.0
    folder.mkdir()
    for name in RELEASED_FILES:
        (folder / name).write_bytes((at_home / "run" / name).read_bytes())
    (folder / "trust.json").write_text(json.dumps(trust))
    files = {name: sha256(folder / name) for name in RELEASED_FILES}
    written = json.loads((at_home / "run" / "manifest.json").read_text()) | {"files": files}
    (folder / "manifest.json").write_text(json.dumps(written))
    real = ("--real", at_home / "stays.csv", "--out", tmp_path / "figures", "--json")
    assert evaluate(folder, *real) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["holdout"] == 0.2
    assert "set no patients aside" in found["cautions"][0]


def test_a_file_of_synthetic_records_is_evaluated_as_it_is(at_home, tmp_path, capfd):
    """Real records in the place of synthetic ones are as near as the yardstick says."""
    real, out = at_home / "stays.csv", ("--out", tmp_path / "figures")
    assert evaluate(at_home / "run", "--synthetic", real, *out, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["stays"]["synthetic"] == found["stays"]["train"] + found["stays"]["test"]
    (rows,) = [row for row in found["summary"] if row["unit"] == "rows"]
    assert rows["synthetic"] < 0.3
    line = refused(capfd, "synthesize", "evaluate", at_home / "run", "--synthetic", real, "--n", 3)
    assert "leave --n out" in line


def draft(place, out, *more):
    return (
        *("synthesize", "schema", place / "stays.csv", "--patient", "subject_id"),
        *("--stay", "stay_id", "--time", "minutes", "--outcomes", "disposition=home,admitted,died"),
        *("--static-columns", "age=18:95:0", "gender=F,M", "--constraints", "sbp>=dbp"),
        *("--max-steps", 5, "--out", out, *more),
    )


def test_a_drafted_schema_reads_the_records(place, tmp_path, capfd):
    out = tmp_path / "mine.toml"
    columns = ("--temporal", "heartrate=30:190:0", "sbp=50:230:0", "dbp=30:140:0")
    assert run(*draft(place, out, *columns, "--nominal-size", 200)) == 0
    told = capfd.readouterr()
    assert "not declared, so not read: temperature" in told.err
    schema = read_schema(out)
    assert [f.name for f in schema.features] == [
        "age", "gender", "heartrate", "sbp", "dbp", "disposition",
    ]  # fmt: skip
    records = read_records(place / "stays.csv", schema)
    whole = read_records(place / "stays.csv", read_schema(place / "stays.toml"))
    assert (len(records), records.static[:, 0].tolist()) == (
        len(whole), whole.static[:, 0].tolist(),
    )  # fmt: skip
    line = refused(capfd, *draft(place, out, *columns, "--nominal-size", 200))
    assert "the schema file exists" in line


def test_facts_left_out_are_learned_and_charged(place, tmp_path, capfd):
    out, columns = tmp_path / "mine.toml", ("--temporal", "heartrate", "sbp=50:230", "dbp=30:140")
    line = refused(capfd, *draft(place, out, *columns))
    assert "heartrate, the number of patients" in line
    assert run(*draft(place, out, *columns, "--learn-epsilon", 4)) == 0
    told = capfd.readouterr().out
    schema = read_schema(out)
    assert [fact.epsilon for fact in schema.learned] == [2.0, 2.0]
    assert "learned bounds of heartrate: epsilon 2 charged" in told
    assert abs(schema.nominal_size - 200) < 15
    assert (schema.feature("heartrate").low, schema.feature("heartrate").high) != (0.0, 1.0)
    assert run("ledger", "show", "stays", "--json") == 0
    (account,) = json.loads(capfd.readouterr().out)
    assert account["unit"] == "patient"
    charged = [(r["charged"], r["step_event"]["noise_multiplier"]) for r in account["runs"]]
    assert charged == [(1, 0.5), (1, 0.5)]
    known = ("--temporal", "sbp=50:230", "dbp=30:140", "--nominal-size", 200, "--learn-epsilon", 1)
    assert "nothing is left to learn" in refused(capfd, *draft(place, tmp_path / "no.toml", *known))
    assert not (tmp_path / "no.toml").exists()


def test_lists(capfd, tmp_path):
    assert run("synthesize", "sources", "--json") == 0
    listed = {entry["name"]: entry for entry in json.loads(capfd.readouterr().out)}
    assert listed["simulator"]["where"] == "embedded"
    assert {"physionet2012", "mimic-iv-ed-demo", "eicu-demo"} <= set(listed)
    assert run("synthesize", "methods", "--json") == 0
    methods = {method["name"]: method for method in json.loads(capfd.readouterr().out)}
    assert set(methods) == {"autoregressive", "vae", "gan", "vaegan", "aae", "daae", "igamt"}
    assert set(methods["autoregressive"]["promises"]) == {"sound", "none"}
    assert set(methods["igamt"]["promises"]) == {"sound", "paper", "none"}


def test_the_command_line_offers_every_setting_that_is_not_about_images():
    offered = {field.name for field in fields(GeneratingOptions)}
    sound = METHODS["autoregressive"].under(None)
    about_images = {name for name in sound.options if name.startswith("adversarial")} | IMAGES
    assert offered == set(sound.options) - {"epsilon", "delta"} - about_images


def test_the_command_line_offers_every_setting_of_what_is_published():
    offered = {field.name for field in fields(GeneratingOptions)}
    further = {field.name for field in fields(PublishedOptions)}
    paper = METHODS["igamt"].under("paper")
    about_images = {name for name in paper.options if name.startswith("adversarial")} | IMAGES
    assert further == set(paper.options) - offered - {"epsilon", "delta"} - about_images
    defaults = {field.name: field.default for field in fields(paper.settings)}
    said = re.findall(
        r"(?m)^    (\w+)\n(?:        .*\n)*?.*default (\d[\d.]*\d|\d)", PublishedOptions.__doc__
    )
    assert len(said) == 4
    assert {name: float(number) for name, number in said} == {n: defaults[n] for n, _ in said}


def test_the_command_line_offers_every_setting_of_the_family():
    options = (GeneratingOptions, FamilyOptions)
    offered = {field.name for kind in options for field in fields(kind)} | {"without"}
    of_rows = {"static_weight", "habit_weight", "row_weight", "outcome_weight"}
    for name in FAMILY:
        sound = METHODS[name].under(None)
        about_images = {one for one in sound.options if one.startswith("adversarial")} | IMAGES
        assert offered - of_rows == set(sound.options) - {"epsilon", "delta"} - about_images


def test_the_defaults_in_the_help_are_the_family_s_own():
    said = dict(re.findall(r"(?m)^    (\w+)\n((?:        .*\n)+)", FamilyOptions.__doc__))
    found = {name: re.search(r"default (\d[\d.]*\d|\d)", text) for name, text in said.items()}
    told = {name: float(match[1]) for name, match in found.items()}
    own = {field.name: field.default for field in fields(METHODS["igamt"].under(None).settings)}
    assert told == {name: own[name] for name in told}
    said = dict(re.findall(r"(?m)^    (\w+)\n((?:        .*\n)+)", GeneratingOptions.__doc__))
    rate = re.search(r"its\s+baselines ([\d.]*\d)", said["learning_rate"])[1]
    assert float(rate) == own["learning_rate"]
    assert f"default {own['epochs']:g};" in said["epochs"]


def test_the_defaults_in_the_help_are_the_methods_own():
    said = dict(re.findall(r"(?m)^    (\w+)\n((?:        .*\n)+)", GeneratingOptions.__doc__))
    stated = {None: r"[Dd]efault (\d[\d.]*\d|\d)", "none": r"without\s+privacy (\d[\d.]*\d|\d)"}
    numbers = {
        analysis: {name: float(m[1]) for name, text in said.items() if (m := re.search(form, text))}
        for analysis, form in stated.items()
    }
    weights = {"static_weight", "habit_weight", "outcome_weight"}
    assert set(numbers["none"]) == {"epochs", "batch", "learning_rate", "ema"} | weights
    assert len(numbers[None]) == 15
    numbers["none"] = numbers[None] | numbers["none"]
    for analysis, told in numbers.items():
        own = METHODS["autoregressive"].under(analysis).settings
        defaults = {field.name: field.default for field in fields(own)}
        shared = [name for name in told if defaults.get(name) is not None]
        assert {name: told[name] for name in shared} == {name: defaults[name] for name in shared}


def test_given_options_reach_the_method():
    command = ["synthesize", "fit", "autoregressive", "--epsilon", "3", "--out", "x",
               "--no-keep-keys", "--row-weight", "0.5", "--holdout", "0.2"]  # fmt: skip
    _, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
    assert bound.arguments["options"].given() == {
        "keep_keys": False,
        "row_weight": 0.5,
        "holdout": 0.2,
    }


def killed(folder, home, *arguments, after_steps):
    """Kill -9 once so many updates are in the journal."""
    process = start(arguments, home)
    journal, deadline = folder / "internal" / "steps.log", time.monotonic() + 120
    while time.monotonic() < deadline:
        if journal.exists() and journal.read_text().count("\n") >= after_steps:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "manifest.json").exists()


def test_a_killed_fit_goes_on_to_the_same_result(place, tmp_path, monkeypatch):
    """With known noise, an undisturbed run is the oracle: the weights are equal bit for bit."""
    settings = ("--data", place / "stays.csv", "--schema", place / "stays.toml", "--epsilon", 3,
                "--holdout", 0.3, "--model", "rows-16-0", "--epochs", 20, "--sampler",
                "fixed-batches", "--noise-seed", 7, "--checkpoint-every", 20)  # fmt: skip
    fit = ("synthesize", "fit", "autoregressive", *settings)
    killed(tmp_path / "run", tmp_path / "a", *fit, "--out", tmp_path / "run", after_steps=30)
    resumed = privet("resume", tmp_path / "run", "--json", home=tmp_path / "a")
    assert resumed.code == 0, resumed.err
    assert resumed.json["mechanism"]["redone_steps"] == 0
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path / "b"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other process: sums are rounded in the same order
    try:
        assert run(*fit, "--out", tmp_path / "whole") == 0
    finally:
        torch.set_num_threads(threads)
    one, other = (
        safetensors.torch.load_file(tmp_path / name / "weights.safetensors")
        for name in ("run", "whole")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def interrupted(tmp_path, monkeypatch, capfd):
    """A run without privacy that stopped after 3 of 6 steps, and its records beside it."""
    from privet.commands import synthesize

    @contextlib.contextmanager
    def interrupting(**_):
        def stop(trainer):
            if trainer.next_step == 3:
                raise KeyboardInterrupt

        yield stop

    made_up(tmp_path)
    monkeypatch.setattr(synthesize, "step_bar", interrupting)
    fit = ("synthesize", "fit", "autoregressive", "--data", tmp_path / "stays.csv", "--schema",
           tmp_path / "stays.toml", "--analysis", "none", "--model", "rows-16-0", "--epochs", 6,
           "--checkpoint-every", 1, "--out", tmp_path / "run")  # fmt: skip
    assert run(*fit) == 130
    capfd.readouterr()
    return tmp_path


def test_an_interrupted_run_without_privacy_goes_on_too(interrupted, capfd):
    folder = interrupted / "run"
    line = refused(capfd, "synthesize", "sample", folder, "--out", interrupted / "s.csv")
    assert "the run is unfinished" in line
    assert run("resume", folder, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["mechanism"]["steps"], told["mechanism"]["steps_run"]) == (6, 6)
    assert run("verify", folder) == 0


def test_a_run_is_not_continued_on_records_that_changed(interrupted, capfd):
    lines = (interrupted / "stays.csv").read_text().splitlines()
    (interrupted / "stays.csv").write_text("\n".join([*lines[:-1], ""]))
    assert "changed" in refused(capfd, "resume", interrupted / "run")


def test_from_python():
    import privet as library
    from privet.synthesis import evaluation, fitting, sampling

    assert library.synthesis.fit is fitting.fit
    assert library.synthesis.sample is sampling.sample
    assert library.synthesis.evaluate is evaluation.evaluate
    assert library.data.records.load_records("simulator").schema.name == "simulator"
    with pytest.raises(AttributeError, match="no attribute 'fidelity'"):
        library.synthesis.fidelity  # noqa: B018


def test_notes_of_reading_leave_out_what_did_not_happen():
    notes = ReadingNotes(
        rows=5, patients=2, stays=3, unsorted=1, outside={"hr": 0, "sbp": 2},
        done={"rows merged into another": 4, "values replaced": 0},
    )  # fmt: skip
    assert list(noted(notes)) == [
        "read 5 rows of 3 stays of 2 patients",
        "sorted: 1 rows stood behind a later one of their stay",
        "outside the declared bounds, counted as the nearest bound: sbp 2",
        "rows merged into another: 4",
    ]
