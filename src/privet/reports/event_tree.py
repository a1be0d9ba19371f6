"""Privacy events as a tree of plain sentences, for people who check the accounting by eye."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privet.reports.figures import label, value_text

# What each kind of event says; the braces are filled from the event's own fields.
_SENTENCES = {
    "Composed": "all of",
    "SelfComposed": "{count} times",
    "PoissonSampled": "on a Poisson sample: each unit independently, "
    "with probability {sampling_probability}",
    "SampledWithoutReplacement": "on {sample_size} of {source_dataset_size} units, "
    "drawn without replacement",
    "SampledWithReplacement": "on {sample_size} of {source_dataset_size} units, "
    "drawn with replacement",
    "Gaussian": "Gaussian noise, {noise_multiplier} times the sensitivity",
    "Laplace": "Laplace noise, {noise_multiplier} times the sensitivity",
    "DiscreteLaplace": "whole-number Laplace noise: exp(-{noise_parameter} |z|), sensitivity "
    "{sensitivity}",
    "RandomizedResponse": "randomised response: with probability {noise_parameter} drawn anew, "
    "uniformly from {num_buckets} classes",
    "Selection": "a random number of runs ({mean} expected, shape {shape}), "
    "of which the best alone is released; one run is",
    "NoOp": "no access to the data",
    "NonPrivate": "access without any privacy",
}


@dataclass(frozen=True)
class Node:
    """One event in words, with the events inside it."""

    text: str
    children: tuple["Node", ...]


def event_tree(event: Mapping[str, Any]) -> Node:
    """Put an event and all it contains into words."""
    kind = str(event.get("type", "event")).removesuffix("DpEvent")
    fields = {k: v for k, v in event.items() if k != "type" and not _inner(v)}
    children = tuple(event_tree(e) for value in event.values() for e in _inner(value))
    return Node(_sentence(kind, fields), children)


def _sentence(kind: str, fields: Mapping[str, Any]) -> str:
    words = {key: value_text(value) for key, value in fields.items()}
    try:
        return _SENTENCES[kind].format_map(words)
    except KeyError:  # a kind or a field unknown here: show everything as it is
        return ", ".join([kind, *(f"{label(key)} {word}" for key, word in words.items())])


def _inner(value: Any) -> list[Mapping[str, Any]]:
    candidates = value if isinstance(value, list | tuple) else [value]
    return [item for item in candidates if isinstance(item, Mapping) and "type" in item]
