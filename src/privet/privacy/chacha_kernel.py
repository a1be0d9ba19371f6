"""The key stream of `chacha` in one GPU kernel, by Triton: one launch in place of 425.

Each lane computes one block in its registers, in the RFC's own notation; only the finished doubles
touch memory. Integer arithmetic is exact, so the doubles are those of the tensor operations, bit
for bit. Before it is used on a device, it is compared with them there (`chacha.fused_uniform`).

Bound: memory. 8 bytes are written for each double, and nothing is read.
"""

# Triton reads the source of a kernel: annotations other than its own are names it does not know.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
from torch import Tensor
from triton import language as tl

LANES = 128  # blocks of key stream in one program: 16 registers of state for each


@triton.jit
def _turned(x, n: tl.constexpr):
    return (x << n) | (x >> (32 - n))


@triton.jit
def _quarter_round(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _word(start, i: tl.constexpr):
    return tl.load(start + i).to(tl.uint32, bitcast=True)


@triton.jit
def _keep(out, place, low, high, n):
    """53 bits of two words as a double in [0, 1)."""
    top = ((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 11
    tl.store(out + place, top.to(tl.int64).to(tl.float64) * (2.0**-53), mask=place < n)


@triton.jit
def _uniform(start, out, n, lanes: tl.constexpr):
    block = tl.program_id(0) * lanes + tl.arange(0, lanes)
    none = tl.zeros([lanes], tl.uint32)
    s0, s1, s2, s3 = _word(start, 0), _word(start, 1), _word(start, 2), _word(start, 3)
    s4, s5, s6, s7 = _word(start, 4), _word(start, 5), _word(start, 6), _word(start, 7)
    s8, s9, s10, s11 = _word(start, 8), _word(start, 9), _word(start, 10), _word(start, 11)
    s12, s13, s14, s15 = _word(start, 12), _word(start, 13), _word(start, 14), _word(start, 15)
    count = block.to(tl.uint32) + s12
    x0, x1, x2, x3 = none + s0, none + s1, none + s2, none + s3
    x4, x5, x6, x7 = none + s4, none + s5, none + s6, none + s7
    x8, x9, x10, x11 = none + s8, none + s9, none + s10, none + s11
    x12, x13, x14, x15 = count, none + s13, none + s14, none + s15
    for _ in range(10):
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    place = block.to(tl.int64) * 8
    _keep(out, place, x0 + s0, x1 + s1, n)
    _keep(out, place + 1, x2 + s2, x3 + s3, n)
    _keep(out, place + 2, x4 + s4, x5 + s5, n)
    _keep(out, place + 3, x6 + s6, x7 + s7, n)
    _keep(out, place + 4, x8 + s8, x9 + s9, n)
    _keep(out, place + 5, x10 + s10, x11 + s11, n)
    _keep(out, place + 6, x12 + count, x13 + s13, n)
    _keep(out, place + 7, x14 + s14, x15 + s15, n)


def uniform(start: Tensor, n: int) -> Tensor:
    """`n` doubles of the key stream that begins with the block of `start`; see `chacha.uniform`."""
    out = torch.empty(n, dtype=torch.float64, device=start.device)
    if n:
        _uniform[(triton.cdiv(n, 8 * LANES),)](start, out, n, LANES)
    return out
