"""A classifier that is taken as it comes and never trained, on inputs in [0, 1].

| symbol | here    | meaning                                                                   |
|--------|---------|---------------------------------------------------------------------------|
| gain   | `gain`  | (high - low) / std: of all inputs alike, or of each channel               |
| shift  | `shift` | (low - mean) / std, the same                                              |

Where 0 and 1 mean `low` and `high` to a network that takes off `mean` and divides by `std`, it sees
gain x + shift. Both are kept with the weights, so that range and normalisation travel with them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.models.onnx_network import OnnxNetwork
from privet.models.outside import PACKAGES, outside_network
from privet.models.registry import Shape, build

OWN: Final = "custom"
ONNX: Final = "onnx"


@final
class FixedClassifier(nn.Module):
    """network(gain x + shift), frozen and always in evaluation mode."""

    gain: Tensor
    shift: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        gain: float | Sequence[float] = 1.0,
        shift: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("gain", torch.tensor(gain, dtype=torch.float32))
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float32))
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Scores; gradients still reach x, as attacks and denoisers need them."""
        gain, shift = (b.reshape(-1, *[1] * (x.dim() - 2)) for b in (self.gain, self.shift))
        scores: Tensor = self.network(torch.addcmul(shift, gain, x))
        return scores

    def train(self, mode: bool = True) -> Self:
        """It has one mode only."""
        return super().train(False)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """One number or one for each channel: as many as were saved."""
        for name in ("gain", "shift"):
            saved = state_dict.get(prefix + name)
            if saved is not None and saved.dim() <= 1:
                setattr(self, name, self.get_buffer(name).new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def build_classifier(name: str, shape: Shape, n_classes: int) -> nn.Module:
    """The network of a fixed classifier by name, for its weights to be loaded.

    Args:
        name: a network of this package, `torchvision:NAME`, `timm:NAME`, or `onnx`, whose file is
            among its weights.
        shape: of one input.
        n_classes: how many scores.
    """
    if name == OWN:
        raise InputError(
            "the classifier is a user's own",
            fix="pass it: privet.load(folder, model=MyClassifier())",
        )
    if name == ONNX:
        return OnnxNetwork()
    package, colon, theirs = name.partition(":")
    if colon and package in PACKAGES:
        return outside_network(package, theirs, shape, n_classes)
    return build(name, shape, n_classes)
