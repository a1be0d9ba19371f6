"""Where a phone stands with a model, on disk: a killed phone goes on where it was."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, final

from privet.errors import InputError
from privet.federation import wire
from privet.federation.phone.stages import ARROWS, IN_A_ROUND, Stage
from privet.files import read_json, write_json

FORMAT: Final = 1
_AFTER_LESSONS: Final = (Stage.STORED, Stage.DISCARD)


@final
@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A round that the phone is accepted for; `deadline` by its own clock."""

    ticket: str
    round: int
    base_version: int
    get_url: str
    put_url: str
    resumable: bool
    most_bytes: int
    deadline: float
    work: dict[str, Any]
    accepted_at: float
    longest: float | None = None  # norm of an update that goes into a secure sum

    @classmethod
    def given(cls, answer: wire.Accepted, *, now: float, deadline: float) -> Self:
        """Of the server's answer."""
        return cls(
            ticket=answer.ticket,
            round=answer.round,
            base_version=answer.base_version,
            get_url=answer.get_url,
            put_url=answer.put_url,
            resumable=answer.resumable,
            most_bytes=answer.most_bytes,
            deadline=deadline,
            work=answer.work.model_dump(mode="json"),
            accepted_at=now,
            longest=answer.longest,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """All that must outlive the process.

    Attributes:
        stage: of the machine.
        ticket: of the round it is in.
        until: IDLE and BACKOFF last until then at least.
        turn: how often it has trained for a round; what a lesson is drawn from.
        tries: failed attempts at what it is about, one after the other.
        sha256: of the update that is stored.
        sent: all of it has arrived, and its commit may have.
        took: seconds that the last training took.
        version: newest one that is here.
        tried_version: newest one that was tried on held-out records; -1: none.
        over: the server says that training is over.
        fates: what became of its rounds.
    """

    stage: Stage = Stage.IDLE
    ticket: Ticket | None = None
    until: float = 0.0
    turn: int = 0
    tries: int = 0
    sha256: str = ""
    sent: bool = False
    took: float = 0.0
    version: int = -1
    tried_version: int = -1
    over: bool = False
    fates: dict[str, int] = field(default_factory=dict)

    def to(self, stage: Stage, **changes: Any) -> Self:
        """Along an arrow of the machine, with nothing tried yet."""
        if stage not in ARROWS[self.stage]:
            raise ValueError(f"no arrow from {self.stage} to {stage}")
        kept = self.ticket if stage in IN_A_ROUND or stage is Stage.DISCARD else None
        lesson_over = self.stage in (Stage.TRAINING, Stage.PAUSED) and stage in _AFTER_LESSONS
        fresh = {"stage": stage, "ticket": kept, "tries": 0, "turn": self.turn + lesson_over}
        return replace(self, **fresh | changes)

    def ended(self, fate: str, **changes: Any) -> Self:
        """Back to IDLE, and counted."""
        fates = self.fates | {fate: self.fates.get(fate, 0) + 1}
        return self.to(Stage.IDLE, fates=fates, sha256="", sent=False, **changes)

    @property
    def held(self) -> Ticket:
        """The ticket, where there must be one."""
        if self.ticket is None:
            raise ValueError(f"no ticket while {self.stage}")
        return self.ticket


def write(path: Path, standing: Standing) -> None:
    """Whole or not at all."""
    write_json(path, asdict(standing) | {"format": FORMAT}, private=True)


def read(path: Path) -> Standing:
    """As it was left; a new one if there is none."""
    if not path.exists():
        return Standing()
    record = read_json(path)
    try:
        if record.pop("format") != FORMAT:
            raise KeyError("format")
        ticket = record.pop("ticket")
        return Standing(
            **record | {"stage": Stage(record["stage"])},
            ticket=None if ticket is None else Ticket(**ticket),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "a phone's state cannot be read", got=f"{path}: {error}", fix="another --folder"
        ) from None
