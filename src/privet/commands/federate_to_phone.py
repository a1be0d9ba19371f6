"""`privet federate to-phone`: a model as files that a phone's own program trains and runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from privet.commands.screen import Json, out, print_json, print_listing


def to_phone(
    source: Path,
    /,
    *,
    out_folder: Annotated[Path, Parameter(name="--out")],
    formats: Annotated[str, Parameter(name="--format")] = "both",
    batch: int | None = None,
    json: Json = False,
) -> None:
    """Write what a phone's team needs to train and run a model: ExecuTorch and ONNX files.

    training.pte computes a step's loss and gradients on Android, iOS or Linux, by ExecuTorch's
    training extension; inference.pte and inference.onnx give scores. manifest.json has digests,
    shapes and the order of parameters in an update; README.md tells the phone's team what to do.
    All are compared with PyTorch before they are written.

    Networks that phones can train: har-wild-32, har-wild-64, har-wild-128, sentiment-head, mlp,
    linear; not those with BatchNorm. ONNX is for others, too.

    Example: privet federate to-phone har.toml --out for-phones

    Example: privet federate to-phone runs/har --batch 20 --out for-phones

    Example: privet federate to-phone runs/har --format onnx --out for-phones

    Parameters
    ----------
    source
        Folder of a release, or the .toml plan of a server's model: its weights before round one.
    out_folder
        Folder, new or empty.
    formats
        executorch, onnx, or both.
    batch
        Records of a step; fixed in training.pte, smaller batches are filled up. Default: the
        plan's; for a release 64.
    json
        Print the manifest as JSON, nothing else.
    """
    from privet.federation.on_device.writing import write

    written = write(source, out_folder, formats=formats, batch=batch)
    if json:
        print_json(written.manifest)
        return
    print_listing(_lines(written.manifest))
    out.print(f"next: read {out_folder / 'README.md'}", highlight=False, soft_wrap=True)


def _lines(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [("model", f"{manifest['network']}, from a {manifest['source']}")]
    lines += [(name, f"{said['bytes']:,} bytes") for name, said in manifest["files"].items()]
    if "tried" in manifest:
        apart = manifest["tried"]["largest_difference_of_gradients"]
        lines += [
            ("a step", f"{manifest['batch']} records, {manifest['working_bytes'] / 1e6:.1f} MB"),
            ("an update", f"{manifest['weights']:,} numbers"),
            ("tried", f"gradients are PyTorch's to {apart:.0e} of the largest"),
        ]
    return lines
