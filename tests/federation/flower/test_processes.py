"""Flower as it is: a SuperLink and three SuperNodes, each with its processes, on loopback, with TLS
and keys of the nodes.

Private rounds are asynchronous; a SuperNode is killed in the midst of them. Then an app that knows
nothing of privet is trained; its ServerApp is killed, and a new run goes on. The oracle is a replay
in this process: every update that counted is trained once more from the version it is of, and must
have the digest that stands in the journal; a coordinator with the same noise that takes them in the
journal's order must end with the released weights, bit for bit.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import privet
from privet.federation.coordinator import Answer, Coordinator
from privet.federation.flat import flat
from privet.federation.flower.folder import Folder
from privet.federation.local_work import Teacher, own_draws
from privet.federation.one_by_one import OneByOne
from privet.federation.population import population_of
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.opening import first_weights
from privet.federation.server.plan import ModelPlan
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.updates import packed
from privet.federation.settings import FederationSettings
from privet.federation.update import Update
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.models import create
from privet.release import Release
from privet.verification import verify

PATIENCE = 300.0  # seconds; only what hangs waits so long
NAMES = ("ada", "bea", "cyd")
PRIVATE = """
[model]
name = "digits"
network = "linear"
shape = [1, 8, 8]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
bounds = [0, 16]
[rounds]
rule = "fedbuff"
rounds = 3
buffer = 2
stale = 5
seconds = 3600.0
[work]
epochs = 1
batch = 32
learning_rate = 0.5
[privacy]
epsilon = 8.0
population = 3
"""
ORDINARY = """
[model]
name = "ordinary"
network = "custom"
shape = [4]
classes = ["a", "b"]
[rounds]
rule = "fedbuff"
rounds = 2
buffer = 2
stale = 5
seconds = 3600.0
"""
ORDINARY_PROJECT = """
[project]
name = "ordinary"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["torch"]
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "privet.federation.flower.server_app:app"
clientapp = "ordinary:app"
[tool.flwr.app.config]
privet-folder = "{folder}"
privet-network = "ordinary:Net"
privet-poll = 0.2
"""
ORDINARY_APP = """
import torch
from flwr.app import ArrayRecord, MetricRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


@app.train()
def train(message, context):
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with torch.no_grad():
        net.layer.bias += 1.0
    arrays = ArrayRecord(net.state_dict())
    figures = MetricRecord({"train_loss": 0.5, "num-examples": 3})
    return Message(content=RecordDict({"arrays": arrays, "metrics": figures}), reply_to=message)
"""


class World:
    """Hosts, all of them here; every process is the first of a group of its own."""

    def __init__(self, folder, held):
        self.folder, self.held = folder, held
        self.port, *self.own_ports = _free_ports(1 + len(NAMES))
        self.nodes = {}
        (folder / "keys").mkdir()
        for name in NAMES:
            self.make_key(name)
        here = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PRIVET_HOME": str(folder / "privet-home"),
            "FLWR_HOME": str(folder / "flwr-home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
        }
        self.environment = os.environ | here

    def make_key(self, name):
        key = ec.generate_private_key(ec.SECP384R1())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        (self.folder / name).write_bytes(secret)
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (self.folder / "keys" / f"{name}.pub").write_bytes(public)

    def say(self, *command):
        """A command that ends, and what it said."""
        done = subprocess.run(
            list(map(str, command)),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def start(self, *command):
        log = self.held.enter_context((self.folder / f"log-{time.monotonic_ns()}").open("w"))
        process = subprocess.Popen(
            list(map(str, command)),
            env=self.environment,
            cwd=self.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.held.callback(_end, process)
        return process

    def set_up(self, name, plan):
        file = self.folder / f"{name}.toml"
        file.write_text(plan)
        made = self.folder / name
        self.say(
            *(sys.executable, "-m", "privet", "federate", "flower", made, "--plan", file),
            *("--nodes", self.folder / "keys", "--tls-self-signed", "localhost"),
        )
        return Folder(made)

    def superlink(self, tls):
        certificate, key = tls / "certificate.pem", tls / "key.pem"
        (self.folder / "flwr-home").mkdir()
        (self.folder / "flwr-home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{certificate}"\n'
        )
        self.start(
            *("flower-superlink", "--host", "127.0.0.1", "--port", self.port),
            *("--ssl-ca-certfile", certificate, "--ssl-certfile", certificate),
            *("--ssl-keyfile", key, "--enable-supernode-auth"),
            *("--database", self.folder / "superlink.db"),
            "--disable-runtime-dependency-installation",
        )
        self.until(self.listens, "the SuperLink listens")
        for place, name in enumerate(NAMES):
            self.say("flwr", "supernode", "register", self.folder / "keys" / f"{name}.pub")
            self.nodes[name] = self.start(
                *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}"),
                *("--root-certificates", certificate),
                *("--auth-supernode-private-key", self.folder / name),
                *("--port", self.own_ports[place], "--node-config"),
                f'data="digits" num-partitions={len(NAMES)} partition-id={place}',
            )

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def until(self, seen, what):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := seen():
                return found
            time.sleep(0.1)
        raise AssertionError(f"never: {what}\n{self.logs()}")

    def logs(self):
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("log-*"))

    def run(self, app):
        return json.loads(self.say("flwr", "run", app, "--format", "json"))["run-id"]

    def finished(self, folder):
        self.until((folder.release / "manifest.json").exists, f"{folder.path.name} is finished")
        return folder.release

    def kill(self, name):
        """The SuperNode, and whatever it has begun."""
        os.killpg(self.nodes[name].pid, signal.SIGKILL)

    def kill_server_app(self):
        """As the kernel does when memory is short."""
        found = [pid for pid, words in _processes() if "flwr-serverapp" in words and self.ours(pid)]
        assert found, self.logs()
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    def ours(self, pid):
        home = f"FLWR_HOME={self.folder / 'flwr-home'}".encode()
        with contextlib.suppress(OSError):
            return home in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


def _processes():
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(place.name), (place / "cmdline").read_bytes().decode()


def _end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _free_ports(count):
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def updates(folder, model):
    """What counted, in its order; nothing before the ServerApp has begun."""
    if not (folder.home / "state.sqlite").exists():
        return []
    with contextlib.closing(SqliteState(folder.home / "state.sqlite")) as state:
        return [event for event in state.events(model) if event.kind == "update"]


def replayed(folder, events):
    """The simulator's clients, and a coordinator with the noise of this run."""
    plan = ModelPlan.load(folder.plan)
    population = population_of(privet.data.load("digits"), FederationSettings(clients=len(NAMES)))
    material, work = population.material(torch.device("cpu")), plan.settings.work()
    engine = OneByOne(create("linear", plan.shape, len(plan.classes), init_seed=0), material, work)
    teacher, turns = Teacher(material, work, seed=0), dict.fromkeys(NAMES, 0)
    keys = ModelKeys.of(plan, folder.home / "secrets", begun=True)
    coordinator = Coordinator(
        first_weights(plan),
        plan.rule,
        rounds=plan.settings.rounds,
        privacy=plan.privacy,
        stream=keys.randomness.noise,
    )
    versions = {0: coordinator.weights.clone()}
    for event in events:
        name, base = event.fields["device"], event.fields["base"]
        lesson = teacher.lesson(NAMES.index(name), turns[name])
        turns[name] += 1
        change = engine.changes(versions[base], [lesson])[0]
        sent = hashlib.sha256(packed(change.numpy())).hexdigest()
        assert sent == event.fields["sha256"], "another update than the simulator's client has"
        answer, _ = coordinator.receive(
            Update(client=name, base_version=base, change=change), event.at
        )
        assert answer is Answer.ACCEPTED
        versions.setdefault(coordinator.version, coordinator.weights.clone())
    return coordinator


@pytest.fixture
def world(tmp_path):
    with contextlib.ExitStack() as held:
        yield World(tmp_path, held)


@pytest.fixture
def _one_thread():
    """As the nodes' processes have: the bits of a product depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_a_superlink_with_three_nodes(world):
    folder = world.set_up("private", PRIVATE)
    world.superlink(folder.path / "tls")
    world.run(folder.app)
    world.until(lambda: len(updates(folder, "digits")) >= 2, "a first version")
    world.kill("ada")
    private_rounds_are_the_simulators(world, folder, world.finished(folder))
    an_ordinary_app_goes_on_after_its_server_was_killed(world)


def private_rounds_are_the_simulators(world, folder, release):
    events = updates(folder, "digits")
    assert len(events) == 6
    assert {event.fields["device"] for event in events[-2:]} == {"bea", "cyd"}
    coordinator, found = replayed(folder, events), Release.load(release)
    assert coordinator.stopped
    assert torch.equal(flat(found.model), coordinator.weights)
    assert (found.privacy.unit, found.privacy.adjacency) == ("node", Adjacency.ZERO_OUT)
    with contextlib.closing(Ledger(world.folder / "privet-home" / "ledger.db")) as ledger:
        checked = verify(release, ledger=ledger)
    assert [f"{f.check}: {f.detail}" for f in checked.findings if not f.ok] == []


def an_ordinary_app_goes_on_after_its_server_was_killed(world):
    folder, app = world.set_up("ordinary", ORDINARY), world.folder / "ordinary-app"
    app.mkdir()
    (app / "pyproject.toml").write_text(ORDINARY_PROJECT.format(folder=folder.path))
    (app / "ordinary.py").write_text(ORDINARY_APP)
    world.run(app)
    world.until(lambda: len(updates(folder, "ordinary")) >= 1, "a first update")
    world.kill_server_app()
    world.run(app)
    release = world.finished(folder)
    events = updates(folder, "ordinary")
    assert len(events) == 4
    scope = {}
    exec(ORDINARY_APP, scope)
    with own_draws(0, torch.device("cpu")):
        first = scope["Net"]()
    trained = Release.load(release, scope["Net"]()).model
    assert torch.equal(trained.layer.weight, first.layer.weight)
    # The first two are of the version before the step; of the others as many as came late.
    late = [event.fields["base"] == 0 for event in events[2:]]
    step = sum(2**-0.5 if one else 1.0 for one in late) / 2
    expected = first.layer.bias + 1.0 + step
    assert torch.allclose(trained.layer.bias, expected, atol=1e-6)
    assert verify(release).ok
