"""Tokens come back exactly from the scaled inputs that every model gets."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from privet.data.dataset import Bounds, Split
from privet.engine.examples import Examples
from privet.engine.handover import hand_over
from privet.engine.prepare import make_private
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import Fronted, Tokens
from privet.models.tokens import MOST_TOKENS


def scaled(tokens, size):
    return torch.from_numpy(Bounds(low=(0.0,), high=(size - 1.0,)).clamp_and_scale(tokens))


@pytest.mark.parametrize("size", [2, 3, 256, 50_257, MOST_TOKENS])
def test_every_token_of_a_vocabulary_comes_back(size):
    tokens = np.arange(size)
    found = Tokens(size)(scaled(tokens, size))
    assert found.dtype == torch.int64
    assert np.array_equal(found.numpy(), tokens)


def test_a_vocabulary_beyond_the_limit_would_not():
    """The limit is that of single precision: four times as many tokens no longer come back."""
    size = 4 * MOST_TOKENS + 2
    layer = Tokens(MOST_TOKENS)
    layer.size = size
    tokens = np.arange(size - 1000, size)
    assert not np.array_equal(layer(scaled(tokens, size)).numpy(), tokens)


@given(size=st.integers(2, 256), seed=st.integers(0, 2**32 - 1))
def test_bytes_on_the_device_come_back_too(size, seed):
    """Bytes take another way through the engine than wider whole numbers."""
    x = np.random.default_rng(seed).integers(0, size, (5, 3)).astype(np.uint8)
    split, bounds = Split(x=x, y=np.zeros(5, np.int64)), Bounds(low=(0.0,), high=(size - 1.0,))
    rows = Examples.of(split, bounds, torch.device("cpu")).rows(torch.arange(5), torch.Generator())
    assert np.array_equal(Tokens(size)(rows.x).numpy(), x)


def test_what_lies_outside_the_vocabulary_is_its_nearest_token():
    found = Tokens(10)(scaled(np.array([-5, 0, 9, 12]), 10))
    assert found.tolist() == [0, 0, 9, 9]


@pytest.mark.parametrize("size", [0, 1, 2.5, "10", MOST_TOKENS + 1])
def test_a_bad_size_is_refused(size):
    with pytest.raises(InputError, match="bad number of tokens"):
        Tokens(size)


WORDS = 11


class Sentence(nn.Module):
    """Embeds whole numbers; nothing in it knows of scaling."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.last(self.embedding(tokens).mean(1))


@pytest.fixture
def sentences(make_data):
    x = np.random.default_rng(3).integers(0, WORDS, (80, 6))
    y = (x == 5).any(1).astype(np.int64)
    split = Split(x=x, y=y)
    return make_data(train=split, test=split, bounds=Bounds(low=(0.0,), high=(WORDS - 1.0,)))


def by_hand(model, x, y, clip_norm):
    """The clipped sum of one step: integers into the bare model, autograd, one after another."""
    total = 0.0
    for tokens, label in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        loss = nn.functional.cross_entropy(model(tokens[None]), label[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        flat = torch.cat([g.flatten() for g in gradients])
        total = total + flat * min(1.0, clip_norm / float(flat.norm()))
    return total


@pytest.mark.parametrize("front", [False, True])
def test_a_run_on_tokens_is_the_run_on_whole_numbers(sentences, tmp_path, front):
    """Every step of it, and the predictions of its release."""
    torch.manual_seed(1)
    bare = Sentence()
    first = {name: value.clone() for name, value in bare.state_dict().items()}
    model = Fronted(Tokens(WORDS), bare) if front else nn.Sequential(Tokens(WORDS), bare)
    ledger = Ledger(tmp_path / "ledger.db")
    trainer = make_private(
        model, torch.optim.SGD(bare.parameters(), lr=0.5), sentences,
        epsilon=8.0, delta=1e-3, batch=80, epochs=4, clip_norm=0.3, ledger=ledger,
    )  # fmt: skip
    for batch in trainer.batches():
        chosen = batch.indices.numpy()
        expected = by_hand(bare, sentences.train.x[chosen], sentences.train.y[chosen], 0.3)
        assert torch.allclose(trainer._clipped_sum(batch), expected, rtol=1e-3, atol=1e-4)
        trainer.step(batch)
    assert not torch.equal(bare.embedding.weight, first["embedding.weight"])
    release = hand_over(trainer, sentences)
    with torch.no_grad():
        chosen = bare(torch.from_numpy(sentences.test.x)).argmax(1).numpy()
    assert np.array_equal(release.predict(sentences.test.x), chosen)
    ledger.close()
