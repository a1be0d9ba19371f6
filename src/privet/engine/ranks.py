"""The processes of one run, as `torchrun` starts them; alone where there is one.

Every rank holds its own share of the units and samples it with a key of its own. The clipped sums
are added over the ranks; the lead draws the noise, once, on the total, and sends the result to all.
So the update is that of one process: the same sum, one draw of noise, one constant to divide by.

| rank      | holds                                                       | does                  |
|-----------|-------------------------------------------------------------|-----------------------|
| the lead  | its share, the sampling key, the noise key, ledger, folder  | all that one does     |
| any other | its share, the sampling key                                 | samples, clips, sums  |

Dropout, views and the choice among a unit's records are drawn under the key of the rank as well.

Proof note: why the events of `privacy.sampling` stay valid. All ranks hold the same records in the
same order (`require_alike`), and each unit goes with all its records to one rank (`share`). So one
unit enters the total at most once, with a vector of at most the clip norm, as in one process.

Rank r draws from the key that keyed BLAKE2b derives from the run's sampling key for r. If that is a
pseudo-random function, the draws of different ranks, places and steps are independent.

- poisson, cyclic-poisson, fixed-batches: the group and the coins of a unit are draws of its own, at
  an address (rank, place in the share) that no other unit has. The draws at all addresses have one
  law. So it does not matter which rank or place a unit has: all groups and coins together have the
  law that they have in one process, also after a unit more or less has moved others to other ranks.
  The sums have the law of one process, and the event is the same.
- shuffled: stated for zero-out and replace-one neighbours only. There the unit keeps its number,
  hence its rank and place, and every share keeps its size. Given the orders of all ranks it sits in
  one step of each epoch, and the rest is the proof of one process, which never used the law of the
  orders. (Batches are equal to one unit on each rank, so to `size` units in all.)

Rate, normaliser and noise are constants of the plan: nothing depends on the number of ranks. A rank
may hold no unit at all. What travels between the ranks (sums without noise, the sampling key) is
private: the network between them belongs to the trusted side.
"""

import atexit
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final, Self, final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import errors
from privet.data.dataset import Dataset, Split
from privet.engine.origin import name_of
from privet.errors import CheckFailed, FaultyEnvironment, InputError, PrivetError
from privet.privacy.randomness import Randomness, SecretStream

LEAD: Final = 0
RAISED_BY_ALL: Final = "every process of this run raises this error"
LETTING_GO_SECONDS: Final = 0.2
PATIENCE: Final = timedelta(minutes=30)  # with a process that is at work; one that died is noticed


@final
@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Which process this is, of how many; every rank makes the same calls in the same order."""

    rank: int = LEAD
    size: int = 1

    @classmethod
    @contextmanager
    def joined(cls) -> Iterator[Self]:
        """In company of the other processes, if `torchrun` started several.

        They stay together until the process ends: a script may train again, also after an error
        that all ranks raised. With an error that this rank alone has, it hangs up; the others then
        fail too, and none waits for it. A process group that the caller made is used as it is.
        """
        ranks = cls._present()
        try:
            yield ranks
            ranks._first_fault(None)  # nobody goes while another still listens
        except BaseException as error:
            if ranks.size > 1 and RAISED_BY_ALL not in getattr(error, "__notes__", ()):
                hang_up()
            raise

    @classmethod
    def _present(cls) -> Self:
        if not (dist.is_available() and dist.is_initialized()):
            if os.environ.get("WORLD_SIZE", "1") == "1":
                return cls()
            _make_group()
        _require_cpu_group()
        return cls(rank=dist.get_rank(), size=dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this process keeps the account, draws the noise and writes the release."""
        return self.rank == LEAD

    def device(self, name: str) -> str:
        """Of several GPUs in a machine, each process takes one."""
        if name != "cuda" or self.size == 1 or not torch.cuda.is_available():
            return name
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"

    def share(self, split: Split) -> Split:
        """The units that this rank holds: every `size`-th, each with all its records."""
        if self.size == 1:
            return split
        return split.part(split.unit_of_record % self.size == self.rank)

    def own(self, stream: SecretStream) -> SecretStream:
        """The stream of this rank under the run's key; unrelated to those of the other ranks."""
        if self.size == 1:
            return stream
        return stream.branch(purpose=f"rank of {self.size}", step=self.rank)

    def with_sampling_of_lead(self, randomness: Randomness) -> Randomness:
        """The run's sampling key on every rank. The noise key stays where noise is drawn."""
        if self.size == 1:
            return randomness
        key = self.told(randomness.sampling.key.hex())
        if self.leads:
            return randomness
        # In place of the noise key there is one that nobody uses.
        return replace(randomness.renewed(), sampling=SecretStream(bytes.fromhex(key)))

    def total(self, part: Tensor) -> Tensor:
        """The sum of every rank's part, on every rank."""
        if self.size > 1:
            with _connected():
                dist.all_reduce(part)
        return part

    def from_lead(self, value: Tensor) -> Tensor:
        """The lead's value, on every rank; the others give a tensor of the same shape."""
        return self._spread(value, LEAD) if self.size > 1 else value

    def told(self, value: Any, *, by: int = LEAD) -> Any:
        """What one rank says, on every rank: plain values and tensors; no code is run."""
        if self.size == 1:
            return value
        speaks = self.rank == by
        content = _packed(value) if speaks else b""
        length = int(self._spread(torch.tensor([len(content)]), by))
        heard = self._spread(
            torch.frombuffer(bytearray(content), dtype=torch.uint8)
            if speaks
            else torch.empty(length, dtype=torch.uint8),
            by,
        )
        return value if speaks else _unpacked(heard.numpy().tobytes())

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """All ranks leave the block, or none: an error on one of them is raised on every rank.

        The block is for work of this process alone. Nothing in it may talk to the other ranks.
        """
        if self.size == 1:
            yield
            return
        own: Exception | None = None
        try:
            yield
        except Exception as error:
            own = error
        fault = self._first_fault(own)
        if fault is not None:
            fault.add_note(RAISED_BY_ALL)
            raise fault

    def require_alike(
        self,
        what: str,
        arrays: Iterable[NDArray[Any]],
        *,
        fix: str,
        kind: type[PrivetError] = InputError,
    ) -> None:
        """Refuse to go on where the ranks do not hold the same numbers in the same order."""
        if self.size == 1:
            return
        name = name_of(arrays)
        lead = self.told(name)
        with self.agreed():
            if name != lead:
                raise kind(f"the processes of this run differ in {what}", fix=fix)

    def _first_fault(self, own: Exception | None) -> Exception | None:
        """What to raise: this rank's own error, else the first of the others', else nothing."""
        if self.size == 1:
            return own
        who = torch.tensor([self.size if own is None else self.rank])
        with _connected(own):
            dist.all_reduce(who, dist.ReduceOp.MIN)
        failed = int(who)
        if failed == self.size:
            return None
        said = self.told(None if own is None else _described(own, failed), by=failed)
        return own if own is not None else _rebuilt(*said)

    def _spread(self, value: Tensor, by: int) -> Tensor:
        with _connected():
            dist.broadcast(value, src=by)
        return value


def require_same_start(
    ranks: Ranks, data: Dataset, model: nn.Module, chosen: Mapping[str, Any]
) -> None:
    """Refuse ranks that hold different records, settings or weights.

    The proof above needs it: in another order on one rank, a unit could sit on two and count twice.
    """
    ranks.require_alike(
        "their training records",
        [data.train.x, data.train.y, data.train.unit_of_record],
        fix="load the same records in the same order; fix the seed of what shuffles them",
    )
    public = json.dumps([chosen, data.name, data.classes, asdict(data.bounds)])
    ranks.require_alike(
        "their settings",
        [np.frombuffer(public.encode(), dtype=np.uint8)],
        fix="give all the same settings, and the same versions of the packages",
    )
    ranks.require_alike("their first weights", weights_of(model), fix="fix their seed")


def weights_of(model: nn.Module) -> list[NDArray[np.uint8]]:
    """The bytes of a model's parameters and buffers, wherever they are."""
    return [
        tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for tensor in model.state_dict().values()
    ]


_groups_made: list[str] = []  # at most one: torchrun's store does not forget an earlier one


def _make_group() -> None:
    if not dist.is_available():
        raise FaultyEnvironment("this PyTorch cannot run several processes", fix="start one")
    if _groups_made:
        raise FaultyEnvironment(
            "this process left the others after an error", fix="start all processes again"
        )
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    enough = gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    try:
        # Small talk goes over the CPU. NCCL wants a GPU for each process; gloo shares one.
        backend = "cpu:gloo,cuda:nccl" if enough else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise FaultyEnvironment(
            "the processes of this run do not find one another",
            got=str(error).splitlines()[0],
            fix="start them with torchrun; or unset WORLD_SIZE to run one",
        ) from None
    _groups_made.append(backend)
    atexit.register(hang_up)


def hang_up() -> None:
    """Leave the other processes, if there are any; nothing that needs them can follow.

    Threads of gloo let go of the last tensors when they come to it, and need Python for that: one
    that comes while the interpreter winds down aborts the process ("terminate called without an
    active exception"). So they get a moment.
    """
    if dist.is_available() and dist.is_initialized():
        time.sleep(LETTING_GO_SECONDS)
        dist.destroy_process_group()


def _require_cpu_group() -> None:
    if "cpu:" not in dist.get_backend_config():
        raise InputError(
            "the process group cannot move values of the CPU",
            got=dist.get_backend_config(),
            expected="cpu:gloo,cuda:nccl",
            fix="make it so, or leave it to Privet",
        )


@contextmanager
def _connected(own: Exception | None = None) -> Iterator[None]:
    """A process that is gone ends the run of all, in words; an error of this one goes first."""
    try:
        yield
    except RuntimeError as error:
        if own is not None:
            raise own from None
        raise FaultyEnvironment(
            "another process of this run is gone or stuck",
            fix="see what it said; `privet resume` continues a run that has a folder",
        ) from error


def _described(error: Exception, rank: int) -> tuple[str, str]:
    if not isinstance(error, PrivetError):
        return "FaultyEnvironment", f"process {rank} failed: {type(error).__name__}: {error}"
    return type(error).__name__, str(error) if rank == LEAD else f"{error} (process {rank})"


def _rebuilt(kind: str, message: str) -> PrivetError:
    known = getattr(errors, kind, CheckFailed)
    made: PrivetError = known(message)
    return made


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
