"""A secret name of a vector, computed where the vector lies: noise is bound to it.

| symbol     | here                                                                       |
|------------|----------------------------------------------------------------------------|
| x          | a block: 4 KiB of the vector as 1024 signed 32-bit words, zeros at the end |
| k          | 1024 uniform 64-bit keys for each of four lanes, drawn once for a stream   |
| h_k(x)     | floor(((k_1 x_1 + ... + k_1024 x_1024) mod 2^64) / 2^32), a lane's tag     |

The name is the keyed hash of type, length and the tags of all blocks. Bytes count, not values: 0.0
and -0.0 have different names.

Guarantee: two different vectors give the keyed hash one input with probability at most 2^-124, and
choosing them after the names of others does not help. So names are pseudo-random, if AES-256 (it
draws k) and keyed BLAKE2b are.

Proof.

1. One lane. Let blocks x and y differ, for one at word j. The difference d = x_j - y_j is not 0 and
   |d| < 2^32, so d = 2^s times an odd number, with s <= 31. Fix all keys but k_j. Modulo 2^64 the
   two sums differ by k_j d + r with a constant r. As k_j is uniform, k_j d is uniform on the
   2^(64-s) multiples of 2^s. The tags are equal only if the sums differ by less than 2^32, up or
   down. Of the numbers r + (a multiple of 2^s) at most 2^(33-s) are among those 2^33 - 1 values, so
   the probability is at most 2^(33-s) / 2^(64-s) = 2^-31.
2. A block has four lanes with independent keys: 2^-124.
3. A vector of another type or length gives the keyed hash another input, always. One of the same
   type and length differs in some block, and with it the input, unless that block collides.
4. Chosen as one goes along. Suppose that every new vector were given a fresh uniform name. Then
   what is chosen would not depend on k, and by 1. to 3. any two of q vectors would collide with
   probability at most q^2 / 2 * 2^-124. With a random function for the hash everything is the
   same until two do.

Integer sums do not depend on their order: every device finds the same tags.

Cost: about 15 tensor operations; three times the vector in memory; 16 bytes over the bus for each
4 KiB. The keys lie in the memory of the device, where they are as secret as the noise itself.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privet.privacy.randomness import SecretStream

LANES: Final = 4
BLOCK_WORDS: Final = 1024
BLOCK_BYTES: Final = 4 * BLOCK_WORDS


def secret_name(values: Tensor, stream: SecretStream) -> bytes:
    """32 bytes that name the type, the length and every bit of `values`, under the stream's key."""
    tags = block_tags(values.detach(), _lane_keys(stream.key, values.device))
    head = f"{values.dtype}|{values.numel()}|".encode()
    return stream.digest(head + tags.cpu().numpy().tobytes(), purpose="name")


def block_tags(values: Tensor, keys: Tensor) -> Tensor:
    """The tags of each block in four lanes: (blocks, 4) int32. `keys`: (4, 1024) int64."""
    data = values.contiguous().view(-1).view(torch.uint8)
    blocks = functional.pad(data, (0, -len(data) % BLOCK_BYTES)).view(torch.int32)
    words = blocks.view(-1, BLOCK_WORDS)
    # One lane after the other: the products of all four would be eight times the vector.
    sums = torch.stack([(words * lane).sum(1) for lane in keys], dim=1)
    return (sums >> 32).int()


@lru_cache(maxsize=2)  # of the run that is on, and of one beside it
def _lane_keys(key: bytes, device: torch.device) -> Tensor:
    words = SecretStream(key).words(LANES * BLOCK_WORDS, purpose="fingerprint", step=0)
    return torch.from_numpy(words.astype(np.int64)).view(LANES, BLOCK_WORDS).to(device)
