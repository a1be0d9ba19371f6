"""How a model was trained, in words: what its sampler rests on, and what is not the default."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.reports import figures

_SAMPLERS: Final = {
    "cyclic-poisson": "a unit has its turn once in {cycle} steps, and then joins by chance",
    "fixed-batches": "disjoint batches, dealt once; no amplification by sampling",
    "shuffled": "no amplification by sampling; zero-out and replace-one neighbours, not"
    " add/remove; the number of units is public",
    "self-selected": "clients take part when they can; no amplification by sampling",
    "server-sampled": "secret coins of the server, one for each client and round",
    "local": "each record is randomised once, by itself; training sees nothing else of it",
}
# As `privacy.precision` has them; not imported, a report needs no PyTorch.
_ADDED_TO_NORMS: Final = {"tf32": "(2^-8 + 2^-16)", "bf16": "(2^-8 + 2^-16)"}
_NUMBERS: Final = {
    "per-layer": "shares of the layers",
    "weighted": "weights of the layers",
    "by-input": "weights of the inputs",
    "by-part": "radii of the parts",
}


def sampler_note(trust: Mapping[str, Any]) -> str:
    """What a reader must know of the sampler; nothing for Poisson sampling, the default."""
    mechanism = _part(trust, "mechanism")
    note = _SAMPLERS.get(str(mechanism.get("sampler")), "")
    return note.format(cycle=figures.value_text(mechanism.get("cycle")))


def unusual(trust: Mapping[str, Any]) -> Iterator[str]:
    """Clipping, noise, views and adversarial examples, where they are not the default."""
    mechanism, config = _part(trust, "mechanism"), _part(_part(trust, "provenance"), "config")
    geometry = _part(mechanism, "clipping").get("name", "flat")
    if geometry != "flat":
        yield f"{geometry} clipping"
    precision = mechanism.get("precision", "float32")
    if precision != "float32":
        yield f"gradients in {figures.value_text(precision)}"
    bands = mechanism.get("bands")
    if isinstance(bands, list) and bands:
        yield f"noise correlated over {len(bands)} steps"
    augment = config.get("augment", "none")
    noise = config.get("input_noise", 0.0)
    if augment != "none" or noise:
        names = [str(augment)] if augment != "none" else []
        names += [f"noise {figures.value_text(noise)}"] if noise else []
        views = config.get("views", 1)
        counted = "a random view" if views == 1 else f"{views} random views"
        yield f"{counted} of each example ({' and '.join(names)})"
    hidden = config.get("hidden_noise")
    if hidden:
        yield f"noise {figures.value_text(hidden)} behind the first layer"
    if "attack_bound" in config:
        made_for = figures.value_text(config["attack_bound"])
        yield f"noise behind the first layer, made for attacks of {made_for}"
    if config.get("adversarial", "none") != "none":
        norm, size = config.get("adversarial_norm"), config.get("adversarial_size")
        yield (f"adversarial training ({config['adversarial']}, {norm} {figures.value_text(size)})")


def clipping_text(mechanism: Mapping[str, Any]) -> str:
    """The geometry with its public numbers, and what rounding adds to the norms."""
    return _geometry_text(mechanism.get("clipping")) + _rounding_text(mechanism.get("precision"))


def _rounding_text(name: Any) -> str:
    """How the bound survives a coarse precision; nothing to say of the usual one."""
    share = _ADDED_TO_NORMS.get(str(name))
    if share is None:
        return ""
    return (
        f"; {name}: against rounding, {share} of S is added to the norm of a gradient that is not"
        " formed (S = sum of |b_t| |a_t|, its factors)"
    )


def _geometry_text(clipping: Any) -> str:
    if not isinstance(clipping, Mapping) or "name" not in clipping:
        return figures.value_text(clipping)
    name, numbers = str(clipping["name"]), clipping.get("numbers")
    if not numbers:
        return name
    return f"{name}; {_NUMBERS.get(name, 'numbers')}: {figures.value_text(numbers)}"


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}
