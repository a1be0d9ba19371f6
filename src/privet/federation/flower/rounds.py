"""The rounds of one model over Flower's messages: push, pull, time to live.

    pull      answers to what was asked, whichever are there; each is looked at once
    take      one that counts goes into the journal, then into the coordinator; others are forgotten
    bring     the round ends if its time is over
    ask       whoever is free, may take part and is due gets the newest version

There is no state here but the messages that are out. They end with the run: a new one goes on from
the journal, asks again, and whatever a node still answers to the old one is never pulled.

Who is asked follows from the plan, from how often a node has taken part, from its name and from
secret coins, never from an answer's content. Where rounds end by the clock alone nobody's coming
decides on whether another node is asked.
"""

import hashlib
import logging
import random
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from torch import Tensor

from privet.errors import FaultyEnvironment
from privet.federation.coordinator import Answer
from privet.federation.flower.arrays import Layout
from privet.federation.flower.messages import (
    TRAIN,
    TURN,
    Config,
    Form,
    answer_in,
    question,
    record_of,
)
from privet.federation.flower.nodes import Roster
from privet.federation.pacing import Deadline
from privet.federation.server.journal import Kind
from privet.federation.server.served import ServedModel
from privet.federation.server.taking import ACCEPTED_COUNT, REFUSED_COUNT
from privet.federation.server.updates import Malformed, Vector, is_finite, packed
from privet.federation.wire import Reason
from privet.privacy.participation import Capped

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.serverapp import Grid

GRACE: Final = 0.5  # of a round's time, after which a smaller cohort begins
MOST_BYTES: Final = 256 * 2**20  # of answers in memory
NODE_ERROR: Final = "NODE_ERROR"  # why an answer is refused that is an error of Flower's
LOG: Final = logging.getLogger("privet.flower")


@final
@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message that is out: to whom, which version, and until when its answer counts.

    `session` is since when the node is there: one that came back has lost what it was sent.
    """

    node: str
    node_id: int
    session: str
    base_version: int
    until: float


@final
class Rounds:
    """Drives one model.

    Args:
        grid: Flower's.
        model: where it stands.
        roster: who takes part.
        layout: of the model's network.
        form: in which ClientApps are asked.
        offer: what else a ClientApp is told, as text.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        grid: "Grid",
        model: ServedModel,
        roster: Roster,
        layout: Layout,
        *,
        form: Form = Form.MESSAGE,
        offer: Config | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._grid, self._model, self._roster, self._layout = grid, model, roster, layout
        self._form, self._offer, self._clock = form, dict(offer or {}), clock
        self.out: dict[str, Sent] = {}
        self._rest: dict[str, float] = {}  # nodes that failed, and until when they are let alone
        self._bases: dict[int, Tensor] = {}
        self._unknown: set[int] = set()
        self._wary = False  # since an answer could not be read
        at = self._now()
        model.bring_to(at)
        model.begin_round(at)

    def run(self, *, pause: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Until all rounds are over."""
        while not self._model.over:
            self.turn()
            if not self._model.over:
                sleep(pause)

    def turn(self) -> None:
        """Take what came, end what is over, ask who is free."""
        before = self._model.coordinator.round
        self._pull()
        now = self._now()
        self._model.bring_to(now)
        self.out = {name: sent for name, sent in self.out.items() if now < sent.until}
        if not self._model.over:
            free = self._free(now)
            self._invite(free, now)
            self._ask(free, now)
        self._tell(before)

    def _now(self) -> float:
        """Of the model's clock, which never goes back."""
        return max(self._model.journal.at, self._clock() - self._model.epoch)

    # -- answers ----------------------------------------------------------------------------

    def _pull(self) -> None:
        """What is there, a few at a time, so that memory does not grow with the nodes."""
        most = 1 if self._wary else max(1, MOST_BYTES // (4 * self._model.size))
        waiting = list(self.out)
        for first in range(0, len(waiting), most):
            for reply in self._pulled(waiting[first : first + most]):
                self._take(reply)

    def _pulled(self, messages: list[str]) -> "list[Message]":
        """Answers to these; bytes that Flower cannot read as one end no run.

        It has let go of them then, and of those that it had read before: all are asked again. From
        then on answers are pulled one by one, so that it is known whose is broken.
        """
        try:
            return list(self._grid.pull_messages(messages))
        except Exception as error:  # of many kinds, by what a node may send
            if _is_of_the_connection(error):
                raise
            self._wary = True
            for message in messages:
                sent = self.out.pop(message, None)
                if sent is not None and len(messages) == 1:
                    self._refuse(sent, NODE_ERROR, self._now())
            return []

    def _take(self, reply: "Message") -> None:
        """One answer; the second to a message, or one to another run's, is to nothing."""
        sent = self.out.pop(reply.metadata.reply_to_message_id, None)
        if sent is None:
            return
        now = self._now()
        self._model.bring_to(now)
        if self._model.over:
            return
        refusal = self._count(reply, sent, now)
        if refusal is None:
            # A node that seemed gone was asked twice: its other answer is of the same lesson.
            self.out = {name: one for name, one in self.out.items() if one.node != sent.node}
            self._model.state.add_count(self._model.name, ACCEPTED_COUNT)
            return
        self._refuse(sent, refusal, now)

    def _refuse(self, sent: Sent, refusal: str, now: float) -> None:
        self._model.state.add_count(self._model.name, REFUSED_COUNT, refusal)
        if refusal in (NODE_ERROR, Reason.MALFORMED.name):
            self._rest[sent.node] = now + self._model.plan.phones.retry_seconds

    def _count(self, reply: "Message", sent: Sent, now: float) -> str | None:
        """Let the update of an answer count, or say why it does not."""
        if now >= sent.until:
            return Reason.LATE.name
        if not _is_whole(reply, sent):
            return NODE_ERROR
        answer = self._model.coordinator.would_take(sent.node, sent.base_version)
        if answer is not Answer.ACCEPTED:
            return Reason[answer.name].name
        try:
            change = self._layout.change(
                answer_in(self._form, reply), self._base(sent.base_version)
            )
        except Malformed as error:
            if self._model.plan.privacy is None:
                LOG.warning("an answer of '%s' cannot count: %s", sent.node, error)
            return Reason.MALFORMED.name
        if not is_finite(change) and self._model.plan.privacy is None:
            return Reason.MALFORMED.name
        self._enter(change, sent, reply.metadata.reply_to_message_id, now)
        return None

    def _enter(self, change: Vector, sent: Sent, message: str, now: float) -> None:
        """On disk, then in the journal, then in the sum. What is not finite the sum takes as 0."""
        model, content = self._model, packed(change)
        key = f"taken/{model.name}/{model.journal.next_seq:012d}-{secrets.token_hex(4)}"
        model.store.put(key, content)
        closed = model.do(
            Kind.UPDATE,
            now,
            content=content,
            ticket=message,
            device=sent.node,
            base=sent.base_version,
            object=key,
            start=0,
            length=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        if closed is not None:
            model.begin_round(model.journal.at)
        model.lighten()

    def _base(self, version: int) -> Tensor:
        """The weights that a message went out with."""
        needed = {version, *(sent.base_version for sent in self.out.values())}
        self._bases = {number: self._bases[number] for number in needed & set(self._bases)}
        if version not in self._bases:
            self._bases[version] = self._model.versions.weights(version)
        return self._bases[version]

    # -- questions --------------------------------------------------------------------------

    def _free(self, now: float) -> "dict[str, NodeInfo]":
        """Nodes that are there and have nothing to do, by name; those that failed have a rest."""
        busy = {(sent.node, sent.session) for sent in self.out.values()}
        found: dict[str, NodeInfo] = {}
        for node in self._grid.get_nodes():
            name = self._roster.name_of(node)
            if name is None:
                self._tell_unknown(node.node_id)
            elif (name, node.last_activated_at) not in busy and self._rest.get(name, now) <= now:
                found[name] = node
        return found

    def _invite(self, free: "Mapping[str, NodeInfo]", now: float) -> None:
        """A cohort among those that may take part, as soon as there are enough of them."""
        model, pacing = self._model, self._model.invites
        if pacing is None or pacing.size is None:
            return
        able = [name for name in sorted(free) if self._may_step(name)]
        waited = now >= model.coordinator.opened + GRACE * pacing.seconds
        if len(able) >= pacing.size or (able and waited):
            chosen = random.SystemRandom().sample(able, min(pacing.size, len(able)))
            model.do(Kind.INVITED, now, devices=sorted(chosen))

    def _may_step(self, name: str) -> bool:
        return self._model.coordinator.may_step(name) is Answer.ACCEPTED

    def _ask(self, free: "Mapping[str, NodeInfo]", now: float) -> None:
        """Push the newest version to all who are due, in one go."""
        from flwr.app import Message

        coordinator, until = self._model.coordinator, self._until(now)
        due = [
            name
            for name in sorted(free)
            if coordinator.ask(name) is Answer.ACCEPTED and self._is_due(name)
        ]
        if not due or until <= now:
            return
        record = record_of(self._form, self._layout.arrays(coordinator.weights.cpu()))
        messages = [
            Message(
                question(self._form, record, self._told(name)),
                free[name].node_id,
                TRAIN,
                ttl=until - now,
                group_id=str(coordinator.version),
            )
            for name in due
        ]
        ids = list(self._grid.push_messages(messages))
        if not ids:
            raise FaultyEnvironment(
                "the SuperLink took no message",
                got=f"messages of {coordinator.weights.numel()} weights",
                fix="see its log; a limit on the size of requests?",
            )
        for name, message in zip(due, ids, strict=True):
            if message is not None:  # else the node is gone, and is asked again if it comes back
                self.out[message] = Sent(
                    node=name,
                    node_id=free[name].node_id,
                    session=free[name].last_activated_at,
                    base_version=coordinator.version,
                    until=until,
                )

    def _told(self, name: str) -> Config:
        """What every strategy of Flower tells, what its examples read, and what our client needs.

        The turn is how often the node's updates have counted: a lost message is the same lesson.
        """
        coordinator, work = self._model.coordinator, self._model.plan.settings.work()
        told: dict[str, int | float | str] = {
            "server-round": coordinator.round + 1,
            "lr": work.learning_rate,
            "local-epochs": work.epochs,
            "batch-size": work.batch,
            TURN: coordinator.times.get(name, 0),
        }
        if coordinator.rule.proximal:
            told["proximal-mu"] = coordinator.rule.proximal
        return told | self._offer

    def _until(self, now: float) -> float:
        """A late answer counts only under rules that take stale updates."""
        coordinator = self._model.coordinator
        until = now + self._model.plan.phones.ticket_seconds
        return until if coordinator.rule.stale else min(until, coordinator.deadline)

    def _is_due(self, name: str) -> bool:
        """Whether it is a node's round, where caps are to last for all rounds.

        Without it all nodes would spend their caps in the first rounds. By its name alone, so that
        nobody's coming or going moves another's turn.
        """
        coordinator = self._model.coordinator
        cap = None if coordinator.privacy is None else coordinator.privacy.participation
        if not isinstance(cap, Capped) or not isinstance(coordinator.rule.pacing, Deadline):
            return True
        stride = max(1, cap.apart, coordinator.rounds // cap.times)
        return (coordinator.round + zlib.crc32(name.encode())) % stride == 0

    # -- what is said -----------------------------------------------------------------------

    def _tell(self, before: int) -> None:
        """Under privacy no word of who or how many took part: logs go to whoever may ask Flower."""
        coordinator = self._model.coordinator
        if coordinator.round > before:
            LOG.info(
                "round %d of %d is over: version %d",
                coordinator.round,
                coordinator.rounds,
                coordinator.version,
            )

    def _tell_unknown(self, node_id: int) -> None:
        if node_id not in self._unknown:
            self._unknown.add(node_id)
            LOG.warning("node %d takes no part: nodes/ has no NAME.pub with its key", node_id)


def _is_of_the_connection(error: Exception) -> bool:
    """The SuperLink is gone, or wants no more of this run: no node's fault."""
    from httpx import HTTPError

    return isinstance(error, HTTPError | OSError)


def _is_whole(reply: "Message", sent: Sent) -> bool:
    """An answer of the node that was asked; the text of an error may be of its records, unread."""
    whole = reply.has_content() and not reply.has_error()
    return whole and reply.metadata.src_node_id == sent.node_id
