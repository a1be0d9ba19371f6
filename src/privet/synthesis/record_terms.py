"""What a patient's stay adds to the objective of a family member: the one module the engine trains.

Two phases, by the number of the step:

| phase  | terms of stay i, each weighted                                                        |
|--------|---------------------------------------------------------------------------------------|
| coders | l_recon(x_i, m_i), KL of its latents, -log p(start_i), likelihood of what the decoder |
|        | leaves open (`spread`), - <anchor, [m_i ; u_i m_i ; u_i^2 m_i]> with u = 2 x - 1,     |
|        | - <counts, h_i>, h_i: how many of its cells are in each bin (`record_counts`)         |
| critics| - D_x(x_i m_i), - D_m(m_i), - D_z(z_i), likelihood of what the imitator leaves open   |

The anchor is a vector whose gradient, stay by stay, is the stay itself: the noisy sums of the first
phase are private means of masks, values and their squares, row by row and column by column. In the
same way those of `counts` are private histograms, column by column.

A term is a function of its stay, the weights and draws of its own. Nothing of other stays, nothing
that was made and not paid for, enters it: made records are judged elsewhere (`free_steps`).
"""

import copy
import math
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InputError
from privet.models.record_coders import Said, teacher_forced
from privet.models.record_losses import divergence, likelihood
from privet.models.record_networks import RecordNetworks
from privet.models.record_rows import Rows
from privet.privacy.phases import Phased
from privet.synthesis.record_counts import Counts

CODERS: Final = "coders"
CRITICS: Final = "critics"
MOMENTS: Final = 3  # of a cell: whether it is there, its value, its square


@final
@dataclass(frozen=True, kw_only=True)
class Weights:
    """What terms count; 0: not at all.

    Attributes:
        reconstruction: l_recon.
        values: of what is said of values, within l_recon.
        divergence: KL, in nats of a latent number, within l_recon.
        start: -log p of what a stay begins with.
        spread: likelihood of what reconstructions leave.
        anchor: what [m ; u m ; u^2 m] is multiplied by.
        counts: what counts by bin are multiplied by.
        critics: of critics' terms.
    """

    reconstruction: float
    values: float
    divergence: float
    start: float
    spread: float
    anchor: float
    counts: float
    critics: float


@final
class RecordTerms(Phased):
    """(n, 1 + L, W) codes in [0, 1] -> (n, terms), each weighted; see the module's words.

    Args:
        networks: of the family member; what is to be learned privately requires gradients.
        weights: of the terms.
        share: of the steps, of the first phase.
    """

    def __init__(self, networks: RecordNetworks, *, weights: Weights, share: float) -> None:
        super().__init__()
        self.networks, self.weights, self.share = networks, weights, share
        self.averaged = copy.deepcopy(networks).requires_grad_(False)
        sizes = networks.shape.sizes
        self.anchor = nn.Linear(MOMENTS * sizes.steps * sizes.features, 1, bias=False)
        self.counted = Counts(sizes)
        self.counts = nn.Linear(self.counted.width, 1, bias=False)
        for means, weight in ((self.anchor, weights.anchor), (self.counts, weights.counts)):
            nn.init.zeros_(means.weight)
            means.requires_grad_(weight > 0)
        both = ((CODERS, share > 0), (CRITICS, share < 1))
        self.phases = tuple(phase for phase, there in both if there)
        self.phase = self.phases[0]

    def phase_at(self, step: int, steps: int) -> str:
        """The first share of the steps belongs to the coders; where there are two, each has one."""
        if len(self.phases) == 1:
            return self.phases[0]
        if steps < len(self.phases):
            raise InputError(
                "too few steps for coders and critics",
                got=steps,
                expected=f"at least {len(self.phases)}",
                fix="more --epochs, or a smaller --batch",
            )
        return CODERS if step < min(max(1, round(self.share * steps)), steps - 1) else CRITICS

    def forward(self, codes: Tensor) -> Tensor:
        """The terms of the phase."""
        rows = self.networks.reader.read(codes, cut=self.networks.shape.aligned)
        terms = self._of_coders(rows) if self.phase == CODERS else self._of_critics(rows)
        return torch.stack(terms, 1)

    def _of_coders(self, rows: Rows) -> list[Tensor]:
        own, weights = self.networks, self.weights
        assert own.encoder is not None
        mean, log_variance = own.encoder(own.reader, rows)
        said = teacher_forced(
            own.decoder, own.last, own.reader, rows, self._drawn(mean, log_variance)
        )
        terms = [weights.reconstruction * likelihood(said, rows, weights.values)]
        if log_variance is not None:
            apart = divergence(mean, log_variance)
            if apart.dim() == 2:
                apart = (apart * rows.asked).sum(1)
            terms.append(weights.reconstruction * weights.divergence * apart)
        if own.start is not None:
            terms.append(weights.start * own.start(rows.start))
        if own.spread is not None:
            terms.append(weights.spread * own.spread(left_over(said, rows)))
        if weights.anchor:
            terms.append(-self.anchor(weights.anchor * self.profile(rows.x, rows.m))[:, 0])
        if weights.counts:
            terms.append(-self.counts(weights.counts * self.counted.of(rows.x, rows.m))[:, 0])
        return terms

    def _of_critics(self, rows: Rows) -> list[Tensor]:
        own, weights = self.networks, self.weights
        judged, terms = [], []
        if own.encoder is not None:
            z, said = self._told(rows)
            if own.critic_z is not None:
                judged.append(own.critic_z(z if z.dim() == 2 else z * rows.present[..., None]))
            if own.spread is not None:
                terms.append(weights.spread * own.spread(left_over(said, rows)))
        if own.critic_x is not None:
            judged.append(own.critic_x(rows.xm))
        if own.critic_m is not None:
            judged.append(own.critic_m(rows.m))
        terms += [-weights.critics * term for term in judged]
        if own.start is not None and CODERS not in self.phases:
            terms.append(weights.start * own.start(rows.start))
        return terms

    @torch.no_grad()
    def _told(self, rows: Rows) -> tuple[Tensor, Said]:
        """What the encoder, which no longer learns, says of stays; and what is said from that."""
        own = self.networks
        assert own.encoder is not None
        z = self._drawn(*own.encoder(own.reader, rows))
        body = own.decoder if own.imitator is None else own.imitator
        return z, teacher_forced(body, own.last, own.reader, rows, z)

    def _drawn(self, mean: Tensor, log_variance: Tensor | None) -> Tensor:
        """Latents of a law, by PyTorch's own generator; as many draws however stays are cut.

        In evaluation their means: there a pass must say the same again.
        """
        if log_variance is None or not self.training:
            return mean
        steps = self.networks.shape.latent_steps
        shape = mean.shape if steps is None else (len(mean), steps, mean.shape[2])
        noise = torch.randn(shape, dtype=mean.dtype, device=mean.device)
        return mean + torch.exp(0.5 * log_variance) * noise[:, : mean.shape[1]]

    def profile(self, x: Tensor, m: Tensor) -> Tensor:
        """(n, 3 L F): masks, values, squares, row by row; zeros for rows that were cut off.

        Values from -1 to 1: around the middle, a square tells more of how they are spread.
        """
        missing = self.networks.shape.sizes.steps - m.shape[1]
        u = 2.0 * x - 1.0
        moments = torch.cat([m, u * m, u.square() * m], 2)
        return F.pad(moments, (0, 0, 0, missing)).flatten(1)


def profile_bound(steps: int, features: int) -> float:
    """The norm of a stay of half as many rows as there may be, all measured, values at their most.

    Longer ones are shortened to it where the anchor is clipped so.
    """
    return math.sqrt(MOMENTS * features * steps / 2)


def left_over(said: Said, rows: Rows) -> Tensor:
    """(n, 2, 2, F): mean squared errors of a stay's values, of its first row and of the others.

    And 1 where there are any.
    """
    errors = (rows.x - said.x.detach()).square() * rows.m
    sums, counts = (torch.stack([part[:, 0], part[:, 1:].sum(1)], 1) for part in (errors, rows.m))
    return torch.stack([sums / counts.clamp_min(1.0), (counts > 0).to(sums.dtype)], 1)


def summed(outputs: Tensor, labels: Tensor) -> Tensor:
    """The objective of each stay; there are no labels."""
    return outputs.sum(1)
