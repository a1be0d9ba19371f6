"""One model on the server: thread-safe, one writer, everything that counts in a journal first.

A `ModelHost` owns the one thread that changes the model. Callers of other threads are answered
from memory (`ready`), or get a future (`commit`). A commit is answered once its event is on disk.
After a crash `open` plays the journal again and is where it was, bit for bit.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from privet.federation.server.plan import ModelPlan
from privet.federation.server.state import State
from privet.federation.server.store import Store
from privet.federation.wire import Manifest, Reason
from privet.ledger import Ledger


@final
@dataclass(frozen=True, kw_only=True)
class Given:
    """A ticket: train from `base_version`, put the update at `key` of the store."""

    ticket: str
    round: int
    base_version: int
    key: str
    seconds_left: float
    most_bytes: int


@final
@dataclass(frozen=True, kw_only=True)
class NotNow:
    """Why there is none, and when to ask again."""

    reason: Reason
    retry_after: float


@final
@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether an update counts. The same ticket is answered the same again.

    But for `BROKEN`: bytes that are not those of the digest may be sent once more.
    """

    accepted: bool
    reason: Reason | None = None


class ModelHost:
    """Serves one model. Open one in one process; a second one is refused."""

    plan: ModelPlan
    """The plan in force."""

    @classmethod
    def open(
        cls,
        plan: ModelPlan,
        *,
        state: State,
        store: Store,
        secrets: Path,
        ledger: Ledger | None = None,
        server: str = "server",
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """Begin with a model, or go on where the last process stopped.

        Args:
            plan: of a new model; of a known one its newest revision, or one that may follow it.
            state: the server's memory.
            store: the server's artefacts.
            secrets: a private folder: keys of noise and snapshots. It must outlive the process.
            ledger: charged by private models, which need one.
            server: name of the server; the ledger's account is `fleet:<server>`.
            clock: seconds since the epoch.
        """
        raise NotImplementedError

    @property
    def version(self) -> int:
        """The newest published one."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many numbers the model has, and an update."""
        raise NotImplementedError

    @property
    def stopped(self) -> bool:
        """Whether nothing is trained now: all rounds are over, or `stop` was called."""
        raise NotImplementedError

    def ready(self, device: str, *, phone: str, system: str) -> Given | NotNow:
        """A device is ready to train (RTCm): its ticket (AFTm), or why not now (DFTm)."""
        raise NotImplementedError

    def commit(self, ticket: str, device: str, sha256: str) -> "Future[Decision]":
        """The upload lies in the store: count it, once. The answer is durable."""
        raise NotImplementedError

    def take_sum(self, total: Any, devices: list[str], base_version: int) -> "Future[Decision]":
        """A sum by secure aggregation, of updates that these devices clipped themselves."""
        raise NotImplementedError

    def report(self, device: str, version: int, tried: int, right: int) -> bool:
        """What a device made of a version on its own records; whether that counts."""
        raise NotImplementedError

    def tick(self) -> float:
        """End the round if its time is over; in how many seconds to call again at the latest."""
        raise NotImplementedError

    def manifest(self, version: int | None = None) -> Manifest:
        """What a version is, unsigned; default: the newest. `InputError` if it is not kept."""
        raise NotImplementedError

    def weights_key(self, version: int) -> str:
        """Where its weights lie in the store: safetensors {weights: F32[n]}."""
        raise NotImplementedError

    def wait_for(self, version: int, seconds: float) -> int:
        """The newest version, at once if it is above `version`, else once it is or time is up."""
        raise NotImplementedError

    def roll_back(self, to: int) -> int:
        """Publish an earlier version again, as the newest; returns its number."""
        raise NotImplementedError

    def revise(self, plan: ModelPlan) -> None:
        """Another revision of the plan, from the next round on."""
        raise NotImplementedError

    def stop(self) -> None:
        """Deny and refuse from now on; what counts already stays."""
        raise NotImplementedError

    def resume(self) -> None:
        """Go on; the round begins to last anew."""
        raise NotImplementedError

    def standing(self) -> dict[str, Any]:
        """For console and terminal: see `standing.py`."""
        raise NotImplementedError

    def export(self, folder: Path) -> Path:
        """The newest version as a release with its trust card, in a new folder."""
        raise NotImplementedError

    def close(self) -> None:
        """Answer what was asked, and let go of the model."""
        raise NotImplementedError
