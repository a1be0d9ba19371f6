"""ChaCha20 against the RFC and `cryptography`; normals against Box-Muller written anew. Statistical
tests have a fixed key; each would fail a perfect source with the probability it states."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from privet.errors import InputError
from privet.privacy import chacha
from privet.privacy.chacha import box_muller, initial_state, keystream, normal, uniform

CPU = torch.device("cpu")
KEY = bytes(range(7, 39))
START = initial_state(KEY, CPU)
N = 100_000


def stream_bytes(start, blocks):
    return keystream(start, blocks).contiguous().numpy().tobytes()


def oracle(key, size):
    """Counter and nonce are zero: `cryptography` takes both as one field of 16 bytes."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))


class TestKeystream:
    def test_rfc_8439_section_2_3_2(self):
        """Counter 1 and a nonce: the words that a run leaves at zero take part as they should."""
        start = initial_state(bytes(range(32)), CPU)
        nonce = bytes.fromhex("000000090000004a00000000")
        start[12:] = torch.tensor([1, *np.frombuffer(nonce, dtype="<i4").tolist()])
        assert stream_bytes(start, 1).hex() == (
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
        )

    def test_rfc_8439_appendix_a_1(self):
        """The zero key, blocks 0 and 1."""
        assert stream_bytes(initial_state(bytes(32), CPU), 2).hex() == (
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
        )

    @pytest.mark.parametrize("key", [KEY, bytes(32), b"\xff" * 32, bytes(31) + b"\x80"])
    @pytest.mark.parametrize("blocks", [0, 1, 2, 3, 257, 5000])
    def test_agrees_with_another_implementation(self, key, blocks):
        assert stream_bytes(initial_state(key, CPU), blocks) == oracle(key, 64 * blocks)

    def test_does_not_change_its_start(self):
        before = START.clone()
        keystream(START, 3)
        assert torch.equal(START, before)

    def test_a_counter_that_would_come_round_is_refused(self):
        with pytest.raises(InputError, match="too many draws"):
            keystream(START, 2**31 + 1)

    @pytest.mark.parametrize("places", [(1, 2, 2), (0, 0, 0), (3, 2, 1)])
    def test_a_wrong_diagonal_would_be_caught(self, monkeypatch, places):
        right = chacha._turn

        def wrong(rows, turns, *, out):
            right(rows, places if turns == (1, 2, 3) else turns, out=out)

        monkeypatch.setattr(chacha, "_turn", wrong)
        assert stream_bytes(START, 1) != oracle(KEY, 64)


class Counting(TorchDispatchMode):
    """Names every operation; one that reads a value on the host is an error."""

    FREE = (
        "slice",
        "split",
        "select",
        "unbind",
        "view",
        "unsqueeze",
        "aten.t.",
        "empty",
        "detach",
        "alias",
    )

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        assert not any(word in name for word in ("local_scalar_dense", "nonzero", "item"))
        self.count += not any(word in name for word in self.FREE)
        return func(*args, **(kwargs or {}))


class TestCost:
    @pytest.mark.parametrize(("draw", "most"), [(keystream, 425), (normal, 440)])
    @pytest.mark.parametrize("n", [2, 3000])
    def test_operations_are_few_whatever_the_length_and_none_waits(self, draw, most, n):
        with Counting() as operations:
            draw(START, n)
        assert operations.count <= most

    def test_can_be_captured_as_one_graph(self):
        """Whole, without a break; another start given to the graph gives its own draws."""
        whole = torch.compile(partial(uniform, n=50), fullgraph=True, backend="eager")
        for start in (START, initial_state(bytes(32), CPU)):
            assert torch.equal(whole(start), uniform(start, 50))


class TestUniform:
    @pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 63, 1001])
    def test_is_the_top_of_each_word(self, n):
        words = np.frombuffer(oracle(KEY, 8 * n), dtype="<u8")
        assert uniform(START, n).tolist() == [int(w) // 2**11 / 2**53 for w in words]

    def test_longer_draws_begin_with_shorter_ones(self):
        assert torch.equal(uniform(START, 20), uniform(START, 50)[:20])

    def test_every_bit_is_fair(self):
        """53 binomial tests at 6 sigma: error rate 1e-7 in all."""
        words = (uniform(START, N).numpy() * 2**53).astype(np.uint64)
        for bit in range(53):
            ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
            assert abs(ones - N / 2) < 6 * math.sqrt(N) / 2


class TestNormal:
    z = normal(START, N).numpy()

    @pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1001])
    def test_is_box_muller_on_the_oracle(self, n):
        pairs = (n + 1) // 2
        u = (np.frombuffer(oracle(KEY, 16 * pairs), dtype="<u8") >> np.uint64(11)) / 2.0**53
        radius, angle = np.sqrt(-2 * np.log1p(-u[:pairs])), 2 * np.pi * u[pairs:]
        expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]
        assert normal(START, n).dtype == torch.float64
        assert np.allclose(normal(START, n).numpy(), expected, rtol=1e-12, atol=1e-14)

    def test_the_extreme_uniforms_give_finite_noise(self):
        z = box_muller(torch.tensor([0.0, 1 - 2.0**-53, 0.0, 0.0], dtype=torch.float64))
        assert z.abs().max() == pytest.approx(math.sqrt(2 * 53 * math.log(2)))

    def test_is_standard_normal(self):
        """Kolmogorov-Smirnov, 1e-6, which would notice 3 %; variance by chi-square, 1e-6; third
        and fourth moments at 6 sigma, 4e-9."""
        assert stats.kstest(self.z, "norm").pvalue > 1e-6
        assert stats.kstest(1.03 * self.z, "norm").pvalue < 1e-6
        assert stats.chi2.ppf(5e-7, N) < (self.z**2).sum() < stats.chi2.isf(5e-7, N)
        assert abs((self.z**3).mean()) < 6 * math.sqrt(15 / N)
        assert abs((self.z**4).mean() - 3) < 6 * math.sqrt(96 / N)

    def test_tails_have_their_mass(self):
        """Four binomial tests at error rate 1e-6 each."""
        for tail, mass in (
            (self.z > 3, stats.norm.sf(3)),
            (self.z < -3, stats.norm.sf(3)),
            (np.abs(self.z) > 4, 2 * stats.norm.sf(4)),
            (np.abs(self.z) < 0.01, 1 - 2 * stats.norm.sf(0.01)),
        ):
            assert stats.binomtest(int(tail.sum()), N, mass).pvalue > 1e-6

    def test_pairs_and_neighbours_are_independent(self):
        """Six correlations at 6 sigma (1e-8 in all); the squared radius is chi-square (1e-6)."""
        first, second = self.z[: N // 2], self.z[N // 2 :]
        for transform in (lambda v: v, np.abs, np.square):
            for a, b in ((first, second), (self.z[:-1], self.z[1:])):
                r = np.corrcoef(transform(a), transform(b))[0, 1]
                assert abs(r) < 6 / math.sqrt(len(a))
        assert stats.kstest(first**2 + second**2, stats.chi2(2).cdf).pvalue > 1e-6
