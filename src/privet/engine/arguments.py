"""What a caller in Python gave, checked before anything is reserved.

One line that says what to give instead, not Python's own error from somewhere inside.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from privet.data.dataset import Bounds, Dataset
from privet.errors import InputError, PrivetError
from privet.ledger import Ledger
from privet.models.tokens import Tokens
from privet.privacy.geometry import Geometry, trainable
from privet.privacy.probing import undisturbed
from privet.privacy.separation import TWINS, drawn_together
from privet.privacy.units import PerExampleLoss, cross_entropy

VIEW_SEEDS: Final = 8


def require_dataset(data: object) -> None:
    """Refuse what does not carry its public facts."""
    if not isinstance(data, Dataset):
        raise InputError(
            "the data are no Dataset",
            got=shown(data),
            expected="arrays with declared bounds, classes and size: a privet.data.Dataset",
            fix=f"load it: privet.data.load({data!r})"
            if isinstance(data, str)
            else "declare them, arrays in NumPy: privet.data.Dataset("
            "train=privet.data.Split(x=..., y=...), ...)",
        )


def require_ledger(ledger: object) -> None:
    """Refuse what is neither a ledger nor left out."""
    if not (ledger is None or isinstance(ledger, Ledger)):
        raise InputError("no ledger", got=shown(ledger), fix="open one: privet.Ledger(path)")


def require_model(model: object) -> None:
    """Refuse what has no weights to train."""
    if not isinstance(model, nn.Module):
        raise InputError(
            "the model is no module",
            got=shown(model),
            expected="an nn.Module",
            fix=f"build it: privet.models.create({model!r}, data.shape, len(data.classes))"
            if isinstance(model, str)
            else "give the module itself, not its class or its output",
        )
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise InputError(
            "the model has a lazy layer, whose shape is not known yet",
            fix="pass one made-up batch through it before you build the optimiser",
        )
    if not trainable(model):
        raise InputError("the model has no trainable parameter", fix="unfreeze a layer")


def require_optimizer(optimizer: object) -> None:
    """Refuse what is no optimiser, such as its class."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            "no optimiser",
            got=shown(optimizer),
            expected="a torch.optim.Optimizer",
            fix="build it: torch.optim.SGD(model.parameters(), lr=0.1)",
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(
            "LBFGS asks for the loss several times in a step",
            expected="an optimiser that takes one private gradient a step",
            fix="use torch.optim.SGD or torch.optim.Adam",
        )


def require_geometry(geometry: object) -> None:
    """Refuse what is no geometry, such as the name of one."""
    if not isinstance(geometry, Geometry):
        raise InputError(
            "no geometry of clipping",
            got=shown(geometry),
            fix="write privet.privacy.geometry.Geometry(name)",
        )


def require_views(augmentation: object, x: Tensor) -> None:
    """Refuse an augmentation whose views of one example depend on another, or on shared draws.

    Tried on made-up inputs, under several seeds.
    """
    views = getattr(augmentation, "views", None)
    if not callable(augmentation) or not isinstance(views, int) or views < 1:
        raise InputError(
            "no augmentation",
            got=shown(augmentation),
            expected="a callable (x, generator) -> views with a whole number `views`",
            fix="see privet.models.augmentation.Views",
        )
    for seed in range(VIEW_SEEDS):
        before = _seen(augmentation, x, views, seed)
        for row in range(len(x)):
            other = x.clone()
            other[row] = 1.0 - other[row]
            moved = (_seen(augmentation, other, views, seed) != before).flatten(1).any(1)
            rest = moved.reshape(len(x), views).any(1)
            if rest[:row].any() or rest[row + 1 :].any():
                raise InputError(
                    "the augmentation mixes examples",
                    got="views that move when another example changes",
                    expected="row i * views + k of the result is view k of example i alone",
                    fix="draw and apply every change row by row",
                )
    twins = x[:1].repeat(TWINS, *[1] * (x.dim() - 1))
    if drawn_together(lambda seed: _seen(augmentation, twins, views, seed).view(TWINS, -1)):
        raise InputError(
            "the augmentation draws random numbers that examples share",
            got="views of identical examples that vary together from seed to seed",
            expected="draws of its own for every example: one example more moves others to another"
            " block, under other draws",
            fix="draw row by row",
        )


def _seen(augmentation: Callable[..., Tensor], x: Tensor, views: int, seed: int) -> Tensor:
    generator = torch.Generator(x.device).manual_seed(seed)
    seen = _tried(
        lambda: augmentation(x.clone(), generator),
        what="the augmentation does not take such examples",
        expected=f"(x, generator) with x of shape {tuple(x.shape)}",
        fix="try it on torch.rand(4, *data.shape)",
    )
    if len(seen) != views * len(x):
        raise InputError(
            "the augmentation does not return its views",
            got=f"{len(seen)} rows for {len(x)} examples",
            expected=f"{views} for each: {views * len(x)}",
        )
    return seen


def require_numbers(**values: object) -> None:
    """Refuse what is no number, by the name of its argument."""
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"bad {name}", got=shown(value), expected="a number")


def named_or_none(option: str, value: object) -> str:
    """An option as it was given, or that it was not."""
    return f"no {option}" if value is None else f"{option} '{value}'"


def require_images(data: Dataset, method: str, *, instead: str) -> None:
    """Refuse what is no set of images, for a method whose networks all need them."""
    if len(data.shape) != 3:
        raise InputError(
            f"'{method}' is for images",
            got=f"examples of shape {data.shape}",
            expected="(channels, height, width)",
            fix=instead,
        )


def require_fitting(
    model: nn.Module, loss: PerExampleLoss, data: Dataset, probe: tuple[Tensor, Tensor]
) -> None:
    """Refuse a model that cannot take examples like these, or that a loss cannot judge.

    Both are tried on made-up inputs, never on records.
    """
    _require_vocabulary(model, data.bounds)
    x, y = _with_extremes(*probe, classes=len(data.classes) or 1)
    with undisturbed(model), torch.no_grad():
        model.eval()
        outputs = _tried(
            lambda: model(x.clone()),
            what="the model does not take such examples",
            expected=f"a model of numbers in [0, 1], in the shape {data.shape} for each example",
            fix=_way_in(model),
        )
        _require_scores(outputs, loss, data, len(x))
        _tried(
            lambda: loss(outputs, y),
            what="the loss does not take the model's outputs",
            expected="loss(outputs, labels) with one value for each example",
            fix=f"the outputs have shape {tuple(outputs.shape)}, the labels {tuple(y.shape)}",
        )


def _with_extremes(x: Tensor, y: Tensor, *, classes: int) -> tuple[Tensor, Tensor]:
    """Also the least and the greatest input and label: the first and the last of a table."""
    ends = torch.stack([torch.zeros_like(x[0]), torch.ones_like(x[0])])
    return torch.cat([x, ends]), torch.cat([y, y.new_tensor([0, classes - 1])])


def _tried(attempt: Callable[[], Tensor], *, what: str, expected: str, fix: str) -> Tensor:
    try:
        return attempt()
    except PrivetError:
        raise
    except Exception as error:  # whatever a user's own code may do
        first = str(error).splitlines()[0] if str(error) else ""
        raise InputError(
            what, got=f"{type(error).__name__}: {first}", expected=expected, fix=fix
        ) from error


def _way_in(model: nn.Module) -> str:
    kinds = {type(module) for module in model.modules()}
    if nn.Embedding in kinds and Tokens not in kinds:
        return "let tokens pass privet.models.Tokens(size) first: it makes whole numbers of them"
    return "try it: model(torch.rand(4, *data.shape))"


def _require_scores(outputs: object, loss: PerExampleLoss, data: Dataset, n: int) -> None:
    if not isinstance(outputs, Tensor):
        raise InputError(
            "the model does not return one tensor",
            got=shown(outputs),
            expected="a tensor with one row for each example",
            fix="wrap the model in a module that returns its scores",
        )
    # A loss of one's own may read the outputs otherwise; cross entropy reads one score a class.
    classes = len(data.classes)
    if loss is cross_entropy and len(outputs) == n and outputs.shape[1:] != (classes,):
        raise InputError(
            "the model's outputs are not the classes of the data",
            got=f"{tuple(outputs.shape[1:])} outputs for each example",
            expected=f"({classes},): one score for each class of '{data.name}'",
            fix=f"end the model with {classes} outputs",
        )


def _require_vocabulary(model: nn.Module, bounds: Bounds) -> None:
    """Tokens are read back right only if the declared bounds are those of the vocabulary."""
    declared = set(zip(bounds.low, bounds.high, strict=True))
    for module in model.modules():
        if isinstance(module, Tokens) and (0.0, module.size - 1.0) not in declared:
            raise InputError(
                "the tokens are not those of the data's bounds",
                got=f"Tokens({module.size})",
                expected=f"bounds from 0 to {module.size - 1}",
                fix="declare the size of the vocabulary in both places",
            )


def in_words(name: str) -> str:
    """A setting as one would say it; options and arguments of Python spell it apart."""
    return name.replace("_", " ")


def shown(value: object) -> str:
    """A value as an error may show it: a plain one as it is, otherwise its type alone."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"an object of type {type(value).__name__}"
