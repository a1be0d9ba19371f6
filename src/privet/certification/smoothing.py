"""Randomized smoothing: certified predictions of any classifier, from votes under noise.

The algorithm is Cohen et al.'s CERTIFY (2019), for many images at once:

    c     <- the class with most of n0 votes on x + noise           (selection)
    k     <- votes for c among up to n fresh ones                   (estimation)
    p     <- lower bound of P(f(x + noise) = c) from k, level alpha
    abstain where p <= 1/2; else certify class c with the noise's radius for p

| symbol | here                                       |
|--------|--------------------------------------------|
| f, g   | `Classifier`, its smoothed version         |
| n0, n  | votes for selection, most for estimation   |
| alpha  | chance that an image's certificate is wrong |

Deviations, unless `reference=True`: bounds that hold at several looks (`confidence`), so that
images stop when they have enough votes (`stopping`). Alpha is the same.

Guarantee: for each image, P(certificate wrong) <= alpha. Proof: the class c is a function of the
selection votes alone; given c, the estimation votes are independent draws of a Bernoulli variable
with p = P(f(x + noise) = c), because they come from another stream of noise. The bound exceeds p
with probability at most alpha, whatever c is and whenever the image stops. If it does not, p is at
least the bound, all other classes together have at most the rest, and `smoothing_noise` proves the
radius. Assumed: the generators behave like independent draws, and float32 like the real numbers;
`grid_noise` does without the latter.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from privet.certification.certificates import ABSTAIN, Certificates
from privet.certification.smoothing_noise import SmoothingNoise
from privet.certification.stopping import TOLERANCE, Rule, make_rule, radii_of
from privet.certification.votes import Counts, NoisyVotes, Tally, Voters
from privet.classifiers import Classifier, Denoiser, denoised, open_classifier
from privet.classifiers.compiled import compiled
from privet.classifiers.separate import require_rows_apart
from privet.errors import InputError
from privet.privacy.confidence import check_alpha
from privet.privacy.precision import FULL, find_precision
from privet.release import Release

N0: Final = 200  # choose a wrong class 5 times in 10,000 at 0.3 noise scales; 100 do 108 times

_BATCHES: Final = 64  # forward batches between two judgements: seldom enough to cost nothing

Watch = Callable[[Tally], None]


def certify(
    classifier: Release | nn.Module | Classifier | str | Path,
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    *,
    noise: SmoothingNoise,
    alpha: float = 0.001,
    n0: int = N0,
    n: int = 100_000,
    mode: str = "curve",
    radius: float | None = None,
    tolerance: float = TOLERANCE,
    reference: bool = False,
    denoiser: Denoiser | None = None,
    batch: int = 1000,
    precision: str = FULL.name,
    compile: bool = False,
    channels_last: bool = False,
    seed: int | None = None,
    tally: Tally | None = None,
    watch: Watch | None = None,
) -> Certificates:
    """Certify predictions on images x with true classes y.

    Args:
        classifier: a classifier, or a release or module to make one of.
        x: images in [0, 1]; those of a data set are `data.bounds.clamp_and_scale(data.test.x)`.
        y: their classes.
        noise: what smooths; its norm is the norm of the radii.
        alpha: chance that an image's certificate is wrong.
        n0: votes that choose the class.
        n: the most votes that estimate its probability.
        mode: "curve" (a radius for each image) or "decision" (is `radius` certified?).
        radius: to be decided; for curves the largest of interest (default: no limit).
        tolerance: for curves, the radius that may be left on the table, in scales of the noise.
        reference: Cohen's loop: n votes for each image, one look.
        denoiser: a module or an `.onnx` file that noisy images pass before the classifier; the two
            together are what is certified.
        batch: images in a forward batch.
        precision: "float32", "tf32" or "bf16"; the classifier at it is what is certified.
        compile: by `torch.compile`, for this batch; the compiled classifier is what is certified.
            Where it fails, `terms["compiled"]` of the result says why, and it goes on without.
        channels_last: memory format of the forward batches.
        seed: of the noise, for tests; default: from the operating system.
        tally: resume this run, in place and with fresh noise.
        watch: called with the tally after each round of votes; it may be saved then.
    """
    check_alpha(alpha)
    if n0 < 1 or n < 1:
        raise InputError("bad number of votes", got=f"n0={n0}, n={n}", expected="at least 1 each")
    opened, x, noise = prepare(classifier, x, noise, denoiser)
    y = opened.require_labels(torch.as_tensor(y), len(x))
    rule = make_rule(
        mode, noise, n=n, alpha=alpha, radius=radius, tolerance=tolerance, reference=reference
    )
    terms: dict[str, Any] = {"alpha": alpha, "n0": n0, "n": n, **rule.terms, "precision": precision}
    if denoiser is not None:
        terms["denoised"] = opened.name
    if compile:
        opened, why = compile_for(opened, noise, batch, precision)
        terms["compiled"] = f"no: {why}" if why else "yes"
    tally = _tally_for(tally, len(x), _fingerprint(opened, x, noise, terms))

    def votes(stream: int) -> NoisyVotes:
        return NoisyVotes(
            opened,
            x,
            noise,
            batch=batch,
            seed=seed,
            stream=(stream, tally.rounds),
            precision=precision,
            channels_last=channels_last,
        )

    collect(votes(0), votes(1), rule, tally, n0=n0, batch=batch, watch=watch)
    return conclude(tally, y.cpu().numpy(), noise, n0, x[:1].numel(), terms)


def collect(
    selection: Voters,
    estimation: Voters,
    rule: Rule,
    tally: Tally,
    *,
    n0: int,
    batch: int = 1000,
    watch: Watch | None = None,
) -> None:
    """Fill the tally: choose classes, then gather votes until the rule has had enough.

    The votes of `selection` choose the class and are then forgotten.
    """

    def count(voters: Voters, which: Counts, draws: Counts) -> Counts:
        tally.rounds += 1
        return voters.count(which, draws)

    budget = _BATCHES * batch
    while len(which := np.flatnonzero(tally.prediction == ABSTAIN)[: max(1, budget // n0)]):
        chosen = count(selection, which, np.full(len(which), n0))[:, :-1]
        tally.prediction[which] = chosen.argmax(1)
        if watch is not None:
            watch(tally)
    while len(active := np.flatnonzero(~tally.done)):
        target = rule.target(tally.draws[active], batch // len(active))
        which, draws = _within(budget, active, target - tally.draws[active])
        votes = count(estimation, which, draws)
        tally.hits[which] += votes[np.arange(len(which)), tally.prediction[which]]
        tally.draws[which] += draws
        rule.judge(tally, which)
        if watch is not None:
            watch(tally)


def conclude(
    tally: Tally,
    labels: Counts,
    noise: SmoothingNoise,
    n0: int,
    dimension: int,
    terms: dict[str, Any],
) -> Certificates:
    """From bounds to radii; what is not above 1/2 abstains."""
    radius = radii_of(noise, tally.lower)
    return Certificates(
        label=labels,
        prediction=np.where(radius > 0.0, tally.prediction, ABSTAIN),
        radius=radius,
        p_lower=tally.lower.copy(),
        samples=tally.draws + n0,
        noise=noise,
        dimension=dimension,
        terms=terms,
    )


def prepare(
    source: Release | nn.Module | Classifier | str | Path,
    x: Tensor | ArrayLike,
    noise: SmoothingNoise,
    denoiser: Denoiser | None,
) -> tuple[Classifier, Tensor, SmoothingNoise]:
    """The classifier, checked inputs, and the noise as it is for these."""
    if not isinstance(noise, SmoothingNoise):
        raise InputError("no noise", got=noise, expected="one such as Gaussian(0.25)")
    x = torch.as_tensor(x)
    opened = open_classifier(source, shape=tuple(x.shape[1:]))
    if denoiser is not None:
        opened = denoised(opened, denoiser)
    x = opened.require_inputs(x)
    require_rows_apart(opened)
    return opened, x, noise.fitted(opened, x)


def compile_for(
    classifier: Classifier, noise: SmoothingNoise, batch: int, precision: str
) -> tuple[Classifier, str]:
    """The classifier compiled for these batches, or as it is and a note why."""
    if "layer" in noise.details:
        return classifier, "its layers run apart, with noise between"
    return compiled(classifier, batch, find_precision(precision, classifier.device))


def _within(budget: int, active: Counts, draws: Counts) -> tuple[Counts, Counts]:
    """The first images whose votes fit into the budget; the one that does not quite gets part."""
    before = np.cumsum(draws) - draws
    fitting = before < budget
    return active[fitting], np.minimum(draws[fitting], budget - before[fitting])


def _fingerprint(
    classifier: Classifier, x: Tensor, noise: SmoothingNoise, terms: dict[str, Any]
) -> dict[str, str]:
    """What votes of one run have in common."""
    return {name: str(value) for name, value in terms.items()} | {
        "noise": repr(noise),
        "images": hashlib.sha256(x.contiguous().cpu().numpy().tobytes()).hexdigest(),
        "classifier": f"{classifier.name} {classifier.digest()}",
    }


def _tally_for(tally: Tally | None, images: int, terms: dict[str, str]) -> Tally:
    if tally is None:
        return Tally.empty(images, terms)
    different = sorted(k for k in terms if tally.terms.get(k) != terms[k])
    if different or len(tally.done) != images:
        raise InputError(
            "a tally of another run",
            got=f"other {', '.join(different) or 'number of images'}",
            expected="the images and settings that it was begun with",
            fix="resume under the same terms, or start afresh",
        )
    return tally
