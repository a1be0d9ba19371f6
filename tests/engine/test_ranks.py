"""Several processes train as one: same sum, one draw of noise, one account; errors reach all.

Two real processes run the scenarios of `ranks_worker.py`, once for all tests. Statistical tests
fail on right code with probability below 1e-6 each.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import ranks_worker as worker

from command_line import Outcome, environment, privet
from privet import data as catalogue
from privet import models
from privet.data.dataset import Split
from privet.engine.account import KeptByLead
from privet.engine.plan import Plan
from privet.engine.prepare import assemble
from privet.engine.ranks import Ranks
from privet.errors import FaultyEnvironment, InputError
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.privacy.accounting import total_epsilon
from privet.privacy.clipping import cross_entropy
from privet.privacy.randomness import Randomness, SecretStream
from privet.training.settings import Settings
from privet.verification import verify

ERROR_RATE = 1e-6


def torchrun(*arguments, home):
    """Two processes on this machine, at a free port."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [sys.executable, *command, *map(str, arguments)],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def company(tmp_path_factory):
    """What the two processes saw, and the folder that was their home."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whichever test process is first runs them for all
        base = base.parent
    folder = base / "ranks"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "rank1.pt").exists():
            outcome = Outcome(torchrun(worker.__file__, folder, home=folder / "home"))
            assert outcome.code == 0, outcome.err
    lead, other = (torch.load(folder / f"rank{rank}.pt") for rank in (0, 1))
    return lead, other, folder / "home"


# --- one update, one draw of noise -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "facts"),
    [("examples", {}), ("users", {"users": 9}), ("one user", {"n": 4, "users": 1})],
)
def test_two_processes_make_the_updates_of_one(company, name, facts):
    """Everyone joins every step and the noise is negligible; one user leaves a rank empty."""
    expected = worker.updates(worker.made_trainer(Ranks(), worker.made_up(**facts)))
    lead, other = (results["same updates"][name] for results in company[:2])
    assert expected.abs().max() > 1e-3
    assert torch.allclose(lead, expected, rtol=0.0, atol=1e-6)
    assert torch.equal(lead, other)


def noise_has_the_planned_size(updates):
    """Chi-square, two-sided, on updates whose gradients are all zero."""
    scale = 1.3 * worker.PLAN["clip_norm"] / worker.PLAN["normaliser"]
    low, high = chi2.ppf([ERROR_RATE / 2, 1 - ERROR_RATE / 2], updates.numel())
    return bool(low <= float((updates / scale).pow(2).sum()) <= high)


def test_the_noise_of_all_processes_is_one_draw(company):
    lead, other = (results["noise"]["PrivateTrainer"] for results in company[:2])
    assert noise_has_the_planned_size(lead)
    assert torch.equal(lead, other)


@pytest.mark.parametrize("bug", ["NoiseOnEveryRank", "DividesByTheRanks", "AveragesNoisyParts"])
def test_noise_on_every_rank_or_divided_by_them_is_caught(company, bug):
    assert not noise_has_the_planned_size(company[0]["noise"][bug])


def test_correlated_noise_has_its_history_on_the_lead_alone(company):
    (lead, kept), (other, none) = (results["correlated"] for results in company[:2])
    assert torch.equal(lead, other)
    assert (kept, none) == (1, 0)


# --- samples ---------------------------------------------------------------------------------


def unrelated(one, other):
    """Correlation of what two ranks drew, place by place; normal for independent draws."""
    r = float(torch.corrcoef(torch.stack([one, other]))[0, 1])
    return abs(r) * len(one) ** 0.5 < norm.isf(ERROR_RATE / 2)


@pytest.mark.parametrize("sampler", worker.SAMPLED)
def test_units_join_at_the_rate_of_the_plan(company, sampler):
    """The number in one step is binomial over both ranks, or fixed where batches are cut."""
    joined = sum(float(results["samples"][sampler][0].sum()) for results in company[:2])
    n, rate = 2 * worker.SHARE, worker.SAMPLED[sampler]["sampling_rate"]
    deviation = (joined - n * rate) / (n * rate * (1 - rate)) ** 0.5
    assert abs(deviation) < norm.isf(ERROR_RATE / 2)


@pytest.mark.parametrize("sampler", worker.SAMPLED)
def test_the_ranks_sample_independently_of_one_another(company, sampler):
    lead, other = (results["samples"][sampler] for results in company[:2])
    for step in (0, worker.DRAWN_STEPS - 1):
        assert unrelated(lead[step], other[step])


@pytest.mark.parametrize("sampler", worker.SAMPLED)
def test_one_sampling_key_on_all_ranks_is_caught(company, sampler):
    lead, other = (results["samples, one key"][sampler] for results in company[:2])
    assert not unrelated(lead[0], other[0])


@pytest.mark.parametrize("sampler", ["cyclic-poisson", "fixed-batches", "shuffled"])
def test_a_unit_has_one_turn_in_a_cycle_on_its_rank(company, sampler):
    cycle = worker.SAMPLED[sampler]["cycle"]
    for results in company[:2]:
        turns = results["samples"][sampler][:cycle].sum(0)
        assert float(turns.max()) == 1.0
        assert sampler == "cyclic-poisson" or float(turns.min()) == 1.0


def test_the_sampling_key_is_shared_and_the_noise_key_is_not(company):
    lead, other = (results["keys"] for results in company[:2])
    assert lead["sampling"] == other["sampling"]
    assert lead["noise"] == lead["own noise"]
    assert other["noise"] not in (*lead.values(), other["own noise"], other["sampling"])
    assert lead["stream"] != other["stream"]


def test_each_rank_has_a_stream_of_its_own_under_the_key_of_the_run():
    """Against keyed BLAKE2b by hand; a checkpoint that has the one key has them all."""
    run = SecretStream(bytes(range(32)))
    assert Ranks().own(run) is run
    for rank in range(3):
        address = f"9|rank of 3|{rank}|".encode()
        by_hand = hashlib.blake2b(address, key=run.key, digest_size=32)
        assert Ranks(rank=rank, size=3).own(run).key == by_hand.digest()


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.integers(1, 4),
    st.booleans(),
)
def test_every_unit_is_on_one_rank_with_all_its_records(owners, size, grouped):
    _, units = np.unique(owners, return_inverse=True)
    n = len(owners)
    split = Split(x=np.arange(n)[:, None], y=np.arange(n), units=units if grouped else None)
    shares = [Ranks(rank=rank, size=size).share(split) for rank in range(size)]
    assert sorted(i for share in shares for i in share.y) == list(range(n))
    held = [set(split.unit_of_record[share.y]) for share in shares]
    assert sum(map(len, held)) == len(set(split.unit_of_record))
    for share, units_here in zip(shares, held, strict=True):
        assert set(share.unit_of_record) == set(range(len(units_here)))


def test_a_rank_without_units_can_hold_a_model_with_a_frozen_front(make_data):
    data = make_data(n=32)
    two = Split(x=data.train.x.reshape(2, 1, 8, 8), y=data.train.y[:2])
    images = replace(data, train=two, test=two)
    model = models.create("scatter-linear", (1, 8, 8), 2)
    trainer = assemble(
        model,
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1),
        images,
        Plan(**worker.PLAN),
        loss=cross_entropy,
        randomness=Randomness.seeded(1),
        open_account=KeptByLead,
        ranks=Ranks(rank=2, size=3),
    )
    batch = trainer._draw(0)
    assert len(batch.indices) == 0
    assert not trainer._clipped_sum(batch).any()


# --- one account, one release ----------------------------------------------------------------


def test_a_script_that_trains_twice_gets_the_same_releases_on_all_ranks(company):
    """The second has one user: all units on one rank."""
    for name in ("release", "release of few"):
        (run, epsilon, weights), (same_run, same_epsilon, same) = (
            results[name] for results in company[:2]
        )
        assert (run, epsilon) == (same_run, same_epsilon)
        assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


@pytest.mark.parametrize(("which", "error"), [(0, "disk full"), (1, "in use")])
def test_a_run_that_breaks_on_the_lead_is_resumed_on_all_ranks(company, which, error):
    """In the middle, and after the release was saved, when only the cleaning up is left."""
    (failed, release), (echo, same_release) = (results["resumed"][which] for results in company[:2])
    assert failed == ("OSError", error)
    assert echo == ("FaultyEnvironment", f"process 0 failed: OSError: {error}")
    assert release[:2] == same_release[:2]
    assert all(torch.equal(a, b) for a, b in zip(release[2], same_release[2], strict=True))
    with contextlib.closing(Ledger(company[2] / "ledger.db")) as ledger:
        record = ledger.run(release[0])
    assert (record.charged, record.redone, record.status) == (4, 0, "settled")
    internal = company[2] / ("broken", "saved")[which] / "internal"
    assert not (internal / "checkpoint.pt").exists()


def test_the_ledger_is_charged_once_for_all_processes(company):
    lead, _, home = company
    with contextlib.closing(Ledger(home / "ledger.db")) as ledger:
        for name in ("release", "release of few"):
            record = ledger.run(lead[name][0])
            assert (record.planned, record.charged, record.redone) == (4, 4, 0)
            assert record.status == "settled"
        runs = ledger.account("made-up").runs
    # The release, the run that diverged, and the one that was given back: no run of the others.
    assert sorted((run.status, run.charged) for run in runs) == [
        ("open", 4), ("settled", 0), ("settled", 4),
    ]  # fmt: skip


def test_a_process_without_the_books_cannot_state_a_guarantee():
    with pytest.raises(InputError, match="does not keep the run's account"):
        KeptByLead().books  # noqa: B018


# --- errors ----------------------------------------------------------------------------------


def test_an_error_on_one_rank_is_raised_on_all(company):
    lead, other = (results["faults"] for results in company[:2])
    assert lead["lead"] == other["lead"] == ("BudgetExceeded", "too much: got 3. Fix: less")
    assert lead["other"] == ("BudgetExceeded", "too much (process 1)")
    assert other["other"] == ("BudgetExceeded", "too much")
    assert lead["other's bug"] == ("FaultyEnvironment", "process 1 failed: ValueError: oops")
    assert other["other's bug"] == ("ValueError", "oops")
    assert lead["nobody"] == other["nobody"] == ("none", "")
    assert other["told"]["a"] == (1, 2.5, None)
    assert torch.equal(other["told"]["w"], torch.arange(3))


def test_records_in_another_order_are_refused_before_anything_is_written(company):
    """Otherwise one unit could be on both ranks, and count twice in every sum."""
    for results in company[:2]:
        kind, message = results["other order"]
        assert kind == "InputError"
        assert "differ in their training records" in message
    assert not (company[2] / "other order").exists()


def test_a_run_that_one_process_cannot_begin_is_taken_back(company):
    assert company[0]["one fails"][0] == "FaultyEnvironment"
    assert company[1]["one fails"] == ("MemoryError", "full")
    assert not (company[2] / "one fails").exists()


def test_weights_that_went_apart_are_not_released(company):
    for results in company[:2]:
        kind, message = results["diverged"]
        assert kind == "CheckFailed"
        assert "differ in the weights" in message


def test_a_redone_step_that_differs_ends_the_run_on_all_ranks(company):
    for results in company[:2]:
        (kind, message), charged_again = results["redone"]
        assert kind == "CheckFailed"
        assert "comes out different" in message
        assert charged_again == 0


def test_a_process_that_fails_alone_does_not_leave_the_others_waiting(company):
    (lead, then), (other, later) = (results["alone"] for results in company[:2])
    assert other == ("ValueError", "oops")
    assert lead[0] == "FaultyEnvironment"
    assert "gone or stuck" in lead[1]
    for kind, message in (then, later):
        assert kind == "FaultyEnvironment"
        assert "start all processes again" in message


def test_processes_that_cannot_find_one_another_say_so(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FaultyEnvironment, match="start them with torchrun"), Ranks.joined():
        pass


# --- the command line ------------------------------------------------------------------------


def digits_plan(epochs):
    return Settings(epsilon=3.0, model="linear", epochs=epochs).plan_for(catalogue.load("digits"))


def require_finished(folder, home, plan):
    """Verified, charged once, settled."""
    with contextlib.closing(Ledger(home / "ledger.db")) as ledger:
        verified = verify(folder, ledger=ledger)
        (run,) = ledger.account("digits").runs
    assert verified.ok, [finding for finding in verified.findings if not finding.ok]
    assert (run.charged, run.redone, run.status) == (plan.steps, 0, "settled")


def test_the_command_line_trains_and_only_the_lead_speaks(company):
    lead, other, home = company
    (code, printed, _), _ = lead["commands"]
    assert code == 0
    assert other["commands"][0] == (0, "", "")
    plan = digits_plan(worker.EPOCHS)
    require_finished(home / "typed", home, plan)
    alone = total_epsilon([plan.event()], plan.delta, Adjacency.ADD_REMOVE)
    assert json.loads(printed)["privacy"][0]["epsilon"] == alone


def test_what_is_wrong_is_said_once_and_all_end_with_the_same_code(company):
    (lead, said), (other, unsaid) = (
        (results["commands"][1][0], results["commands"][1][2]) for results in company[:2]
    )
    assert lead == other == 2
    assert "a release is already there" in said
    assert unsaid == ""


def kill_the_lead(launcher, journal, after_steps):
    """kill -9 for the process that torchrun made the lead, once so many updates are noted."""
    deadline = time.monotonic() + 120
    while not journal.exists() or journal.read_text().count("\n") < after_steps:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    (lead,) = (
        pid for pid in children if b"\0RANK=0\0" in Path(f"/proc/{pid}/environ").read_bytes()
    )
    os.kill(int(lead), signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the lead's process under /proc")
def test_a_run_whose_lead_is_killed_goes_on_with_as_many_processes(tmp_path):
    home, out = tmp_path / "home", tmp_path / "run"
    begin = ["train", "dpsgd", "--data", "digits", "--epsilon", 3, "--model", "linear",
             "--epochs", 60, "--checkpoint-every", 40, "--out", out]  # fmt: skip
    launcher = torchrun("-m", "privet.cli", *begin, home=home)
    kill_the_lead(launcher, out / "internal" / "steps.log", after_steps=50)
    Outcome(launcher)
    assert launcher.returncode == 1
    assert not (out / "manifest.json").exists()
    alone = privet("resume", out, home=home)
    assert alone.code == 2
    assert "another number of processes: got 1, expected 2" in alone.err
    resumed = Outcome(torchrun("-m", "privet.cli", "resume", out, "--json", home=home))
    assert resumed.code == 0, resumed.err
    assert resumed.json["mechanism"]["redone_steps"] == 0  # lost steps came out bit for bit
    require_finished(out, home, digits_plan(60))
