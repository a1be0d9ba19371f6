"""Networks of other packages by name: `torchvision:NAME` and `timm:NAME`, without their weights."""

import importlib
from typing import Any, Final

from torch import nn

from privet.errors import FaultyEnvironment, InputError
from privet.models.registry import Shape

PACKAGES: Final = ("torchvision", "timm")


def outside_network(package: str, name: str, shape: Shape, n_classes: int) -> nn.Module:
    """An image classifier with first weights, which nothing is downloaded for."""
    if package == "torchvision":
        return _of_torchvision(name, n_classes)
    return _of_timm(name, shape, n_classes)


def _of_torchvision(name: str, n_classes: int) -> nn.Module:
    models = _imported("torchvision").models
    if name not in models.list_models(module=models):
        raise _unknown("torchvision", name)
    built: nn.Module = models.get_model(name, weights=None, num_classes=n_classes)
    return built


def _of_timm(name: str, shape: Shape, n_classes: int) -> nn.Module:
    timm = _imported("timm")
    if not timm.is_model(name):
        raise _unknown("timm", name)
    built: nn.Module = timm.create_model(
        name, pretrained=False, num_classes=n_classes, in_chans=shape[0]
    )
    return built


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise FaultyEnvironment(
            f"networks of {package} need that package", fix=f"pip install {package}"
        ) from None
    except RuntimeError as error:  # torchvision made for another version of PyTorch
        raise FaultyEnvironment(
            f"the installed {package} does not work",
            got=str(error).splitlines()[0][:120],
            fix=f"pip install --force-reinstall {package}, for this version of torch",
        ) from None


def _unknown(package: str, name: str) -> InputError:
    return InputError(
        f"{package} has no such image classifier",
        got=f"'{name}'",
        fix=f"see {package}'s list_models()",
    )
