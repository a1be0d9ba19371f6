"""Certificates of classifiers with known truth: sound, tight, fast; and a real model end to end."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr, ndtri
from scipy.stats import binom
from torch import nn

from privet.certification import ABSTAIN, Gaussian, Laplace, Tally, Uniform, certify
from privet.certification.smoothing import collect
from privet.certification.stopping import Reference
from privet.classifiers import Classifier
from privet.errors import InputError
from privet.privacy.confidence import lower_bound

RADII = np.arange(0.0, 3.001, 0.02)  # fine: a loss between the points of a coarse grid counts


def wrong(certificates, margins):
    """Certificates that say what is not so: another class than g's, or too large a radius."""
    top = (margins > 0).astype(int)
    stated = certificates.prediction != ABSTAIN
    too_far = certificates.radius > np.abs(margins)
    return int((stated & ((certificates.prediction != top) | too_far)).sum())


# Sound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        {"reference": True},
        {"mode": "curve", "tolerance": 0.0},
        {"mode": "curve"},
        {"mode": "decision", "radius": 1.0},
        {"mode": "decision", "radius": 0.9},
    ],
    ids=["reference", "curve-to-the-end", "curve", "decision-at-the-margin", "decision-below-it"],
)
def test_at_most_21_of_10_000_radii_exceed_the_margin(certify_coins, rule):
    """Alpha 0.001; more than 21 wrong ones have probability 7e-4, and the seed is fixed."""
    margins = np.full(10_000, 1.0)
    assert wrong(certify_coins(margins, n=8_000, seed=7, **rule), margins) <= 21


def most_wrong(trials, alpha):
    """Exceeded by a sound method with probability at most 1e-6."""
    return int(binom.isf(1e-6, trials, alpha))


@pytest.mark.parametrize(
    "rule",
    [{"reference": True}, {"mode": "curve"}, {"mode": "decision", "radius": 0.0}],
    ids=["reference", "curve", "decision"],
)
@pytest.mark.parametrize("margin", [1e-9, 0.02])
def test_margins_near_zero_at_alpha_a_twentieth(certify_coins, rule, margin):
    margins = np.full(10_000, margin)
    found = wrong(certify_coins(margins, n=1000, alpha=0.05, seed=5, **rule), margins)
    assert found <= most_wrong(10_000, 0.05)


class TestPlantedMistakes:
    """The harness above catches what people get wrong."""

    trials, n, alpha = 10_000, 1000, 0.05

    def ones(self, margin):
        return np.random.default_rng(9).binomial(self.n, ndtr(margin), self.trials)

    def violations(self, margin, prediction, radius):
        stated = prediction != ABSTAIN
        return int((stated & ((prediction != 1) | (radius > margin))).sum())

    def test_same_votes_for_selection_and_estimation(self):
        ones = self.ones(1e-9)
        lower = lower_bound(np.maximum(ones, self.n - ones), self.n, self.alpha)
        prediction = np.where(lower > 0.5, (2 * ones > self.n).astype(int), ABSTAIN)
        found = self.violations(1e-9, prediction, ndtri(lower))
        assert found > most_wrong(self.trials, self.alpha)

    def test_no_abstention(self):
        ones = self.ones(0.02)
        prediction = (2 * ones > self.n).astype(int)
        found = self.violations(0.02, prediction, np.zeros(self.trials))
        assert found > most_wrong(self.trials, self.alpha)

    def test_sigma_on_the_wrong_scale(self):
        """Inputs stretched to [-1, 1] under the same sigma: radii of twice the truth."""
        lower = lower_bound(self.ones(0.1), self.n, self.alpha)
        prediction = np.where(lower > 0.5, 1, ABSTAIN)
        found = self.violations(0.1, prediction, 2 * ndtri(lower))
        assert found > most_wrong(self.trials, self.alpha)
        assert self.violations(0.1, prediction, ndtri(lower)) <= most_wrong(self.trials, self.alpha)


# Tight --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", [{"reference": True}, {"mode": "curve"}], ids=["reference", "curve"]
)
@pytest.mark.parametrize("margin", [0.3, 0.6, 1.0, 2.0, 3.0, 3.3])
def test_mean_radius_is_95_percent_of_the_margin(certify_coins, rule, margin):
    """With the default number of selection votes."""
    found = certify_coins(np.full(400, margin), seed=3, **rule)
    assert found.radius.mean() >= 0.95 * margin


# Fast ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(certify_coins, mnist_like):
    return certify_coins(mnist_like, reference=True, seed=1)


@pytest.mark.parametrize(("radius", "times"), [(0.5, 300), (1.0, 200), (2.0, 60), (3.0, 10)])
def test_a_decision_needs_few_votes(certify_coins, mnist_like, reference, radius, times):
    """Asked for: 20 times fewer to two noise scales, 8 times at three; half a point may be lost."""
    found = certify_coins(mnist_like, mode="decision", radius=radius, seed=2)
    assert found.samples.sum() * times <= reference.samples.sum()
    lost = reference.certified_accuracy([radius]) - found.certified_accuracy([radius])
    assert lost[0] <= 0.005


@pytest.mark.parametrize("seed", [2, 3])
def test_a_curve_to_three_noise_scales_needs_five_times_fewer(
    certify_coins, mnist_like, reference, seed
):
    """At most half a point is lost at any radius; the tolerance of 0.03 would fail."""
    found = certify_coins(mnist_like, mode="curve", radius=3.0, seed=seed)
    assert found.samples.sum() * 5 <= reference.samples.sum()
    lost = reference.certified_accuracy(RADII) - found.certified_accuracy(RADII)
    assert lost.max() <= 0.005


def test_the_command_line_has_the_same_defaults():
    """They are written down twice, for a quick `--help`."""
    import inspect

    from privet.commands.certify import certify as command

    ours, theirs = inspect.signature(certify).parameters, inspect.signature(command).parameters
    shared = {"alpha", "n", "n0", "mode", "radius", "tolerance", "batch", "precision", "compile"}
    assert {k: ours[k].default for k in shared} == {k: theirs[k].default for k in shared}


# End to end ---------------------------------------------------------------------------------------


@pytest.fixture
def linear():
    """Class 1 where x0 + x1 > 1, scaled so that logits are signed l2 distances."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]) / 2**0.5 / 2)
        model.bias.copy_(torch.tensor([1.0, -1.0]) / 2**0.5 / 2)
    return model


POINTS = torch.tensor([[0.9, 0.9], [0.6, 0.6], [0.1, 0.2], [0.5, 0.5], [0.55, 0.55]])
LABELS = torch.tensor([1, 1, 0, 1, 1])


def distance(norm):
    gap = (POINTS.sum(1) - 1).abs().numpy().astype(float)
    return gap / np.sqrt(2) if norm == "l2" else gap


@pytest.mark.parametrize(
    "noise", [Gaussian(0.25), Laplace(0.15), Uniform(0.6)], ids=lambda n: n.name
)
@pytest.mark.parametrize("mode", ["reference", "curve", "decision"])
def test_a_real_linear_model(linear, noise, mode):
    asked = {"reference": {"reference": True}, "curve": {"mode": "curve"}}.get(
        mode, {"mode": "decision", "radius": 0.1}
    )
    found = certify(linear, POINTS, LABELS, noise=noise, n=20_000, seed=1, batch=500, **asked)
    true = distance(noise.norm)
    assert np.all(found.radius <= true + 1e-6)
    assert found.prediction.tolist()[:3] == [1, 1, 0]
    assert found.prediction[3] == ABSTAIN  # on the boundary
    assert not found.correct[3]
    assert np.all(found.samples <= 20_200)
    if mode == "decision":
        assert np.all(found.radius[[0, 1, 2]] >= 0.1)
        assert found.radius[4] < 0.1
        assert found.samples[0] < 2000
    elif noise.name == "gaussian":  # for a linear model the Gaussian bound is tight
        assert np.all(found.radius[[1, 2, 4]] >= 0.85 * true[[1, 2, 4]])


def test_votes_have_the_exact_probability(linear):
    """The share of votes at 0.6, 0.6 is Phi(distance / sigma), within 5 standard errors."""
    seen = []
    certify(
        linear,
        POINTS[1:2],
        LABELS[1:2],
        noise=Gaussian(0.25),
        n=50_000,
        reference=True,
        seed=3,
        watch=lambda tally: seen.append((tally.hits[0], tally.draws[0])),
    )
    hits, draws = seen[-1]
    p = float(ndtr(distance("l2")[1] / 0.25))
    assert draws == 50_000
    assert abs(hits / draws - p) < 5 * (p * (1 - p) / draws) ** 0.5


def test_selection_votes_never_enter_the_estimate():
    class Only:
        """All votes for one class."""

        classes = 2

        def __init__(self, column):
            self.column = column

        def count(self, which, draws):
            votes = np.zeros((len(which), 3), dtype=np.int64)
            votes[:, self.column] = draws
            return votes

    tally = Tally.empty(3, {})
    collect(Only(1), Only(0), Reference(1000, 0.001), tally, n0=500)
    assert tally.prediction.tolist() == [1, 1, 1]
    assert tally.hits.tolist() == [0, 0, 0]
    assert tally.draws.tolist() == [1000, 1000, 1000]
    assert tally.lower.tolist() == [0.0, 0.0, 0.0]


def test_a_run_resumes_with_fresh_noise_and_the_same_outcome(linear, tmp_path):
    class Cut(Exception):  # noqa: N818
        pass

    asked = {"noise": Gaussian(0.25), "n": 20_000, "seed": 4, "batch": 50, "reference": True}

    def save(tally):
        np.savez(tmp_path / "tally.npz", **tally.to_arrays())
        if tally.draws.sum() > 30_000:
            raise Cut

    with pytest.raises(Cut):
        certify(linear, POINTS, LABELS, **asked, watch=save)
    saved = Tally.from_arrays(np.load(tmp_path / "tally.npz"))
    before = saved.hits.copy(), saved.draws.copy()
    assert saved.draws.sum() > 30_000
    resumed = certify(linear, POINTS, LABELS, **asked, tally=saved)
    assert np.all(saved.draws == 20_000)
    assert np.all(saved.hits >= before[0])
    assert np.all(resumed.radius <= distance("l2") + 1e-6)
    whole = certify(linear, POINTS, LABELS, **asked)
    assert np.allclose(whole.radius, resumed.radius, atol=0.03)
    with pytest.raises(InputError, match="another run"):
        certify(linear, POINTS, LABELS, **(asked | {"n": 30_000}), tally=saved)
    with pytest.raises(InputError, match="other noise"):
        certify(linear, POINTS, LABELS, **(asked | {"noise": Gaussian(0.26)}), tally=saved)
    with pytest.raises(InputError, match="images"):
        certify(linear, POINTS.flip(0), LABELS, **asked, tally=saved)
    with torch.no_grad():
        linear.bias.add_(0.1)
    with pytest.raises(InputError, match="classifier"):
        certify(linear, POINTS, LABELS, **asked, tally=saved)


def test_no_noise_serves_twice_in_a_run_or_after_a_resume():
    """Selection, estimation and a resumed estimation, under one seed: all noise is different."""
    shown = []

    def scores(x):
        if len(x) == 40:  # what is tried before has fewer rows
            shown.append(x.clone())
        return torch.stack([x[:, 0], -x[:, 0]], dim=1)

    model = Classifier(
        name="seen", scores=scores, shape=(2,), classes=2, device=torch.device("cpu")
    )
    x, y = torch.full((1, 2), 0.5), torch.tensor([0])
    asked = {"noise": Gaussian(0.25), "n0": 40, "n": 400, "seed": 6, "batch": 40, "reference": True}
    halves = []
    certify(model, x, y, **asked, watch=lambda tally: halves.append(tally.to_arrays()))
    saved = Tally.from_arrays(halves[0])  # after the selection
    certify(model, x, y, **asked, tally=saved)
    rows = torch.cat(shown)
    assert len(rows) == 40 + 400 + 400
    assert len(torch.unique(rows, dim=0)) == len(rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "both"},
        {"mode": "decision"},
        {"alpha": 0.5},
        {"n": 0},
        {"n0": 0},
        {"radius": -1.0},
        {"tolerance": -0.1},
        {"batch": 0},
        {"precision": "fp8"},
    ],
)
def test_nonsense_is_refused(linear, changes):
    with pytest.raises(InputError):
        certify(linear, POINTS, LABELS, **({"noise": Gaussian(0.25), "n": 100} | changes))


def test_arrays_will_do(linear):
    found = certify(
        linear, POINTS.numpy(), LABELS.numpy(), noise=Gaussian(0.25), n=500, mode="curve", seed=0
    )
    assert found.prediction[0] == 1
    assert found.terms["n"] == 500
