"""IGAMT's training as its two texts have it, under audit: three counter-examples, and a sound one.

"Differentially private synthesis of temporal health records" exists twice, as a chapter of a thesis
and as a conference paper (AAAI). Claim: the generator, the imitator and the last layer, which are
released, are (epsilon, delta)-DP. `synthesis.published` is the whole method; this is the same on a
small scale.

| papers            | here             | value                                                |
|-------------------|------------------|------------------------------------------------------|
| x, m              | `Toy`            | 4 rows of 2 features, all measured                   |
| N, B, T           | `Toy`            | 32 records in batches of 8: one epoch, 4 iterations  |
| Enc, Dec, Dec_i   | enc, dec, imi    | tanh layers, 3 wide; decoders go from row to row     |
| theta_last        | last             | values and masks, both by a sigmoid                  |
| G, D_x, D_z       | g, dx, dz        | a tanh layer; critics have a hidden layer of 4       |
| eta               | `RATES`          | 5e-4, critics 1e-4                                   |
| C, sigma          | `Toy`            | 1; the least for which the claim is epsilon = 1.5    |
| fb, fh            | `SCHEDULE`       | critics learn in one of five iterations              |

    for each batch of the epoch, in this order:
        D_x, D_z (where it is their turn):  g = clip(mean gradient, C) + N(0, sigma^2)
        Dec, Enc:                           g = mean gradient, exact
        theta_last:                         g = clip(mean gradient, C) + N(0, sigma^2)
        Dec_i, G:                           g = mean gradient, exact
        theta <- theta - eta g

The observer sees G, Dec_i and theta_last after the epoch. The first weights and all records but one
are known, as in the definition of privacy; the noise from which G makes its latents is not.

`igamt` is the thesis: theta_last learns from l_dec, Dec_i from l_imi, which contains the records:
MSE(x m, x-bar m-bar). All others are black, the record is white. Its row of the gradient points the
other way, and nothing hides that but what the latents vary.

`igamt-aaai` is the paper: theta_last learns from l_imi. "Noise on the last layer's gradient, times
the Jacobian" has no shapes that fit; what back-propagation needs is the gradient at the *output*,
and that is exact. It passes through the noised layer here, which helps nothing.

`igamt-clipping` sees one noisy update of D_x, for which every step is accounted. The mean of the
batch is clipped, so one record may turn it round: a sensitivity of 2 C. The noise is N(0, sigma^2)
in both texts, without C. See `CriticUpdate`.

`igamt-sound` has the same networks, losses and pair. Each record's gradients of all parts that see
it are clipped as one and noised once; G learns from D_z alone. Claimed is what is proved:

Guarantee: T Poisson-sampled Gaussian steps, epsilon by `accounting`; one record more or less.
Proof: a record's row is a function of that record, the weights and draws of its own that know no
record. It is clipped to C, and N(0, sigma^2 C^2) is added to the sum of the rows. The weights are a
function of such sums and of draws that know no record; so is G's update. The divisor is a constant.

Deviations: small networks for large ones, without embeddings, dropout, D_m and gradient penalty;
the gradient steps of the text, where the authors' program has Adam for what is not noised. A batch
that lacks the record is one record short, and still divided by B.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privet.audits.mechanism import Floats, Subject
from privet.audits.statistics import along
from privet.privacy import moments
from privet.privacy.accounting import calibrate, sampled_gaussian, tradeoff_of
from privet.privacy.tradeoff import Stated

EPSILON: Final = 1.5
DELTA: Final = 1e-5
ROWS: Final = 4
FEATURES: Final = 2
WIDTH: Final = 3
HIDDEN: Final = 4
CRITICS: Final = ("dx", "dz")
SCHEDULE: Final = (5, 1)  # fb, fh
RATES: Final = {"dx": 1e-4, "dz": 1e-4} | dict.fromkeys(("enc", "dec", "last", "imi", "g"), 5e-4)
RELEASED: Final = ("imi", "last", "g")
SHAPES: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "enc": ((WIDTH, FEATURES), (WIDTH,)),
    "dec": ((WIDTH, WIDTH), (WIDTH, FEATURES), (WIDTH,)),
    "last": ((2 * FEATURES, WIDTH), (2 * FEATURES,)),
    "imi": ((WIDTH, WIDTH), (WIDTH, FEATURES), (WIDTH,)),
    "g": ((WIDTH, WIDTH), (WIDTH,)),
    "dx": ((HIDDEN, ROWS * FEATURES), (HIDDEN,), (HIDDEN,)),
    "dz": ((HIDDEN, ROWS * WIDTH), (HIDDEN,), (HIDDEN,)),
}
RUNS_AT_ONCE: Final = 2**10
PAIR: Final = (
    "31 black records, and a white one that is there or not; seen are the imitator, the last layer"
    " and the generator after one epoch."
)
NEVER_ZERO: Final = 1e-12  # what the text adds within a logarithm

Weights = dict[str, Tensor]  # by part, flat: (runs, size), or (runs, records, size)


@dataclass(frozen=True)
class Batch:
    """Records, and what is drawn beside each of them; (runs, records, ...)."""

    x: Tensor  # (..., rows, features)
    there: Tensor  # (...): 0 where a place is empty
    noise: Tensor  # (..., rows, width): what G turns into latents
    start: Tensor  # (..., features): of a synthetic record


@dataclass(frozen=True, kw_only=True)
class Toy:
    """One epoch; called, it gives what is released, a row for each run.

    Attributes:
        version: 'thesis' or 'aaai': what theta_last learns from.
    """

    sigma: float
    version: str = "thesis"
    clip_norm: float = 1.0
    batch: int = 8
    records: int = 32
    public_seed: int = 7

    @property
    def steps(self) -> int:
        """Of the epoch."""
        return self.records // self.batch

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """Dec_i, theta_last and G."""
        blocks = []
        for i, start in enumerate(range(0, runs, RUNS_AT_ONCE)):
            rng = np.random.default_rng([seed, i])
            w = self.trained(included, min(RUNS_AT_ONCE, runs - start), rng)
            blocks.append(torch.cat([w[part] for part in RELEASED], 1).numpy())
        return np.concatenate(blocks)

    def first(self, runs: int) -> Weights:
        """The public first weights: uniform, by the number of inputs."""
        rng = np.random.default_rng(self.public_seed)

        def drawn(shapes: tuple[tuple[int, ...], ...]) -> Tensor:
            parts = [rng.uniform(-1.0, 1.0, s) / math.sqrt(s[-1]) for s in shapes]
            flat = np.concatenate([part.ravel() for part in parts])
            return torch.from_numpy(flat).expand(runs, -1)

        return {part: drawn(shapes) for part, shapes in SHAPES.items()}

    def trained(self, included: bool, runs: int, rng: np.random.Generator) -> Weights:
        """All weights after the epoch."""
        w = self.first(runs)
        # The order is shuffled, and the others are alike: what counts is the record's turn.
        turn = rng.integers(self.steps, size=runs)
        for t in range(self.steps):
            batch = self.drawn(turn == t, included, rng)
            for part in self.parts(t):
                w = self.updated(w, part, batch, rng)
        return w

    def drawn(self, here: Floats, included: bool, rng: np.random.Generator) -> Batch:
        """A batch whose last place is the record's where `here`, empty if it is not included."""
        places = (len(here), self.batch)
        x, there = np.zeros((*places, ROWS, FEATURES)), np.ones(places)
        x[here, -1] = 1.0
        there[here, -1] = float(included)
        return Batch(torch.from_numpy(x), torch.from_numpy(there), *drawn_beside(places, rng))

    def parts(self, t: int) -> tuple[str, ...]:
        """Who learns in iteration t, in the order of the algorithm."""
        fb, fh = SCHEDULE
        return (*(CRITICS if t % fb < fh else ()), "dec", "enc", "last", "imi", "g")

    def updated(self, w: Weights, part: str, batch: Batch, rng: np.random.Generator) -> Weights:
        """The weights after the step of one part."""
        gradient = gradients(w, part, batch, self.version).sum(1) / self.batch
        if part in (*CRITICS, "last"):
            gradient = clipped(gradient, self.clip_norm) + self.sigma * normal(gradient, rng)
        return {**w, part: w[part] - RATES[part] * gradient}


@dataclass(frozen=True, kw_only=True)
class SoundToy(Toy):
    """Every record's gradients clipped as one and noised once; `sigma` is in units of C."""

    def trained(self, included: bool, runs: int, rng: np.random.Generator) -> Weights:
        """All weights after as many steps, of Poisson samples."""
        w, private = self.first(runs), [part for part in SHAPES if part != "g"]
        for _ in range(self.steps):
            batch = self.sampled(included, runs, rng)
            rows = torch.cat([gradients(w, part, batch, self.version) for part in private], 2)
            total = clipped(rows, self.clip_norm).sum(1)
            total = total + self.sigma * self.clip_norm * normal(total, rng)
            split = torch.split(total, [w[part].shape[1] for part in private], 1)
            moved = {
                part: w[part] - RATES[part] * noisy / self.batch
                for part, noisy in zip(private, split, strict=True)
            }
            w = {**w, **moved}
            fakes = Batch(batch.x, torch.ones_like(batch.there), batch.noise, batch.start)
            w = {**w, "g": w["g"] - RATES["g"] * gradients(w, "g", fakes, self.version).mean(1)}
        return w

    def sampled(self, included: bool, runs: int, rng: np.random.Generator) -> Batch:
        """All records; there are those that their coin takes."""
        places = (runs, self.records)
        x = np.zeros((*places, ROWS, FEATURES))
        x[:, -1] = 1.0
        there = (rng.random(places) < self.batch / self.records).astype(np.float64)
        there[:, -1] *= float(included)
        return Batch(torch.from_numpy(x), torch.from_numpy(there), *drawn_beside(places, rng))


def drawn_beside(places: tuple[int, int], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """What a synthetic record begins with: noise of G, and start features."""
    noise = rng.standard_normal((*places, ROWS, WIDTH))
    return torch.from_numpy(noise), torch.from_numpy(rng.uniform(0.0, 1.0, (*places, FEATURES)))


def gradients(w: Weights, part: str, batch: Batch, version: str) -> Tensor:
    """Of each record (runs, records, size): of the part's own loss, by the part's weights.

    Each record has a copy of the weights, so that its gradient is a row of its own.
    """
    places = batch.there.shape
    copies = {name: flat[:, None].expand(*places, -1) for name, flat in w.items()}
    copies[part] = copies[part].clone().requires_grad_()
    loss = losses(copies, batch)[loss_of(part, version)]
    (found,) = torch.autograd.grad((loss * batch.there).sum(), copies[part])
    return found


def loss_of(part: str, version: str) -> str:
    """By whose loss a part learns: its own, but for the last layer."""
    return part if part != "last" else {"thesis": "dec", "aaai": "imi"}[version]


def losses(w: Weights, batch: Batch) -> dict[str, Tensor]:
    """Those of both texts, for each record; the sign of l_dz is the thesis's."""
    z, faked = encoded(w["enc"], batch.x), generated(w["g"], batch.noise)
    x_hat, m_hat = decoded(w["dec"], w["last"], z, batch.start, batch.x)
    x_tilde, _ = decoded(w["dec"], w["last"], faked, batch.start)
    x_bar, _ = decoded(w["imi"], w["last"], faked, batch.start)
    ones = torch.ones_like(m_hat)
    recon = entropy(batch.x, x_hat) + entropy(ones, m_hat)
    dx_hat, dx_tilde, dx_bar, dx = (critic(w["dx"], u) for u in (x_hat, x_tilde, x_bar, batch.x))
    dz_tilde, dz = critic(w["dz"], faked), critic(w["dz"], z)
    imitation = sum((u - x_bar).square().mean((-2, -1)) for u in (x_hat, x_tilde, batch.x))
    return {
        "dx": dx_hat + dx_tilde + dx_bar - 3.0 * dx,
        "dz": dz_tilde - dz,
        "dec": recon - dx_hat - dx_tilde,
        "enc": recon + dz,
        "imi": imitation - dx_bar,
        "g": -dz_tilde,
    }


def encoded(enc: Tensor, x: Tensor) -> Tensor:
    """z, a latent for each row."""
    weight, bias = shaped("enc", enc)
    return torch.tanh(x @ weight.mT + bias[..., None, :])


def generated(g: Tensor, noise: Tensor) -> Tensor:
    """z-tilde."""
    weight, bias = shaped("g", g)
    return torch.tanh(noise @ weight.mT + bias[..., None, :])


def decoded(
    body: Tensor, last: Tensor, z: Tensor, start: Tensor, given: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Values times masks, and masks; the row before is the given one, or the one just made."""
    (latent, before, bias), (out, out_bias) = shaped("dec", body), shaped("last", last)
    row, made = start, []
    for t in range(ROWS):
        sums = latent @ z[..., t, :, None] + before @ row[..., None] + bias[..., None]
        o = torch.sigmoid((out @ torch.tanh(sums))[..., 0] + out_bias)
        x, m = o[..., :FEATURES], o[..., FEATURES:]
        made.append((x * m, m))
        row = x * m if given is None else given[..., t, :]
    values, masks = zip(*made, strict=True)
    return torch.stack(values, -2), torch.stack(masks, -2)


def critic(weights: Tensor, u: Tensor) -> Tensor:
    """D(u)."""
    weight, bias, out = shaped("dx" if u.shape[-1] == FEATURES else "dz", weights)
    hidden = (weight @ u.flatten(-2)[..., None])[..., 0] + bias
    return (out * functional.leaky_relu(hidden, 0.2)).sum(-1)


def entropy(a: Tensor, b: Tensor) -> Tensor:
    """CE(a, b) of a record."""
    terms = a * torch.log(b + NEVER_ZERO) + (1.0 - a) * torch.log(1.0 - b + NEVER_ZERO)
    return -terms.sum((-2, -1))


def shaped(part: str, flat: Tensor) -> list[Tensor]:
    """The tensors of a part."""
    shapes = SHAPES[part]
    split = torch.split(flat, [math.prod(shape) for shape in shapes], -1)
    return [s.reshape(*s.shape[:-1], *shape) for s, shape in zip(split, shapes, strict=True)]


def clipped(rows: Tensor, norm: float) -> Tensor:
    """Vectors along the last axis, shortened to `norm`."""
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    short: Tensor = rows / (lengths / norm).clamp_min(1.0)
    return short


def normal(like: Tensor, rng: np.random.Generator) -> Tensor:
    """Standard noise of this shape."""
    return torch.from_numpy(rng.standard_normal(tuple(like.shape)))


@dataclass(frozen=True, kw_only=True)
class CriticUpdate:
    """One noisy update of a linear D_x on records of the papers' size, along the one direction.

    D_x(u) = <w, u>, of 50 rows with 10 features. The decoders are fresh: all they make is 1/2.
    Of the four records three are `grey`, the fourth is white, or not there. All cells of a gradient
    are equal; an update is told by its projection on their direction. A record of value v adds

        sqrt(500) (1/2 + 1/2 + 1/2 - 3 v) / B

    to the mean. Three of 5/12 give 4.19, which is clipped to C = 4; a white one takes 8.39 from
    that: clipped to -4. Noise of deviation sigma = 4 hides a sensitivity of 4, not of 8.
    """

    sigma: float = 4.0
    clip_norm: float = 4.0
    batch: int = 4
    cells: int = 500
    grey: float = 5 / 12

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """The update, a row for each run."""
        noise = np.random.default_rng(seed).standard_normal((runs, 1))
        return self.mean(included) + self.sigma * noise

    def mean(self, included: bool) -> float:
        """The clipped mean gradient."""
        values = [self.grey] * (self.batch - 1) + [1.0] * included
        total = sum(1.5 - 3.0 * value for value in values) * math.sqrt(self.cells) / self.batch
        return max(-self.clip_norm, min(self.clip_norm, total))


def claimed(sigma: float, toy: Toy) -> float:
    """As published: one accountant for the thesis; for the paper three, added at equal shares."""
    calls = 1 if toy.version == "thesis" else 3
    return calls * moments.epsilon(
        noise_multiplier=sigma,
        rate=toy.batch / toy.records,
        steps=toy.steps,
        delta=DELTA / calls,
    )


@lru_cache
def least_sigma(version: str) -> float:
    """For which `EPSILON` is claimed of the epoch, rounded up."""
    toy, low, high = Toy(sigma=1.0, version=version), 0.1, 100.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if claimed(middle, toy) <= EPSILON else (middle, high)
    return high


def thesis() -> Subject:
    """The thesis, seen at what is released."""
    return _published(
        "igamt",
        "thesis",
        "The imitator, which is released, learns from exact gradients of a loss that contains the"
        " records; noise on the last layer and on the critics does not reach that term.",
    )


def aaai() -> Subject:
    """The conference paper, seen at what is released."""
    return _published(
        "igamt-aaai",
        "aaai",
        "The last layer's gradient is noised, but what is propagated back into the imitator's body"
        " is the gradient at the output, which contains the records.",
    )


def _published(name: str, version: str, flaw: str) -> Subject:
    return Subject(
        name=name,
        flaw=flaw,
        claim=Stated(EPSILON, DELTA),
        delta=DELTA,
        pair=PAIR,
        sample=Toy(sigma=least_sigma(version), version=version),
        runs=20_000,
    )


def clipping() -> Subject:
    """One update of D_x."""
    update = CriticUpdate()
    accounted = moments.epsilon(noise_multiplier=update.sigma, rate=1.0, steps=1, delta=DELTA)
    return Subject(
        name="igamt-clipping",
        flaw="The mean gradient of the batch is clipped, not each record's: one record may turn it"
        " round. The noise has no factor C.",
        claim=Stated(accounted, DELTA),
        delta=DELTA,
        pair="three grey records of 50 rows with 10 features, and a white one that is there or"
        " not: the clipped mean is -C with it, and C without.",
        sample=update,
        statistic=along([-1.0]),
        runs=1_000_000,
    )


def sound() -> Subject:
    """The same networks with every record clipped and noised, seen at what is released."""
    toy = Toy(sigma=1.0)
    rate, steps = toy.batch / toy.records, toy.steps
    sigma = calibrate(EPSILON, DELTA, lambda z: sampled_gaussian(z, rate, steps))
    return Subject(
        name="igamt-sound",
        claim=tradeoff_of(sampled_gaussian(sigma, rate, steps)),
        delta=DELTA,
        pair=PAIR,
        sample=SoundToy(sigma=sigma),
        runs=10_000,
    )
