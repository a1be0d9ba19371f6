"""Settings of methods that are given a classifier, which they take as it comes and never train.

Whether the private records had a part in it nobody can tell from its weights: whoever trains must
say (`engine.fixed_parts`). What a release says about itself is held against that statement.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakValueDictionary

from torch import nn

from privet.classifiers.classifier import weights_digest
from privet.classifiers.fixed import Fixed, open_fixed
from privet.data.dataset import Dataset
from privet.engine.fixed_parts import FixedPart, data_behind, digest_of
from privet.errors import InputError
from privet.release import named_once, require_unchanged
from privet.training.ordinary import OrdinarySettings
from privet.training.stated_public import CLASSIFIER, lines

OWN: Final = "module:"
_OWN_MODULES: Final[WeakValueDictionary[str, nn.Module]] = WeakValueDictionary()


@dataclass(frozen=True, kw_only=True)
class WithClassifier(OrdinarySettings):
    """A classifier that is there already, and what is said about it.

    Attributes:
        classifier: a release's folder, an `.onnx` file, or a network: of `privet models`,
            `torchvision:NAME`, `timm:NAME`; a module of one's own goes by `named(module)`.
        classifier_weights: of a network: `.safetensors`, `.npz`, `.pt`.
        classifier_low, classifier_high: what inputs of 0 and 1 mean to it.
        classifier_mean, classifier_std: of its normalisation, a number for each channel,
            separated by commas; after low and high.
        public_classifier: where it is from, in words: the statement that it is public and that the
            private records had no part in it.
        private_classifier: say so if they had one; then the whole has no epsilon.
        classifier_digest: of its weights; found by the run itself.
        classifier_data: names of the data sets behind it, one a line; likewise.
    """

    classifier: str | None = None
    classifier_weights: str | None = None
    classifier_low: float = 0.0
    classifier_high: float = 1.0
    classifier_mean: str | None = None
    classifier_std: str | None = None
    public_classifier: str | None = None
    private_classifier: bool = False
    classifier_digest: str | None = None
    classifier_data: str | None = None

    _must_state: ClassVar[bool] = True

    def _check_together(self) -> None:
        super()._check_together()
        if self.classifier is None:
            raise InputError(
                "no classifier",
                expected="the fixed one that this is for",
                fix="--classifier runs/public, model.onnx, or a network with --classifier-weights",
            )
        stated = bool((self.public_classifier or "").strip())
        if self.private_classifier == stated and (stated or self._must_state):
            either = CLASSIFIER in self._may_be_private
            raise InputError(
                "whether the private records had a part in the classifier must be said",
                got="both" if self.private_classifier else "nothing",
                expected="one of --public-classifier and --private-classifier"
                if either
                else "--public-classifier: this method takes no other",
                fix='--public-classifier "trained on ..., which is public"'
                + (
                    "; if it has seen these records, --private-classifier: then the whole has no"
                    " epsilon"
                    if either
                    else ""
                ),
            )

    def filled_for(self, data: Dataset) -> Self:
        """With the digest of the classifier, and the names of what it was made of."""
        fixed, found = self.fixed(data), dict[str, Any]()
        if fixed.card is not None:
            weights = self.classifier_weights
            require_unchanged(Path(weights).parent if weights else Path(self.classifier or ""))
            found["classifier_data"] = "\n".join(data_behind(fixed.card))
        return replace(
            super().filled_for(data), classifier_digest=digest_of(named_once(fixed.module)), **found
        )

    @property
    def covers_all(self) -> bool:
        """Not a classifier that has seen the records."""
        return not self.private_classifier

    def fixed(self, data: Dataset) -> Fixed:
        """The classifier as it came; of filled settings, the one that they were filled with."""
        assert self.classifier is not None
        weights = self.classifier_weights
        found = open_fixed(
            _found(self.classifier),
            shape=data.shape,
            classes=len(data.classes),
            weights=None if weights is None else Path(weights),
            low=self.classifier_low,
            high=self.classifier_high,
            mean=_numbers("classifier_mean", self.classifier_mean),
            std=_numbers("classifier_std", self.classifier_std),
        )
        require_digest("classifier", self.classifier_digest, found.module)
        return found

    def fixed_parts(self, data: Dataset) -> tuple[FixedPart, ...]:
        """What the card says about the classifier; of filled settings."""
        assert self.classifier is not None
        assert self.classifier_digest is not None
        public = bool(self.public_classifier)
        return (
            FixedPart(
                part="classifier",
                source=self.classifier,
                digest=self.classifier_digest,
                public=public,
                statement=self.public_classifier or "it may have seen these records",
                data=lines(self.classifier_data),
            ),
        )

    def _stated_public(self) -> list[tuple[str, tuple[str, ...]]]:
        stated = [(CLASSIFIER, lines(self.classifier_data))] if self.public_classifier else []
        return [*super()._stated_public(), *stated]

    @property
    def _may_be_private(self) -> tuple[str, ...]:
        return (*super()._may_be_private, CLASSIFIER)


def require_digest(what: str, then: str | None, module: nn.Module) -> None:
    """Refuse a part that is not the one that a run began with."""
    if then is not None and then != digest_of(named_once(module)):
        raise InputError(
            f"the {what} changed since the run began",
            got="other weights",
            expected="the same",
            fix="restore its file, or start a new run",
        )


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"bad {name}", got=f"'{text}'", expected="numbers, separated by commas"
        ) from None


def named(classifier: nn.Module) -> str:
    """A name for a module of one's own, which settings can hold; this process finds it by that."""
    name = f"{OWN}{type(classifier).__name__}@{weights_digest(classifier)[:12]}"
    _OWN_MODULES[name] = classifier
    return name


def _found(source: str) -> str | nn.Module:
    if not source.startswith(OWN):
        return source
    if source not in _OWN_MODULES:
        raise InputError(
            "the classifier was a module of your own, which this process does not know",
            got=f"'{source}'",
            fix="build it and say privet.training.named(classifier) first",
        )
    return _OWN_MODULES[source]
