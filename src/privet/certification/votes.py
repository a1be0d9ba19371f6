"""Votes of a noisy classifier: many images in one forward batch, counted on the device.

A request is a list of images and how many votes each is to get. The images are laid end to end,
cut into forward batches of one fixed size (the last one is filled up, and what fills it is not
counted), noise for a whole batch is drawn in one call, and the votes of a request are counted by
one scatter per batch. So an image that needs no more votes leaves its place to others at once.

What is certified is the classifier as it is evaluated here: with `precision="bf16"` these are the
votes of the network under bfloat16 autocast ("float32": without TF32), and the certificate is for
the smoothed version of *that* classifier, which is the one to deploy. Noise is added in float32
either way; noisy inputs leave [0, 1] and are not clipped.

A row of scores with a NaN votes for no class. It is counted in a column of its own, behind the
classes, and so against whatever class is being certified.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.certification.smoothing_noise import SmoothingNoise
from privet.classifiers import Classifier
from privet.errors import InputError
from privet.privacy.precision import FULL, find_precision

Counts = NDArray[np.int64]


class Voters(Protocol):
    """Where votes come from; tests put known probabilities here."""

    classes: int

    def count(self, which: Counts, draws: Counts) -> Counts:
        """Fresh, independent votes: one row for each of `which`, classes + 1 columns."""


@final
class NoisyVotes:
    """Votes of a classifier on noisy copies of images.

    Independence: one generator, never set back, feeds all draws of this object. Two objects with
    different `stream`s are independent, so selection and estimation never share a draw.
    """

    def __init__(
        self,
        classifier: Classifier,
        x: Tensor,
        noise: SmoothingNoise,
        *,
        batch: int = 1000,
        seed: int | None = None,
        stream: tuple[int, ...] = (0,),
        precision: str = FULL.name,
        channels_last: bool = False,
    ) -> None:
        if batch < 1:
            raise InputError("bad forward batch", got=batch, expected="at least 1")
        self.classes = classifier.classes
        self._classifier, self._x, self._noise = classifier, x, noise
        self._batch = batch
        self._precision = find_precision(precision, classifier.device)
        self._format = (
            torch.channels_last if channels_last and x.dim() == 4 else torch.contiguous_format
        )
        self._generator = torch.Generator(device=classifier.device)
        self._generator.manual_seed(_seed_of(seed, stream))

    def count(self, which: Counts, draws: Counts) -> Counts:
        """Fresh votes: one row for each of `which`; the last column counts rows with a NaN."""
        width = self.classes + 1
        device = self._classifier.device
        row = torch.repeat_interleave(torch.from_numpy(draws)).to(device)
        image = torch.from_numpy(np.ascontiguousarray(which)).to(self._x.device)[
            row.to(self._x.device)
        ]
        # One row more takes what only fills the last batch.
        votes = torch.zeros((len(which) + 1) * width, dtype=torch.int64, device=device)
        spare = torch.full((self._batch,), len(which), device=device)
        ones = torch.ones(self._batch, dtype=torch.int64, device=device)
        for start in range(0, len(row), self._batch):
            slots = row[start : start + self._batch]
            chosen = self._votes(image[start : start + self._batch])
            slots = torch.cat([slots, spare[len(slots) :]])
            votes.scatter_add_(0, slots * width + chosen, ones)  # unlike bincount, never waits
        return np.asarray(votes.view(-1, width)[:-1].cpu().numpy())

    @torch.inference_mode()
    def _votes(self, image: Tensor) -> Tensor:
        """One forward batch: the class that each noisy copy votes for."""
        missing = self._batch - len(image)
        if missing:
            image = torch.cat([image, image[:1].expand(missing)])
        device = self._classifier.device
        clean = self._x[image].to(device, torch.float32, non_blocking=True)
        clean = clean.contiguous(memory_format=self._format)
        with self._precision.passes(device), self._precision.products(device):
            scores = self._noise.scores(self._classifier, clean, self._generator)
        against = scores.isnan().any(1)
        return torch.where(against, self.classes, scores.argmax(1))


@final
@dataclass(kw_only=True, eq=False)
class Tally:
    """All that a run knows: plain arrays, one entry for each image; may be saved and resumed.

    Attributes:
        prediction: the class chosen by the selection votes; -1 before.
        hits: estimation votes for it.
        draws: estimation votes in all.
        lower: the lower bound of its probability so far.
        done: whether it gets no more votes.
        terms: what was asked for; a run is resumed under the same terms only.
        rounds: how often votes were asked for, which makes the noise of a resumed run fresh.
    """

    prediction: Counts
    hits: Counts
    draws: Counts
    lower: NDArray[np.float64]
    done: NDArray[np.bool_]
    terms: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    @classmethod
    def empty(cls, images: int, terms: dict[str, str]) -> Self:
        """Before the first vote."""
        return cls(
            prediction=np.full(images, -1, dtype=np.int64),
            hits=np.zeros(images, dtype=np.int64),
            draws=np.zeros(images, dtype=np.int64),
            lower=np.zeros(images),
            done=np.zeros(images, dtype=bool),
            terms=terms,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For `numpy.savez`."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "terms"}
        terms = [f"{name}={value}" for name, value in sorted(self.terms.items())]
        return {name: np.array(value) for name, value in plain.items()} | {"terms": np.array(terms)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `to_arrays` wrote."""
        try:
            values: dict[str, Any] = {f.name: np.array(arrays[f.name]) for f in fields(cls)}
        except KeyError as missing:
            raise InputError("not a saved tally", got=f"no {missing}") from None
        values["terms"] = dict(str(term).split("=", 1) for term in values["terms"])
        values["rounds"] = int(values["rounds"])
        return cls(**values)


def _seed_of(seed: int | None, stream: tuple[int, ...]) -> int:
    """A generator's seed; without one the operating system's entropy is taken."""
    if seed is None:
        return secrets.randbits(63)
    mixed = np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)
    return int(mixed[0] >> np.uint64(1))
