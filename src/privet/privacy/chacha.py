"""ChaCha20 (RFC 8439) as tensor operations: noise is drawn on the device where it is needed.

| RFC 8439           | here                                                                    |
|--------------------|-------------------------------------------------------------------------|
| state, 4 x 4 words | (16, blocks) int32: one column for each block                           |
| a, b, c, d         | the four rows of the state, each (4, blocks): an operation on them does |
|                    | its part of the four quarter rounds of all blocks                       |
| diagonal round     | a column round between two turns of the rows b, c, d by 1, 2, 3 places  |
| counter, nonce     | 0, 1, 2, ... and zero: a key serves one address and no other            |

int32 addition and multiplication wrap. Rotation to the left by n is x * 2^n plus the n highest
bits, which the arithmetic shift brings down with copies of the sign that a mask removes.

Guarantee: under a uniform key that is used once, the words are indistinguishable from uniform ones,
if ChaCha20 is a pseudo-random function.

Cost: 425 tensor operations for any number of blocks (440 for normals); 128 bytes of memory for each
block of 64, and 32 bytes for each normal while they are made. The functions are pure: no shape
depends on a value, and nothing waits for the device. On a GPU where Triton works, `chacha_kernel`
draws the same doubles by one operation. Only `initial_state` crosses the bus, with 64 bytes.

Two words are read as one of 64 bits in the machine's order: little-endian, as the RFC's, on every
machine that has a GPU.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

from privet.errors import InputError

DOUBLES_PER_BLOCK: Final = 8
MOST_BLOCKS: Final = 2**31  # the counter stays within an int32; 128 GiB under one key
UNIFORM_BITS: Final = 53  # what a double holds
TRIED: Final = 5001  # doubles by which a kernel is compared: of several programs, the last not full
_CONSTANTS: Final = b"expand 32-byte k"
_DOUBLE_ROUNDS: Final = 10


def initial_state(subkey: bytes, device: torch.device) -> Tensor:
    """The state of block 0: constants, key, counter 0, nonce 0; 16 int32."""
    words = np.frombuffer(_CONSTANTS + subkey + bytes(16), dtype="<i4")
    return torch.from_numpy(words.astype(np.int32)).to(device)


def keystream(start: Tensor, blocks: int) -> Tensor:
    """(blocks, 16) words of key stream; the blocks follow one another from the one of `start`."""
    _require_countable(blocks)
    counter = torch.arange(blocks, dtype=torch.int32, device=start.device)
    state = start.unsqueeze(1).repeat(1, blocks)
    state[12].add_(counter)
    _twenty_rounds(state)
    state.add_(start.unsqueeze(1))
    state[12].add_(counter)
    return state.t()


def _require_countable(blocks: int) -> None:
    if blocks > MOST_BLOCKS:
        raise InputError("too many draws under one key", got=blocks, expected=f"<= {MOST_BLOCKS}")


def uniform(start: Tensor, n: int) -> Tensor:
    """`n` uniform doubles in [0, 1), multiples of 2**-53: the top of each 64-bit word."""
    words = keystream(start, math.ceil(n / DOUBLES_PER_BLOCK)).reshape(-1).view(torch.int64)
    top = torch.bitwise_right_shift(words[:n], 64 - UNIFORM_BITS)
    return top.bitwise_and_(2**UNIFORM_BITS - 1).double().mul_(2.0**-UNIFORM_BITS)


def normal(start: Tensor, n: int) -> Tensor:
    """`n` standard normal doubles."""
    _require_countable(math.ceil(n / DOUBLES_PER_BLOCK))
    draw = fused_uniform(start.device) or uniform
    return box_muller(draw(start, n + n % 2))[:n]


@cache
def fused_uniform(device: torch.device) -> Callable[[Tensor, int], Tensor] | None:
    """`uniform` by one kernel, where there is one that gives the same doubles; else None."""
    if device.type != "cuda":
        return None
    try:
        from privet.privacy.chacha_kernel import uniform as fused

        start = initial_state(bytes(range(32)), device)
        return fused if torch.equal(fused(start, TRIED), uniform(start, TRIED)) else None
    except Exception:  # no Triton for this machine, or one that cannot compile here
        return None


def box_muller(uniform: Tensor) -> Tensor:
    """As many normals as there are uniforms, an even number of 53-bit ones, in place; |z| <= 8.6.

    In place because fresh memory costs a CPU more than these functions.
    """
    radius, angle = uniform.view(2, len(uniform) // 2)
    radius.neg_().log1p_().mul_(-2.0).sqrt_()  # log(1-u) is finite: u < 1
    cosine = angle.mul_(2.0 * math.pi).cos()
    angle.sin_().mul_(radius)
    radius.mul_(cosine)
    return uniform


def _twenty_rounds(state: Tensor) -> None:
    """In place. The rows b, c, d move between two places, as a turn cannot be done in one."""
    a, here = state[:4], state[4:]
    there, spare = torch.empty_like(here), torch.empty_like(a)
    for _ in range(_DOUBLE_ROUNDS):
        _quarter_rounds(a, here, spare)
        _turn(here, (1, 2, 3), out=there)
        _quarter_rounds(a, there, spare)
        _turn(there, (3, 2, 1), out=here)


def _quarter_rounds(a: Tensor, others: Tensor, spare: Tensor) -> None:
    b, c, d = others.chunk(3)
    for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x.add_(y)
        z.bitwise_xor_(x)
        torch.bitwise_right_shift(z, 32 - n, out=spare)
        spare.bitwise_and_(2**n - 1)
        torch.add(spare, z, alpha=2**n, out=z)


def _turn(rows: Tensor, places: tuple[int, int, int], *, out: Tensor) -> None:
    """Each of three rows of four turned to the left; one operation."""
    turned = zip(rows.chunk(3), places, strict=True)
    torch.cat([part for row, i in turned for part in (row[i:], row[:i])], out=out)
