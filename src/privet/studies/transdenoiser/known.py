"""Settings of contenders on known data sets; see `robust_private.choices` for keys and layers.

All denoisers of a data set are the same network, so that rows differ by their training alone.

How they were chosen. Digits: rate, batch and epochs of `td` by the squared error of denoised images
on the public half, after private training on that half at epsilon 3 (some of: rates 0.1, 0.2, 0.25,
1, 3; batches of all and of half; 20, 40, 60 epochs; SGD and Adam). The others follow from it,
untuned, and so do other data sets, with about 1,000 steps of 512; baselines have their recipes.
"""

from collections.abc import Mapping
from typing import Any, Final

_SEVERAL: Final = ("td", "td-stability", "td-labels")
_STARTING: Final = ("td-start", "td-sliced")
_PAPER: Final = ("paper", "paper-nodp", "paper-sepdp", "paper-inp_0.1")

Settings = Mapping[str, Any]


def _denoisers(
    *, sound: Settings, views: int, starting: Settings, paper: Settings, public: Settings
) -> dict[str, Settings]:
    """Of all denoisers; `views` of those that have more than one, `starting` over `sound`."""
    return {
        "td-1": sound,
        **{name: {**sound, "views": views} for name in _SEVERAL},
        **{name: {**sound, "views": views, **starting} for name in _STARTING},
        **dict.fromkeys(_PAPER, paper),
        "public-denoiser": public,
    }


_GREY: Final = {
    "classifier": {"model": "cnn", "epochs": 20},
    **_denoisers(
        sound={"batch": 512, "epochs": 17, "learning_rate": 0.2},
        views=8,
        starting={"learning_rate": 0.05},
        paper={"batch": 512, "epochs": 17},
        public={"epochs": 5},
    ),
}

SETTINGS: Final[Mapping[str, Mapping[str, Settings]]] = {
    "digits": {
        "all": {"denoiser": "unet-4"},
        "classifier": {"model": "cnn-tiny", "epochs": 40},
        **_denoisers(
            sound={"batch": 359, "epochs": 40, "learning_rate": 0.2},
            views=4,
            starting={"learning_rate": 0.05},
            paper={"epochs": 20},
            public={"epochs": 40},
        ),
        "dpcert": {"model": "cnn-tiny", "views": 4},
    },
    "mnist": {
        "all": {"denoiser": "unet-16"},
        **_GREY,
        "dpcert": {"recipe": "mnist-certified"},
        "stobatch": {"recipe": "mnist-robust"},
    },
    "fashion-mnist": {"all": {"denoiser": "unet-16"}, **_GREY},
    "cifar10": {
        "all": {"denoiser": "unet-16"},
        "classifier": {
            "model": "resnet-cifar-20", "epochs": 100, "augment": "flip-crop",
            "learning_rate": 0.1,
        },
        **_denoisers(
            sound={"batch": 512, "epochs": 20, "learning_rate": 0.2},
            views=8,
            starting={"learning_rate": 0.05},
            paper={"batch": 512, "epochs": 20},
            public={"epochs": 10},
        ),
    },
}  # fmt: skip
