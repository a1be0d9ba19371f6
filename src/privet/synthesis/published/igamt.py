"""IGAMT and its baselines as published, in the thesis or in the AAAI paper.

| papers        | here                 | meaning                                                  |
|---------------|----------------------|----------------------------------------------------------|
| Enc, Dec      | encoder, decoder     | an auto-encoder of records, exact gradients              |
| theta_last    | last                 | Dec's last layer, which the imitator shares              |
| Dec_i         | imitator             | what is released in Dec's place                          |
| G             | generator            | latents out of noise                                     |
| D_x, D_m, D_z | critic_x, ..         | Wasserstein critics with a gradient penalty              |
| sigma, C      | `sigma`, `clip_norm` | deviation of the noise; bound on a batch's mean gradient |
| eta, eta_D    | `learning_rate`, ..  | 5e-4 and 1e-4, times 0.99 for each epoch                 |
| fb, fh        | `critics_every`, ..  | critics learn in 1 of 5 iterations                       |
| B, T          | `batch`, epochs      | 32; shuffled epochs                                      |

The loop is `trainer`, the losses are `losses`; released are G, Dec_i and theta_last, for baselines
G and the decoder. Where noise goes:

| method                   | noised                        | exact, and not released    |
|--------------------------|-------------------------------|----------------------------|
| igamt                    | D_x, D_m, D_z, theta_last     | Enc, Dec                   |
| igamt, without imitator  | decoder, G                    | Enc, critics               |
| aae, daae                | decoder, G                    | Enc, critics               |
| vae, vaegan              | decoder                       | Enc, critics               |
| gan                      | D_x                           | (G and decoder learn from D_x alone) |

The claim: (epsilon, delta)-DP by the moments accountant, told of one release of multiplier sigma in
each of T iterations, of Poisson samples. The thesis asks it once. The paper adds three answers, at
epsilon / 3 and delta / 3 each. `gaps_of` says what is missing; `privet audit mechanism igamt` and
`igamt-aaai` refute it.

Deviations. Values are read at the middle of the schema's public bins, and least and largest values
are the schema's, not the records'; outcomes belong to what a stay begins with. Networks have 2
layers, not 6 (`--model transformer-128-6-128`), heads of 16 numbers, and no dropout but in critics;
decoders look back alone, and read the row before, where the authors' program reads the very row
that it should say. The latest weights are released, not those of the best validation loss, which
nobody accounts for. l_recon and l_im are the text's, without the program's weights and its terms on
masks; critics take one step, not one for each kind of fake. 30 epochs, where the program has 500.
A step that nothing reaches in the program (a DP optimiser that is handed no gradient, samples that
carry none) does what the text says here. The accountant has 256 moments, not 32.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from privet.data.dataset import Dataset
from privet.engine.examples import Examples
from privet.engine.handover import KNOWN_NOISE
from privet.guarantee import REFUTED, Adjacency, Basis, Privacy
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.synthesis.family import IGAMT, Member
from privet.synthesis.published.settings import (
    AsPublished,
    PlainIgamt,
    PublishedFamily,
    PublishedIgamt,
)
from privet.synthesis.published.trainer import AAAI, Noising, PublishedTrainer
from privet.training import unprotected
from privet.training.dpsgd import fresh_randomness, require_device
from privet.training.registry import PAPER, Variant
from privet.training.unprotected import Unprotected

NONE: Final = "none"
RAW: Final = (
    "the imitator, which is released, learns from exact gradients of a loss that contains the"
    " records",
    "it imitates what Enc and Dec make, which learn without noise and may know a record by heart",
)
CHAINED: Final = (
    "noise on the last layer's gradient does not reach the imitator's body: what is propagated back"
    " is the gradient at the output, which contains the records"
)
STATE: Final = (
    "noised steps are fed by networks that learn without noise: one record changes what all later"
    " batches add, so no step's sensitivity is bounded, and sampling amplifies nothing"
)
POISSON: Final = "epochs are shuffled, and accounted as Poisson samples"
CONSTANTS: Final = "the theorem says that constants exist; the figure is an accountant's"


class PublishedVae(PublishedFamily):
    """VAE with noise."""

    method = "vae"


class PlainVae(AsPublished):
    """VAE without noise."""

    method = "vae"


class PublishedGan(PublishedFamily):
    """GAN with noise."""

    method = "gan"


class PlainGan(AsPublished):
    """GAN without noise."""

    method = "gan"


class PublishedVaegan(PublishedFamily):
    """VAE-GAN with noise."""

    method = "vaegan"


class PlainVaegan(AsPublished):
    """VAE-GAN without noise."""

    method = "vaegan"


class PublishedAae(PublishedFamily):
    """AAE with noise."""

    method = "aae"


class PlainAae(AsPublished):
    """AAE without noise."""

    method = "aae"


class PublishedDaae(PublishedFamily):
    """DAAE with noise."""

    method = "daae"


class PlainDaae(AsPublished):
    """DAAE without noise."""

    method = "daae"


KINDS: Final[Mapping[str, tuple[type[PublishedFamily], type[AsPublished]]]] = {
    "vae": (PublishedVae, PlainVae),
    "gan": (PublishedGan, PlainGan),
    "vaegan": (PublishedVaegan, PlainVaegan),
    "aae": (PublishedAae, PlainAae),
    "daae": (PublishedDaae, PlainDaae),
    IGAMT: (PublishedIgamt, PlainIgamt),
}
"""Settings of each member, with noise and without; by name, so that processes can exchange them."""


def published_variants(member: Member) -> dict[str, Variant]:
    """A member as published: with its claim, and without noise."""
    noisy, plain = KINDS[member.name]
    return {PAPER: _paper(member.name, noisy), NONE: _plain(member.name, plain)}


def _paper(name: str, settings: type[PublishedFamily]) -> Variant:
    way = Unprotected(
        method=name, settings=settings, build=trainer_of, mechanism=_mechanism, claims=_claims
    )
    refuted = "; refuted by audits" if name == IGAMT else ""
    return _variant(way, f"(epsilon, delta)-DP, claimed{refuted}")


def _plain(name: str, settings: type[AsPublished]) -> Variant:
    way = Unprotected(method=name, settings=settings, build=trainer_of, mechanism=_mechanism)
    return _variant(way, "no privacy")


def _variant(way: Unprotected, promises: str) -> Variant:
    return Variant(
        promises=promises,
        settings=way.settings,
        run=partial(unprotected.run, way),
        resume=partial(unprotected.resume, way),
    )


def trainer_of(data: Dataset, settings: AsPublished) -> PublishedTrainer:
    """For filled settings, with noise or without."""
    device = require_device(settings.device)
    course = settings.course_for(data)
    noising, randomness = None, Randomness.seeded(settings.init_seed)
    if isinstance(settings, PublishedFamily):
        noising, randomness = settings.noising(data, course), fresh_randomness(settings)
    return PublishedTrainer(
        settings.network(data).to(device),
        Examples.of(data.train, data.bounds, device, contribution=settings.contribution),
        plan=course,
        rates=settings.rates,
        noising=noising,
        version=settings.last_layer_of,
        randomness=randomness,
        precision=find_precision(settings.precision, device),
    )


def _mechanism(trainer: PublishedTrainer, settings: AsPublished) -> Mapping[str, Any]:
    sampler, noising = trainer.plan.sampler, trainer.noising
    facts = {
        "contribution": 1,
        "sampler": sampler.name,
        "sampling_rate": sampler.rate,
        "critics_every": settings.critics_every,
    }
    if noising is None:
        return facts | {"noise": "none"}
    return facts | {
        "noise": f"Gaussian, on the clipped mean gradients of {', '.join(sorted(noising.parts))}",
        "noise_multiplier": noising.sigma / noising.clip_norm,
        "accounted_multiplier": noising.sigma,
        "clip_norm": noising.clip_norm,
    }


def _claims(
    data: Dataset, settings: PublishedFamily, trainer: PublishedTrainer
) -> tuple[Privacy, ...]:
    assert trainer.noising is not None
    known = () if settings.noise_seed is None else (KNOWN_NOISE,)
    return (
        Privacy(
            epsilon=settings.claimed(
                data.nominal_size,
                trainer.plan.steps,
                learned=sum(fact.epsilon for fact in data.learned),
            ),
            delta=settings.delta,
            unit=data.unit,
            adjacency=Adjacency.ADD_REMOVE,
            basis=Basis.CLAIMED,
            accountant="moments",
            sampler=trainer.plan.sampler.name,
            gaps=(*gaps_of(settings, trainer.noising), *known),
        ),
    )


def gaps_of(settings: PublishedFamily, noising: Noising) -> tuple[str, ...]:
    """What the proof of a claim misses."""
    member, aaai = settings.member, settings.last_layer_of == AAAI
    gaps: list[str] = []
    if member.imitator:
        subject = "igamt-aaai" if aaai else "igamt"
        gaps += [f"{REFUTED}`privet audit mechanism {subject}` tells neighbours apart", *RAW]
        gaps += [CHAINED] if aaai else []
    if member.encoder:
        gaps.append(STATE)
    if 2.0 * noising.clip_norm > 1.0:
        gaps.append(
            "the mean gradient of a batch is clipped, not each record's, so one record may move it"
            f" by 2 C; the noise has no factor C: its multiplier is"
            f" {noising.sigma / (2.0 * noising.clip_norm):.3g}, accounted is {noising.sigma:.3g}"
        )
    if len(noising.parts) > settings.calls:
        gaps.append(
            f"{len(noising.parts)} parts are noised on the same batch, and"
            f" {settings.calls} accounted"
        )
    return (*gaps, POISSON, CONSTANTS)
