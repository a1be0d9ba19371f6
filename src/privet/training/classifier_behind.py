"""Settings of methods that train a denoiser in front of a fixed classifier.

The classifier is taken as it comes, and released with the denoiser as one. Whether the private
records had a part in it nobody can tell from its weights: whoever trains must say
(`engine.fixed_parts`). What a release says about itself is held against that statement.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from weakref import WeakValueDictionary

from torch import nn

from privet.classifiers.classifier import weights_digest
from privet.classifiers.fixed import Fixed, open_fixed
from privet.data.catalogue import share_records
from privet.data.dataset import Dataset
from privet.data.identity import entered_in_ledger
from privet.engine.fixed_parts import FixedPart, data_behind, digest_of
from privet.errors import InputError
from privet.ledger import Ledger, default_ledger_path
from privet.models.denoised import Denoised
from privet.models.denoisers import Denoiser, create_denoiser, default_denoiser
from privet.release import Release, named_once, require_unchanged
from privet.training.ordinary import OrdinarySettings

OWN: Final = "module:"
_OWN_MODULES: Final[WeakValueDictionary[str, nn.Module]] = WeakValueDictionary()


@dataclass(frozen=True, kw_only=True)
class ClassifierBehind(OrdinarySettings):
    """A denoiser to train, and the classifier behind it.

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
        denoiser: by name; default: by the shape of the examples.
        sigma: deviation of the Gaussian noise that the denoiser is trained to take away.
        start: a release of this method, trained on public records, whose denoiser is the first.
        public_start: the statement that these records had no part in it, in words.
        classifier_digest, start_digest: of their weights; found by the run itself.
        classifier_data, start_data: names of the data sets behind them, one a line; likewise.
    """

    classifier: str | None = None
    classifier_weights: str | None = None
    classifier_low: float = 0.0
    classifier_high: float = 1.0
    classifier_mean: str | None = None
    classifier_std: str | None = None
    public_classifier: str | None = None
    private_classifier: bool = False
    denoiser: str | None = None
    sigma: float = 0.25
    start: str | None = None
    public_start: str | None = None
    classifier_digest: str | None = None
    start_digest: str | None = None
    classifier_data: str | None = None
    start_data: str | None = None

    _positive: ClassVar[tuple[str, ...]] = (*OrdinarySettings._positive, "sigma")

    def _check_together(self) -> None:
        super()._check_together()
        if self.classifier is None:
            raise InputError(
                "no classifier",
                expected="the fixed one that the denoiser is for",
                fix="--classifier runs/public, model.onnx, or a network with --classifier-weights",
            )
        if self.private_classifier == bool((self.public_classifier or "").strip()):
            raise InputError(
                "whether the private records had a part in the classifier must be said",
                got="both" if self.private_classifier else "nothing",
                expected="one of --public-classifier and --private-classifier",
                fix='--public-classifier "trained on ..., which is public"; if it has seen these'
                " records, --private-classifier: then the whole has no epsilon",
            )
        if (self.start is None) == bool((self.public_start or "").strip()):
            raise InputError(
                "a start must be public, and somebody must say so",
                got=f"start '{self.start}', public_start '{self.public_start}'",
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
        if fixed.card is not None:
            weights = self.classifier_weights
            require_unchanged(Path(weights).parent if weights else Path(self.classifier or ""))
            found["classifier_data"] = "\n".join(data_behind(fixed.card))
        return replace(
            super().filled_for(data),
            denoiser=name,
            model=f"denoised:{name}:{fixed.name}",
            classifier_digest=digest_of(named_once(fixed.module)),
            **found,
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
        self._require_digest("classifier", self.classifier_digest, found.module)
        return found

    def first_denoiser(self, data: Dataset) -> Denoiser:
        """The one that is trained, of filled settings, with its first weights."""
        assert self.denoiser is not None
        if self.start is not None:
            return self._started(data, self.denoiser)
        return create_denoiser(self.denoiser, data.shape, init_seed=self.init_seed)

    def whole(self, denoiser: nn.Module, data: Dataset) -> Denoised:
        """What is released."""
        return Denoised(denoiser, self.fixed(data).module)

    def fixed_parts(self, data: Dataset) -> tuple[FixedPart, ...]:
        """What the card says about the parts that were not learned here; filled settings."""
        assert self.classifier is not None
        assert self.classifier_digest is not None
        classifier = FixedPart(
            part="classifier",
            source=self.classifier,
            digest=self.classifier_digest,
            public=not self.private_classifier,
            statement=self.public_classifier or "it may have seen these records",
            data=_lines(self.classifier_data),
        )
        if self.start is None or self.start_digest is None:
            return (classifier,)
        first = FixedPart(
            part="first denoiser",
            source=self.start,
            digest=self.start_digest,
            public=True,
            statement=self.public_start or "",
            data=_lines(self.start_data),
        )
        return (classifier, first)

    def require_public(self, data: Dataset, ledger: Ledger | None) -> None:
        """Refuse a statement that the classifier's own card, or that of the start, contradicts.

        What a part was made of counts with it, and what that was made of, as far as cards tell.
        """
        behind = [("start", name) for name in _lines(self.start_data)]
        if not self.private_classifier:
            behind += [("classifier", name) for name in _lines(self.classifier_data)]
        if not behind:
            return
        ledger = ledger if ledger is not None else Ledger(default_ledger_path())
        with entered_in_ledger(data, ledger):
            for what, name in behind:
                _require_other_records(what, name, data.name, ledger)

    def _require_no_model(self) -> None:
        own = self.model is None or self.model.startswith("denoised:")
        if not own:
            raise InputError(
                "a denoiser is trained, not a classifier",
                got=f"model '{self.model}'",
                fix="--denoiser names its network, --classifier what stands behind it",
            )

    @staticmethod
    def _require_digest(what: str, then: str | None, module: nn.Module) -> None:
        if then is not None and then != digest_of(named_once(module)):
            raise InputError(
                f"the {what} changed since the run began",
                got="other weights",
                expected="the same",
                fix="restore its file, or start a new run",
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
        self._require_digest("start", self.start_digest, denoiser)
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


def _require_other_records(what: str, its: str, these: str, ledger: Ledger) -> None:
    related = (these, *ledger.account(these).related)
    if its in related or share_records(its, these):
        raise InputError(
            f"the {what} is not public: its card says that these records had a part in it",
            got=f"made of '{its}', which shares records with '{these}'"
            if its != these
            else f"made of '{its}', too",
            fix="take another one"
            + ("; or --private-classifier: then the whole has no epsilon" * (what == "classifier")),
        )


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple((text or "").splitlines())


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
