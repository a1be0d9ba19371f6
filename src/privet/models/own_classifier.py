"""Networks whose name ends in `:custom`: they hold a classifier that only its maker can build."""

import re
from typing import Any, final

from torch import nn

from privet.models.attacked import ATTACKED, before_classifier
from privet.models.denoised import DENOISED, Denoised
from privet.models.denoisers import build_denoiser
from privet.models.fixed_classifier import OWN
from privet.models.registry import Shape


def has_own_classifier(name: str) -> bool:
    """Whether a release of this name holds such a classifier."""
    return re.fullmatch(rf"(?:{DENOISED}:[^:]+|{ATTACKED}:[^:@]+@[^:]+):{OWN}", name) is not None


def with_own_classifier(
    name: str, shape: Shape, n_classes: int, classifier: nn.Module
) -> nn.Module:
    """The network of such a name, with the classifier that is given."""
    kind, own, _ = name.split(":")
    if kind == DENOISED:
        return Denoised(build_denoiser(own, shape), classifier)
    perturber, bounds = own.split("@")
    return before_classifier(perturber, bounds, shape, n_classes, classifier)


@final
class Absent(nn.Module):
    """In the place of such a classifier, for whoever asks only what stands before it."""

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Whatever the release holds of it."""
