"""The whole system as processes on this machine: phones are killed, one is slow, one sends garbage,
the server is killed; training ends, and every update that was accepted counts exactly once.

Nothing here waits for a time to pass: buffers are full when enough has come, and the test waits for
what it can see, on disk or at the server. The oracle is a replay in this process: every accepted
update is trained once more from the version it is of, and must have the digest that stands in the
log; a coordinator that takes them in the log's order must end with the published weights.
"""

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import cached_property

import httpx
import pytest
import torch
from safetensors.torch import load, load_file, save

import privet
from privet.federation import wire
from privet.federation.coordinator import Answer, Coordinator
from privet.federation.flat import load_flat
from privet.federation.local_work import Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone.line import Declined, Line
from privet.federation.phone.talking import Server
from privet.federation.phone.trusting import fresh_nonce, own_key, signed
from privet.federation.population import population_of
from privet.federation.running import Federation
from privet.federation.server.journal import Kind
from privet.federation.server.keys import ServerKeys
from privet.federation.server.opening import first_weights
from privet.federation.server.plan import ModelPlan
from privet.federation.server.state import Fate
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.settings import FederationSettings
from privet.federation.update import Update
from privet.models import create
from privet.privacy.randomness import Randomness

PATIENCE = 240.0  # seconds; only a run that hangs waits so long
CLIENTS = 4
SEEDS = range(5)
NOISE = 0.03  # least tolerance of the accuracy; three deviations of undisturbed runs if more

PLAN = """
[model]
name = "digits"
network = "linear"
shape = [1, 8, 8]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
bounds = [0, 16]

[rounds]
rule = "fedbuff"
rounds = 8
buffer = 3
stale = 50

[work]
epochs = 2
batch = 16
learning_rate = 0.5

[phones]
longest = 100
retry_seconds = 0.5
"""

# The third phone's link takes three seconds for an update; the fourth trains for two.
TRACES = """client,start,stop,speed,down,up
0,0,1e9,1e9,1e9,1e9
1,0,1e9,1e9,1e9,1e9
2,0,1e9,1e9,1e9,900
3,0,1e9,350,1e9,1e9
"""


class World:
    """A server and phones, each a process of its own, in one folder."""

    def __init__(self, folder, held, *, tls=False):
        self.folder, self.held, self.tls = folder, held, tls
        self.processes = []
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.fleet = folder / "fleet"
        self.ca = self.fleet / "tls" / "certificate.pem" if tls else None
        self.server = self.serve()
        self.keys = ServerKeys.kept_in(self.fleet / "keys")

    def until(self, seen, what):
        """Wait for what can be seen; the clock only ends a run that hangs."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := seen():
                return found
            failed = [p for p in self.processes if p.poll() not in (None, 0, -signal.SIGKILL)]
            assert not failed, self.logs()
            time.sleep(0.05)
        raise AssertionError(f"never: {what}\n{self.logs()}")

    def logs(self):
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("log-*"))

    def start(self, *arguments):
        home = {"PRIVET_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "privet", "federate", *map(str, arguments)],
            env=os.environ | home,
            stdout=subprocess.PIPE,
            stderr=self.held.enter_context((self.folder / f"log-{time.monotonic_ns()}").open("w")),
            text=True,
        )
        self.held.callback(_end, process)
        self.processes.append(process)
        return process

    def serve(self):
        extra = ["--tls-self-signed"] if self.tls else []
        process = self.start("server", self.fleet, "--port", self.port, "--address-rate", 0, *extra)
        self.until(self.answers, "the server answers")
        return process

    def answers(self):
        try:
            return self.http.get("/v1/server").is_success
        except (httpx.HTTPError, OSError):  # also where its certificate is not there yet
            return False

    @cached_property
    def http(self):
        verify = ssl.create_default_context(cafile=self.ca) if self.tls else False
        return self.held.enter_context(
            httpx.Client(base_url=self.url, verify=verify, timeout=30.0, trust_env=False)
        )

    def admin(self, method, path, **message):
        bearer = {"Authorization": f"Bearer {self.keys.admin}"}
        content = {"json": {"v": 1} | message} if message else {}
        answer = self.http.request(method, f"/v1/admin/{path}", headers=bearer, **content)
        assert answer.is_success, answer.text
        return answer.json()

    def model(self, name="digits"):
        return self.admin("GET", "status")["models"][name]

    def app(self, name, *models):
        file = self.folder / f"{name}.key"
        file.write_text(self.admin("POST", "apps", name=name, models=models)["key"])
        return file

    def phone(self, user, app_key, *extra):
        ca = ["--ca", self.ca] if self.tls else []
        return self.start(
            *("client", self.url, "--app-key-file", app_key, "--user", user),
            *("--folder", self.folder / f"phone-{user}", "--json", *ca, *extra),
        )

    def evil(self, name, app_key):
        line = Line(self.url, ca=self.ca)
        self.held.callback(line.close)
        return Server.entered(
            line, self.folder / name, app_key=app_key.read_text(), phone="p", system="s"
        )


def _end(process):
    if process.poll() is None:
        process.kill()
    process.wait(30)
    process.stdout.close()


@contextmanager
def a_world(folder, **options):
    with ExitStack() as held:
        yield World(folder, held, **options)


def finished(process):
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return json.loads(said)


# -- what a phone of evil intent tries ----------------------------------------------------------


def garbage(world, app_key):
    """Every attempt, and what the server said: to updates by the protocol, to others by HTTP."""
    return send_garbage(world, app_key) | forge(world, app_key)


def send_garbage(world, app_key):
    nan = torch.zeros(650)
    nan[17] = float("nan")
    bodies = {
        "shape": save({"change": torch.zeros(649)}),
        "kind": save({"change": torch.zeros(650, dtype=torch.float16)}),
        "name": save({"changes": torch.zeros(650)}),
        "nan": save({"change": nan}),
        "code": b"\x80\x04cos\nsystem\n(S'true'\ntR." * 20,
        "long": save({"change": torch.full((650,), 1e6)}),
    }
    said = {}
    for name, body in bodies.items():
        phone = world.evil(f"evil-{name}", app_key)
        ticket = phone.ready("digits")
        assert isinstance(ticket, wire.Accepted)
        phone.put(ticket.put_url, body, first=0, total=len(body))
        digest = hashlib.sha256(body).hexdigest()
        outcome = phone.commit(ticket.ticket, digest)
        assert phone.commit(ticket.ticket, digest) == outcome
        said[name] = (ticket.ticket, outcome.accepted, outcome.reason)
    return said


def forge(world, app_key):
    """Too much, another's ticket, a message that was heard before, credentials that are none."""
    phone = world.evil("evil", app_key)
    ticket = phone.ready("digits")
    too_much = b"\0" * (ticket.most_bytes + 1)
    other = world.evil("evil-2", app_key)
    key = own_key(world.folder / "evil" / "key")
    asked = wire.AskToken(
        device=phone.me.device, sent=time.time(), nonce=fresh_nonce(), signature="-"
    )
    asked = asked.model_copy(update={"signature": signed(key, asked.signed_text())})
    forged = asked.model_copy(update={"nonce": fresh_nonce()})
    bearer = {"Authorization": "Bearer not.a.token"}

    def ask(message):
        return world.http.post("/v1/tokens", json=message.model_dump()).status_code

    def get(path):
        return world.http.get(path, headers=bearer).status_code

    return {
        "too much": declined(
            lambda: phone.put(ticket.put_url, too_much, first=0, total=len(too_much))
        ),
        "another's": other.commit(ticket.ticket, "0" * 64).reason,
        "first": ask(asked),
        "replayed": ask(asked),
        "forged": ask(forged),
        "no token": get("/v1/offers"),
        "no app": declined(lambda: world.evil("evil-3", _file(world, "x" * 43))),
        "not admin": get("/v1/admin/status"),
    }


def _file(world, text):
    path = world.folder / "wrong.key"
    path.write_text(text)
    return path


def declined(does):
    with pytest.raises(Declined) as caught:
        does()
    return caught.value.status


# -- the oracle ---------------------------------------------------------------------------------


def told(world, users):
    """What phones wrote down that they were told, by ticket; whose it is, and which lesson."""
    found = {}
    for user in users:
        for path in (world.folder / f"phone-{user}").glob("models/*/told.jsonl"):
            for line in path.read_text().splitlines():
                said = json.loads(line) | {"user": user}
                assert found.setdefault(said["ticket"], said) == said, "told two things"
    return found


def settings(seed=0, **changes):
    known = {
        "rule": "fedbuff",
        "rounds": 8,
        "buffer": 3,
        "stale": 50,
        "model": "linear",
        "clients": CLIENTS,
        "local_epochs": 2,
        "batch": 16,
        "client_rate": 0.5,
        "init_seed": seed,
    }
    return FederationSettings(**known | changes)


def replayed(plan, events, heard):
    """A fresh coordinator, and the updates trained anew: must have the digests of the log."""
    population = population_of(privet.data.load("digits"), settings())
    material = population.material(torch.device("cpu"))
    work = settings().work()
    network = create("linear", plan.shape, len(plan.classes), init_seed=0)
    engine, teacher = OneByOne(network, material, work), Teacher(material, work, seed=0)
    coordinator = Coordinator(first_weights(plan), plan.rule, rounds=plan.settings.rounds)
    versions = {0: coordinator.weights.clone()}
    for event in events:
        if event.kind == Kind.UPDATE:
            said = heard[event.fields["ticket"]]
            lesson = teacher.lesson(said["user"], said["turn"])
            change = engine.changes(versions[event.fields["base"]], [lesson])[0]
            digest = hashlib.sha256(save({"change": change})).hexdigest()
            assert digest == event.fields["sha256"], "another update than the phone trained"
            update = Update(
                client=event.fields["device"], base_version=event.fields["base"], change=change
            )
            answer, _ = coordinator.receive(update, event.at)
            assert answer is Answer.ACCEPTED
        elif event.kind == Kind.RESUMED:
            coordinator.reopen(event.at)
        versions.setdefault(coordinator.version, coordinator.weights.clone())
    return coordinator


def undisturbed(seed):
    """The same federation in the simulator, where nothing goes wrong."""
    chosen = settings(seed)
    population = population_of(privet.data.load("digits"), chosen)
    federation = Federation(
        population, chosen.filled_for(population.data), Randomness.fresh(), privacy=None
    )
    while federation.next_step < chosen.rounds:
        federation.step()
    return federation.accuracy()


def accuracy(weights):
    data = privet.data.load("digits")
    network = create("linear", data.shape, len(data.classes), init_seed=0)
    load_flat(network, weights)
    x = torch.from_numpy(data.bounds.clamp_and_scale(data.test.x))
    with torch.no_grad():
        return float((network.eval()(x).argmax(1).numpy() == data.test.y).mean())


# -- the tests ----------------------------------------------------------------------------------


def test_faults_on_all_sides(tmp_path):
    (tmp_path / "traces.csv").write_text(TRACES)
    usual = ("--data", "digits", "--clients", CLIENTS, "--traces", tmp_path / "traces.csv")
    with a_world(tmp_path) as world:
        world.admin("POST", "plans", toml=PLAN)
        world.admin("POST", "models/digits/stop")
        app = world.app("app", "digits")
        phones = {user: world.phone(user, app, *usual) for user in range(CLIENTS)}
        world.until(lambda: world.model()["devices"] == CLIENTS, "all phones are registered")
        world.admin("POST", "models/digits/resume")

        said = garbage(world, app)
        counted = world.admin("GET", "status")

        world.until(lambda: is_uploading(world, 2), "a phone is in the middle of its upload")
        phones[2].send_signal(signal.SIGKILL)
        phones[2].wait()
        stage = json.loads((tmp_path / "phone-2/models/digits/state.json").read_text())
        phones[2] = world.phone(2, app, *usual)

        world.until(lambda: world.model()["version"] >= 2, "a second version")
        world.server.send_signal(signal.SIGKILL)
        world.server.wait()
        before = SqliteState(world.fleet / "state.sqlite")
        written = [event.fields for event in before.events("digits") if event.kind == Kind.UPDATE]
        before.close()
        world.server = world.serve()

        ends = {user: finished(phone) for user, phone in phones.items()}
        final = world.model()
        world.server.send_signal(signal.SIGTERM)
        assert world.server.wait(PATIENCE) == 0

        assert stage["stage"] == "uploading"
        check_garbage(world, said, counted)
        check_counted_once(world, written, killed=stage["ticket"]["ticket"])
        weights = check_weights(world)
    assert final["state"] == "over"
    assert all(end["done"] for end in ends.values())
    figures = [undisturbed(seed) for seed in SEEDS]
    mean = sum(figures) / len(figures)
    deviation = (sum((f - mean) ** 2 for f in figures) / (len(figures) - 1)) ** 0.5
    reached = accuracy(weights)
    print(f"accuracy {reached:.4f}; undisturbed {mean:.4f}, deviation {deviation:.4f}")
    assert reached >= mean - max(NOISE, 3 * deviation)


def is_uploading(world, user):
    """Some of the update has arrived, and not all of it."""
    folder = world.folder / f"phone-{user}" / "models" / "digits"
    update = folder / "update.safetensors"
    try:
        standing = json.loads((folder / "state.json").read_text())
        total = update.stat().st_size
    except FileNotFoundError:
        return False
    if standing["stage"] != "uploading":
        return False
    ticket = standing["ticket"]["ticket"]
    return any(0 < path.stat().st_size < total for path in world.fleet.rglob(f"*{ticket}*"))


def is_waiting(world, user, model):
    """It has asked, and was told to come later."""
    path = world.folder / f"phone-{user}" / "models" / model / "state.json"
    return path.exists() and json.loads(path.read_text())["stage"] == "backoff"


def check_garbage(world, said, counted):
    """Refused with the reason that fits, in the log as in the answer; nothing of it counts."""
    reasons = {name: said.pop(name) for name in ("shape", "kind", "name", "nan", "code", "long")}
    state = SqliteState(world.fleet / "state.sqlite")
    for name, (ticket, accepted, reason) in reasons.items():
        expected = wire.Reason.TOO_LONG if name == "long" else wire.Reason.MALFORMED
        assert (accepted, reason) == (False, expected), name
        kept = state.ticket(ticket)
        assert (kept.fate, kept.reason) == (Fate.REFUSED, expected), name
    state.close()
    assert said == {
        "too much": 413,
        "another's": wire.Reason.UNKNOWN,
        "first": 200,
        "replayed": 409,
        "forged": 401,
        "no token": 401,
        "no app": 401,
        "not admin": 401,
    }
    refused = counted["models"]["digits"]["refused"]
    assert refused["MALFORMED"] == 5
    assert refused["TOO_LONG"] == 1
    assert {"replayed", "bad-signature", "token-invalid", "app-unknown"} <= set(
        counted["turned_away"]
    )


def check_counted_once(world, written, killed):
    """What phones were told is what stands in the log, each ticket once."""
    state = SqliteState(world.fleet / "state.sqlite")
    logged = [event.fields for event in state.events("digits") if event.kind == Kind.UPDATE]
    state.close()
    heard = told(world, range(CLIENTS))
    tickets = [fields["ticket"] for fields in logged]
    assert len(tickets) == len(set(tickets))
    assert {t for t, said in heard.items() if said["accepted"]} == set(tickets)
    assert {said["reason"] for said in heard.values() if not said["accepted"]} <= {
        wire.Reason.STOPPED.value,
        wire.Reason.STALE.value,
    }
    assert logged[: len(written)] == written, "what stood in the log before the kill has changed"
    assert len(tickets) == 8 * 3
    assert killed in heard, "the phone that was killed never learned of its update"


def check_weights(world):
    """Bit for bit those of the replay."""
    state = SqliteState(world.fleet / "state.sqlite")
    plan = ModelPlan.from_json(json.loads(state.plans("digits")[-1].text))
    events = state.events("digits")
    newest = state.versions("digits")[-1]
    published = load((world.fleet / "store" / newest.key).read_bytes())["weights"]
    state.close()
    coordinator = replayed(plan, events, told(world, range(CLIENTS)))
    assert coordinator.version == newest.version == 8
    assert torch.equal(coordinator.weights, published)
    return published


def test_two_models_on_one_phone_with_tls(tmp_path):
    """Two apps, two rules, one certificate; a phone that does not know it does not speak."""
    both = {
        "digits": PLAN.replace("rounds = 8", "rounds = 3").replace("buffer = 3", "buffer = 1"),
        "small": PLAN.replace('"digits"', '"small"')
        .replace('"fedbuff"', '"flsys"\nseconds = 3\nquorum = 1')
        .replace("buffer = 3\nstale = 50\n", "")
        .replace("rounds = 8", "rounds = 4"),
    }
    with a_world(tmp_path, tls=True) as world:
        keys = []
        for name, plan in both.items():
            world.admin("POST", "plans", toml=plan)
            world.admin("POST", f"models/{name}/stop")
            keys.append(world.app(f"app-{name}", name))
        usual = ("--data", "digits", "--clients", CLIENTS)
        stranger = world.start(
            *("client", world.url, "--app-key-file", keys[0], "--folder", tmp_path / "stranger"),
            *usual,
        )
        world.processes.remove(stranger)  # it is to fail, whenever it does
        phone = world.phone(0, keys[0], "--app-key-file", keys[1], *usual)
        for name in both:
            world.until(lambda name=name: is_waiting(world, 0, name), f"the phone waits for {name}")
        for name in both:
            world.admin("POST", f"models/{name}/resume")
        end = finished(phone)
        assert stranger.wait(PATIENCE) == 3
        (only,) = end["phones"]
        assert set(only["models"]) == set(both)
        assert only["models"]["digits"]["rounds"]["accepted"] == 3
        assert only["models"]["small"]["rounds"]["accepted"] >= 1
        for name in both:
            standing = world.model(name)
            assert standing["state"] == "over"
            folder = tmp_path / "phone-0" / "models" / name
            version = only["models"][name]["version"]
            assert load_file(folder / f"weights-{version}.safetensors")["weights"].shape == (650,)
        assert end["peak_memory_mb"] < 1500
