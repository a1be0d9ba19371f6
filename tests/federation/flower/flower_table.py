"""A SuperLink of paper: messages on a table, nodes that answer by rule, a clock turned by hand."""

import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from privet.federation.flower.server_app import serve
from privet.federation.flower.starting import set_up
from privet.federation.server.state.sqlite import SqliteState
from privet.ledger import Ledger

NAMES = ("ada", "bea", "cyd")
SHAPE = (4,)
PLAN = """
[model]
name = "har"
network = "linear"
shape = [4]
classes = ["a", "b"]
[rounds]
{rounds}
[phones]
retry_seconds = 2.0
ticket_seconds = 50.0
"""
FLSYS = 'rule = "flsys"\nrounds = 4\nseconds = 5.0'
FEDBUFF = 'rule = "fedbuff"\nrounds = 3\nseconds = 40.0\nbuffer = 2\nstale = 5'
PRIVACY = "[privacy]\nepsilon = 8.0\npopulation = 3\ntimes = 4\ndivisor = 2.0\nclip = 0.5\n"
KNOWN_NOISE = PRIVACY + "noise_seed = 3\n"


class Crash(Exception):  # noqa: N818
    """The ServerApp is no more."""


def key_of(number):
    """Always the same for one number."""
    return ec.derive_private_key(1000 + number, ec.SECP384R1()).public_key()


@dataclass
class Node:
    """A SuperNode with a ClientApp; `answers` makes the reply to a message, or None."""

    number: int
    answers: object
    online: bool = True
    session: str = "1"
    keyed: int | None = None

    @property
    def info(self):
        key = key_of(self.number if self.keyed is None else self.keyed)
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return SimpleNamespace(node_id=self.number, public_key=pem, last_activated_at=self.session)


def moved(message, by):
    """The arrays that were sent, with `by` added to what are weights."""
    record = message.content.array_records["arrays"]
    return {name: array.numpy() + np.float32(by) for name, array in record.items()}


def replied(message, arrays, **metrics):
    record = ArrayRecord({name: Array(part) for name, part in arrays.items()})
    figures = MetricRecord({"num-examples": 7, **metrics})
    return Message(RecordDict({"arrays": record, "metrics": figures}), reply_to=message)


def adding(by):
    """A ClientApp that moves all weights by a number of its own, and by the turn."""

    def answers(message):
        turn = message.content.config_records["config"]["privet-turn"]
        return replied(message, moved(message, by * (1 + turn)))

    return answers


def failing(message):
    return Message(Error(code=2, reason="secret: 12 of my records"), reply_to=message)


@dataclass
class Table:
    """Flower's Grid."""

    nodes: list
    pushed: list = field(default_factory=list)
    replies: list = field(default_factory=list)
    lost: set = field(default_factory=set)  # numbers of messages that never arrive
    again: bool = False  # whether every reply is told twice
    first: int = 0  # numbers go on from run to run

    def get_nodes(self):
        return [node.info for node in self.nodes if node.online]

    def push_messages(self, messages):
        ids = []
        for message in messages:
            name = f"m{self.first + len(self.pushed)}"
            message.metadata.__dict__["_message_id"] = name
            self.pushed.append(message)
            ids.append(name)
        return ids

    def answer(self):
        """All nodes that are there do their work, in the order in which they were asked."""
        by_number = {node.number: node for node in self.nodes}
        told = {reply.metadata.reply_to_message_id for reply in self.replies}
        for place, message in enumerate(self.pushed):
            node = by_number[message.metadata.dst_node_id]
            name = message.metadata.message_id
            if place in self.lost or name in told or not node.online:
                continue
            reply = node.answers(message)
            if reply is not None:
                self.replies.append(reply)

    def pull_messages(self, ids):
        wanted = set(ids)
        found = [r for r in self.replies if r.metadata.reply_to_message_id in wanted]
        return found * 2 if self.again else found


class World:
    """A folder, nodes and a clock."""

    def __init__(self, path):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
        self.path, self.now, self.turns = path, 1000.0, 0
        self.nodes = [Node(number, adding(0.01 * number)) for number in (1, 2, 3)]
        self.keys = path / "keys"
        self.keys.mkdir()
        for number, name in enumerate(NAMES, start=1):
            self.put_key(name, number)
        self.tables = []

    def put_key(self, name, number):
        ssh = key_of(number).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (self.keys / f"{name}.pub").write_bytes(ssh + b" somebody\n")

    def folder(self, rounds=FLSYS, privacy="", *, nodes=True, name="har", plan=PLAN):
        file = self.path / f"{name}.toml"
        file.write_text(plan.format(rounds=rounds) + privacy)
        made, _ = set_up(
            self.path / name,
            plan=file,
            nodes=self.keys if nodes else None,
            ledger=self.path / "ledger.db",
        )
        return made

    def run(self, folder, *, crash_after=None, each=lambda table: None, **config):
        """A ServerApp's life; between two looks a second goes by and all nodes answer."""
        table = Table(nodes=self.nodes, first=1000 * len(self.tables))
        self.tables.append(table)
        turns = 0

        def sleep(_):
            nonlocal turns
            turns += 1
            if turns == crash_after:
                raise Crash
            each(table)
            table.answer()
            self.now += 1.0
            assert turns < 400, "the rounds never end"

        said = {"privet-folder": str(folder.path), "privet-poll": 1.0, **config}
        self.turns = turns
        with contextlib.suppress(Crash) if crash_after else contextlib.nullcontext():
            release = serve(table, said, clock=lambda: self.now, sleep=sleep)
            return table, release
        return table, None

    def ledger(self):
        return contextlib.closing(Ledger(self.path / "ledger.db"))

    @contextlib.contextmanager
    def state(self, folder):
        with contextlib.closing(SqliteState(folder.home / "state.sqlite")) as state:
            yield state

    def events(self, folder, kind="update"):
        with self.state(folder) as state:
            return [event for event in state.events("har") if event.kind == kind]

    def counts(self, folder):
        with self.state(folder) as state:
            return dict(state.counts("har"))
