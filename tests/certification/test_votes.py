"""The engine: every vote is counted once, for its image, from fresh noise."""

import numpy as np
import pytest
import torch

from privet.certification.smoothing_noise import Gaussian, Uniform
from privet.certification.votes import NoisyVotes, Tally
from privet.classifiers import Classifier
from privet.errors import InputError

CPU = torch.device("cpu")


def classifier(scores, shape=(3,), classes=4):
    return Classifier(name="t", scores=scores, shape=shape, classes=classes, device=CPU)


def marked(images):
    """Image i is constant i/10: a model can tell which it sees, under little noise."""
    return (torch.arange(images) / 10).view(-1, 1).expand(-1, 3).contiguous()


def by_mark(x):
    """Scores whose best class is the image's number modulo 4."""
    number = (x.mean(1) * 10).round().long() % 4
    return torch.nn.functional.one_hot(number, 4).float()


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_every_vote_is_counted_for_its_image(batch):
    votes = NoisyVotes(classifier(by_mark), marked(9), Uniform(1e-3), batch=batch, seed=0)
    which, draws = np.array([8, 0, 3, 6]), np.array([5, 0, 130, 64])
    counts = votes.count(which, draws)
    assert counts.shape == (4, 5)
    assert counts.sum(1).tolist() == draws.tolist()
    assert [counts[i, image % 4] for i, image in enumerate(which)] == draws.tolist()


def test_forward_batches_have_one_size():
    sizes = []

    def scores(x):
        sizes.append(len(x))
        return by_mark(x)

    votes = NoisyVotes(classifier(scores), marked(4), Uniform(1e-3), batch=16, seed=0)
    votes.count(np.arange(4), np.array([3, 20, 1, 9]))
    assert sizes == [16, 16, 16]


def test_a_nan_is_a_vote_against():
    def scores(x):
        out = by_mark(x)
        out[:, 3] = torch.where(x[:, 0] > 0.15, float("nan"), out[:, 3])
        return out

    counts = NoisyVotes(classifier(scores), marked(3), Uniform(1e-3), seed=0).count(
        np.arange(3), np.full(3, 50)
    )
    assert counts[:, -1].tolist() == [0, 0, 50]
    assert counts[2, :-1].sum() == 0


def seen_noise(seed, stream, calls=2):
    """What a classifier is shown when it is asked twice for 40 votes on a black image."""
    shown = []

    def scores(x):
        shown.append(x.clone())
        return torch.zeros(len(x), 4)

    x = torch.zeros(1, 3)
    votes = NoisyVotes(classifier(scores), x, Gaussian(0.5), batch=40, seed=seed, stream=stream)
    for _ in range(calls):
        votes.count(np.array([0]), np.array([40]))
    return torch.cat(shown)


def test_noise_is_never_used_twice():
    rows = torch.cat([seen_noise(1, (0, 0)), seen_noise(1, (1, 0)), seen_noise(1, (1, 5))])
    rows = torch.cat([rows, seen_noise(None, (1, 0)), seen_noise(None, (1, 0))])
    assert len(torch.unique(rows, dim=0)) == len(rows) == 400
    assert len(torch.unique(rows)) > 1190  # nor shared between coordinates


def test_a_seed_repeats():
    assert torch.equal(seen_noise(1, (0, 0)), seen_noise(1, (0, 0)))


def test_bfloat16_votes_are_those_of_the_bfloat16_model():
    layer = torch.nn.Linear(3, 4)
    kinds = []

    def scores(x):
        out = layer(x)
        kinds.append((x.dtype, out.dtype))
        return out

    NoisyVotes(classifier(scores), marked(2), Gaussian(0.1), seed=0, precision="bf16").count(
        np.arange(2), np.full(2, 10)
    )
    assert kinds == [(torch.float32, torch.bfloat16)]


def test_channels_last():
    formats = []

    def scores(x):
        formats.append(x.is_contiguous(memory_format=torch.channels_last))
        return torch.zeros(len(x), 4)

    made = classifier(scores, shape=(3, 5, 5))
    NoisyVotes(made, torch.zeros(2, 3, 5, 5), Gaussian(0.1), seed=0, channels_last=True).count(
        np.arange(2), np.full(2, 10)
    )
    assert formats == [True]


def test_no_gradients_are_kept():
    weight = torch.ones(3, 4, requires_grad=True)
    tracked = []

    def scores(x):
        out = x @ weight
        tracked.append(out.requires_grad)
        return out

    NoisyVotes(classifier(scores), marked(2), Gaussian(0.1), seed=0).count(
        np.arange(2), np.full(2, 10)
    )
    assert tracked == [False]


def test_a_tally_goes_to_arrays_and_back(tmp_path):
    tally = Tally.empty(3, {"alpha": "0.001", "noise": "Gaussian(sigma=0.25)"})
    tally.hits[:] = [1, 2, 3]
    tally.lower[1] = 0.7
    tally.done[2] = True
    tally.rounds = 12
    np.savez(tmp_path / "tally.npz", **tally.to_arrays())
    back = Tally.from_arrays(np.load(tmp_path / "tally.npz"))
    assert back.terms == tally.terms
    assert back.rounds == 12
    for name in ("prediction", "hits", "draws", "lower", "done"):
        assert np.array_equal(getattr(back, name), getattr(tally, name))
    with pytest.raises(InputError):
        Tally.from_arrays({"hits": np.zeros(3)})
