"""The kernel against the tensor operations, which the RFC's vectors check. Triton's interpreter
runs it without a GPU; it must be told before Triton is imported, so it has a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from privet.privacy import chacha

COMPARED = """
import torch
from privet.privacy import chacha, chacha_kernel

for key in (bytes(range(7, 39)), bytes(32), b"\\xff" * 32):
    for n in (0, 1, 7, 8, 9, 1001, 1024, 5000):
        for counter in (0, 1, 2**31 - 3):
            start = chacha.initial_state(key, torch.device("cpu"))
            start[12] = counter
            assert torch.equal(chacha_kernel.uniform(start, n), chacha.uniform(start, n)), (n, key)
start = chacha.initial_state(bytes(32), torch.device("cpu"))
without = chacha.uniform(start, 8)
start[13] = 1  # another nonce
assert not torch.equal(chacha_kernel.uniform(start, 8), without)
print("alike")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernel_draws_the_same_doubles():
    told = subprocess.run(
        [sys.executable, "-c", COMPARED],
        env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.stdout.strip() == "alike", told.stderr


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from privet.privacy.chacha_kernel import LANES, _uniform

types = {"start": "*i32", "out": "*fp64", "n": "i64", "lanes": "constexpr"}
source = ASTSource(fn=_uniform, signature=types, constexprs={"lanes": LANES})
print(len(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]) > 0)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernel_compiles_for_a_gpu_that_is_not_here():
    told = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False
    )
    assert told.stdout.strip() == "True", told.stderr


class Pretended:
    """A device that claims to be a GPU; tensors lie on the processor."""

    type = "cuda"


@pytest.fixture
def pretended(monkeypatch):
    chacha.fused_uniform.cache_clear()
    right, cpu = chacha.initial_state, torch.device("cpu")
    monkeypatch.setattr(chacha, "initial_state", lambda key, device: right(key, cpu))
    yield Pretended()
    chacha.fused_uniform.cache_clear()


def provide(monkeypatch, uniform):
    module = type(sys)("privet.privacy.chacha_kernel")
    module.uniform = uniform
    monkeypatch.setitem(sys.modules, "privet.privacy.chacha_kernel", module)


def test_a_kernel_that_agrees_is_used(monkeypatch, pretended):
    provide(monkeypatch, lambda start, n: chacha.uniform(start, n))
    assert chacha.fused_uniform(pretended) is not None


def broken(start, n):
    raise RuntimeError("no compiler here")


def off_by_one_block(start, n):
    return chacha.uniform(start, n + 8)[8:]


def last_is_lost(start, n):
    return chacha.uniform(start, n - 1)


def rounded(start, n):
    return chacha.uniform(start, n).float().double()


def first_program_again(start, n):
    return chacha.uniform(start, 1024).repeat(-(-n // 1024))[:n]


@pytest.mark.parametrize(
    "wrong", [broken, off_by_one_block, last_is_lost, rounded, first_program_again]
)
def test_a_kernel_that_fails_or_differs_is_not(monkeypatch, pretended, wrong):
    provide(monkeypatch, wrong)
    assert chacha.fused_uniform(pretended) is None


def test_a_processor_has_none():
    assert chacha.fused_uniform(torch.device("cpu")) is None
