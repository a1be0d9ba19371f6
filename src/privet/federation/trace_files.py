"""Files of traces: when measured, drawn or edited phones can train, and how fast they are.

A row for each stretch of time in which a phone can train: it charges, and its network costs
nothing.

    client,start,stop                   seconds since the start
    client,start,stop,speed,down,up     and records a second, bytes a second from and to the server

Speeds are a phone's: all its rows say the same. Without these columns they are drawn.
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from privet.errors import InputError
from privet.federation.traces import Phone
from privet.files import write_atomically

STRETCH: Final = ("client", "start", "stop")
PACE: Final = ("speed", "down", "up")

Pace = tuple[float, ...]


def read(path: str | Path, phones: Sequence[Phone]) -> list[Phone]:
    """The same phones, available as a file says; one that is not in it never is."""
    stretches, paces = _rows(Path(path), len(phones))
    return [
        replace(
            phone,
            stretches=_ordered(path, client, stretches.get(client, [])),
            **dict(zip(PACE, paces.get(client, ()), strict=False)),
        )
        for client, phone in enumerate(phones)
    ]


def clients_in(path: str | Path) -> int:
    """How many phones a file is for: the highest number in it, and one."""
    stretches, _ = _rows(Path(path), sys.maxsize)
    return 1 + max(stretches, default=-1)


def write(path: str | Path, phones: Sequence[Phone]) -> int:
    """The stretches and speeds of these phones, for `read`; the answer counts the stretches."""
    path = Path(path)
    if path.exists():
        raise InputError("the file exists", got=path, fix="choose another name, or delete it")
    rows = [
        f"{client},{start!r},{stop!r},{phone.speed!r},{phone.down!r},{phone.up!r}"
        for client, phone in enumerate(phones)
        for start, stop in phone.stretches
    ]
    text = "\n".join([",".join(STRETCH + PACE), *rows])
    write_atomically(path, f"{text}\n".encode())
    return len(rows)


def _rows(
    path: Path, clients: int
) -> tuple[Mapping[int, list[tuple[float, float]]], Mapping[int, Pace]]:
    if not path.is_file():
        raise InputError("no such file of traces", got=path, expected="a CSV file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a mark first
            return _parsed(path, csv.DictReader(file), clients)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path} is no file of traces",
            got=error,
            expected=f"a CSV file with the columns {','.join(STRETCH)}",
            fix="privet federate traces makes one to look at",
        ) from None


def _parsed(
    path: Path, reader: "csv.DictReader[str]", clients: int
) -> tuple[Mapping[int, list[tuple[float, float]]], Mapping[int, Pace]]:
    stretches: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    paces: dict[int, Pace] = {}
    _require_header(path, tuple(reader.fieldnames or ()))
    for number, row in enumerate(reader, start=2):
        client, stretch = _stretch(path, number, row, clients)
        stretches[client].append(stretch)
        pace = _pace(path, number, row)
        if paces.setdefault(client, pace) != pace:
            raise InputError(
                f"{path}, line {number}: another speed for client {client}",
                got=",".join(f"{value:g}" for value in pace),
                expected=",".join(f"{value:g}" for value in paces[client]),
            )
    if not stretches:
        raise InputError(f"no phone of {path} can ever train", got="a header and no row")
    return stretches, paces


def _require_header(path: Path, header: tuple[str, ...]) -> None:
    if header not in (STRETCH, STRETCH + PACE):
        raise InputError(
            f"bad header of {path}",
            got=",".join(header) or "nothing",
            expected=f"{','.join(STRETCH)}, or {','.join(STRETCH + PACE)}",
        )


def _stretch(
    path: Path, number: int, row: Mapping[str, str | None], clients: int
) -> tuple[int, tuple[float, float]]:
    try:
        client = int(row["client"] or "")
        start, stop = float(row["start"] or ""), float(row["stop"] or "")
        if not 0 <= start < stop:
            raise ValueError
    except ValueError:
        raise InputError(
            f"{path}, line {number}: not a stretch of time",
            got=",".join(str(value) for value in row.values()),
            expected="a client's number, and seconds 0 <= start < stop",
        ) from None
    if not 0 <= client < clients:
        raise InputError(
            f"{path}, line {number}: no such client", got=client, expected=f"0..{clients - 1}"
        )
    return client, (start, stop)


def _pace(path: Path, number: int, row: Mapping[str, str | None]) -> Pace:
    if PACE[0] not in row:
        return ()
    try:
        pace = tuple(float(row[name] or "") for name in PACE)
        if any(math.isnan(value) or value <= 0 for value in pace):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{path}, line {number}: not a speed",
            got=",".join(str(row[name]) for name in PACE),
            expected="records a second, bytes a second down and up, each above 0",
        ) from None
    return pace


def _ordered(
    path: str | Path, client: int, stretches: list[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    ordered = sorted(stretches)
    for (_, stop), (start, _) in pairwise(ordered):
        if start < stop:
            raise InputError(
                f"{path}: stretches of client {client} overlap", got=f"{start:g} before {stop:g}"
            )
    return tuple(ordered)
