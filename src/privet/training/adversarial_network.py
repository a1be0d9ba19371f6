"""Adversarial training with partners that a network makes in one pass (AIN, section 12).

| paper  | here       | meaning                                                         |
|--------|------------|-----------------------------------------------------------------|
| AIN    | `attacker` | a release of `privet train ain`, fixed                          |
| lambda | `weight`   | what all partners of a clean image count beside it              |
| J      | 1 or 2     | partners: by the network, and by Madry's ascent in the mixture  |

    u_i = grad [ l(x_i) + (lambda / J) sum_j l(x'_ij) ] / (1 + lambda)

Partners cost one pass and no gradient. They were made for the classifier that the network was
trained against: a network that learns from them alone may hold against them and nothing else, so
the mixture adds partners found against the model as it is now.

Guarantee: in a private run partners cost no privacy if these records had no part in the network
(nor in the classifier that it was trained against). That must be stated (`public_attacker`), and
is held against its card. Then a partner is made of its own row, of a constant, and of draws of that
row (`engine.adversary`); row and partners are clipped as one.

A network that was trained privately on these very records (`private_attacker`) costs what its card
says: given the network, the run is as above, so the two compose (`engine.spent`). The classifier
that it was trained against must be public.

Deviation: the paper makes all examples beforehand; here they are made anew in every step, with
fresh noise inside.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from privet.attacks.generated import opened
from privet.data.dataset import Dataset
from privet.engine.adversary import Adversary, Scores
from privet.engine.fixed_parts import ATTACKER, FixedPart, data_behind, digest_of
from privet.errors import InputError
from privet.files import read_json
from privet.models.attacked import Attacked
from privet.release import named_once
from privet.training.adversarial import Madry

BY_NETWORK: Final = ("ain", "ain-madry")
WEIGHT: Final = 1.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ByNetwork:
    """Each row, and its partner by a fixed network; in the mixture another one by `also`.

    Attributes:
        network: with its own classifier, which is not asked.
        size: largest change of a pixel.
        also: who makes the second partner, if there is one.
        weight: lambda.
    """

    network: Attacked
    size: float
    also: Adversary | None = None
    weight: float = field(default=WEIGHT)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the clean row, of its partners."""
        partners = 1 if self.also is None else 2
        each = self.weight / partners / (1 + self.weight)
        return (1 / (1 + self.weight), *[each] * partners)

    def __call__(self, scores: Scores, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Each row, then its partners."""
        network = self.network.to(x.device)
        with torch.no_grad():
            rows = [x, network.perturbed(x, y, self.size, generator)]
        if self.also is not None:
            rows.append(self.also(scores, x, y, generator))
        return torch.stack(rows, 1).flatten(0, 1)


def by_network(name: str, source: str, digest: str, *, size: float, steps: int) -> ByNetwork:
    """The adversary of this name with the network of a release, if it is still the same."""
    network, _ = opened(source)
    if digest_of(named_once(network)) != digest:
        raise InputError(
            f"the {ATTACKER} changed since the run began", got="other weights", expected="the same"
        )
    also = Madry(size=size, steps=steps) if name == "ain-madry" else None
    return ByNetwork(network=network.eval().requires_grad_(False), size=size, also=also)


def found_about(source: str, data: Dataset) -> dict[str, Any]:
    """Digest of the network, and the names of the data behind it, for filled settings."""
    network, _ = opened(source)
    if network.shape != data.shape:
        raise InputError(
            "a network that attacks other inputs",
            got=f"shape {network.shape}",
            expected=f"{data.shape}, of the data",
        )
    behind = data_behind(read_json(Path(source) / "trust.json"))
    return {
        "attacker_digest": digest_of(named_once(network)),
        "attacker_data": "\n".join(behind),
    }


def as_fixed_part(
    source: str, digest: str, statement: str | None, behind: tuple[str, ...]
) -> FixedPart:
    """What a card says about the network."""
    return FixedPart(
        part=ATTACKER,
        source=source,
        digest=digest,
        public=bool(statement),
        statement=statement or "it may have seen these records",
        data=behind,
    )
