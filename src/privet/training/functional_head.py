"""StoBatch-FM: a linear classifier on fixed features by the functional mechanism, in one release.

Zhang et al. (2012) put noise on the coefficients of an objective, once; StoBatch and AdLM do so for
a loss whose features are still learning, which proves nothing (`privacy.functional`). Here the
features are fixed before any record is seen, so one release of the coefficients is all that the
records are ever asked for: epsilon does not grow with epochs, there are none.

| symbol    | here            | meaning                                                          |
|-----------|-----------------|------------------------------------------------------------------|
| phi(x)    | a model's front | w fixed features (scattering), |phi|^2 <= w by its normalisation |
| h         | `Features`      | (a P phi(x) / sqrt(w), b), a^2 + b^2 = 1, P a public projection  |
| t         | one-hot y       | M classes                                                        |
| S, B      | `Moments`       | sum of h h^T, sum of h t^T, with noise                           |
| nu        | `input_noise`   | smoothing noise; S and B are means over `views` draws of it      |
| W         | `minimised`     | the least of sum_l (s/2 - B_l) W_l + W_l S W_l / 8 + ridge       |

    one step, all records (rate 1):
        g_i = mean over views of (h h^T, h t^T),  |g_i|^2 = |h|^4 + |h|^2 <= 2
        (S, B) = sum of g_i + N(0, 2 sigma^2)
        W = 4 (S + lambda)^-1 (B - B 1 1^T / 2),  lambda = ridge 2 sigma sqrt(p)

It runs on the engine of DP-SGD: the loss <A, h h^T> + <V, h t^T> is linear in its parameters, so a
record's gradient is its coefficients whatever A and V are, and one step of rate 1 from zero leaves
-(S, B) / n. Clipping at sqrt(2) shortens nothing where |h| <= 1; as it is enforced, the bound holds
for any front. What follows the step (solving for W, mapping it back to the features) is
post-processing.

Guarantee: (epsilon, delta)-DP under add/remove neighbours: one Gaussian release of sensitivity
sqrt(2), accounted as a step of rate 1. Certificates by smoothing hold as for any classifier, and
the noise that they need is that of training (psi = 1).

Deviations. Gaussian noise, not Laplace: the L1 sensitivity grows with p. S is released in full, not
as a triangle: averaging it with its transpose halves the noise off the diagonal, which is the same.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, final

import torch
from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.engine.arguments import require_images
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.models import Fronted
from privet.privacy.units import PerExampleLoss
from privet.training.settings import Settings

SENSITIVITY: Final = math.sqrt(2.0)
CONSTANT: Final = 0.1  # b: the share of a record's length that the constant feature takes
PROJECTION_SEED: Final = 0  # public
_BY_DEFAULT: Final = {
    "adversarial": "none",
    "augment": "none",
    "optimizer": "sgd",
    "sampler": "poisson",
    "clipping": "flat",
    "ema": 0.0,
    "bands": 1,
}


@final
class Features(nn.Module):
    """Fixed features of a front, linear in it: (a P phi / sqrt(w), b).

    P has orthonormal rows and follows from a public seed; where there are no more features than
    asked for, it is the identity.
    """

    def __init__(self, front: nn.Module, width: int, features: int) -> None:
        super().__init__()
        self.front = front
        kept = min(width, features - 1)
        scale = math.sqrt((1.0 - CONSTANT**2) / width)
        self.register_buffer("projection", scale * _orthonormal(kept, width), persistent=False)

    @property
    def number(self) -> int:
        """P."""
        return len(self.get_buffer("projection")) + 1

    def forward(self, x: Tensor) -> Tensor:
        """One row for each input."""
        kept = self.front(x).flatten(1) @ self.get_buffer("projection").T
        return torch.cat([kept, torch.full_like(kept[:, :1], CONSTANT)], 1)

    def head(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and biases on the front's own features that give the scores h W."""
        projection = self.get_buffer("projection").double()
        return weights[:-1].T @ projection.to(weights), CONSTANT * weights[-1]


@final
class Moments(nn.Module):
    """The coefficients as parameters: after one step from zero, -(S, B) / n with noise."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.quadratic = nn.Linear(features, features, bias=False)
        self.linear = nn.Linear(features, classes, bias=False)
        for layer in (self.quadratic, self.linear):
            nn.init.zeros_(layer.weight)

    def forward(self, h: Tensor) -> Tensor:
        """V h, and in the last column h A h: what `coefficients` adds up."""
        square = (self.quadratic(h) * h).sum(1, keepdim=True)
        return torch.cat([self.linear(h), square], 1)

    def released(self) -> tuple[Tensor, Tensor]:
        """S and B over n, in double precision."""
        s, b = -self.quadratic.weight.detach().double(), -self.linear.weight.detach().double()
        return (s + s.T) / 2.0, b.T


def coefficients(outputs: Tensor, y: Tensor) -> Tensor:
    """<A, h h^T> + <V, h t^T> of each record: its gradient is the record's coefficients."""
    return outputs[:, -1] + outputs.gather(1, y.view(-1, 1))[:, 0]


@dataclass(frozen=True, kw_only=True)
class FunctionalSettings(Settings):
    """One look at all records: what is about steps is fixed, the rest may be chosen.

    Attributes:
        features: p, after projection, with the constant one.
        ridge: what holds the minimum back, in norms of the noise in S.
        model: a network with a fixed front and a linear head.
    """

    epochs: float = 1.0
    clip_norm: float = SENSITIVITY
    learning_rate: float = SENSITIVITY  # in units of the clip norm: the sum itself
    schedule: str = "constant"
    momentum: float = 0.0
    features: int = 256
    ridge: float = 1.0
    model: str | None = "scatter-linear"

    _small_models: ClassVar[tuple[str, ...]] = ("scatter-linear",)

    method: ClassVar[str] = "stobatch-fm"
    _positive: ClassVar[tuple[str, ...]] = (*Settings._positive, "ridge")
    _counts: ClassVar[tuple[str, ...]] = (*Settings._counts, "features")

    def _check_together(self) -> None:
        super()._check_together()
        fixed: dict[str, Any] = _BY_DEFAULT | {
            "epochs": 1.0,
            "clip_norm": SENSITIVITY,
            "learning_rate": SENSITIVITY,
            "schedule": "constant",
            "momentum": 0.0,
            "warmup": 0.0,
        }
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise InputError(
                    "the functional mechanism looks at all records once",
                    got=f"{name} {getattr(self, name)}",
                    fix=f"leave --{name.replace('_', '-')} out, or train stobatch",
                )
        if self.features < 2:
            raise InputError("bad features", got=self.features, expected="at least 2")

    def filled_for(self, data: Dataset) -> Self:
        """The batch is all of the data."""
        require_images(data, self.method, instead="privet train stobatch, or dpsgd")
        if self.batch not in (None, data.nominal_size):
            raise InputError(
                "the functional mechanism looks at all records once",
                got=f"batch {self.batch}",
                expected=f"the nominal size {data.nominal_size}",
                fix="leave --batch out",
            )
        return replace(super().filled_for(data), batch=data.nominal_size)

    def network(self, data: Dataset) -> nn.Module:
        """Fixed features, and the coefficients over them."""
        front, head = _parts(super().network(data))
        features = Features(front, head.in_features, self.features)
        return Fronted(features, Moments(features.number, len(data.classes)))

    @property
    def loss(self) -> PerExampleLoss:
        """That whose gradient is the coefficients."""
        return coefficients

    def made_of(self, trained: nn.Module, data: Dataset, plan: Plan) -> nn.Module:
        """The named network, its head set to the minimum."""
        s, b = moments_of(trained)
        return self.classifier_of(trained, data, s, b, deviation=deviation_of(plan))

    def classifier_of(
        self, trained: nn.Module, data: Dataset, s: Tensor, b: Tensor, *, deviation: float
    ) -> nn.Module:
        """The named network with the head that minimises the objective of these moments.

        `deviation` is that of the noise in an entry of B.
        """
        assert isinstance(trained, Fronted)
        features = trained.front
        assert isinstance(features, Features)
        # The spectral norm of the noise in S is near 2 sqrt(p / 2) deviations (Wigner).
        found = minimised(s, b, ridge=self.ridge * deviation * math.sqrt(2.0 * len(s)))
        classifier = super().network(data).to(s.device)
        head = _parts(classifier)[1]
        weights, biases = features.head(found)
        with torch.no_grad():
            head.weight.copy_(weights)
            head.bias.copy_(biases)
        return classifier


def moments_of(trained: nn.Module) -> tuple[Tensor, Tensor]:
    """What one look at the records has left: S and B over n, with noise."""
    assert isinstance(trained, Fronted)
    assert isinstance(trained.head, Moments)
    return trained.head.released()


def deviation_of(plan: Plan) -> float:
    """Of the noise in an entry of B over n."""
    return plan.noise_multiplier * plan.clip_norm / plan.normaliser


def minimised(s: Tensor, b: Tensor, *, ridge: float) -> Tensor:
    """4 (S + ridge)^-1 (B - B 1 1^T / 2), with S made positive semi-definite first: (p, M)."""
    values, vectors = torch.linalg.eigh(s)
    slope = b - b.sum(1, keepdim=True) / 2.0
    solved: Tensor = vectors @ ((vectors.T @ slope) / (values.clamp_min(0.0) + ridge)[:, None])
    return 4.0 * solved


def _orthonormal(rows: int, width: int) -> Tensor:
    if rows == width:
        return torch.eye(width)
    draws = torch.randn(width, rows, generator=torch.Generator().manual_seed(PROJECTION_SEED))
    columns: Tensor = torch.linalg.qr(draws.double()).Q
    return columns.T.float()


def _parts(whole: nn.Module) -> tuple[nn.Module, nn.Linear]:
    """The fixed front, and the linear layer behind it."""
    layers = list(whole.head.children()) if isinstance(whole, Fronted) else []
    if [type(layer) for layer in layers] == [nn.Flatten, nn.Linear]:
        return whole.front, layers[1]  # type: ignore[return-value]
    raise InputError(
        "no network of fixed features and a linear head",
        got=type(whole).__name__,
        fix="--model scatter-linear, contrast-scatter or still-scatter",
    )
