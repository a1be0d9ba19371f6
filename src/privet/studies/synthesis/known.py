"""Settings of contenders on known records; see `robust_private.choices` for keys and layers.

What is not here has the method's own defaults.
"""

from collections.abc import Mapping
from typing import Any, Final

SETTINGS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {}
