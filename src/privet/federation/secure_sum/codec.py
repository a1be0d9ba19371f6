"""Dataclasses as JSON and back; bytes in base64. What does not fit its type is refused.

Numbers, text, bytes, tuples of one kind, dicts by text, what may be None, and dataclasses of these.
"""

import base64
import binascii
import dataclasses
import json
import types
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from privet.errors import InputError
from privet.federation.secure_sum.refusals import Refused

Kind = TypeVar("Kind")


def to_bytes(record: Any) -> bytes:
    """A dataclass as JSON; the same bytes for the same content."""
    text = json.dumps(plain(record), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def from_bytes(kind: type[Kind], content: bytes) -> Kind:
    """The dataclass that a JSON text says."""
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused(f"no {kind.__name__}", got="text that is no JSON") from None
    result: Kind = built(kind, record)
    return result


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields if field.init}
    return value


def built(kind: Any, value: Any) -> Any:
    """A value of this type, from what JSON had of it."""
    if isinstance(kind, types.UnionType):
        return None if value is None else built(get_args(kind)[0], value)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, _checked(dict, value))
    if get_origin(kind) is tuple:
        return tuple(built(get_args(kind)[0], part) for part in _checked(list, value))
    if get_origin(kind) is dict:
        part = get_args(kind)[1]
        return {key: built(part, content) for key, content in _checked(dict, value).items()}
    return _simple(kind, value)


def _dataclass(kind: Any, record: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    if names != set(record):
        raise Refused(f"no {kind.__name__}", got="fields that are missing, or that nobody knows")
    parts = {name: built(hints[name], record[name]) for name in names}
    try:
        return kind(**parts)
    except InputError as no:  # what is bad input from a person is here what somebody sent
        raise Refused(f"no {kind.__name__}", got=str(no)) from None


def _simple(kind: Any, value: Any) -> Any:
    if kind is bytes:
        try:
            return base64.b64decode(_checked(str, value), validate=True)
        except (binascii.Error, ValueError):
            raise Refused("a message with broken base64") from None
    if issubclass(kind, StrEnum):
        try:
            return kind(_checked(str, value))
        except ValueError:
            raise Refused("a message with an unknown word") from None
    if kind is float and type(value) is int:
        value = float(value)
    return _checked(kind, value)


def _checked(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise Refused("a message of another form", expected=kind.__name__)
    return value
