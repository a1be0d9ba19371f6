"""PyTorch's generators under a secret stream, against NumPy's Mersenne twister."""

import hashlib

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import nn

from privet.engine.generators import draws_by_itself, generator_at, set_global_generators
from privet.privacy.clipping import cross_entropy
from privet.privacy.randomness import SecretStream

CPU = torch.device("cpu")
KEY = bytes(range(32))


def twister(purpose, step):
    """NumPy's, its state being the 624 words at the address, written anew."""
    name = f"{purpose}, state"
    address = f"{len(name)}|{name}|{step}|".encode()
    subkey = hashlib.blake2b(address, key=KEY, digest_size=32).digest()
    cipher = Cipher(algorithms.AES256(subkey), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(cipher.update(bytes(8 * 624)), dtype="<u8") >> np.uint64(32)
    bits = np.random.MT19937()
    state = {"key": words.astype(np.uint32), "pos": 624}
    bits.state = {"bit_generator": "MT19937", "state": state}
    return bits


def drawn(generator=None):
    return torch.randint(0, 2**24, (2000,), generator=generator).numpy()


def test_a_cpu_generator_has_its_whole_state_from_the_stream():
    """More than 2 x 624 draws: the state is turned over twice."""
    generator = generator_at(SecretStream(KEY), CPU, purpose="views", step=3)
    assert np.array_equal(drawn(generator), twister("views", 3).random_raw(2000) % 2**24)


def test_what_a_model_draws_has_its_whole_state_from_the_stream():
    with torch.random.fork_rng(devices=[]):
        torch.rand(5)
        torch.randn(5)  # an odd number may leave a half-used pair behind
        set_global_generators(SecretStream(KEY), step=3)
        assert np.array_equal(drawn(), twister("forward", 3).random_raw(2000) % 2**24)


def test_a_seed_alone_would_be_cut_to_32_bits():
    """Why the state is written: if this fails one day, a seed will do."""
    one, other = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert np.array_equal(drawn(one), drawn(other))


def test_draws_at_different_addresses_are_unrelated():
    """2000 draws below 2^24: more than 2 agree with probability 3e-13 for each of 28 pairs."""
    streams = SecretStream(KEY), SecretStream(bytes(32))
    found = [
        drawn(generator_at(stream, CPU, purpose=purpose, step=step))
        for stream in streams
        for purpose in ("forward", "views")
        for step in (0, 1)
    ]
    for i, one in enumerate(found):
        for other in found[:i]:
            assert (one == other).sum() <= 2
            assert abs(np.corrcoef(one, other)[0, 1]) * 2000**0.5 < 5.5  # 1e-6 in 28 pairs


class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=self.training)


def drawing_loss(outputs, y):
    return cross_entropy(outputs + torch.rand(1), y)


@pytest.mark.parametrize(
    ("layer", "loss", "draws"),
    [
        (nn.Identity(), cross_entropy, False),
        (nn.Dropout(0.5), cross_entropy, True),
        (nn.Dropout(0.0), cross_entropy, False),
        (nn.RReLU(), cross_entropy, True),
        (Dropping(), cross_entropy, True),
        (nn.Identity(), drawing_loss, True),
    ],
    ids=["none", "dropout", "dropout of nothing", "rrelu", "functional", "loss"],
)
@pytest.mark.parametrize("mode", [True, False])
def test_a_model_that_draws_is_found_out_and_left_as_it_was(layer, loss, draws, mode):
    model = nn.Sequential(nn.Linear(4, 3), layer).train(mode)
    state = torch.get_rng_state()
    probe = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(4).long()
    assert draws_by_itself(model, loss, probe) is draws
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training is mode for module in model.modules())
