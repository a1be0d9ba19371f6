"""Two processes take the steps of one: same costs, same weights, one draw of noise.

Two real processes run the scenarios of `stobatch_paper_worker.py`, once for all tests.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import stobatch_paper_worker as worker

from command_line import Outcome, environment
from privet.engine.ranks import Ranks
from privet.verification import verify


@pytest.fixture(scope="module")
def company(tmp_path_factory):
    """What the two processes saw, and the folder that was their home."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whichever test process is first runs them for all
        base = base.parent
    folder = base / "stobatch ranks"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "rank1.pt").exists():
            run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            process = subprocess.Popen(
                [sys.executable, *run, worker.__file__, str(folder)],
                env=environment(folder / "home"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            outcome = Outcome(process)
            assert outcome.code == 0, outcome.err
    lead, other = (torch.load(folder / f"rank{rank}.pt") for rank in (0, 1))
    return lead, other, folder / "home"


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def _one_thread():
    """As `torchrun` gives each process: other threads round otherwise, and signs amplify that."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("name", worker.SCENARIOS)
def test_two_processes_take_the_steps_of_one(company, name):
    """To the rounding of a sum; batch normalisation sees the same parts."""
    costs, state = worker.curve(name, Ranks())
    (lead, lead_state), (other, other_state) = (results["curves"][name] for results in company[:2])
    assert torch.equal(lead, other)
    assert same(lead_state, other_state)
    assert torch.allclose(lead, costs, rtol=1e-4)
    assert costs[0, 1] != costs[-1, 1]
    for key, value in state.items():
        assert torch.allclose(lead_state[key], value, rtol=1e-3, atol=1e-5), key


def test_a_release_of_several_has_the_leads_noise(company):
    (run, lead), (same_run, other) = (results["release"] for results in company[:2])
    assert run == same_run
    assert same(lead, other)
    assert float(lead["input_noise"].abs().max()) > 0
    assert verify(company[2] / "run").ok


def test_a_run_of_several_is_resumed(company):
    (error, lead), (theirs, other) = (results["resumed"] for results in company[:2])
    assert (error, theirs) == ("OSError", "FaultyEnvironment")
    assert same(lead, other)
    assert verify(company[2] / "broken").ok


def test_what_several_processes_cannot_do(company):
    for results in company[:2]:
        assert "2 processes, 1 parts" in results["too few parts"][1]
        assert "--trainers 2" in results["too few parts"][1]
        assert "runs in one process" in results["dpal"][1]
        assert "differ in their training records" in results["other records"][1]
