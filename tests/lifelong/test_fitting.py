"""Whole streams: versions that verify, what the ledger is charged, and going on after a crash."""

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from small_streams import QUICK, small_data, small_stream

from privet.certification.poisoned_release import training_curve
from privet.errors import BudgetExceeded, CheckFailed, InputError
from privet.files import read_json
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.lifelong import objective, private
from privet.lifelong.fitting import WAYS, all_at_once, extend, find_way, fit
from privet.lifelong.lifetime import Lifetime
from privet.privacy.accounting import epsilon_of
from privet.release import Release
from privet.reports.recomputing import curves_of
from privet.training import unprotected
from privet.training.run_folder import RunFolder
from privet.verification import verify

TARGET = {"epsilon": 3.0, "delta": 1e-5}
NEAR = {"horizon": 3}  # the accountant has less to compose


REMEMBERING = (("l2dp", "sound"), ("er", "sound"))


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def weights(folder, number):
    model = Release.load(folder / "versions" / f"{number:02d}").model
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(("method", "analysis"), list(WAYS), ids=[f"{m}-{a}" for m, a in WAYS])
def test_every_method_leaves_versions_that_verify(tmp_path, ledger, method, analysis):
    out, stream = tmp_path / "life", small_stream(2)
    near = NEAR if (method, analysis) in REMEMBERING else {}
    options = {**(TARGET if analysis == "sound" else {}), **near, **QUICK}
    if analysis == "paper":
        stream, options = images(2, shared=False), {"epsilon": 3.0, "epochs": 1.0}
    scores = fit(method, stream, out=out, ledger=ledger, analysis=analysis, **options)
    versions = sorted((out / "versions").iterdir())
    assert len(versions) == (1 if method == "joint" else 2)
    assert len(scores.average_accuracy) == len(versions)
    for version in versions:
        found = verify(version, ledger=ledger)
        assert found.ok, [f.detail for f in found.findings if not f.ok]
        trust = read_json(version / "trust.json")
        assert trust["method"] == method
        if analysis == "sound":
            assert trust["privacy"][0]["epsilon"] <= 3.0 * (1 + 1e-3)


@pytest.mark.parametrize("shared", [False, True])
def test_objectives_cost_what_one_look_costs(tmp_path, ledger, shared):
    out = tmp_path / "life"
    options = {"features": 16, "memory": "objective", **TARGET}
    fit("l2dp", images(3, shared=shared), out=out, ledger=ledger, **options)
    for number in (1, 2, 3):
        version = out / "versions" / f"{number:02d}"
        assert verify(version, ledger=ledger).ok
        trust = read_json(version / "trust.json")
        multiplier = trust["mechanism"]["noise_multiplier"]
        looks = 3 if shared else 1  # all that are planned, from the first version on
        exact = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(
            multiplier / np.sqrt(looks)
        ).get_epsilon_for_delta(1e-5)
        assert trust["privacy"][0]["epsilon"] == pytest.approx(exact, rel=1e-3)


def images(tasks, *, shared):
    from privet.lifelong.tasks import load_stream

    return load_stream("permuted-digits", n_tasks=tasks, records=60, shared=shared)


def test_the_ledger_has_the_steps_and_the_memory_of_every_task(tmp_path, ledger):
    out = tmp_path / "life"
    fit("l2dp", small_stream(3), out=out, ledger=ledger, horizon=3, **TARGET, **QUICK)
    for number, reads in ((1, 2), (2, 1), (3, 0)):
        account = ledger.account(f"made-up/{number}")
        own = [run for run in account.runs if "memory" not in run.label]
        memory = [run for run in account.runs if "memory" in run.label]
        assert [(run.charged, run.planned, run.status) for run in own] == [(6, 6, "settled")]
        assert len(memory) == (1 if reads else 0)
        for run in memory:
            assert (run.charged, run.status) == (1, "settled")
            assert run.step_event.sampling_probability == 0.2
            inside = run.step_event.event.events
            assert sum(part.count for part in inside) == 6 * reads


def test_a_cap_has_room_for_a_lifetime_or_refuses_before_anything_is_learned(tmp_path, ledger):
    stream = small_stream(2)
    ledger.open_account("made-up/1")
    ledger.cap("made-up/1", 0.5, 1e-5)
    with pytest.raises(BudgetExceeded):
        fit("l2dp", stream, out=tmp_path / "a", ledger=ledger, **NEAR, **TARGET, **QUICK)
    assert not list((tmp_path / "a").glob("versions/*/manifest.json"))
    ledger.cap("made-up/1", 60.0, 1e-5)
    fit("l2dp", stream, out=tmp_path / "b", ledger=ledger, **NEAR, **TARGET, **QUICK)
    assert 0.5 < ledger.account("made-up/1").spent_epsilon < 60


class Killed(BaseException):
    """Stands for a process that dies."""


CHECKPOINTS = {"l2dp": "save_checkpoint", "agem": "save", "objective": "save_checkpoint"}
"""What writes the first one."""


@pytest.mark.parametrize("method", ["l2dp", "agem", "objective"])
@pytest.mark.parametrize("where", ["build_of_the_model", "first_checkpoint"])
def test_a_task_that_was_killed_before_its_first_step_begins_anew(
    tmp_path, ledger, monkeypatch, method, where
):
    """Its reservations are given back; nothing has to be deleted by hand."""
    way = {"l2dp": private, "agem": unprotected, "objective": objective}[method]
    name = {"l2dp": "model_and_optimizer", "objective": "build"}.get(method, "_entered")
    name = name if where == "build_of_the_model" else CHECKPOINTS[method]
    real, calls = getattr(way, name), []

    def dies(*args, **options):
        calls.append(1)
        if len(calls) == 2:  # of the second task
            raise Killed
        return real(*args, **options)

    stream, options = small_stream(2), {**NEAR, **TARGET, **QUICK}
    if method == "agem":
        options = QUICK
    if method == "objective":
        stream, options = images(2, shared=False), {"memory": "objective", "features": 16, **TARGET}
    out, named = tmp_path / "life", method if method == "agem" else "l2dp"
    monkeypatch.setattr(way, name, dies)
    with pytest.raises(Killed):
        fit(named, stream, out=out, ledger=ledger, **options)
    extend(out, stream=stream, ledger=ledger)
    assert verify(out / "versions" / "02", ledger=ledger).ok
    runs = ledger.account(stream.tasks[1].data.name).runs
    assert all(run.status == "settled" for run in runs)
    assert len({run.charged for run in runs if run.charged > 0 and "memory" not in run.label}) == 1


def test_two_processes_do_not_learn_one_stream(tmp_path, ledger):
    out = tmp_path / "life"
    fit("agem", small_stream(1), out=out, ledger=ledger, **QUICK)
    with (
        RunFolder(out).locked(),
        pytest.raises(InputError, match="another process is running"),
    ):
        extend(out, stream=small_stream(2), ledger=ledger)


@pytest.mark.parametrize("method", ["l2dp", "ewc", "er"])
def test_a_killed_task_goes_on_bit_for_bit(tmp_path, ledger, method):
    def killed_at(count):
        seen = [0]

        def watch(_):
            seen[0] += 1
            if seen[0] == count:
                raise Killed

        return watch

    options = {"noise_seed": 5, "checkpoint_every": 2, **NEAR, **TARGET, **QUICK}
    fit(method, small_stream(3), out=tmp_path / "whole", ledger=ledger, **options)
    with pytest.raises(Killed):
        fit(method, small_stream(3, name="again"), out=tmp_path / "cut", ledger=ledger,
            watch=killed_at(10), **options)  # fmt: skip
    assert (tmp_path / "cut" / "versions" / "01" / "manifest.json").exists()
    extend(tmp_path / "cut", stream=small_stream(3, name="again"), ledger=ledger)
    for number in (1, 2, 3):
        same = torch.equal(weights(tmp_path / "cut", number), weights(tmp_path / "whole", number))
        assert same, number


def test_the_memory_is_not_read_twice_in_two_ways(tmp_path, ledger):
    """A journal that tells of another reading stops the run."""

    def die(trainer):
        if trainer.next_step == 3 and (tmp_path / "life" / "versions" / "02").exists():
            raise Killed

    options = {"checkpoint_every": 100, **NEAR, **TARGET, **QUICK}
    with pytest.raises(Killed):
        fit("l2dp", small_stream(2), out=tmp_path / "life", ledger=ledger, watch=die, **options)
    journal = tmp_path / "life" / "versions" / "02" / "internal" / "recalled.log"
    lines = journal.read_text().splitlines()
    assert len(lines) == 3
    journal.write_text("\n".join(["0 " + "0" * 32, *lines[1:]]) + "\n")
    with pytest.raises(CheckFailed, match="the memory was read before"):
        extend(tmp_path / "life", stream=small_stream(2), ledger=ledger)


def test_a_journal_of_readings_that_lacks_one_stops_the_run(tmp_path, ledger):
    """Without it another reading would pass for the first, and be paid by nobody."""
    out = tmp_path / "life"

    def die(trainer):
        if trainer.next_step == 3 and (out / "versions" / "02").exists():
            raise Killed

    options = {"checkpoint_every": 100, **NEAR, **TARGET, **QUICK}
    with pytest.raises(Killed):
        fit("l2dp", small_stream(2), out=out, ledger=ledger, watch=die, **options)
    journal = out / "versions" / "02" / "internal" / "recalled.log"
    kept = journal.read_text()
    for left in (kept.partition("\n")[2], ""):
        journal.write_text(left)
        with pytest.raises(InputError, match="the journal lacks a step that was done"):
            extend(out, stream=small_stream(2), ledger=ledger)
    # Of the last step that was charged nothing may have been read when the run was killed.
    journal.write_text("".join(kept.splitlines(keepends=True)[:2]))
    extend(out, stream=small_stream(2), ledger=ledger)
    assert verify(out / "versions" / "02", ledger=ledger).ok


def test_a_task_reads_what_earlier_ones_left_by_keys_that_nothing_else_uses(
    tmp_path, ledger, monkeypatch
):
    """Of its own task nothing is read, as nothing of that is counted; and each sample is its own.

    With the keys of the task's own steps a unit that is in both would be drawn for both at once.
    """
    read, made, memory_of, assemble = [], [], private.memory_of, private.assemble

    def noted(stream, kept, *, chance):
        read.append(kept)
        return memory_of(stream, kept, chance=chance)

    def assembled(*args, **named):
        made.append(assemble(*args, **named))
        return made[-1]

    monkeypatch.setattr(private, "memory_of", noted)
    monkeypatch.setattr(private, "assemble", assembled)
    stream = small_stream(3)
    fit("l2dp", stream, out=tmp_path / "life", ledger=ledger, **NEAR, **TARGET, **QUICK)
    assert [len(kept) for kept in read] == [1, 2]
    for kept in read:
        for one, task in zip(kept, stream, strict=False):
            records = {tuple(row) for row in task.data.train.x.tolist()}
            assert 0 < len(one.x) < len(records)
            assert {tuple(row) for row in one.x.tolist()} <= records
    assert len(made) == 5  # three tasks' own steps, and two that read
    streams = [s for t in made for s in (t.randomness.sampling, t.randomness.noise)]
    assert len({stream.key for stream in streams}) == 10


def test_a_task_more_changes_no_version_that_is_there(tmp_path, ledger):
    out = tmp_path / "life"
    fit("l2dp", small_stream(2), out=out, ledger=ledger, **NEAR, **TARGET, **QUICK)
    before = {p.name: (p / "manifest.json").read_bytes() for p in (out / "versions").iterdir()}
    stated = read_json(out / "versions" / "02" / "trust.json")["privacy"][0]["epsilon"]
    extend(out, stream=small_stream(3), ledger=ledger)
    after = {p.name: (p / "manifest.json").read_bytes() for p in (out / "versions").iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) == {"01", "02", "03"}
    new = read_json(out / "versions" / "03" / "trust.json")
    assert new["privacy"][0]["epsilon"] == pytest.approx(stated, rel=1e-6)
    assert verify(out / "versions" / "03", ledger=ledger).ok


def test_another_cut_of_the_records_is_refused(tmp_path, ledger):
    out = tmp_path / "life"
    fit("l2dp", small_stream(2), out=out, ledger=ledger, **NEAR, **TARGET, **QUICK)
    with pytest.raises(InputError, match="other records than when it was learned"):
        extend(out, stream=small_stream(3, n=50), ledger=ledger)


def test_a_shared_stream_does_not_grow(tmp_path, ledger):
    out = tmp_path / "life"
    fit("naive", small_stream(2, shared=True), out=out, ledger=ledger, **TARGET, **QUICK)
    with pytest.raises(InputError, match="planned for the tasks that were known"):
        extend(out, stream=small_stream(3, shared=True), ledger=ledger)


def test_a_shared_stream_pays_for_every_task(tmp_path, ledger):
    costs = {}
    for shared in (False, True):
        out = tmp_path / f"life-{shared}"
        stream = small_stream(3, shared=shared, name=f"s{shared}")
        fit("l2dp", stream, out=out, ledger=ledger, **NEAR, **TARGET, **QUICK)
        trust = read_json(out / "versions" / "03" / "trust.json")
        costs[shared] = trust["mechanism"]["noise_multiplier"]
        assert trust["lifelong"]["shared"] is shared
    assert costs[True] > 1.3 * costs[False]


@pytest.fixture(scope="module")
def second_version(tmp_path_factory):
    """Made once, to be copied."""
    folder = tmp_path_factory.mktemp("stream")
    with closing(Ledger(folder / "ledger.db")) as opened:
        options = {**NEAR, **TARGET, **QUICK}
        fit("l2dp", small_stream(2), out=folder / "life", ledger=opened, **options)
    return folder / "life" / "versions" / "02"


def test_the_version_that_is_changed_below_holds_as_it_is(second_version):
    assert verify(second_version).ok


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda t: t["lifelong"]["tasks"][0].update(multiplier=9.0), "events match the lifetimes"),
        (lambda t: t["lifelong"]["recall"].update(admission=0.01), "events match the lifetimes"),
        (lambda t: t["lifelong"]["recall"].update(horizon=2), "events match the lifetimes"),
        (lambda t: t["mechanism"].update(noise_multiplier=9.0), "lifetimes match the mechanism"),
        (lambda t: t["provenance"]["config"].update(admission=0.9), "settings match the lifetimes"),
        (lambda t: t["provenance"]["config"].update(epsilon=0.1), "settings match the lifetimes"),
        (lambda t: t["privacy"][0].update(epsilon=0.5), "epsilon"),
    ],
)
def test_a_card_that_was_changed_is_found_out(tmp_path, second_version, change, finding):
    version = tmp_path / "changed"
    shutil.copytree(second_version, version)
    trust = read_json(version / "trust.json")
    change(trust)
    (version / "trust.json").write_text(json.dumps(trust))
    wrong = [f.check for f in verify(version).findings if not f.ok]
    assert any(check.startswith(finding) for check in wrong), wrong


def test_known_noise_gets_no_epsilon(tmp_path, ledger):
    out = tmp_path / "life"
    options = {"noise_seed": 1, **NEAR, **TARGET, **QUICK}
    fit("l2dp", small_stream(2), out=out, ledger=ledger, **options)
    trust = read_json(out / "versions" / "02" / "trust.json")
    assert trust["privacy"] == []
    assert "known seed" in trust["withheld"][0]
    events = {run.step_event for run in ledger.account("made-up/1").runs}
    assert events == {dp.NonPrivateDpEvent()}


def test_all_at_once_is_one_unit_an_image_where_tasks_share_them():
    whole = all_at_once(small_stream(3, shared=True))
    (task,) = whole.tasks
    assert len(task.data.train) == 180
    assert task.data.nominal_size == 60
    assert (np.bincount(task.data.train.units) == 3).all()
    apart = all_at_once(small_stream(3)).tasks[0].data
    assert apart.nominal_size == 180
    assert apart.train.units is None


@pytest.mark.parametrize(
    ("method", "analysis", "memory", "said"),
    [
        ("gem", None, "episodic", "unknown method"),
        ("agem", "sound", "episodic", "no such analysis"),
        ("er", None, "objective", "no memory of objectives"),
        ("l2dp", None, "holographic", "unknown memory"),
    ],
)
def test_what_there_is_not(method, analysis, memory, said):
    with pytest.raises(InputError, match=said):
        find_way(method, analysis, memory)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("l2dp", {}, "no privacy target"),
        ("agem", {"epsilon": 2.0}, "takes no target"),
        ("l2dp", {"epsilon": 2.0, "warp": 9}, "no such setting"),
        ("l2dp", {"epsilon": 2.0, "admission": 0.0}, "bad admission"),
        ("l2dp", {"epsilon": 2.0, "canaries": 10}, "independent noise"),
        ("l2dp", {"epsilon": 2.0, "horizon": 1}, "horizon is nearer"),
        ("l2dp", {"epsilon": -1.0}, "epsilon"),
        ("l2dp", {"epsilon": 2.0, "memory": "objective"}, "leave --memory out"),
    ],
)
def test_bad_wishes_are_refused_before_a_folder_is_made(tmp_path, ledger, method, options, said):
    with pytest.raises(InputError, match=said):
        fit(method, small_stream(2), out=tmp_path / "life", ledger=ledger, **options)
    assert not (tmp_path / "life").exists()
    assert ledger.names() == []


@pytest.mark.parametrize("method", ["naive", "agem"])
def test_what_is_refused_before_a_record_is_asked_leaves_no_folder(tmp_path, ledger, method):
    """Else the right setting would be refused after the wrong one: a stream is there already."""
    target = TARGET if method == "naive" else {}
    out = tmp_path / "life"
    with pytest.raises(InputError, match="unknown model"):
        fit(method, small_stream(1), out=out, ledger=ledger, model="nope", **target)
    assert not out.exists()
    assert ledger.names() == []
    fit(method, small_stream(1), out=out, ledger=ledger, **target, **QUICK)


@pytest.mark.parametrize(
    ("options", "said"), [({"model": "nope"}, "unknown model"), ({}, "the folder is not empty")]
)
def test_what_is_plain_is_refused_before_noise_is_looked_for(
    tmp_path, ledger, monkeypatch, options, said
):
    """To look for it takes many seconds, which nobody waits for a mistyped name."""
    monkeypatch.setattr(
        "privet.lifelong.planning.next_own", lambda *_: pytest.fail("the noise was looked for")
    )
    monkeypatch.setattr(
        "privet.lifelong.fitting.Way.lifetime", lambda *_: pytest.fail("the noise was looked for")
    )
    if not options:
        (tmp_path / "mine.txt").write_text("")
    out = tmp_path / "life" if options else tmp_path
    with pytest.raises(InputError, match=said):
        fit("l2dp", small_stream(2), out=out, ledger=ledger, **TARGET, **options)


def test_a_folder_that_is_taken_is_refused(tmp_path, ledger):
    fit("agem", small_stream(1), out=tmp_path / "life", ledger=ledger, **QUICK)
    with pytest.raises(InputError, match="a stream is there already"):
        fit("agem", small_stream(1), out=tmp_path / "life", ledger=ledger, **QUICK)
    with pytest.raises(InputError, match="no stream was begun"):
        extend(tmp_path / "nothing")


def test_facts_that_were_learned_are_refused_everywhere(tmp_path, ledger):
    from dataclasses import replace

    from privet.data.dataset import LearnedFact
    from privet.lifelong.stream import Stream, Task

    whole = small_stream(2)
    learned = replace(whole.tasks[1].data, learned=(LearnedFact(name="bounds", epsilon=5.0),))
    stream = Stream(
        name="made-up", tasks=(whole.tasks[0], Task(name="2", data=learned)), shared=False
    )
    for method, options in (("joint", QUICK), ("naive", QUICK), ("l2dp", {"memory": "objective"})):
        with pytest.raises(InputError, match="learned privately"):
            fit(method, stream, out=tmp_path / method, ledger=ledger, **TARGET, **options)
    fit("naive", small_stream(1), out=tmp_path / "life", ledger=ledger, **TARGET, **QUICK)
    with pytest.raises(InputError, match="learned privately"):
        extend(tmp_path / "life", stream=stream, ledger=ledger)


@pytest.mark.parametrize("method", ["l2dp", "naive"])
def test_every_version_of_a_shared_stream_states_the_whole_lifetime(tmp_path, ledger, method):
    out = tmp_path / "life"
    fit(method, small_stream(2, shared=True), out=out, ledger=ledger, **TARGET, **QUICK)
    stated = [
        read_json(out / "versions" / number / "trust.json")["privacy"][0]["epsilon"]
        for number in ("01", "02")
    ]
    assert stated[0] == pytest.approx(stated[1], rel=1e-9)
    assert stated[0] == pytest.approx(3.0, rel=1e-3)


def test_a_deleted_or_copied_task_does_not_read_the_memory_again(tmp_path, ledger):
    out, copied = tmp_path / "life", tmp_path / "copy"
    fit("l2dp", small_stream(1), out=out, ledger=ledger, **NEAR, **TARGET, **QUICK)
    shutil.copytree(out, copied)
    extend(out, stream=small_stream(2), ledger=ledger)
    shutil.rmtree(out / "versions" / "02")
    for folder in (out, copied):
        with pytest.raises(InputError, match="learned before, or begun"):
            extend(folder, stream=small_stream(2), ledger=ledger)


def test_other_identities_are_other_records(tmp_path, ledger):
    from privet.lifelong.stream import Stream, Task

    out, stream = tmp_path / "life", small_stream(2, shared=True)
    fit("naive", stream, out=out, ledger=ledger, **TARGET, **QUICK)
    renamed = tuple(
        Task(name=t.name, data=t.data, identities=t.identities[::-1].copy()) for t in stream
    )
    with pytest.raises(InputError, match="other records than when it was learned"):
        extend(out, stream=Stream(name="made-up", tasks=renamed, shared=True), ledger=ledger)


def test_a_card_that_hides_its_memory_is_found_out(tmp_path, second_version):
    version = tmp_path / "changed"
    shutil.copytree(second_version, version)
    trust = read_json(version / "trust.json")
    trust["lifelong"]["recall"] = None
    (version / "trust.json").write_text(json.dumps(trust))
    details = [f.detail for f in verify(version).findings if not f.ok]
    assert any("reads a memory" in detail for detail in details)


def unequal_stream():
    """Two tasks of different sizes, so that their steps differ at the same batch."""
    from privet.lifelong.stream import Stream, Task

    sizes = {1: 60, 2: 400}
    tasks = tuple(
        Task(name=f"{i}", data=small_data(f"unequal/{i}", n, i)) for i, n in sizes.items()
    )
    return Stream(name="unequal", tasks=tasks, shared=False)


def test_where_tasks_differ_nothing_is_read_off_the_lifetime_of_some(tmp_path, ledger):
    """The costliest for add/remove at one delta: of replaced units another task pays more."""
    out = tmp_path / "life"
    fit("naive", unequal_stream(), out=out, ledger=ledger, **TARGET, **QUICK)
    trusts = [read_json(out / "versions" / number / "trust.json") for number in ("01", "02")]
    stated = [[g["adjacency"] for g in trust["privacy"]] for trust in trusts]
    assert stated == [["add-remove", "replace-one"], ["add-remove"]]
    lifetime = Lifetime.from_json(trusts[1]["lifelong"])
    worst, _ = lifetime.worst(1e-5)
    replaced = [
        epsilon_of(lifetime.event(task), 1e-5, Adjacency.REPLACE_ONE, interval=1e-3)
        for task in (1, 2)
    ]
    assert replaced[worst - 1] < max(replaced) / 1.1  # what would have been stated, and is false
    assert [bool(curves_of(trust).tradeoff) for trust in trusts] == [True, False]
    curve = training_curve(trusts[1], Adjacency.ADD_REMOVE)
    assert curve.epsilon(1e-5) == pytest.approx(3.0, rel=1e-3)
    assert verify(out / "versions" / "02", ledger=ledger).ok
    second = trusts[1]["privacy"][0] | {"adjacency": "replace-one", "epsilon": min(replaced)}
    trusts[1]["privacy"].append(second)
    (out / "versions" / "02" / "trust.json").write_text(json.dumps(trusts[1]))
    details = [f.detail for f in verify(out / "versions" / "02").findings if not f.ok]
    assert any("add/remove alone" in detail for detail in details)


@pytest.mark.parametrize("method", ["naive", "objective"])
def test_steps_that_come_out_another_way_are_paid_twice(tmp_path, ledger, method):
    """A journal that tells of other sums of the second task's steps: they were released, too."""
    out, killed_after = tmp_path / "life", 3 if method == "naive" else 1

    def die(trainer):
        if trainer.next_step == killed_after and (out / "versions" / "02").exists():
            raise Killed

    stream, options = small_stream(2), {"checkpoint_every": 100, **QUICK}
    if method == "objective":
        stream, options = images(2, shared=False), {"memory": "objective", "features": 16}
    named = "naive" if method == "naive" else "l2dp"
    with pytest.raises(Killed):
        fit(named, stream, out=out, ledger=ledger, watch=die, **TARGET, **options)
    journal = RunFolder(out / "versions" / "02").journal
    lines = journal.read_text().splitlines()
    journal.write_text("".join(f"{line.split()[0]} {'0' * 32}\n" for line in lines))
    extend(out, stream=stream, ledger=ledger)
    trust = read_json(out / "versions" / "02" / "trust.json")
    assert trust["mechanism"]["redone_steps"] == killed_after
    first, second = trust["lifelong"]["tasks"]
    assert second["steps"] == first["steps"] + killed_after
    assert trust["lifelong"]["costliest"] == 2
    assert trust["privacy"][0]["epsilon"] > 1.05 * TARGET["epsilon"]
    assert verify(out / "versions" / "02", ledger=ledger).ok


def test_beyond_the_horizon_nothing_is_read_or_kept(tmp_path, ledger):
    out = tmp_path / "life"
    fit("l2dp", small_stream(2), out=out, ledger=ledger, horizon=2, **TARGET, **QUICK)
    extend(out, stream=small_stream(4), ledger=ledger)
    assert sorted(path.name for path in (out / "internal").glob("memory-*")) == ["memory-01.npz"]
    labels = [run.label for n in (2, 3, 4) for run in ledger.account(f"made-up/{n}").runs]
    assert labels == ["l2dp 02", "l2dp 03", "l2dp 04"]
    assert verify(out / "versions" / "04", ledger=ledger).ok
