"""Statistics of batch normalisation, as prediction needs them.

While it trains, batch normalisation uses the statistics of the batch; a noise that all records
share is taken off by them. For prediction it keeps running means, which are of no use where

- inputs carry noise in training alone (AdLM): they are those of other inputs, or
- the shared noise is far above what differs between records (StoBatch, DPAL, at small epsilon): a
  step of the weights moves the mean of a batch by more than its records differ, and a running mean
  follows too late.

The authors' programs predict with the statistics of the test batch, so that a prediction depends on
the other records of that batch. Here they are taken once more after the last step, over the
training records, at the weights as they are: `settle`. Attacks that training crafts before that are
against the statistics of their own batch: `of_the_batch`.

Settled statistics are a release without noise, as running means are; the methods list that among
their gaps.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_BatchNorm = nn.modules.batchnorm._BatchNorm


def settle(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Means and variances become the averages of those of these batches.

    Where nothing is normalised, no batch is asked for; where a batch fails, all is as it was.
    """
    layers = _layers(model)
    if not layers:
        return
    before = [(kept, kept.clone()) for layer in layers for kept in layer.buffers()]
    momenta = [(layer, layer.momentum) for layer in layers]
    modes = [(module, module.training) for module in model.modules()]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # all batches count alike
        model.train()
        with torch.no_grad():
            for x in batches:
                model(x)
    except BaseException:
        for kept, value in before:
            kept.copy_(value)
        raise
    finally:
        for layer, momentum in momenta:
            layer.momentum = momentum
        for module, training in modes:
            module.training = training


@contextmanager
def of_the_batch(model: nn.Module) -> Iterator[None]:
    """Inside, a model in training mode uses the statistics of each batch and keeps none of them."""
    tracked = [(layer, layer.track_running_stats) for layer in _layers(model)]
    for layer, _ in tracked:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer, usual in tracked:
            layer.track_running_stats = usual


def _layers(model: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
