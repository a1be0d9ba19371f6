"""Streams: repeatable at one address, unrelated elsewhere, and secret. Statistical tests have a
fixed key; each would fail a perfect source with the probability it states."""

import hashlib
import math

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from privet.privacy.randomness import KEY_BYTES, Randomness, SecretStream

KEY = bytes(range(32))
STREAM = SecretStream(KEY)
CPU = torch.device("cpu")
ADDRESS = {"purpose": "gaussian", "step": 3, "context": b"sum"}
N = 100_000


class TestAddress:
    def test_same_address_same_draws(self):
        again = SecretStream(KEY)
        assert np.array_equal(STREAM.uniform(100, **ADDRESS), again.uniform(100, **ADDRESS))
        assert np.array_equal(STREAM.normal(101, **ADDRESS), again.normal(101, **ADDRESS))

    def test_draws_do_not_depend_on_what_was_drawn_before(self):
        fresh = SecretStream(KEY)
        fresh.normal(1000, purpose="gaussian", step=2)
        assert np.array_equal(STREAM.uniform(10, **ADDRESS), fresh.uniform(10, **ADDRESS))

    @pytest.mark.parametrize(
        "change",
        [
            {"purpose": "laplace"},
            {"step": 4},
            {"step": -3},
            {"step": 2**64 + 3},
            {"context": b"sun"},
            {"context": b""},
            {"context": b"sum\0"},
        ],
        ids=str,
    )
    def test_any_part_of_the_address_changes_every_word(self, change):
        one, other = STREAM.uniform(1000, **ADDRESS), STREAM.uniform(1000, **(ADDRESS | change))
        assert not np.intersect1d(one, other).size

    def test_one_bit_of_the_key_changes_every_word(self):
        flipped = SecretStream(bytes([KEY[0] ^ 1]) + KEY[1:])
        one, other = STREAM.uniform(1000, **ADDRESS), flipped.uniform(1000, **ADDRESS)
        assert not np.intersect1d(one, other).size

    def test_purposes_steps_and_contexts_do_not_run_into_each_other(self):
        draws = [
            STREAM.uniform(8, purpose="p", step=1, context=b"2|"),
            STREAM.uniform(8, purpose="p", step=12, context=b"|"),
            STREAM.uniform(8, purpose="p|1", step=2, context=b"|"),
        ]
        assert len(np.unique(draws)) == 24

    def test_a_thousand_steps_share_no_word(self):
        """A birthday among 64,000 53-bit words has probability 3e-7."""
        draws = np.concatenate([STREAM.uniform(64, purpose="p", step=s) for s in range(1000)])
        assert len(np.unique(draws)) == 64_000

    def test_longer_draws_begin_with_shorter_ones(self):
        long = STREAM.uniform(50, **ADDRESS)
        assert np.array_equal(STREAM.uniform(20, **ADDRESS), long[:20])

    def test_is_aes_256_in_counter_mode_under_a_keyed_hash(self):
        """Independent assembly from the module's description."""
        subkey = hashlib.blake2b(b"8|gaussian|3|sum", key=KEY, digest_size=32).digest()
        block = Cipher(algorithms.AES256(subkey), modes.ECB()).encryptor()
        blocks = b"".join(block.update(i.to_bytes(16, "big")) for i in range(4))
        words = [int.from_bytes(blocks[i : i + 8], "little") for i in range(0, 64, 8)]
        expected = [(w >> 11) / 2**53 for w in words]
        assert STREAM.uniform(8, **ADDRESS).tolist() == expected

    def test_a_digest_is_the_keyed_hash_at_an_address(self):
        expected = hashlib.blake2b(b"4|name|0|data", key=KEY, digest_size=32).digest()
        assert STREAM.digest(b"data", purpose="name") == expected

    @pytest.mark.parametrize("length", [0, 16, 31, 33])
    def test_keys_of_another_length_are_refused(self, length):
        with pytest.raises(ValueError, match="32 bytes"):
            SecretStream(bytes(length))


class TestUniform:
    u = STREAM.uniform(N, purpose="p", step=0)

    def test_half_open_interval_on_the_grid_of_doubles(self):
        assert self.u.min() >= 0.0
        assert self.u.max() < 1.0
        assert np.all(self.u * 2**53 == np.floor(self.u * 2**53))

    def test_is_uniform(self):
        """Kolmogorov-Smirnov, error rate 1e-6."""
        assert stats.kstest(self.u, "uniform").pvalue > 1e-6

    def test_every_bit_is_fair(self):
        """53 binomial tests at 6 sigma: error rate 1e-7 in all."""
        words = (self.u * 2**53).astype(np.uint64)
        for bit in range(53):
            ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
            assert abs(ones - N / 2) < 6 * math.sqrt(N) / 2

    def test_neighbours_are_uncorrelated(self):
        """6 sigma: error rate 2e-9."""
        assert abs(np.corrcoef(self.u[:-1], self.u[1:])[0, 1]) < 6 / math.sqrt(N)

    def test_a_slightly_skewed_source_would_be_caught(self):
        assert stats.kstest(self.u**1.05, "uniform").pvalue < 1e-6


class TestNormal:
    z = STREAM.normal(N, purpose="p", step=0)

    def test_is_standard_normal(self):
        """Kolmogorov-Smirnov, error rate 1e-6; chi-square on the variance, 1e-6."""
        assert stats.kstest(self.z, "norm").pvalue > 1e-6
        assert stats.chi2.ppf(5e-7, N) < (self.z**2).sum() < stats.chi2.isf(5e-7, N)

    def test_tails_have_their_mass(self):
        """Binomial tests at error rate 1e-6 each, three standard deviations out."""
        for tail in ((self.z > 3).sum(), (self.z < -3).sum()):
            assert stats.binomtest(int(tail), N, stats.norm.sf(3)).pvalue > 1e-6

    def test_both_halves_of_box_muller_are_independent(self):
        """6 sigma each on products of z, |z| and z^2 of a pair: error rate 1e-8 in all."""
        first, second = self.z[: N // 2], self.z[N // 2 :]
        for transform in (lambda v: v, np.abs, np.square):
            r = np.corrcoef(transform(first), transform(second))[0, 1]
            assert abs(r) < 6 / math.sqrt(N / 2)
        assert stats.kstest(first**2 + second**2, stats.chi2(2).cdf).pvalue > 1e-6

    def test_steps_are_uncorrelated(self):
        draws = np.stack([STREAM.normal(4000, purpose="p", step=s) for s in range(30)])
        r = np.corrcoef(draws)[np.triu_indices(30, 1)]
        assert np.abs(r).max() < 6 / math.sqrt(4000)

    @pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 11])
    def test_any_count(self, n):
        assert STREAM.normal(n, **ADDRESS).shape == (n,)

    def test_the_extreme_uniforms_give_finite_noise(self):
        class Ends(SecretStream):
            def uniform(self, n, **address):
                return np.array([0.0, 1 - 2.0**-53, 0.0, 0.0])

        z = Ends(KEY).normal(4, **ADDRESS)
        assert np.all(np.isfinite(z))
        assert np.abs(z).max() == pytest.approx(math.sqrt(2 * 53 * math.log(2)))


class TestNormalOnADevice:
    """On CPU tensors: the operations are those of any device."""

    def test_is_chacha20_under_a_keyed_hash(self):
        """Independent assembly from the module's description."""
        subkey = hashlib.blake2b(b"20|gaussian by ChaCha20|3|sum", key=KEY, digest_size=32).digest()
        cipher = Cipher(algorithms.ChaCha20(subkey, bytes(16)), mode=None).encryptor()
        u = (np.frombuffer(cipher.update(bytes(8 * 12)), dtype="<u8") >> np.uint64(11)) / 2.0**53
        radius, angle = np.sqrt(-2 * np.log1p(-u[:6])), 2 * np.pi * u[6:]
        expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:11]
        drawn = STREAM.normal_on(CPU, 11, **ADDRESS)
        assert np.allclose(drawn.numpy(), expected, rtol=1e-12, atol=1e-14)
        assert torch.equal(drawn, SecretStream(KEY).normal_on(CPU, 11, **ADDRESS))

    @pytest.mark.parametrize("change", [{"purpose": "p"}, {"step": 4}, {"context": b""}], ids=str)
    def test_any_part_of_the_address_changes_every_draw(self, change):
        one = STREAM.normal_on(CPU, 1000, **ADDRESS)
        other = STREAM.normal_on(CPU, 1000, **(ADDRESS | change))
        assert not np.intersect1d(one.numpy(), other.numpy()).size

    def test_has_nothing_to_do_with_the_draws_of_aes(self):
        """6 sigma: error rate 2e-9; and no subkey serves both ciphers."""

        class Noting(SecretStream):
            def _subkey(self, *address):
                subkeys.append(super()._subkey(*address))
                return subkeys[-1]

        subkeys = []
        one = Noting(KEY).normal(N, **ADDRESS)
        other = Noting(KEY).normal_on(CPU, N, **ADDRESS).numpy()
        assert len(set(subkeys)) == 2
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(N)


class TestRandomness:
    def test_fresh_keys_are_long_and_all_different(self):
        runs = [Randomness.fresh() for _ in range(20)]
        keys = {s.key for run in runs for s in (run.sampling, run.noise)}
        assert len(keys) == 40
        assert {len(key) for key in keys} == {KEY_BYTES} == {32}
        assert all(run.secret for run in runs)

    def test_seeded_keys_repeat_differ_and_are_not_secret(self):
        one, again, other = Randomness.seeded(1), Randomness.seeded(1), Randomness.seeded(2)
        assert (one.sampling.key, one.noise.key) == (again.sampling.key, again.noise.key)
        assert len({r.key for run in (one, other) for r in (run.sampling, run.noise)}) == 4
        assert one.secret is False

    @pytest.mark.parametrize("show", [repr, str, "{!r}".format])
    def test_the_key_is_never_shown(self, show):
        run = Randomness.fresh()
        for stream in (run.sampling, run.noise):
            for text in (show(run), show(stream)):
                assert stream.key.hex() not in text
                assert repr(stream.key)[2:-1] not in text
                assert "secret" in text

    def test_the_public_seed_decides_nothing_secret(self):
        one, other = Randomness.fresh(5), Randomness.fresh(5)
        assert one.init_seed == other.init_seed == 5
        assert one.noise.key != other.noise.key
        assert one.sampling.key != other.sampling.key
