"""A classifier behind a denoiser, as one network: what TransDenoiser releases.

| symbol | here         | meaning                                  |
|--------|--------------|------------------------------------------|
| g      | `denoiser`   | learned                                  |
| h      | `classifier` | fixed                                    |
| f      | `Denoised`   | h(g(x)): certified, attacked and released |

A release names it `denoised:DENOISER:CLASSIFIER`: a name of `models.denoisers`, then what
`models.fixed_classifier.build_classifier` takes, or `custom`.
"""

from typing import Final, final

from torch import Tensor, nn

from privet.models.denoisers import build_denoiser
from privet.models.fixed_classifier import FixedClassifier, build_classifier
from privet.models.registry import Shape, family

DENOISED: Final = "denoised"


@final
class Denoised(nn.Module):
    """classifier(denoiser(x)): only the denoiser can be trained.

    Args:
        denoiser: images to images.
        classifier: one that is not fixed yet is frozen, and takes inputs in [0, 1] as they are.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        fixed = isinstance(classifier, FixedClassifier)
        self.classifier = classifier if fixed else FixedClassifier(classifier)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of noisy images."""
        scores: Tensor = self.classifier(self.denoiser(x))
        return scores


@family(f"{DENOISED}:DENOISER:CLASSIFIER", rf"{DENOISED}:([^:]+):(.+)")
def denoised(shape: Shape, n_classes: int, denoiser: str, classifier: str) -> nn.Module:
    """A fixed classifier behind a denoiser: what `transdenoiser` releases."""
    network = build_classifier(str(classifier), shape, n_classes)
    return Denoised(build_denoiser(str(denoiser), shape), network)
