"""A server and four phones in this process: sums over the real routes, with phones that fall out.

The clock is the wall's; rounds last seconds.
"""

import contextlib
import dataclasses
import hashlib
import time
import warnings

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import torch
from safetensors.numpy import load, load_file

from privet.errors import InputError
from privet.federation import wire
from privet.federation.phone import storage
from privet.federation.phone.clock import FastClock
from privet.federation.phone.conditions import Mains
from privet.federation.phone.line import Line
from privet.federation.phone.model import SUM, UPDATE, ModelOnPhone
from privet.federation.phone.policies import Policies
from privet.federation.phone.records import TRAIN, Records
from privet.federation.phone.shared import Shared
from privet.federation.phone.stages import Stage as At
from privet.federation.phone.talking import Server
from privet.federation.secure_sum import FixedPoint, Stage, messages
from privet.federation.server.keys import ServerKeys
from privet.federation.server.plan import ModelPlan
from privet.federation.server.routes import application
from privet.federation.server.service import Service, opener
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.store.folder import FolderStore
from privet.federation.server.sums import Sums

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PLAN = """
[model]
name = "m"
network = "linear"
shape = [4]
classes = ["a", "b", "c"]

[rounds]
rule = "fedavg"
cohort = 4
rounds = {rounds}
seconds = {seconds}
secure_sum = true

[work]
epochs = 1
batch = 4
learning_rate = {rate}

[phones]
longest = 0.05
retry_seconds = 0.1
"""


class Fleet:
    """A server with a folder, and phones; all in one thread but the server's own."""

    def __init__(self, folder, **facts):
        self.folder, self.stack = folder, contextlib.ExitStack()
        self.plan = PLAN.format(**{"rounds": 1, "seconds": 60.0, "rate": 0.5} | facts)
        self.updates, self.phones, self.silent = {}, {}, set()
        self.tampered = lambda content: content
        self.start()
        answer = self.client.post("/v1/admin/plans", json={"toml": self.plan}, headers=self.admin)
        assert answer.status_code == 200, answer.text
        answer = self.client.post(
            "/v1/admin/apps", json={"name": "app", "models": ["m"]}, headers=self.admin
        )
        self.app_key = answer.json()["key"]
        for i in range(4):
            self.add_phone(i)
        self.before = self.weights(0)

    def start(self):
        """The server, or the server again."""
        home = self.folder / "server"
        self.state, self.store = SqliteState(home / "state.sqlite"), FolderStore(home / "store")
        (home / "secrets").mkdir(exist_ok=True)
        keys = ServerKeys.kept_in(home / "keys")
        places = {"state": self.state, "store": self.store, "secrets": home / "secrets"}
        self.service = Service(
            "tests",
            keys=keys,
            state=self.state,
            store=self.store,
            opens=opener(name="tests", **places),
            device_rate=0.0,
            address_rate=0.0,
        )
        self.client = self.stack.enter_context(TestClient(application(self.service)))
        self.admin = {"Authorization": f"Bearer {keys.admin}"}

    def stop(self):
        self.stack.close()

    def add_phone(self, i):
        folder = self.folder / f"phone-{i}"
        line = Line("https://server.test", transport=httpx.MockTransport(self.carried))
        talk = Server.entered(line, folder, app_key=self.app_key, phone="p", system="s")
        shared = Shared(
            server=talk,
            clock=FastClock(),
            surroundings=Mains(),
            policies=Policies(),
            seed=i,
            jitter=lambda: 0.0,
        )
        records = Records(folder / "records", shape=(4,), classes=3)
        draw = torch.Generator().manual_seed(i)
        x, y = torch.rand(12, 4, generator=draw), torch.arange(12) % 3
        records.add(TRAIN, 0.0, x, y)
        (offer,) = talk.offers()
        self.phones[talk.me.device] = ModelOnPhone(offer, folder / "models" / "m", records, shared)

    def carried(self, request):
        """Between a phone's line and the server."""
        answer = self.client.request(
            request.method,
            request.url.raw_path.decode(),
            headers=dict(request.headers),
            content=request.read(),
        )
        content = self.tampered(answer.content)
        headers = {k: v for k, v in answer.headers.items() if k.lower() != "content-length"}
        return httpx.Response(answer.status_code, headers=headers, content=content)

    def until(self, reached, seconds=90.0):
        """All phones that are not silent do what is due, until something is reached."""
        ends, due = time.time() + seconds, dict.fromkeys(self.phones, 0.0)
        while not reached():
            assert time.time() < ends, {d: p.standing for d, p in self.phones.items()}
            for device, phone in self.phones.items():
                if device not in self.silent and time.time() >= due[device]:
                    due[device] = min(phone.act(time.time()), time.time() + 0.2)
                    self._look_at(device, phone)
            time.sleep(0.005)
        return self

    def _look_at(self, device, phone):
        if phone.standing.stage is At.UPLOADING and (phone.folder / UPDATE).exists():
            self.updates[device] = load_file(phone.folder / UPDATE)["change"]

    def weights(self, version):
        return (
            load(self.store.get(f"versions/m/{version}"))["weights"]
            if version
            else load(self.store.get(self.service.desks["m"].host.weights_key(0)))["weights"]
        )

    @property
    def host(self):
        return self.service.desks["m"].host

    def sum_stage(self):
        """Where the sum stands."""
        server = self.service.desks["m"].sums()._room.server
        return None if server is None else server.stage

    def assert_mean_of(self, devices):
        point = FixedPoint(clients=4, longest=0.05)
        mean = sum(point.shortened(self.updates[d]) for d in devices) / len(devices)
        key = self.host.weights_key(1)
        moved = load(self.store.get(key))["weights"] - self.before
        np.testing.assert_allclose(moved, mean, atol=1e-6, rtol=0)
        assert np.abs(mean).max() > 1e-3

    def fates(self):
        return {device: set(phone.standing.fates) for device, phone in self.phones.items()}


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """The first step of an optimiser imports half of PyTorch, and a round lasts seconds."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()


@pytest.fixture
def fleet(tmp_path):
    made = []

    def make(**facts):
        (tmp_path / "server").mkdir()
        made.append(Fleet(tmp_path, **facts))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_four_phones_make_a_version_and_the_server_sees_no_update(fleet):
    f = fleet()
    f.until(lambda: f.host.version == 1)
    f.until(lambda: all(f.fates().values()))
    assert set(map(tuple, f.fates().values())) == {("accepted",)}
    f.assert_mean_of(f.phones)
    events = f.state.events("m")
    assert [event.kind for event in events].count("sum") == 1
    assert not [event for event in events if event.kind == "update"]
    assert not list(f.store.list("updates/m/"))
    assert not list(f.store.list("sums/"))
    assert not any((phone.folder / SUM).exists() for phone in f.phones.values())
    assert all("mask" not in e.fields for e in events)


def test_a_phone_that_is_gone_after_masking_counts(fleet):
    f = fleet()
    gone = next(iter(f.phones))
    f.until(lambda: f.phones[gone].standing.sent)
    f.silent.add(gone)
    f.until(lambda: f.host.version == 1)
    f.assert_mean_of(f.phones)
    f.silent.clear()  # it comes back, and hears that it was in
    f.until(lambda: all(f.fates().values()))
    assert f.fates()[gone] == {"accepted"}


def test_a_phone_that_is_gone_before_masking_does_not(fleet):
    f = fleet(seconds=8.0)
    gone = next(iter(f.phones))
    f.until(lambda: f.sum_stage() is Stage.INPUTS)
    f.silent.add(gone)
    assert not f.phones[gone].standing.sent
    f.until(lambda: f.host.version == 1)
    f.assert_mean_of(set(f.phones) - {gone})
    f.silent.clear()
    f.until(lambda: f.fates()[gone])
    assert "accepted" not in f.fates()[gone]


def test_two_of_four_are_too_few_and_the_model_stays(fleet):
    f = fleet(seconds=8.0)
    f.until(lambda: f.sum_stage() is Stage.INPUTS)
    f.silent |= set(list(f.phones)[:2])
    f.until(lambda: all(f.fates()[d] for d in set(f.phones) - f.silent))
    kinds = [event.kind for event in f.state.events("m")]
    assert "sum" not in kinds
    refused = {fate for d in set(f.phones) - f.silent for fate in f.fates()[d]}
    assert refused <= {"refused: too_few", "late"}
    np.testing.assert_array_equal(f.weights(0), f.before)


def test_a_server_that_is_started_again_goes_on_with_the_sum(fleet):
    f = fleet()
    f.until(lambda: f.sum_stage() is Stage.AGREEMENT)
    session = f.service.desks["m"].sums()._room.server.terms.session
    f.stop()
    f.start()
    room = f.service.desks["m"].sums()._room
    assert room.server.terms.session == session
    assert room.server.stage is Stage.AGREEMENT
    f.until(lambda: f.host.version == 1)
    f.assert_mean_of(f.phones)
    assert [event.kind for event in f.state.events("m")].count("sum") == 1


def test_a_server_that_died_before_it_told_anybody_tells_them_later(fleet, monkeypatch):
    """The sum is in the journal, the tickets are not decided: it counts once, as they hear."""

    def dies(*_):
        raise KeyError("killed here")

    f = fleet()
    f.until(lambda: f.sum_stage() is Stage.UNMASKING)
    monkeypatch.setattr(Sums, "_settle", dies)
    ends = time.time() + 5.0
    while not f.host.version and time.time() < ends:
        for phone in f.phones.values():
            with contextlib.suppress(KeyError):
                phone.act(time.time())
    assert f.host.version == 1
    assert not any(f.fates().values())
    monkeypatch.undo()
    f.stop()
    f.start()
    f.until(lambda: all(f.fates().values()))
    assert set(map(tuple, f.fates().values())) == {("accepted",)}
    assert [event.kind for event in f.state.events("m")].count("sum") == 1
    f.assert_mean_of(f.phones)


def test_a_phone_that_was_killed_when_it_had_masked_learns_that_it_counts(fleet):
    """Killed behind the sending, before the note of it; and back when the deadline is over."""
    f = fleet()
    f.until(lambda: all(phone.standing.sent for phone in f.phones.values()))
    gone, phone = next(iter(f.phones.items()))
    f.silent.add(gone)
    f.until(lambda: f.host.version == 1)
    over = dataclasses.replace(phone.standing.held, deadline=time.time() - 1.0)
    phone.standing = dataclasses.replace(phone.standing, sent=False, ticket=over)
    f.silent.clear()
    f.until(lambda: all(f.fates().values()))
    assert f.fates()[gone] == {"accepted"}


def test_a_phone_says_nothing_that_it_could_forget_when_its_power_is_cut(fleet, monkeypatch):
    """Else it could be asked once more, and answer otherwise: both secrets of a peer."""
    flushed, said = set(), []
    flush, say = storage._flush, Server.say_in_sum

    def noted(path):
        flush(path)
        flushed.add((path, *(p.read_bytes() for p in path.glob(SUM))))

    def heard(server, ticket, stage, content):
        (phone,) = [p for p in f.phones.values() if p.shared.server is server]
        said.append((stage, (phone.folder, (phone.folder / SUM).read_bytes()) in flushed))
        return say(server, ticket, stage, content)

    f = fleet()
    monkeypatch.setattr(storage, "_flush", noted)
    monkeypatch.setattr(Server, "say_in_sum", heard)
    f.until(lambda: f.host.version == 1)
    assert len({stage for stage, _ in said}) == 5
    assert all(kept for _, kept in said)


def test_a_phone_masks_no_update_twice(fleet):
    """A server that has lost the sum, or says so, begins another one with the same phones."""
    f = fleet()
    f.until(lambda: all(phone.standing.sent for phone in f.phones.values()))
    f.stop()
    FolderStore(f.folder / "server" / "store").delete("sums/m")
    f.start()
    f.until(lambda: all(f.fates().values()))
    assert set(map(tuple, f.fates().values())) == {("left the sum",)}
    assert "sum" not in [event.kind for event in f.state.events("m")]


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (rb"\"longest\":0.05", rb"\"longest\":50.0"),
        (rb"\"size\":15", rb"\"size\":14"),
        (rb"\"threshold\":3", rb"\"threshold\":2"),
        (rb"\"round\":0", rb"\"round\":1"),
    ],
)
def test_a_phone_leaves_a_sum_on_other_terms_than_its_ticket(fleet, said, instead):
    f = fleet(seconds=8.0)
    changed = []

    def tampered(content):
        changed.append(said in content)
        return content.replace(said, instead)

    f.tampered = tampered
    f.until(lambda: all(f.fates().values()))
    assert any(changed)
    assert set(map(tuple, f.fates().values())) == {("left the sum",)}
    assert "sum" not in [event.kind for event in f.state.events("m")]


def test_messages_out_of_place_are_refused_and_do_no_harm(fleet):
    f = fleet()
    f.until(lambda: f.sum_stage() is Stage.SHARES)
    (_, phone), (other, _) = list(f.phones.items())[:2]
    talk, held = phone.shared.server, phone.standing.held
    server = f.service.desks["m"].sums()._room.server
    forged = messages.Shares(
        terms=server.terms.digest, sender=other, commitment=bytes(32), boxes={}
    )
    bad = [
        ("shares", b"{}"),
        ("nothing", b"{}"),
        ("inputs", b"null"),
        ("shares", b"[" * 10_000),
        ("shares", _json(forged)),
    ]
    for stage, content in bad:
        with pytest.raises(Exception, match=r"bad-input|not-in-sum|400|409"):
            talk.say_in_sum(held.ticket, stage, content)
    with pytest.raises(Exception, match="too-large"):
        talk.say_in_sum(held.ticket, "shares", b" " * (2**20 + 2**12))
    f.until(lambda: f.host.version == 1)
    f.assert_mean_of(f.phones)


def test_a_plain_update_is_refused_before_it_is_in_the_journal(fleet):
    """The coordinator takes none here: one in the journal would stop the model for ever."""
    f = fleet()
    f.until(lambda: any(p.standing.stage is At.STORED for p in f.phones.values()))
    phone = next(p for p in f.phones.values() if p.standing.stage is At.STORED)
    talk, held = phone.shared.server, phone.standing.held
    content = (phone.folder / UPDATE).read_bytes()
    talk.put(held.put_url, content, first=0, total=len(content))
    outcome = talk.commit(held.ticket, hashlib.sha256(content).hexdigest())
    assert outcome.reason is wire.Reason.SUMMED
    assert not [e for e in f.state.events("m") if e.kind == "update"]


def test_a_sum_that_cannot_begin_does_not_keep_the_round_from_ending(fleet, monkeypatch):
    def fails(*_):
        raise InputError("two devices of a cohort with the same key")

    f = fleet(seconds=1.5)
    monkeypatch.setattr(Sums, "_begin", fails)
    f.until(lambda: f.host.round_now().round >= 1)
    f.until(lambda: any(f.fates().values()))
    assert not any("accepted" in fates for fates in f.fates().values())
    monkeypatch.undo()


def _json(message):
    from privet.federation.secure_sum import codec

    return codec.to_bytes(message)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("longest = 0.05\n", "", "without a longest update"),
        ('rule = "fedavg"\ncohort = 4', 'rule = "flsys"', "devices that choose themselves"),
        ("cohort = 4", "cohort = 2", "bad cohort for secure sums"),
        ("cohort = 4", "rate = 0.5", "bad cohort for secure sums"),
    ],
)
def test_plans_whose_sums_would_not_hold_are_refused(tmp_path, old, new, words):
    text = PLAN.format(rounds=1, seconds=5.0, rate=0.1)
    assert old in text
    path = tmp_path / "plan.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=words):
        ModelPlan.load(path)
