import re
from pathlib import Path

import pytest
import torch

from privet.errors import FaultyEnvironment, InputError
from privet.studies.private_step.machine import (
    describe,
    find_device,
    peak_memory,
    reason,
    set_up,
    timed,
)


def test_peak_memory_is_what_is_held_at_the_worst_moment(cpu):
    def step():
        a = torch.empty(1_000_000)  # 4 MB
        b = torch.empty(500_000)  # and 2 MB
        del a
        c = torch.empty(250_000)  # 3 MB in all by now
        del b, c

    assert peak_memory(step, cpu) == 6_000_000


def test_what_was_held_before_does_not_count(cpu):
    held = torch.empty(1_000_000)
    assert peak_memory(lambda: held * held, cpu) == 4_000_000


def test_a_step_is_timed(cpu):
    calls = []
    assert 0 <= timed(lambda: calls.append(1), cpu) < 1
    assert calls == [1]


def test_settings_hold_inside_and_are_put_back(cpu):
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    convolutions = cudnn.enabled, cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    try:
        with set_up(cpu, before[0] + 1, "float32"):
            assert torch.get_num_threads() == before[0] + 1
            assert torch.get_float32_matmul_precision() == "highest"
            assert (cudnn.enabled, cudnn.allow_tf32) == (convolutions[0], False)
        assert torch.get_num_threads() == before[0]
        assert torch.get_float32_matmul_precision() == "high"
        assert (cudnn.enabled, cudnn.allow_tf32) == convolutions
    finally:
        torch.set_float32_matmul_precision(before[1])


def test_too_much_memory_is_an_error_and_not_the_end(cpu):
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    entries = 1024 * int(found[1]) // 4  # all of it, untouched: without a limit it would be given
    with set_up(cpu, None, "float32"), pytest.raises(RuntimeError) as refused:
        torch.empty(entries)
    assert reason(refused.value) == "out of memory"


@pytest.mark.parametrize(("threads", "precision"), [(0, "float32"), (1, "tf32")])
def test_settings_that_do_not_exist_are_refused(cpu, threads, precision):
    with pytest.raises(InputError), set_up(cpu, threads, precision):
        pass


def test_devices_by_name(monkeypatch):
    assert find_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="cpu or cuda"):
        find_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(FaultyEnvironment, match="--device cpu"):
        find_device("cuda")


def test_the_record_says_what_ran_where(cpu):
    told = describe(cpu)
    assert told["versions"]["torch"] == torch.__version__
    assert told["threads"] == torch.get_num_threads()
    assert "cores" in told["hardware"]
    assert len(told["load_average_before"]) == 3


def test_a_missing_package_is_named_without_its_parts():
    error = ModuleNotFoundError("No module named 'opacus.layers'", name="opacus.layers")
    assert reason(error) == "skipped: opacus is not installed"
