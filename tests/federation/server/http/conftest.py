"""A server in this process, with a host that only keeps books, and phones that sign."""

import base64
import hashlib
import os
import secrets
import tempfile
import time
import warnings
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privet.errors import InputError
from privet.federation import wire
from privet.federation.server.host import Decision, Given, NotNow
from privet.federation.server.keys import ServerKeys
from privet.federation.server.routes import application
from privet.federation.server.service import Service
from privet.federation.server.state import Fate, Ticket
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.store import upload_key
from privet.federation.server.store.folder import FolderStore
from privet.federation.wire import Reason

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it prefers a successor of httpx
    from fastapi.testclient import TestClient

MOST = 4096
PLAN = """
[model]
name = "{name}"
network = "linear"
shape = [4]
classes = ["no", "yes"]

[rounds]
rule = "flsys"
rounds = 5
seconds = 60.0
quorum = 1
"""


class BookHost:
    """Gives tickets and answers commits; trains nothing."""

    def __init__(self, plan, state, store):
        self.plan, self.state, self.store = plan, state, store
        self.version, self.size, self.stopped, self.closed = 0, 10, False, False
        self.ticks = 0
        self.reports = []
        self.commits = []
        self.no = None
        self._publish(0)

    def _publish(self, version):
        content = f"weights {version} ".encode() * 200
        self.store.put(self.weights_key(version), content)
        self.version = version

    def ready(self, device, *, phone, system):
        if self.no is not None:
            return NotNow(reason=self.no, retry_after=7.0)
        if not self.plan.phones.fits(phone, system):
            return NotNow(reason=Reason.UNFIT, retry_after=99.0)
        ticket = self.state.give_ticket(
            Ticket(
                ticket=secrets.token_urlsafe(16),
                model=self.plan.name,
                device=device,
                round=1,
                base_version=self.version,
                until=time.time() + 60,
            )
        )
        return Given(
            ticket=ticket.ticket,
            round=1,
            base_version=ticket.base_version,
            key=upload_key(self.plan.name, 1, ticket.ticket),
            seconds_left=60.0,
            most_bytes=MOST,
        )

    def commit(self, ticket, device, sha256):
        self.commits.append((ticket, device, sha256))
        answer = Future()
        answer.set_result(self._decided(ticket, device, sha256))
        return answer

    def _decided(self, ticket, device, sha256):
        row = self.state.ticket(ticket)
        if row is None or row.device != device:
            return Decision(accepted=False, reason=Reason.UNKNOWN)
        if row.fate is not Fate.OUT:
            return Decision(accepted=row.fate is Fate.ACCEPTED, reason=row.reason)
        key = upload_key(self.plan.name, row.round, ticket)
        if self.store.size(key) is None:
            return Decision(accepted=False, reason=Reason.BROKEN)
        if hashlib.sha256(self.store.get(key)).hexdigest() != sha256:
            return Decision(accepted=False, reason=Reason.BROKEN)
        self.state.decide(ticket, Fate.ACCEPTED)
        return Decision(accepted=True)

    def report(self, device, version, tried, right):
        self.reports.append((device, version, tried, right))
        return True

    def tick(self):
        self.ticks += 1
        return 0.02

    def manifest(self, version=None):
        version = self.version if version is None else version
        if not 0 <= version <= self.version:
            raise InputError("not kept", got=version)
        content = self.store.get(self.weights_key(version))
        return wire.Manifest(
            model=self.plan.name,
            version=version,
            sha256=hashlib.sha256(content).hexdigest(),
            weights=self.size,
            plan=self.plan.digest,
        )

    def weights_key(self, version):
        return f"versions/{self.plan.name}/{version}"

    def roll_back(self, to):
        if to > self.version:
            raise InputError("no such version", got=to)
        self._publish(self.version + 1)
        return self.version

    def revise(self, plan):
        self.plan.require_successor(plan)
        self.plan = plan

    def stop(self):
        self.stopped = True

    def resume(self):
        self.stopped = False

    def export(self, folder):
        folder.mkdir()
        (folder / "trust.json").write_text("{}")
        (folder / "internal").mkdir()
        (folder / "internal" / "notes").write_text("notes")
        return folder

    def standing(self):
        return {"version": self.version, "stopped": self.stopped}

    def close(self):
        self.closed = True


class Phone:
    """Signs, asks, and shows its token."""

    def __init__(self, client, app_key):
        self.client, self.app_key = client, app_key
        self.key = Ed25519PrivateKey.generate()
        self.device = self.token = None

    @property
    def public_key(self):
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return base64.b64encode(self.key.public_key().public_bytes(*raw)).decode()

    def signed(self, message, key=None):
        signature = (key or self.key).sign(message.signed_text())
        said = base64.b64encode(signature).decode()
        return message.model_copy(update={"signature": said}).model_dump(mode="json")

    def register_message(self, **changes):
        fields = {
            "app_key": self.app_key,
            "public_key": self.public_key,
            "phone": "Pixel 3",
            "system": "android-10",
            "sent": time.time(),
            "nonce": secrets.token_urlsafe(16),
            "signature": "-",
        }
        return wire.Register(**(fields | changes))

    def token_message(self, **changes):
        fields = {
            "device": self.device,
            "sent": time.time(),
            "nonce": secrets.token_urlsafe(16),
            "signature": "-",
        }
        return wire.AskToken(**(fields | changes))

    def enter(self):
        answer = self.client.post("/v1/devices", json=self.signed(self.register_message()))
        assert answer.status_code == 200, answer.text
        self.device = answer.json()["device"]
        return self.renew()

    def renew(self):
        answer = self.client.post("/v1/tokens", json=self.signed(self.token_message()))
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["token"]
        return self

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.token}"}

    def ready(self, model="har", **changes):
        fields = {
            "phone": "Pixel 3",
            "system": "android-10",
            "sent": time.time(),
            "nonce": secrets.token_urlsafe(16),
        }
        return self.client.post(
            f"/v1/models/{model}/ready", json=fields | changes, headers=self.headers
        )

    def commit(self, ticket, content):
        return self.client.post(
            f"/v1/tickets/{ticket}/commit",
            json={"sha256": hashlib.sha256(content).hexdigest()},
            headers=self.headers,
        )


@pytest.fixture
def clock():
    """The server's; a test may turn it."""
    return SimpleNamespace(ahead=0.0)


@pytest.fixture
def own_folder(tmp_path):
    """In memory where that can be: a hundred servers would wait long for the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="privet-tests-") as folder:
        yield Path(folder)


@pytest.fixture
def make_server(own_folder, clock):
    """A server, not started yet; a second one is in the same folder."""

    def make(**options):
        home = own_folder / "server"
        state, store = SqliteState(home / "state.sqlite"), FolderStore(home / "store")
        hosts = {}

        def opens(plan):
            hosts[plan.name] = BookHost(plan, state, store)
            return hosts[plan.name]

        rates = {"device_rate": 0.0, "address_rate": 0.0} | options
        service = Service(
            "tests",
            keys=ServerKeys.kept_in(home / "keys"),
            state=state,
            store=store,
            opens=opens,
            clock=lambda: time.time() + clock.ahead,
            **rates,
        )
        return SimpleNamespace(service=service, hosts=hosts, state=state, store=store, home=home)

    return make


@pytest.fixture
def started(make_server):
    """The server, and a client of it in this process."""
    server = make_server()
    with TestClient(application(server.service), raise_server_exceptions=False) as client:
        server.client = client
        server.admin = {"Authorization": f"Bearer {server.service.keys.admin}"}
        for name in ("har", "mood"):
            answer = client.post(
                "/v1/admin/plans", json={"toml": PLAN.format(name=name)}, headers=server.admin
            )
            assert answer.status_code == 200, answer.text
        server.app_key = new_app(server, "diary", ["har"])
        yield server


def new_app(server, name, models):
    answer = server.client.post(
        "/v1/admin/apps", json={"name": name, "models": models}, headers=server.admin
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["key"]


@pytest.fixture
def phone(started):
    """A phone with a token."""
    return Phone(started.client, started.app_key).enter()


@pytest.fixture
def make_phone(started):
    def make(app_key=None):
        return Phone(started.client, app_key or started.app_key)

    return make
