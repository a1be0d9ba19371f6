"""Networks that make records, by name; built from a schema."""

import re
from collections.abc import Mapping
from typing import Any, Final

import torch

from privet.data.records.schema_file import schema_from_json
from privet.errors import InputError
from privet.models.record_coders import CODERS
from privet.models.record_maker import Form, RecordMaker
from privet.models.row_transformer import RowTransformer, Sizes

FORM: Final = "rows-WIDTH-LAYERS"
DEFAULT: Final = "rows-64-1"
HEAD_WIDTH: Final = 16


def create_generator(
    name: str, schema: Mapping[str, Any], *, init_seed: int = 0
) -> RowTransformer | RecordMaker:
    """Build a network; its first weights depend on the public `init_seed` alone.

    Args:
        name: as `rows-64-1`: width of the transformer and number of its layers; or a form of
            `record_maker`.
        schema: as `data.records.schema_file.schema_to_json` gives it.
        init_seed: of the first weights.
    """
    public = schema_from_json(schema)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init_seed)
        if name.startswith(CODERS):
            return RecordMaker(Form.read(name), public)
        width, layers = _rows(name)
        sizes = Sizes.of(public)
        return RowTransformer(sizes, width=width, layers=layers, heads=width // HEAD_WIDTH)


def _rows(name: str) -> tuple[int, int]:
    found = re.fullmatch(r"rows-([1-9]\d{0,3})-(\d{1,2})", name)
    if found is None or int(found[1]) % HEAD_WIDTH:
        raise InputError(
            "unknown generator",
            got=f"'{name}'",
            expected=f"{FORM}, the width in multiples of {HEAD_WIDTH}",
            fix=f"--model {DEFAULT}",
        )
    return int(found[1]), int(found[2])
