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
    """Means and variances become the averages of those of these batches."""
    layers = _layers(model)
    usual, training = [layer.momentum for layer in layers], model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # all batches count alike
    model.train()
    with torch.no_grad():
        for x in batches:
            model(x)
    model.train(training)
    for layer, momentum in zip(layers, usual, strict=True):
        layer.momentum = momentum


@contextmanager
def of_the_batch(model: nn.Module) -> Iterator[None]:
    """Inside, a model in training mode uses the statistics of each batch and keeps none of them."""
    layers = _layers(model)
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def _layers(model: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
