"""The secret name of a vector: against whole numbers in Python, bit by bit, and planted bugs."""

import hashlib
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.privacy.randomness import SecretStream
from privet.privacy.tags import BLOCK_BYTES, BLOCK_WORDS, LANES, _lane_keys, block_tags, secret_name

FIXED = settings(derandomize=True, deadline=None, max_examples=40)
STREAM = SecretStream(bytes(range(32)))
KEYS = _lane_keys(STREAM.key, torch.device("cpu"))


def tags_by_hand(data: bytes, keys):
    """Whole numbers without bound, as the module's table says it."""
    data += bytes(-len(data) % BLOCK_BYTES)
    rows = []
    for start in range(0, len(data), BLOCK_BYTES):
        words = struct.unpack(f"<{BLOCK_WORDS}i", data[start : start + BLOCK_BYTES])
        sums = [sum(k * x for k, x in zip(lane, words, strict=True)) % 2**64 for lane in keys]
        rows.append([s // 2**32 for s in sums])
    return rows


def name_by_hand(values, key):
    words = SecretStream(key).words(4096, purpose="fingerprint", step=0)
    keys = [[int(k) for k in words[1024 * i : 1024 * (i + 1)]] for i in range(4)]
    tags = [t for row in tags_by_hand(values.numpy().tobytes(), keys) for t in row]
    head = f"4|name|0|{values.dtype}|{values.numel()}|".encode()
    return hashlib.blake2b(
        head + struct.pack(f"<{len(tags)}I", *tags), key=key, digest_size=32
    ).digest()


def blocks_of_words(count):
    words = np.random.default_rng(0).integers(-(2**31), 2**31, (count, BLOCK_WORDS))
    return torch.from_numpy(words.astype(np.int32))


class TestName:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 1024, 1025, 3000])
    def test_is_what_the_module_says(self, n, dtype):
        values = torch.linspace(-7, 9, n).exp().to(dtype)
        assert secret_name(values, STREAM) == name_by_hand(values, STREAM.key)

    def test_the_extreme_words(self):
        for word in (-(2**31), 2**31 - 1, -1, 0):
            values = torch.full((1500,), word, dtype=torch.int32)
            assert secret_name(values, STREAM) == name_by_hand(values, STREAM.key)

    def test_repeats_and_reads_strided_vectors_by_value(self):
        x = torch.arange(3000.0)
        assert secret_name(x[::2], STREAM) == secret_name(x[::2].clone(), STREAM)
        assert secret_name(x[::2], STREAM) != secret_name(x[1::2], STREAM)

    def test_another_key_gives_another_name(self):
        x = torch.arange(3.0)
        assert secret_name(x, STREAM) != secret_name(x, SecretStream(bytes(32)))

    def test_bytes_count_not_values(self):
        payload = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
        odd = [torch.tensor([0.0]), torch.tensor([-0.0]), payload[:1], payload[1:]]
        assert len({secret_name(x, STREAM) for x in odd}) == 4

    @given(st.integers(0, 1100), st.integers(1, 1100))
    @FIXED
    def test_zeros_at_the_end_count(self, n, more):
        """Within one padded block, where the tags are the same, and beyond."""
        x = torch.arange(1.0, n + 1)
        assert secret_name(x, STREAM) != secret_name(torch.cat([x, torch.zeros(more)]), STREAM)

    def test_the_same_bytes_of_another_type_have_another_name(self):
        x = torch.arange(8.0)
        views = [x, x.view(torch.int32), x.view(torch.float64), x.view(torch.uint8)]
        assert len({secret_name(v, STREAM) for v in views}) == 4

    def test_half_precision_of_odd_length(self):
        x = torch.arange(5.0).half()
        assert secret_name(x, STREAM) != secret_name(x[:4], STREAM)

    def test_the_order_of_the_blocks_counts(self):
        x = torch.arange(2048.0)
        assert secret_name(x, STREAM) != secret_name(torch.cat([x[1024:], x[:1024]]), STREAM)

    @given(st.integers(0, 2999), st.integers(0, 63))
    @FIXED
    def test_one_bit_anywhere_counts(self, place, bit):
        x = torch.linspace(-1, 1, 3000, dtype=torch.float64)
        other = x.clone()
        other.view(torch.int64)[place] ^= (1 << bit) - (1 << 64 if bit == 63 else 0)
        assert not torch.equal(x.view(torch.int64), other.view(torch.int64))
        assert secret_name(x, STREAM) != secret_name(other, STREAM)

    def test_the_tags_are_few(self):
        assert block_tags(torch.zeros(10 * 1024), KEYS).shape == (10, LANES)
        assert block_tags(torch.zeros(10 * 1024), KEYS).dtype == torch.int32


def changed_in_every_place():
    """Pairs of blocks that differ little, for each of 1024 places: the lowest bit, the sign, a
    middle bit, and two words changed about. Differences 2^0, 2^31, 2^15 and (d, -d)."""
    base = blocks_of_words(1)
    eye = torch.eye(BLOCK_WORDS, dtype=torch.int32)
    for flip in (1, -(2**31), 2**15):
        yield base, base ^ (eye * flip)
    swapped = base.repeat(BLOCK_WORDS, 1)
    here = torch.arange(BLOCK_WORDS)
    there = here.roll(1)
    swapped[here, here], swapped[here, there] = base[0, there], base[0, here]
    yield base, swapped


def collisions(tags_of, keys):
    """Pairs among 4 x 1024 and four lanes with equal tags. The proof gives 16384 / 2^31, so one or
    more has probability at most 8e-6."""
    pairs = changed_in_every_place()
    return sum(int((tags_of(x, keys) == tags_of(y, keys)).sum()) for x, y in pairs)


def low_half(values, keys):
    """Planted bug: the low half of the sums is kept, which forgets the high bits of the keys."""
    return torch.stack([(values.view(-1, BLOCK_WORDS) * k).sum(1) for k in keys], 1).int()


class TestCollisions:
    def test_none_among_neighbours(self):
        assert collisions(block_tags, KEYS) == 0

    def test_every_bit_of_a_word_changes_all_lanes(self):
        """32 bits in 64 places: one equal lane has probability at most 4e-6."""
        base = blocks_of_words(1)
        places = torch.arange(0, BLOCK_WORDS, 16)
        flips = torch.tensor([1 << b for b in range(31)] + [-(2**31)], dtype=torch.int32)
        eye = torch.eye(BLOCK_WORDS, dtype=torch.int32)[places]
        others = base ^ (eye[:, None] * flips[:, None]).view(-1, BLOCK_WORDS)
        assert len(others) == 2048
        assert not (block_tags(base, KEYS) == block_tags(others, KEYS)).any()

    def test_lanes_have_nothing_to_do_with_each_other(self):
        """Equal 32-bit tags in two of four lanes of 1000 blocks: probability 1.4e-6."""
        tags = block_tags(blocks_of_words(1000), KEYS)
        assert all(int((tags[:, i] == tags[:, j]).sum()) == 0 for i in range(4) for j in range(i))

    def test_tags_are_uniform(self):
        """32 binomial tests at 6 sigma on the bits of 4000 tags: error rate 6e-8."""
        tags = block_tags(blocks_of_words(1000), KEYS).flatten()
        for bit in range(32):
            assert abs(int(((tags >> bit) & 1).sum()) - 2000) < 6 * np.sqrt(1000)

    @pytest.mark.parametrize(
        ("tags_of", "keys"),
        [
            pytest.param(low_half, KEYS, id="the low half is kept"),
            pytest.param(block_tags, KEYS & 0xFFFFFFFF, id="keys of 32 bits"),
            pytest.param(block_tags, KEYS << 32, id="keys without low bits"),
            pytest.param(block_tags, KEYS[:, :1].expand(-1, 1024), id="one key for all words"),
            pytest.param(block_tags, KEYS * (torch.arange(1024) != 7), id="a key that is zero"),
        ],
    )
    def test_planted_bugs_are_caught(self, tags_of, keys):
        assert collisions(tags_of, keys) > 0


class TestKeys:
    def test_are_drawn_from_the_stream_and_kept(self):
        words = STREAM.words(4096, purpose="fingerprint", step=0)
        assert np.array_equal(KEYS.numpy().view(np.uint64).ravel(), words)
        kept = _lane_keys(STREAM.key, torch.device("cpu"))
        assert torch.equal(kept, KEYS)
        assert _lane_keys(STREAM.key, torch.device("cpu")) is kept

    def test_few_are_kept(self):
        assert _lane_keys.cache_info().maxsize <= 4
