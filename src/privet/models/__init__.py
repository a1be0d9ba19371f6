"""Networks by name, and the repair of networks that private training cannot take."""

from privet.models.registry import create, default_model, names
from privet.models.repair import without_batchnorm

__all__ = ["create", "default_model", "names", "without_batchnorm"]
