"""What a node is asked and what it answers, in the two forms that ClientApps have.

| form           | asked                                             | answered                 |
|----------------|---------------------------------------------------|--------------------------|
| `message`      | `arrays`, `config`, as Flower's strategies do     | one ArrayRecord, metrics |
| `numpy-client` | `fitins`, what a NumPyClient's `fit` is called by | `fitres`                 |

Metrics are not looked at: what a node says of its records is not accounted.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from privet.errors import InputError
from privet.federation.flower.arrays import Arrays, Encoded
from privet.federation.server.updates import Malformed

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Message, RecordDict

TRAIN: Final = "train"
ARRAYS: Final = "arrays"
CONFIG: Final = "config"
NUMPY: Final = "numpy.ndarray"
OK: Final = 0
OFFER: Final = "privet-offer"
SEED: Final = "privet-seed"
TURN: Final = "privet-turn"

Config = Mapping[str, int | float | str]


@final
class Form(StrEnum):
    """How a ClientApp is written."""

    MESSAGE = "message"
    NUMPY_CLIENT = "numpy-client"

    @classmethod
    def named(cls, name: object) -> "Form":
        """Or an error that says which there are."""
        try:
            return cls(str(name))
        except ValueError:
            raise InputError(
                "unknown form of a ClientApp", got=f"'{name}'", expected=" | ".join(cls)
            ) from None


def record_of(form: Form, arrays: Arrays) -> "ArrayRecord":
    """A version as it is sent; one for all messages, so that it is in memory once."""
    from flwr.app import Array, ArrayRecord

    names = arrays if form is Form.MESSAGE else map(str, range(len(arrays)))
    pairs = zip(names, arrays.values(), strict=True)
    return ArrayRecord({name: Array(part) for name, part in pairs})


def question(form: Form, record: "ArrayRecord", config: Config) -> "RecordDict":
    """The content of a message to train."""
    from flwr.app import ConfigRecord, RecordDict

    if form is Form.MESSAGE:
        return RecordDict({ARRAYS: record, CONFIG: ConfigRecord(dict(config))})
    legacy = {name.replace("-", "_"): value for name, value in config.items()}
    return RecordDict({"fitins.parameters": record, "fitins.config": ConfigRecord(dict(legacy))})


def answer_in(form: Form, reply: "Message") -> Encoded:
    """The arrays of an answer, as bytes; `Malformed` if there are none to be found."""
    records = reply.content.array_records
    if form is Form.NUMPY_CLIENT:
        status = reply.content.config_records.get("fitres.status")
        if "fitres.parameters" not in records or status is None or status.get("code") != OK:
            raise Malformed("an answer without fitted parameters", expected="NumPyClient.fit")
        return _encoded(records["fitres.parameters"])
    if ARRAYS in records:
        return _encoded(records[ARRAYS])
    if len(records) != 1:
        raise Malformed("an answer without arrays", got=f"{len(records)} ArrayRecords")
    return _encoded(next(iter(records.values())))


def _encoded(record: "ArrayRecord") -> Encoded:
    if any(array.stype != NUMPY for array in record.values()):
        raise Malformed("arrays of another serialisation", expected=NUMPY)
    return {name: array.data for name, array in record.items()}
