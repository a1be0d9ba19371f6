"""IGAMT with a proof, and the baselines beside it: records by coders, critics and generators.

The papers train an auto-encoder on records without noise, and only what is released (a generator
and a decoder that imitates) sees them through noisy critics. That does not hold: imitation and
critics are fed by networks that may have learned any record by heart (`--analysis paper`). Here
the idea is kept, that the large decoder goes on learning from small critics, and everything that
sees a record is private.

| symbol        | here              | meaning                                                   |
|---------------|-------------------|-----------------------------------------------------------|
| Enc, Dec      | `networks`        | learned privately in the first phase, then as they are    |
|               | `spread`          | of values around what is said: privately, in both phases  |
| D_x, D_m, D_z | `critic_x`..      | learned privately in the second                           |
| Dec_i, G      | `imitator`, ..    | begin as Dec and as noise, learn from critics alone: free |
| S-hat         | `anchor`          | private means of [m ; u m ; u^2 m], u = 2 x - 1           |
| H-hat         | `counts`          | private mean counts of cells in each bin, by column       |
| q, N, C, T    | the plan's        | sampling rate, nominal size, clip norm, steps             |
| sigma         | `noise_multiplier` | of the plan                                              |

    for t in 1 .. T, for a Poisson sample of patients of rate q, each patient i by themselves:
        l_i = the terms of the phase that t belongs to (`record_terms`)
        u_i = grad l_i over all private parts, each part shortened, then all of it, to C
        g   = (sum of u_i + N(0, sigma^2 C^2)) / (q N)
        private parts of the phase <- optimiser(g + what made records say, exactly)
        critics are kept from being steep; G and Dec_i take free steps (`free_steps`)
    release p(start), G, Dec_i, the last layer and the spread of values, each as a moving average,
            and cut points by which made records are in each bin as often as H-hat says (`settling`)

Guarantee: that of DP-SGD, (epsilon, delta) for the patient, by the plan alone. Proof. (1) Given
what was released before, l_i is a function of patient i's stays, of the weights and of draws of its
own: networks that are not private never enter it. So one patient moves the sum by at most C, in
either phase: the Gaussian mechanism with multiplier sigma, on a Poisson sample. (2) Which phase a
step belongs to follows from its number. (3) All else that happens is a function of the noisy sums
and of public draws: the hooks on the optimiser are handed the weights, no record. Parts that do
not learn in a phase have zero gradients there; the noise on them is thrown away. So T steps are T
subsampled Gaussian mechanisms, composed as the plan composes them, and what is released is
post-processing. What the schema says is public, or charged in `learned`.

| member | first phase: coders        | second: critics, and what goes on for free              |
|--------|----------------------------|---------------------------------------------------------|
| vae    | all steps                  | none                                                    |
| gan    | none                       | D_x; G and decoder. p(start) is learned here            |
| vaegan | l_recon, KL                | D_x; the decoder, on samples                            |
| aae    | l_recon                    | D_z; G                                                  |
| daae   | l_recon                    | D_x, D_z; G, and the decoder, on samples                |
| igamt  | l_recon, KL, anchor, counts| D_x, D_m, D_z; G, and the imitator (without: the decoder) |

Deviations from the papers, besides the proof: values are read at the middle of the schema's public
bins, and bounds are the schema's; rows are read with their masks; a row sees latents up to its own;
rows after the end of a stay have no say; what stays begin with is learned, not drawn from its
ranges, and outcomes belong to it; masks are drawn, and values are drawn around what is said, with
deviations that are learned, and fall into bins by cut points of private histograms;
latents of IGAMT are few for each row, a law held near the standard
normal one, so that G has little to learn; critics compare made records with real ones alone (not
with reconstructions, which teach nothing once the coders are frozen), and are kept from being steep
by their largest singular values instead of a penalty; imitation is of what Dec says, row by row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, Self, cast

import torch
from torch import nn

from privet.data.dataset import Dataset
from privet.data.records.schema_file import schema_from_json
from privet.engine.plan import Plan
from privet.engine.prepare import Extras
from privet.errors import InputError
from privet.models.record_coders import GRU, TRANSFORMER
from privet.models.record_maker import Form
from privet.models.record_networks import RecordNetworks
from privet.privacy.geometry import BY_PART, GEOMETRIES, Geometry
from privet.privacy.units import PerExampleLoss
from privet.synthesis.family import FAMILY, IGAMT, Member
from privet.synthesis.free_steps import Free, FreeSteps
from privet.synthesis.generating import Generating, schema_of
from privet.synthesis.record_counts import Counts
from privet.synthesis.record_terms import RecordTerms, Weights, profile_bound, summed
from privet.synthesis.settling import settled
from privet.training import dpsgd
from privet.training.registry import Variant
from privet.training.settings import Settings

SIZES: Final = {TRANSFORMER: "transformer-64-1-8", GRU: "gru-64-1-16"}
# Of the clip norm, for what learns in one step: their squares add up to one.
START_RADIUS: Final = 0.3
SPREAD_RADIUS: Final = 0.2
ANCHOR_RADIUS: Final = 0.3
COUNTS_RADIUS: Final = 0.4


@dataclass(frozen=True, kw_only=True)
class FamilySettings(Generating, Settings):
    """The settings of DP-SGD, and what may be chosen about a family member.

    Attributes:
        batch: expected patients in a step; default: a fifth of the nominal size, at most 1024.
        clipping: 'by-part': what stays begin with, spread, anchor, coders and each critic by
            themselves, within one ball; or one of DP-SGD's.
        model: size of the networks: coder, width, layers, latent numbers.
        without: parts to go without, separated by commas; see `family`.
        coder_share: of the steps, of the first phase; where there are two.
        recon_weight: of l_recon in the objective.
        value_weight: of values, within l_recon; of masks it is 1.
        kl_weight: of the latents' divergence, within l_recon; 0: latents are no law.
        start_weight: of what stays begin with.
        spread_weight: of the deviations of values.
        critic_weight: of the critics' terms.
        free_steps: of generators, after each private step of the critics.
        free_batch: stays that are made for one.
        free_rate: their highest learning rate, of Adam; it falls as the private one does.
        judged_weight: what critics count in them.
        imitation_weight: what staying near the decoder counts.
        anchor_weight: what private means of masks and values count; 0: none are learned.
        settling: stays that are made to find the cut points of bins by private histograms; 0: none
            are learned, and bins keep their own edges.
    """

    epochs: float = 20.0
    learning_rate: float = 0.005
    optimizer: str = "adam"
    ema: float = 0.95
    clipping: str = BY_PART
    without: str = ""
    coder_share: float = 0.6
    recon_weight: float = 0.01
    value_weight: float = 10.0
    kl_weight: float = 0.0
    start_weight: float = 0.007
    spread_weight: float = 0.008
    critic_weight: float = 0.15
    free_steps: int = 4
    free_batch: int = 128
    free_rate: float = 1e-3
    judged_weight: float = 1.0
    imitation_weight: float = 1.0
    anchor_weight: float = 0.0
    settling: int = 0

    method: ClassVar[str] = IGAMT
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "clipping": (BY_PART, *GEOMETRIES),
    }
    _positive: ClassVar[tuple[str, ...]] = (
        *Settings._positive,
        "recon_weight",
        "value_weight",
        "start_weight",
        "spread_weight",
        "critic_weight",
        "free_rate",
    )
    _counts: ClassVar[tuple[str, ...]] = (*Settings._counts, "free_batch")
    _not_negative: ClassVar[tuple[str, ...]] = (
        "free_steps",
        "kl_weight",
        "judged_weight",
        "imitation_weight",
        "anchor_weight",
        "settling",
    )

    @property
    def member(self) -> Member:
        """Of the family, less what it goes without."""
        ablated = [word.strip() for word in self.without.split(",") if word.strip()]
        return FAMILY[self.method].without(ablated)

    def _check_together(self) -> None:
        super()._check_together()
        for name, value in self._set(self._not_negative):
            if not 0 <= value < math.inf:
                raise InputError(f"bad {name}", got=value, expected="a finite number, at least 0")
        if not 0 < self.coder_share < 1:
            raise InputError("bad coder_share", got=self.coder_share, expected="between 0 and 1")
        if self.free_batch < 2:
            raise InputError("bad free_batch", got=self.free_batch, expected="at least 2")
        member = self.member
        if member.variational and not self.kl_weight:
            raise InputError(
                f"the latents of '{member.name}' are a law", got="kl_weight 0", expected="above 0"
            )
        if self.anchor_weight and not (member.encoder and member.critics):
            raise InputError(
                f"'{member.name}' has nothing that private means could teach",
                got=f"anchor_weight {self.anchor_weight:g}",
                fix="leave --anchor-weight out",
            )
        if self.settling and not member.encoder:
            raise InputError(
                f"'{member.name}' has no first phase, where histograms are learned",
                got=f"settling {self.settling}",
                fix="leave --settling out",
            )
        if self.model is not None:
            self._form(self.model)

    def filled_for(self, data: Dataset) -> Self:
        """With the whole name of the network."""
        filled = super().filled_for(data)
        assert filled.model is not None
        return replace(filled, model=filled._form(filled.model).name)

    def _default_model(self, data: Dataset) -> str:
        return SIZES[self.member.coder]

    def _batch_for(self, nominal_size: int) -> int:
        return max(1, min(1024, nominal_size // 5))

    def _form(self, name: str) -> Form:
        """Of what is released: a size, and all that follows from the member."""
        form, member = Form.read(name), self.member
        if form.coder != member.coder:
            raise InputError(
                f"'{self.method}' has another coder",
                got=f"model '{name}'",
                expected=SIZES[member.coder],
            )
        flags = {"aligned", "masks", "start", *member.embeddings}
        flags |= {"spread"} if member.encoder else set()
        flags |= {"generator"} if member.generator else set()
        flags |= {"near"} if member.generator and self._law else set()
        flags |= {"levels"} if self.settling else set()
        return form.with_flags(flags)

    @property
    def _law(self) -> bool:
        return bool(self.kl_weight) and self.member.encoder

    @property
    def _share(self) -> float:
        """Of the steps, of the first phase."""
        member = self.member
        return 0.0 if not member.encoder else self.coder_share if member.critics else 1.0

    def network(self, data: Dataset) -> RecordTerms:
        """What is trained, for filled settings."""
        assert self.model is not None
        member = self.member
        networks = RecordNetworks(
            Form.read(self.model),
            schema_from_json(schema_of(data)),
            parts=member.parts,
            variational=self._law,
            bounded=not self._law,
            shared=member.imitator,  # else the decoder goes on alone, and the encoder would follow
            init_seed=self.init_seed,
        )
        free: list[nn.Module | None] = [networks.generator, networks.imitator]
        free += [] if member.encoder else [networks.decoder, networks.last]
        for part in free:
            if part is not None:
                part.requires_grad_(False)
        return RecordTerms(networks, weights=self._weights(networks), share=self._share)

    def _weights(self, networks: RecordNetworks) -> Weights:
        sizes = networks.shape.sizes
        anchor = ANCHOR_RADIUS * self.clip_norm / profile_bound(sizes.steps, sizes.features)
        counts = COUNTS_RADIUS * self.clip_norm / Counts(sizes).bound
        return Weights(
            reconstruction=self.recon_weight,
            values=self.value_weight,
            divergence=self.kl_weight,
            start=self.start_weight,
            spread=self.spread_weight,
            anchor=anchor if self.anchor_weight else 0.0,
            counts=counts if self.settling else 0.0,
            critics=self.critic_weight,
        )

    @property
    def loss(self) -> PerExampleLoss:
        """Of one stay."""
        return summed

    def extras(self) -> Extras:
        """Parts clipped apart, unless asked otherwise; weights are averaged by the free steps."""
        extras = replace(super().extras(), ema=None)
        if self.clipping != BY_PART:
            return extras
        return replace(extras, geometry=Geometry.by_part(self.radii()))

    def radii(self) -> dict[str, float]:
        """Of the parts, in clip norms: squares of those that learn together add up to one."""
        member = self.member
        beside = {"networks.start": START_RADIUS}
        if member.encoder:
            beside["networks.spread"] = SPREAD_RADIUS
        if self.anchor_weight:
            beside["anchor"] = ANCHOR_RADIUS
        if self.settling:
            beside["counts"] = COUNTS_RADIUS
        left = math.sqrt(1.0 - sum(radius**2 for radius in beside.values()))
        # Beside the critics: the spread, or, where there are no coders, what stays begin with.
        other = SPREAD_RADIUS if member.encoder else START_RADIUS
        each = math.sqrt((1.0 - other**2) / max(1, len(member.critics)))
        critics = {f"networks.{critic}": each for critic in member.critics}
        return beside | critics | ({"": left} if member.encoder else {})

    def constrained(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, shape: tuple[int, ...]
    ) -> torch.optim.Optimizer:
        """With what is free around every step."""
        peak = self.learning_rate / (1.0 if self.optimizer == "adam" else self.clip_norm)
        free = Free(
            steps=self.free_steps,
            batch=self.free_batch,
            rate=self.free_rate / peak,
            judged=self.judged_weight,
            imitated=self.imitation_weight,
            anchored=self.anchor_weight,
            average=self.ema,
            seed=self.init_seed,
        )
        return FreeSteps(cast(RecordTerms, model), free).ride(optimizer)

    def made_of(self, trained: nn.Module, data: Dataset, plan: Plan) -> nn.Module:
        """The averaged parts that make records, settled by made ones."""
        terms = cast(RecordTerms, trained)
        if not self.settling:
            return terms.averaged.maker()
        geometry = self.extras().geometry
        return settled(terms, plan, geometry, stays=self.settling, seed=self.init_seed)


@dataclass(frozen=True, kw_only=True)
class VaeSettings(FamilySettings):
    """Of `vae`."""

    kl_weight: float = 1.0
    method: ClassVar[str] = "vae"


@dataclass(frozen=True, kw_only=True)
class GanSettings(FamilySettings):
    """Of `gan`."""

    method: ClassVar[str] = "gan"


@dataclass(frozen=True, kw_only=True)
class VaeganSettings(FamilySettings):
    """Of `vaegan`."""

    kl_weight: float = 1.0
    method: ClassVar[str] = "vaegan"


@dataclass(frozen=True, kw_only=True)
class AaeSettings(FamilySettings):
    """Of `aae`."""

    method: ClassVar[str] = "aae"


@dataclass(frozen=True, kw_only=True)
class DaaeSettings(FamilySettings):
    """Of `daae`."""

    method: ClassVar[str] = "daae"


@dataclass(frozen=True, kw_only=True)
class IgamtSettings(FamilySettings):
    """Of `igamt`."""

    kl_weight: float = 1.0
    anchor_weight: float = 5.0
    settling: int = 4096
    method: ClassVar[str] = IGAMT


MEMBERS: Final[Mapping[str, type[FamilySettings]]] = {
    kind.method: kind
    for kind in (VaeSettings, GanSettings, VaeganSettings, AaeSettings, DaaeSettings, IgamtSettings)
}
"""Settings of each member: those of the family, with its own defaults."""


def sound(name: str) -> Variant:
    """A member whose every update is private."""
    settings = MEMBERS[name]
    return Variant(
        promises="(epsilon, delta)-DP for the patient, proved",
        settings=settings,
        run=dpsgd.run,
        resume=partial(dpsgd.resume, kind=settings),
    )
