"""The text that lies beside the programs, for whoever writes the phone's program."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

TRAINING: Final = """
## Training: training.pte

Method `forward`, for ExecuTorch's training extension (`TrainingModule`). All shapes are fixed.

| input | shape | what the phone gives |
|---|---|---|
{inputs}

It gives the loss, the scores, a gradient for each parameter, and the parameters, by name.

1. Set the parameters to the version that the server sent: one vector of {weights:,} float32
   numbers. Parameter `name` is `vector[offset : offset + size]` in `shape`, row by row, as
   `parameters` in manifest.json tells. **Keep that order.** `named_parameters` is sorted by name in
   C++, which is another one. The vector that the program begins with has the SHA-256 `start`
   (float32, little endian): check yours with it once.
2. For each batch: give the inputs, call `execute_forward_backward("forward", inputs)`, and give
   `named_gradients("forward")` to the optimiser: `SGD` with the learning rate alone, or `AdamW`
   with weight decay 0, which is Adam (0.9, 0.999, 1e-8). A new optimiser in every round.{proximal}
3. The update is the vector afterwards minus the vector before, in the same order, as safetensors:
   eight bytes with the header's length (little endian), the header

       {header}

   and the numbers, float32, little endian. `privet federate server` takes nothing else.

A batch that is not full is filled up with zeros, and these records have share 0; with n records the
others have 1/n. Scores with all of `kept` at 1 are those of the newest weights without dropout.

Memory of a step: {working} MB, planned beforehand. The runtime needs these operators:

    {operators}
"""
PROXIMAL: Final = """
   FedProx: add {proximal:g} times (parameter now - parameter at the start) to each gradient."""


def instructions(manifest: Mapping[str, Any], files: Collection[str]) -> str:
    """README.md of a folder."""
    parts = [_head(manifest)]
    if "parameters" in manifest:
        parts.append(_training(manifest))
    parts += [_INFERENCE[name] for name in _INFERENCE if name in files]
    return "\n".join(parts)


def _head(manifest: Mapping[str, Any]) -> str:
    classes = ", ".join(f"{i} {name}" for i, name in enumerate(manifest["classes"]))
    return f"""# {manifest["network"]} for phones

Check the files first: manifest.json has their SHA-256.

Examples have shape {manifest["shape"]}, float32, scaled to [0, 1] by the declared bounds in
manifest.json: `(clip(value, low, high) - low) / (high - low)`, along the last axis where there is
more than one bound. Classes: {classes}.
"""


def _header(size: int) -> str:
    tensor = {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}
    return json.dumps({"change": tensor}, separators=(",", ":"))


def _training(manifest: Mapping[str, Any]) -> str:
    meaning = {
        "x": "examples, scaled",
        "y": "their labels",
        "share": "1/n for each of the n records, 0 for what fills the batch up",
    }
    rates = [dropout["rate"] for dropout in manifest["dropouts"]]
    for number, rate in enumerate(rates):
        meaning[f"kept_{number}"] = (
            f"dropout, drawn anew in each step: 0 with chance {rate:g}, else {1 / (1 - rate):.6g}"
        )
    rows = [
        f"| `{part['name']}` | {part['shape']} {part['dtype']} | {meaning[part['name']]} |"
        for part in manifest["inputs"]
    ]
    proximal = (manifest["work"] or {}).get("proximal", 0.0)
    return TRAINING.format(
        inputs="\n".join(rows),
        weights=manifest["weights"],
        header=_header(manifest["weights"]),
        proximal=PROXIMAL.format(proximal=proximal) if proximal else "",
        working=round(manifest["working_bytes"] / 1e6, 1),
        operators="\n    ".join(manifest["operators"]),
    )


_INFERENCE: Final = {
    "inference.pte": """## Scores: inference.pte

Method `forward`: one example in, [1, ...]; one score for each class out. The largest is the answer.
The weights are in the file: after training, or for a new version of the server's, use
training.pte's scores, or have the folder made again.
""",
    "inference.onnx": """## Scores: inference.onnx

Input `x`, [n, ...], any n; output `scores`, [n, classes]. The weights are in the file, too.
""",
}
