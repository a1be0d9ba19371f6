"""Settings of methods that train a denoiser in front of a fixed classifier (`with_classifier`).

The classifier is released with the denoiser as one.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from privet.data.dataset import Dataset
from privet.engine.arguments import named_or_none
from privet.engine.fixed_parts import FixedPart, data_behind, digest_of
from privet.errors import InputError
from privet.models.denoised import Denoised
from privet.models.denoisers import Denoiser, create_denoiser, default_denoiser
from privet.release import Release, named_once, require_unchanged
from privet.training.ordinary import OrdinarySettings
from privet.training.stated_public import lines
from privet.training.with_classifier import WithClassifier, require_digest


@dataclass(frozen=True, kw_only=True)
class ClassifierBehind(WithClassifier):
    """A denoiser to train, and the classifier behind it.

    Attributes:
        denoiser: by name; default: by the shape of the examples.
        sigma: deviation of the Gaussian noise that the denoiser is trained to take away.
        start: a release of this method, trained on public records, whose denoiser is the first.
        public_start: the statement that these records had no part in it, in words.
        start_digest: of its weights; found by the run itself.
        start_data: names of the data sets behind it, one a line; likewise.
    """

    denoiser: str | None = None
    sigma: float = 0.25
    start: str | None = None
    public_start: str | None = None
    start_digest: str | None = None
    start_data: str | None = None

    _positive: ClassVar[tuple[str, ...]] = (*OrdinarySettings._positive, "sigma")

    def _check_together(self) -> None:
        super()._check_together()
        if (self.start is None) == bool((self.public_start or "").strip()):
            raise InputError(
                "a start must be public, and somebody must say so",
                got=f"{named_or_none('--start', self.start)},"
                f" {named_or_none('--public-start', self.public_start)}",
                expected="both or neither",
                fix='--public-start "trained on ..., which is public"',
            )
        if self.input_noise or self.adversarial != "none":
            raise InputError(
                "a denoiser learns under its own noise",
                got=f"input_noise {self.input_noise:g}, adversarial '{self.adversarial}'",
                fix="say --sigma, and leave the others out",
            )

    def filled_for(self, data: Dataset) -> Self:
        """With the names of its networks, and the digests of what is taken as it comes."""
        self._require_no_model()
        fixed, name = self.fixed(data), self.denoiser or self._first_name(data)
        found: dict[str, Any] = {}
        if self.start is not None:
            found["start_digest"] = digest_of(named_once(self._started(data, name)))
            found["start_data"] = "\n".join(data_behind(Release.load(self.start).trust))
        return replace(
            super().filled_for(data),
            denoiser=name,
            model=f"denoised:{name}:{fixed.name}",
            **found,
        )

    def first_denoiser(self, data: Dataset) -> Denoiser:
        """The one that is trained, of filled settings, with its first weights."""
        assert self.denoiser is not None
        if self.start is not None:
            return self._started(data, self.denoiser)
        return create_denoiser(self.denoiser, data.shape, init_seed=self.init_seed)

    def whole(self, denoiser: nn.Module, data: Dataset) -> Denoised:
        """What is released, where the denoiser is."""
        device = next(denoiser.parameters()).device
        return Denoised(denoiser, self.fixed(data).module).to(device)

    def fixed_parts(self, data: Dataset) -> tuple[FixedPart, ...]:
        """What the card says about the parts that were not learned here; filled settings."""
        classifier = super().fixed_parts(data)
        if self.start is None or self.start_digest is None:
            return classifier
        first = FixedPart(
            part="first denoiser",
            source=self.start,
            digest=self.start_digest,
            public=True,
            statement=self.public_start or "",
            data=lines(self.start_data),
        )
        return (*classifier, first)

    def _stated_public(self) -> list[tuple[str, tuple[str, ...]]]:
        start = [("start", lines(self.start_data))] if self.start_data else []
        return [*start, *super()._stated_public()]

    def _require_no_model(self) -> None:
        own = self.model is None or self.model.startswith("denoised:")
        if not own:
            raise InputError(
                "a denoiser is trained, not a classifier",
                got=f"model '{self.model}'",
                fix="--denoiser names its network, --classifier what stands behind it",
            )

    def _first_name(self, data: Dataset) -> str:
        if self.start is None:
            return default_denoiser(data.shape)
        return _denoised(self.start).split(":")[1]

    def _started(self, data: Dataset, name: str) -> Denoiser:
        """A copy of the start's denoiser."""
        assert self.start is not None
        if _denoised(self.start).split(":")[1] != name:
            raise InputError(
                "the start has another denoiser",
                got=f"'{_denoised(self.start).split(':')[1]}'",
                expected=f"'{name}'",
                fix="leave --denoiser out",
            )
        denoiser = create_denoiser(name, data.shape)
        loaded = Release.load(self.start).model
        assert isinstance(loaded, Denoised)
        try:
            denoiser.load_state_dict(loaded.denoiser.state_dict())
        except RuntimeError as error:
            raise InputError(
                "the start was made for other images", got=str(error).splitlines()[-1].strip()
            ) from None
        require_digest("start", self.start_digest, denoiser)
        return denoiser


def _denoised(folder: str) -> str:
    """The name of a release's model, which must be one of this method, as it was made."""
    require_unchanged(Path(folder))
    name = str(Release.load(folder).config["model"])
    if not name.startswith("denoised:"):
        raise InputError(
            "no denoiser to start from",
            got=f"{folder}, a '{name}'",
            expected="a release of transdenoiser",
        )
    return name
