"""What a user may choose about IGAMT and its baselines as published, with and without noise.

Symbols and deviations stand in `igamt` beside this file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from privet.data.dataset import Dataset
from privet.data.records.schema_file import schema_from_json
from privet.engine.plain import Course
from privet.engine.prepare import left_for_training
from privet.engine.turns import Turns
from privet.errors import InputError
from privet.guarantee import check_target
from privet.models.record_coders import GRU, TRANSFORMER
from privet.models.record_maker import Form
from privet.models.record_networks import RecordNetworks
from privet.privacy import moments
from privet.synthesis.family import FAMILY, IGAMT, Member
from privet.synthesis.generating import Generating, schema_of
from privet.synthesis.published.trainer import AAAI, CRITICS, THESIS, Noising, Rates
from privet.training.published.securesgd import MOMENTS, least_multiplier

SIZES: Final = {TRANSFORMER: "transformer-128-2-128", GRU: "gru-128-1-128"}
SMALL: Final = {TRANSFORMER: "transformer-32-1-16", GRU: "gru-32-1-16"}
CRITIC_DROPOUT: Final = 0.5
UNKNOWN: Final = {
    "schedule": "constant",
    "optimizer": "adam",
    "momentum": 0.0,
    "warmup": 0.0,
    "views": 1,
    "ema": 0.0,
    "contribution": 1,
}
"""Settings of others: the papers' rates, optimisers and batches are their own."""


@dataclass(frozen=True, kw_only=True)
class AsPublished(Generating):
    """The papers' loop, without noise unless a heir says otherwise.

    Attributes:
        batch: patients in a step; 32, or the nominal size where that is smaller.
        learning_rate: eta, of all parts but the critics.
        critic_rate: eta_D.
        decay: factor of all rates, for each epoch.
        critics_every, critic_turns: fb and fh: critics learn in the first fh of fb steps.
        model: size of the networks: coder, width, layers, latent numbers.
    """

    epochs: float = 30.0
    learning_rate: float = 5e-4
    critic_rate: float = 1e-4
    decay: float = 0.99
    critics_every: int = 5
    critic_turns: int = 1
    schedule: str = "constant"
    optimizer: str = "adam"
    momentum: float = 0.0

    method: ClassVar[str] = IGAMT
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Generating._choices,
        "precision": ("float32", "tf32"),
    }
    _positive: ClassVar[tuple[str, ...]] = (*Generating._positive, "critic_rate", "decay")
    _counts: ClassVar[tuple[str, ...]] = (*Generating._counts, "critics_every", "critic_turns")

    @classmethod
    def small(cls) -> str:
        """The name of a small network, for a first look."""
        return SMALL[FAMILY[cls.method].coder]

    @property
    def member(self) -> Member:
        """Of the family."""
        return FAMILY[self.method]

    @property
    def last_layer_of(self) -> str:
        """The version that says by what the last layer of a model with an imitator learns."""
        return THESIS

    def _check_together(self) -> None:
        super()._check_together()
        for name, unset in UNKNOWN.items():
            if getattr(self, name) != unset:
                raise InputError(
                    f"'{self.method}' as published does not know this",
                    got=f"{name} {getattr(self, name)}",
                    fix="leave it out, or --analysis sound",
                )
        if self.decay > 1:
            raise InputError("bad decay", got=self.decay, expected="at most 1")
        _ = self.member  # refuses what it cannot go without
        if self.model is not None:
            self._form(self.model)

    def filled_for(self, data: Dataset) -> Self:
        """With the whole name of the network."""
        filled = super().filled_for(data)
        assert filled.model is not None
        return replace(filled, model=filled._form(filled.model).name)

    def _batch_for(self, nominal_size: int) -> int:
        return min(32, nominal_size)

    def _default_model(self, data: Dataset) -> str:
        return SIZES[self.member.coder]

    def _form(self, name: str) -> Form:
        """Of what is released: a size, and all that follows from the member."""
        form, member = Form.read(name), self.member
        if form.coder != member.coder:
            raise InputError(
                f"'{self.method}' has another coder",
                got=f"model '{name}'",
                expected=SIZES[member.coder],
            )
        generating = ("batchnorm", "generator") if member.generator else ()
        return form.with_flags({*member.embeddings, *generating})

    def network(self, data: Dataset) -> RecordNetworks:
        """What is trained, for filled settings."""
        assert self.model is not None
        member = self.member
        return RecordNetworks(
            Form.read(self.model),
            schema_from_json(schema_of(data)),
            parts=member.parts,
            variational=member.variational,
            bounded=not member.variational,
            critic_dropout=CRITIC_DROPOUT,
            init_seed=self.init_seed,
        )

    def course_for(self, data: Dataset) -> Course:
        """Shuffled epochs, of filled settings."""
        assert self.batch is not None
        sampler, steps = Turns(
            sampler="shuffled",
            batch=self.batch,
            nominal_size=data.nominal_size,
            epochs=self.epochs,
        ).resolved()
        return Course(steps=steps, sampler=sampler)

    @property
    def rates(self) -> Rates:
        """Of the parts."""
        return Rates(
            parts=self.learning_rate,
            critics=self.critic_rate,
            decay=self.decay,
            every=self.critics_every,
            turns=self.critic_turns,
        )


@dataclass(frozen=True, kw_only=True)
class PublishedFamily(AsPublished):
    """With the papers' noise and their claim.

    Attributes:
        epsilon: claimed, one record more or less; or give `sigma`.
        delta: of the claim.
        sigma: deviation of the noise; default: the least for which epsilon is claimed. The thesis'
            tables have 1.
        clip_norm: C, of the mean gradient of a batch.
        noise_seed: for tests: known noise.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    sigma: float | None = None
    clip_norm: float = 0.5
    noise_seed: int | None = None

    _positive: ClassVar[tuple[str, ...]] = (*AsPublished._positive, "sigma", "clip_norm")

    def _check_together(self) -> None:
        super()._check_together()
        if (self.epsilon is None) == (self.sigma is None):
            raise InputError(
                "noise by what is claimed, or the claim by the noise",
                got="both" if self.sigma is not None else "neither epsilon nor sigma",
                fix="--epsilon 1.5, or --sigma 1; without noise: --analysis none",
            )
        check_target(1.0 if self.epsilon is None else self.epsilon, self.delta)

    @property
    def calls(self) -> int:
        """Of the accountant, whose answers are added at equal shares."""
        return 1

    @property
    def noised_parts(self) -> frozenset[str]:
        """By the authors' program, where the texts say nothing of a baseline."""
        member = self.member
        if member.imitator:
            return frozenset({"last", *member.critics})
        if not member.encoder:
            return frozenset(CRITICS) & frozenset(member.critics)
        return frozenset({"decoder"} | ({"generator"} if member.generator else set()))

    def noising(self, data: Dataset, course: Course) -> Noising:
        """Of filled settings."""
        sigma = self.sigma
        if sigma is None:
            assert self.epsilon is not None
            assert self.batch is not None
            sigma = least_multiplier(
                left_for_training(self.epsilon, data) / self.calls,
                self.delta / self.calls,
                rate=self.batch / data.nominal_size,
                steps=course.steps,
            )
        return Noising(sigma=sigma, clip_norm=self.clip_norm, parts=self.noised_parts)

    def claimed(self, nominal_size: int, steps: int, *, learned: float = 0.0) -> float:
        """The epsilon that the authors would print, of filled settings.

        `learned` is what the data's public facts have cost.
        """
        if self.epsilon is not None:
            return self.epsilon
        assert self.sigma is not None
        assert self.batch is not None
        return learned + claimed_epsilon(
            self.sigma,
            rate=self.batch / nominal_size,
            steps=steps,
            delta=self.delta,
            calls=self.calls,
        )


def claimed_epsilon(
    sigma: float, *, rate: float, steps: int, delta: float, calls: int = 1
) -> float:
    """By the moments accountant, told of one noisy release in every iteration.

    Thesis: one call for everything that is noised. AAAI: three, for D_x, D_z and the last layer,
    whose (epsilon, delta) are added.
    """
    alone = moments.epsilon(
        noise_multiplier=sigma, rate=rate, steps=steps, delta=delta / calls, moments=MOMENTS
    )
    return math.nextafter(calls * alone, math.inf)


@dataclass(frozen=True, kw_only=True)
class _Igamt(AsPublished):
    """What IGAMT has beside the others.

    Attributes:
        version: 'thesis', or 'aaai': no critic of masks, and the last layer learns by l_imi.
        without: parts to go without, separated by commas; see `family`.
    """

    version: str = THESIS
    without: str = ""

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **AsPublished._choices,
        "version": (THESIS, AAAI),
    }

    @property
    def member(self) -> Member:
        """Of the family, less what it goes without."""
        words = [word.strip() for word in self.without.split(",") if word.strip()]
        return FAMILY[IGAMT].without({*words, *(["mask"] if self.version == AAAI else [])})

    @property
    def last_layer_of(self) -> str:
        """As asked."""
        return self.version


@dataclass(frozen=True, kw_only=True)
class PublishedIgamt(_Igamt, PublishedFamily):
    """IGAMT with noise."""

    @property
    def calls(self) -> int:
        """Three in the paper, where there are three that are noised."""
        return 3 if self.version == AAAI and self.member.imitator else 1


@dataclass(frozen=True, kw_only=True)
class PlainIgamt(_Igamt):
    """IGAMT without noise."""
