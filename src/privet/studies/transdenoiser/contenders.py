"""Who takes part.

| name               | what                                                              | on      |
|--------------------|-------------------------------------------------------------------|---------|
| `classifier`       | h alone, smoothed                                                 | public  |
| `public-denoiser`  | a denoiser that no private record had a part in                   | public  |
| `td-1`             | a denoiser by DP-SGD, one draw of noise: the sound 'sepdp'        | private |
| `td`               | the same, several draws averaged before an image is clipped       | private |
| `td-stability`     | and what the classifier says is part of the loss                  | private |
| `td-labels`        | the classifier's loss alone                                       | private |
| `securesgd-prt`    | the same with noise behind the first convolution, not on images:  | private |
|                    | the paper's SecureSGD_prt, with a proof                           |         |
| `td-start`         | begins with the public denoiser                                   | private |
| `td-start-labels`  | the same, and the labels' loss behind the classifier is added     | private |
| `td-sliced`        | as `td-start`, first and last layer alone                         | private |
| `paper`, `paper-*` | as published, and its ablations: claimed                          | private |
| `securesgd`, ...   | classifiers from scratch, with a proof; `dpcert`: noise on images | private |
| `*:paper`          | the same as published; take part if they are named                | private |

`classifier` and `public-denoiser` always take part: they cost no privacy, so whatever the private
records are worth is the gain over the latter.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from privet.data.catalogue import HALVES
from privet.errors import InputError
from privet.training.registry import Variant, find_method

CLASSIFIER: Final = "classifier"
PUBLIC_DENOISER: Final = "public-denoiser"
ALWAYS: Final = (CLASSIFIER, PUBLIC_DENOISER)
PUBLIC_HALF, PRIVATE_HALF = HALVES
METHOD: Final = "transdenoiser"


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method with what makes it this contender; `name` is what all tables call it.

    Attributes:
        method, analysis: of the registry.
        half: of the data set, on which it is trained.
        behind: whether it is a denoiser in front of the classifier.
        starts: whether it begins with the public denoiser.
        target: whether it has a privacy target.
        usual: settings that may be changed.
        own: settings that may not.
    """

    name: str
    method: str
    analysis: str
    half: str = PRIVATE_HALF
    behind: bool = False
    starts: bool = False
    target: bool = True
    usual: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def variant(self) -> Variant:
        """How it is trained."""
        return find_method(self.method).under(self.analysis)

    @property
    def options(self) -> set[str]:
        """What may be set about it; a denoiser's network is its `denoiser`."""
        return self.variant.settable - set(self.own) - ({"model"} if self.behind else set())


def _denoiser(name: str, *, analysis: str = "sound", **rest: Any) -> Contender:
    return Contender(name=name, method=METHOD, analysis=analysis, behind=True, **rest)


def _published(name: str, ablation: str, **rest: Any) -> Contender:
    return _denoiser(name, analysis="paper", own={"ablation": ablation}, **rest)


_BY_LABELS: Final = {"mse_weight": 0.0, "stability": 1.0, "stability_target": "labels"}

CONTENDERS: Final = {
    one.name: one
    for one in (
        Contender(name=CLASSIFIER, method="plain", analysis="none", half=PUBLIC_HALF, target=False),
        _denoiser(
            PUBLIC_DENOISER,
            analysis="paper",
            half=PUBLIC_HALF,
            target=False,
            own={"ablation": "nodp", "private_classifier": True},
        ),
        _denoiser("td-1", own={"views": 1}),
        _denoiser("td", usual={"views": 8}),
        _denoiser("td-stability", usual={"views": 8, "stability": 1.0}),
        _denoiser("td-labels", usual={"views": 8}, own=_BY_LABELS),
        _denoiser("securesgd-prt", usual={"views": 8}, own={**_BY_LABELS, "noise_at": "layer"}),
        _denoiser("td-start", usual={"views": 8}, starts=True),
        _denoiser(
            "td-start-labels",
            usual={"views": 8, "stability": 1.0},
            own={"stability_target": "labels"},
            starts=True,
        ),
        _denoiser("td-sliced", usual={"views": 8}, own={"slices": "first,last"}, starts=True),
        _published("paper", "none"),
        _published("paper-nodp", "nodp", target=False),
        _published("paper-sepdp", "sepdp"),
        _published("paper-inp_0.1", "inp_0.1"),
        Contender(name="securesgd", method="securesgd", analysis="sound"),
        Contender(name="stobatch", method="stobatch", analysis="sound"),
        Contender(name="dpcert", method="dpsgd", analysis="sound", usual={"views": 8}),
        Contender(name="securesgd:paper", method="securesgd", analysis="paper"),
        Contender(name="stobatch:paper", method="stobatch", analysis="paper"),
    )
}
DEFAULT: Final = tuple(name for name in CONTENDERS if ":" not in name)


def chosen(names: Sequence[str] | None = None) -> list[Contender]:
    """Those that are named, after the two that always take part; in the order of the table."""
    asked = DEFAULT if names is None else names
    for name in asked:
        if name not in CONTENDERS:
            near = difflib.get_close_matches(name, CONTENDERS, n=1)
            raise InputError(
                "unknown contender",
                got=f"'{name}'",
                expected=f"one of {', '.join(CONTENDERS)}",
                fix=f"did you mean '{near[0]}'?" if near else "",
            )
    if len(set(asked)) < len(asked):
        raise InputError("bad list of contenders", got=", ".join(asked), expected="each one once")
    return [one for name, one in CONTENDERS.items() if name in (*ALWAYS, *asked)]
