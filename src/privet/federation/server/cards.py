"""The newest version of a model as a release."""

from pathlib import Path

from privet.errors import InputError
from privet.federation.server.served import ServedModel


def export(model: ServedModel, folder: Path, *, server: str) -> Path:
    """Save it in a new folder."""
    raise InputError("not yet", got=f"{model.name} {folder} {server}")
