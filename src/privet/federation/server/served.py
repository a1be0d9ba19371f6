"""One model as its writer has it: a coordinator, and the journal from which it follows.

    write    an event is put into the journal and is durable
    apply    the event happens: the same function in the first life and when it is played again
    settle   what followed is written: version, snapshot, round; to write it again changes nothing

Everything here runs in one thread. `lock` is held while the coordinator changes, for those who
look at it from other threads; `settled` is False while what followed is not written yet.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final, final

import numpy as np
import torch

from privet.errors import CheckFailed, InputError
from privet.federation.coordinator import Answer, Closed, Closing, Coordinator
from privet.federation.pacing import Cohort
from privet.federation.server.fleet_ledger import FleetAccount
from privet.federation.server.journal import Journal, Kind
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.plan import ModelPlan
from privet.federation.server.snapshots import sealed, unsealed
from privet.federation.server.state import Event, PlanRow, RoundRow, SnapshotRow, State
from privet.federation.server.store import Bytes, Store
from privet.federation.server.updates import unpacked, unpacked_sum
from privet.federation.server.versions import Versions
from privet.federation.update import Update

SNAPSHOT_SECONDS: Final = 1.0
MOST_KEPT_BYTES: Final = 256 * 2**20  # of updates that a killed server would read again


@final
class ServedModel:
    """The state of one model, and how it moves on.

    Args:
        plans: all revisions, the first one first.
        coordinator: new; `restore` puts it where a snapshot left off.
        epoch: wall clock at which the model's own clock stood at zero.
        told: called after a round is settled.
    """

    def __init__(
        self,
        plans: Sequence[ModelPlan],
        coordinator: Coordinator,
        *,
        state: State,
        store: Store,
        keys: ModelKeys,
        account: FleetAccount,
        epoch: float,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.plans, self.plan = list(plans), plans[0]
        self.name = self.plan.name
        self.coordinator, self.epoch, self.account = coordinator, epoch, account
        self.size = coordinator.weights.numel()
        self.lock, self.settled, self.stopped = threading.RLock(), True, False
        self.state, self.store, self.keys, self._told = state, store, keys, told
        self.journal = Journal(state, self.name)
        self.versions = Versions(self.name, self.size, state=state, store=store)
        self._kept: list[str] = []  # objects that events behind the snapshot refer to
        self._kept_bytes = 0
        self._snapshot: SnapshotRow | None = None
        self._snapshot_at = 0.0
        self._snapshot_is_due = False
        self._replaying = False  # while events happen again, behind which there may be more
        self._noted: dict[str, int] = {}
        self.next_plan_from = 0
        self.in_doubt = False  # while memory and journal may differ

    # -- events -----------------------------------------------------------------------------

    def do(
        self, kind: Kind, at: float, *, content: Bytes | None = None, **fields: Any
    ) -> Closed | None:
        """Write one event, and let it happen."""
        event = self.journal.event(kind, at, **fields)
        self.in_doubt = True
        with self.state.transaction(durable=True):
            self.journal.write(event)
        closed = self.apply(event, content)
        self.in_doubt = False
        return closed

    def bring_to(self, at: float) -> None:
        """End the round if its time is over by then. Time that passed unattended is no round."""
        coordinator = self.coordinator
        if self.over or at < coordinator.deadline:
            return
        self.do(Kind.DEADLINE, at)
        if not self.over and at >= coordinator.deadline:
            self.do(Kind.RESUMED, at)
        self.begin_round(at)

    def add_plan(self, plan: ModelPlan) -> None:
        """A revision, for the next round; refused if it changes what is fixed."""
        if plan.digest in (known.digest for known in self.plans[-1:]):
            return
        self.plans[-1].require_successor(plan)
        plan.require_runnable()
        coordinator = self.coordinator
        row = PlanRow(
            model=self.name,
            revision=len(self.plans),
            digest=plan.digest,
            text=plan.text,
            from_round=coordinator.round + (0 if coordinator.stopped else 1),
        )
        with self.state.transaction(durable=True):
            self.state.add_plan(row)
        self.plans.append(plan)
        self.next_plan_from = row.from_round

    @property
    def over(self) -> bool:
        """Whether nothing is trained now."""
        return self.stopped or self.coordinator.stopped

    def begin_round(self, at: float) -> None:
        """Between two rounds a revised plan comes into force, and the server throws its coins."""
        if self.plans[-1] != self.plan and self.coordinator.round >= self.next_plan_from:
            self.do(Kind.PLAN, at, revision=len(self.plans) - 1)
            if not self.over and at >= self.coordinator.deadline:
                self.do(Kind.RESUMED, at)
        pacing = self.invites
        if pacing is not None and pacing.rate is not None:
            self.do(Kind.INVITED, at, devices=self.drawn(pacing.rate))

    def apply(self, event: Event, content: Bytes | None = None) -> Closed | None:
        """Let an event happen that is durable; `content`: its bytes, where they are at hand."""
        with self.lock:
            closed = self._happens(event, content)
            self.journal.passed(event)
            self.settled = closed is None
        if "object" in event.fields and event.fields["object"] not in self._kept[-1:]:
            self._kept.append(event.fields["object"])
        self._kept_bytes += event.fields.get("length", 0)
        if closed is not None:
            self._settle(closed)
        return closed

    def _happens(self, event: Event, content: Bytes | None) -> Closed | None:
        fields, coordinator = event.fields, self.coordinator
        match Kind(event.kind):
            case Kind.UPDATE:
                change = unpacked(self._bytes(event, content), self.size).copy()
                update = Update(
                    client=fields["device"],
                    base_version=fields["base"],
                    change=torch.from_numpy(change),
                )
                return self._counted(event, *coordinator.receive(update, event.at))
            case Kind.SUM:
                total = unpacked_sum(self._bytes(event, content), self.size).astype(np.float64)
                return self._counted(
                    event,
                    *coordinator.receive_sum(
                        torch.from_numpy(total.copy()), fields["devices"], fields["base"], event.at
                    ),
                )
            case Kind.DEADLINE:
                return coordinator.advance(event.at)
            case Kind.INVITED:
                coordinator.invite(set(fields["devices"]))
            case Kind.ROLLED_BACK:
                return coordinator.roll_back(self.versions.weights(fields["to"]), event.at)
            case Kind.PLAN:
                self.plan = self.plans[fields["revision"]]
                coordinator.revise(self.plan.rule, rounds=self.plan.settings.rounds)
            case Kind.STOPPED:
                self.stopped = True
            case Kind.RESUMED:
                self.stopped = False
                coordinator.reopen(event.at)
            case Kind.OPENED | Kind.REOPENED:
                pass
        return None

    def _bytes(self, event: Event, content: Bytes | None) -> bytes | memoryview:
        """Of an update: those that were counted, and no others."""
        if content is not None:
            return memoryview(content)
        fields = event.fields
        kept = self.store.get(fields["object"], start=fields["start"], length=fields["length"])
        if hashlib.sha256(kept).hexdigest() != fields["sha256"]:
            raise InputError(
                "an update that was changed in the store",
                got=fields["object"],
                fix="restore the store from a backup",
            )
        return kept

    def _counted(self, event: Event, answer: Answer, closed: Closed | None) -> Closed | None:
        if answer is not Answer.ACCEPTED:
            raise CheckFailed(
                f"event {event.seq} of '{self.name}' was counted before, and is '{answer}' now",
                fix="restore state and store from one backup",
            )
        return closed

    # -- what follows a round ---------------------------------------------------------------

    def _settle(self, closed: Closed) -> None:
        """Version, snapshot, round and odometer; then what is not needed any more goes."""
        coordinator, rows = self.coordinator, []
        if closed.how in (Closing.PUBLISHED, Closing.ROLLED_BACK):
            rows.append(
                self.versions.put(
                    closed.version, coordinator.weights, plan=self.plan.digest, at=closed.time
                )
            )
        self.account.note({name: coordinator.times[name] for name in self._times_changed()})
        later = self.journal.at - self._snapshot_at >= SNAPSHOT_SECONDS
        if later or coordinator.stopped or closed.how is Closing.ROLLED_BACK:
            self._snapshot_is_due = True  # what it went back to is pruned one day
        due = self._snapshot_is_due and not self._replaying
        snapshot = self.written_snapshot() if due else None
        with self.state.transaction(durable=snapshot is not None):
            for row in rows:
                self.state.put_version(row)
            self.state.put_round(_round_row(self.name, closed))
            if snapshot is not None:
                self.state.put_snapshot(snapshot)
        if snapshot is not None:
            self.forget_behind(snapshot)
        if rows and not self._replaying:
            self.versions.prune(closed.version, keep=self._versions_kept())
        if coordinator.stopped and snapshot is not None:
            self.account.settle()
        with self.lock:
            self.settled = True
        self._told()

    def _times_changed(self) -> list[str]:
        """Devices whose number of steps grew since it was noted."""
        times, noted = self.coordinator.times, self._noted
        changed = [name for name, n in times.items() if noted.get(name) != n]
        self._noted.update((name, times[name]) for name in changed)
        return changed

    def _versions_kept(self) -> int:
        return max(self.plan.keep_versions, self.plan.rule.stale + 2)

    def written_snapshot(self) -> SnapshotRow:
        """The whole state, in the store; it counts once its row is there."""
        seq = self.journal.next_seq - 1
        state = {
            "coordinator": self.coordinator.state(),
            "revision": self.plans.index(self.plan),
            "stopped": self.stopped,
            "at": self.journal.at,
        }
        content = sealed(state, key=self.keys.snapshots, name=f"{self.name}|{seq}")
        key = f"snapshots/{self.name}/{seq:012d}-{secrets.token_hex(4)}"
        self.store.put(key, content)
        digest = hashlib.sha256(content).hexdigest()
        return SnapshotRow(model=self.name, seq=seq, key=key, sha256=digest)

    def forget_behind(self, snapshot: SnapshotRow) -> None:
        """Updates that the snapshot holds, and the snapshot before it."""
        if self._snapshot is not None:
            self.store.delete(self._snapshot.key)
        for key in self._kept:
            self.store.delete(key)
        self._kept, self._snapshot, self._snapshot_at = [], snapshot, self.journal.at
        self._kept_bytes, self._snapshot_is_due = 0, False

    def lighten(self) -> None:
        """Let a snapshot hold the sum of many updates, also in the midst of a long round.

        A rule that compares updates keeps them all anyway.
        """
        if self._kept_bytes < MOST_KEPT_BYTES or not self.coordinator.streams:
            return
        self._keep()

    def _keep(self) -> None:
        """From here on it goes on after a crash."""
        snapshot = self.written_snapshot()
        with self.state.transaction(durable=True):
            self.state.put_snapshot(snapshot)
        self.forget_behind(snapshot)

    # -- where it goes on -------------------------------------------------------------------

    def recover(self, snapshot: SnapshotRow) -> None:
        """Go to where the snapshot stands, then let happen what happened after it."""
        content = self.store.get(snapshot.key)
        name = f"{self.name}|{snapshot.seq}"
        state = unsealed(content, key=self.keys.snapshots, name=name)
        self.coordinator.restore(state["coordinator"])
        self.plan, self.stopped = self.plans[state["revision"]], state["stopped"]
        self.coordinator.revise(self.plan.rule, rounds=self.plan.settings.rounds)
        self.journal.next_seq, self.journal.at = snapshot.seq + 1, state["at"]
        self._snapshot, self._snapshot_at = snapshot, state["at"]
        self.account.require_noted(self.coordinator)
        self.account.catch_up(self.coordinator)
        self._replaying = True
        for event in self.state.events(self.name, after=snapshot.seq):
            self.apply(event)
        self._replaying = False
        self.account.require_newest(self.coordinator.times)
        if self._snapshot_is_due:
            self._keep()
        self._sweep()
        if self.coordinator.stopped:
            self.account.settle()

    def _sweep(self) -> None:
        """What a killed process left and nobody needs."""
        needed = {*self._kept, self._snapshot.key if self._snapshot else ""}
        for place in ("taken", "snapshots"):
            for key in self.store.list(f"{place}/{self.name}/"):
                if key not in needed:
                    self.store.delete(key)
        out = {ticket.ticket for ticket in self.state.tickets_out(self.name)}
        for key in self.store.list(f"updates/{self.name}/"):
            if key.rpartition("/")[2] not in out:
                self.store.delete(key)

    # -- cohorts ----------------------------------------------------------------------------

    @property
    def invites(self) -> Cohort | None:
        """The pacing, where the server chooses and has not yet chosen."""
        pacing = self.coordinator.rule.pacing
        if not isinstance(pacing, Cohort) or self.coordinator.asked is not None or self.over:
            return None
        return pacing

    def drawn(self, rate: float) -> list[str]:
        """Every device by a secret coin of its own, whoever else there is."""
        number, stream = self.coordinator.round, self.keys.randomness.sampling
        return [
            name
            for name in self.state.devices_of(self.name)
            if stream.uniform(1, purpose="cohort", step=number, context=name.encode())[0] < rate
        ]


def _round_row(model: str, closed: Closed) -> RoundRow:
    said = asdict(closed)
    return RoundRow(
        model=model,
        round=said["round"],
        at=said["time"],
        how=str(closed.how),
        updates=said["updates"],
        version=said["version"],
        staleness=said["mean_staleness"],
    )
