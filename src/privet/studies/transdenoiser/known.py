"""Settings of contenders on known data sets; see `robust_private.choices` for keys and layers.

All denoisers of a data set are the same network, so that rows differ by their training alone.

How they were chosen. Digits: rate, batch and epochs of `td` by the squared error of denoised images
on the public half, after private training on that half at epsilon 3 (some of: rates 0.1, 0.2, 0.25,
1, 3; batches of all and of half; 20, 40, 60 epochs; SGD and Adam). The others follow from it,
untuned.

Images of 28x28 and 32x32: no search on private records or test images. Batch and epochs by their
cost: about 250 steps of 2,048 with 4 views look at as many rows as 1,000 steps of 512 with 4, have
half of their noise in each step at the same epsilon, and fill a GPU. Contenders that begin with the
public denoiser have rates so small that noise alone moves the weights by a few per cent:
rate / (1 - momentum) * noise multiplier / batch * sqrt(parameters * steps / 3) against their norm
of about 20. Rates and weights of losses can be searched for on the public half alone:
`benchmarks/denoiser_search.py`. What has no privacy (`public-denoiser`, `paper-nodp`) is trained
alike. As published: half of the batch, Adam at the program's rate. Baselines from scratch have
their recipes.
"""

from collections.abc import Mapping
from typing import Any, Final

_SEVERAL: Final = ("td", "td-stability", "td-labels", "securesgd-prt")
_STARTING: Final = ("td-start", "td-start-labels", "td-sliced")
_PAPER: Final = ("paper", "paper-sepdp", "paper-inp_0.1")

Settings = Mapping[str, Any]


def _denoisers(
    *, sound: Settings, views: int, starting: Settings, paper: Settings, public: Settings
) -> dict[str, Settings]:
    """Of all denoisers; `views` of those that have more than one, `starting` over `sound`.

    `public` is for those without privacy, on either half.
    """
    begun = {**sound, "views": views, **starting}
    return {
        "td-1": sound,
        **{name: {**sound, "views": views} for name in _SEVERAL},
        **dict.fromkeys(_STARTING, begun),
        "td-start-labels": {**begun, **_LABELS},
        **dict.fromkeys(_PAPER, paper),
        **dict.fromkeys(("public-denoiser", "paper-nodp"), public),
    }


# Squared errors are sums over pixels, in the tens; the classifier's losses are below one.
_LABELS: Final = {"mse_weight": 0.01, "stability": 1.0}
_WITHOUT_PRIVACY: Final = {
    "batch": 512, "epochs": 20, "learning_rate": 2e-3, "schedule": "cosine",
}  # fmt: skip

_GREY: Final = {
    "classifier": {
        "model": "cnn", "epochs": 20, "batch": 256, "learning_rate": 0.1, "augment": "shift",
    },
    **_denoisers(
        sound={"batch": 2048, "epochs": 17, "learning_rate": 0.3},
        views=4,
        starting={"learning_rate": 0.02},
        paper={"batch": 1024, "epochs": 17},
        public=_WITHOUT_PRIVACY,
    ),
}  # fmt: skip

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
        "paper-nodp": {"epochs": 20},
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
            "model": "resnet-cifar-20", "epochs": 80, "augment": "flip-crop", "batch": 512,
            "learning_rate": 0.2, "warmup": 0.05,
        },
        **_denoisers(
            sound={"batch": 2048, "epochs": 20, "learning_rate": 0.3},
            views=4,
            starting={"learning_rate": 0.02},
            paper={"batch": 1024, "epochs": 20},
            public={**_WITHOUT_PRIVACY, "epochs": 30},
        ),
    },
}  # fmt: skip
