"""A server that lives in a dictionary, a clock that stands still, and phones between them."""

import base64
import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from safetensors.torch import load, save

from privet.federation import wire
from privet.federation.flat import flat
from privet.federation.phone.conditions import Conditions, Mains
from privet.federation.phone.hub import Phone
from privet.federation.phone.line import Line
from privet.federation.phone.model import ModelOnPhone
from privet.federation.phone.policies import Policies
from privet.federation.phone.records import HELD_OUT, TRAIN, Records
from privet.federation.phone.shared import Shared
from privet.federation.phone.talking import Server
from privet.models import create

APP_KEY = "an-app-key-of-enough-length"
SHAPE, CLASSES = (4,), 3
WORK = wire.Work(epochs=2, batch=4, learning_rate=0.1, optimizer="sgd")


class FakeServer:
    """Speaks the protocol; `say` decides what a request for a round is answered."""

    def __init__(self, models=("m",), network="linear", *, tries=0, work=WORK):
        self.key = Ed25519PrivateKey.generate()
        self.network, self.work, self.tries = network, work, tries
        self.weights = {m: {0: flat(create(network, SHAPE, CLASSES, init_seed=1))} for m in models}
        self.uploads, self.outcomes, self.tickets, self.reports = {}, {}, {}, []
        self.requests, self.seconds_left = Counter(), 1000.0
        self.denials, self.faults, self.undecided = [], [], []
        self.nonces, self.devices, self.tokens = set(), {}, set()
        self.resumable, self.broken, self.after = True, lambda content: content, lambda _: None
        self._number = itertools.count()

    def transport(self):
        return httpx.MockTransport(self.handle)

    def handle(self, request):
        place = f"{request.method} {request.url.path}"
        self.requests[re.sub(r"(ticket-[a-z-]*)\d+", r"\1N", place)] += 1
        for fault in list(self.faults):
            method, pattern, outcome = fault
            if method == request.method and re.search(pattern, request.url.path):
                self.faults.remove(fault)
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome
        answer = self._answer(request)
        self.after(request)
        return answer

    def _answer(self, request):
        path, method = request.url.path, request.method
        if path == "/v1/server":
            return _json(wire.AboutServer(server="fake", public_key=self.public_key))
        if path == "/v1/devices":
            return self._registered(wire.Register.model_validate_json(request.content))
        if path == "/v1/tokens":
            return self._token(wire.AskToken.model_validate_json(request.content))
        if path.startswith("/v1/uploads/"):
            ticket = path.rsplit("/", 1)[1]
            return self._put(request, ticket) if method == "PUT" else self._there(ticket)
        if request.headers.get("Authorization", "")[7:] not in self.tokens:
            return httpx.Response(401, json={"error": "token-expired", "what": "no"})
        if path == "/v1/offers":
            return _json(wire.Offers(offers=[self.offer(m) for m in self.weights]))
        if found := re.fullmatch(r"/v1/models/([^/]+)/(\w+)(?:/(\d+))?", path):
            model, what, version = found.groups()
            return getattr(self, f"_{what}")(request, model, version)
        return self._commit(request, path.split("/")[3])

    @property
    def public_key(self):
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return base64.b64encode(self.key.public_key().public_bytes(*raw)).decode()

    def offer(self, model):
        return wire.Offer(
            model=model,
            version=max(self.weights[model]),
            network=self.network,
            shape=list(SHAPE),
            classes=["a", "b", "c"],
            work=self.work,
            sensing=[],
            tries=self.tries,
        )

    def _registered(self, said):
        _require_signed(said, said.public_key)
        if said.app_key != APP_KEY:
            return httpx.Response(401, json={"error": "app-unknown", "what": "no app"})
        self._once(said.nonce)
        name = f"d-{len(self.devices)}"
        self.devices[name] = said.public_key
        return _json(wire.Registered(device=name, models=list(self.weights)))

    def _token(self, said):
        _require_signed(said, self.devices[said.device])
        self._once(said.nonce)
        token = f"token-{next(self._number)}"
        self.tokens.add(token)
        return _json(wire.Token(token=token, expires_in=600.0))

    def _once(self, nonce):
        assert nonce not in self.nonces, "a message was sent twice"
        self.nonces.add(nonce)

    def _ready(self, request, model, _):
        self._once(wire.Ready.model_validate_json(request.content).nonce)
        if self.denials:
            reason, seconds = self.denials.pop(0)
            return _json(wire.Denied(reason=reason, retry_after=seconds))
        ticket = self.tickets.get(model)
        if ticket is None or ticket in self.outcomes:
            ticket = self.tickets[model] = f"ticket-of-{model}-{next(self._number):06d}"
        version = max(self.weights[model])
        return _json(
            wire.Accepted(
                ticket=ticket,
                round=version,
                base_version=version,
                get_url=f"/v1/models/{model}/versions/{version}",
                put_url=f"/v1/uploads/{ticket}?signature=x",
                resumable=self.resumable,
                seconds_left=self.seconds_left,
                most_bytes=10**6,
                work=self.work,
            )
        )

    def content(self, model, version):
        return save({"weights": self.weights[model][version]})

    def _manifest(self, request, model, _):
        import hashlib

        version = int(request.url.params["version"])
        manifest = wire.Manifest(
            model=model,
            version=version,
            sha256=hashlib.sha256(self.content(model, version)).hexdigest(),
            weights=self.weights[model][version].numel(),
            plan="0" * 64,
        )
        signature = base64.b64encode(self.key.sign(manifest.signed_text())).decode()
        return _json(wire.SignedManifest(manifest=manifest, signature=signature))

    def _versions(self, request, model, version):
        content = self.broken(self.content(model, int(version)))
        first = int(request.headers.get("Range", "bytes=0-")[6:-1])
        return httpx.Response(206 if first else 200, content=content[first:])

    def _reports(self, request, model, _):
        said = wire.Report.model_validate_json(request.content)
        self._once(said.nonce)
        self.reports.append((model, said.version, said.tried, said.right))
        return httpx.Response(204)

    def _there(self, ticket, status=204):
        size = str(len(self.uploads.get(ticket, b"")))
        return httpx.Response(status, headers={wire.OFFSET_HEADER: size})

    def _put(self, request, ticket):
        if "Content-Range" not in request.headers:
            self.uploads[ticket] = request.content
            return self._there(ticket)
        first, last, total = map(int, re.findall(r"\d+", request.headers["Content-Range"]))
        there = self.uploads.get(ticket, b"")
        if first not in (0, len(there)):
            return self._there(ticket, 409)
        there = there[:first]
        assert last - first + 1 == len(request.content)
        assert last < total
        self.uploads[ticket] = there + request.content
        return self._there(ticket)

    def _commit(self, request, ticket):
        import hashlib

        said = wire.Commit.model_validate_json(request.content)
        whole = hashlib.sha256(self.uploads[ticket]).hexdigest() == said.sha256
        if self.undecided:
            return _json(wire.Outcome(accepted=False, reason=self.undecided.pop(0)))
        if not whole:
            return _json(wire.Outcome(accepted=False, reason=wire.Reason.BROKEN))
        return _json(self.outcomes.setdefault(ticket, wire.Outcome(accepted=True)))

    def change(self, ticket):
        """What was sent."""
        return load(self.uploads[ticket])["change"]


def _json(message):
    return httpx.Response(200, content=message.model_dump_json())


def _require_signed(said, public):
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public))
    key.verify(base64.b64decode(said.signature), said.signed_text())


class StillClock:
    """Stands still until it is set; ten of its seconds are one of the wall's."""

    def __init__(self):
        self.moment = 100.0

    def now(self):
        return self.moment

    def of_wall(self, seconds):
        return 10.0 * seconds


class Changing:
    """Surroundings that a test sets; a step of training takes a second for each record."""

    def __init__(self):
        self.conditions, self.seconds = Conditions(), 0.0
        self.mains = Mains()

    def at(self, now):
        return self.conditions

    def next_change(self, now):
        return float("inf")

    def set(self, **changes):
        self.conditions = replace(self.conditions, **changes)

    def spend(self, records, mode):
        return self.seconds * records

    def seconds_for(self, records, mode):
        return self.seconds * records

    def seconds_down(self, size):
        return 0.0

    def seconds_up(self, size):
        return 0.0


@pytest.fixture
def examples():
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.random((21, *SHAPE), dtype=np.float32))
    return x, torch.from_numpy(draw.integers(0, CLASSES, 21))


class Bench:
    """One phone on a bench; `again` is what a kill and a new start leave."""

    def __init__(self, folder, server, examples, **policies):
        self.folder, self.server, self.examples = folder, server, examples
        self.clock, self.around, self.said = StillClock(), Changing(), []
        self.policies, self.client, self.seed = Policies(**policies), 2, 5
        self.due = {}
        self.start()

    def start(self):
        line = Line("https://server.test", transport=self.server.transport())
        self.talk = Server.entered(line, self.folder, app_key=APP_KEY, phone="p", system="s")
        shared = Shared(
            server=self.talk,
            clock=self.clock,
            surroundings=self.around,
            policies=self.policies,
            seed=self.seed,
            jitter=lambda: 0.0,
            watch=lambda event, facts: self.said.append((event, facts)),
        )
        models = {}
        for offer in self.talk.offers():
            folder = self.folder / "records" / offer.model
            records = Records(folder, shape=SHAPE, classes=CLASSES, key=self.client)
            if not records.count():
                x, y = self.examples
                records.add(TRAIN, 0.0, x, y)
                records.add(HELD_OUT, 0.0, x[:6], y[:6])
            models[offer.model] = ModelOnPhone(
                offer, self.folder / "models" / offer.model, records, shared
            )
        self.phone = Phone(self.folder, models, [self.talk.me])
        self.model = next(iter(models.values()))

    again = start

    def step(self):
        """One action of the first model; the clock goes to when it wants the next one."""
        before = self.clock.moment
        until = self.model.act(before)
        self.clock.moment = max(before, min(until, before + 10**5))
        return self.model.standing.stage

    def until(self, *stages, most=400):
        """Steps until the machine is in one of these stages."""
        for _ in range(most):
            if self.model.standing.stage in stages:
                return self.model.standing.stage
            self.step()
        raise AssertionError(f"never {stages}: {self.model.standing}")

    def until_fate(self, most=400):
        """Steps until one more round has ended."""
        before = sum(self.model.standing.fates.values())
        for _ in range(most):
            self.step()
            if sum(self.model.standing.fates.values()) > before:
                return self.model.standing.fates
        raise AssertionError(f"no end: {self.model.standing}")

    def told(self):
        path = self.model.folder / "told.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def make_server():
    return FakeServer


@pytest.fixture
def make_bench(tmp_path, examples):
    numbers = itertools.count()

    def make(server, **policies):
        return Bench(tmp_path / f"phone-{next(numbers)}", server, examples, **policies)

    return make


@pytest.fixture
def bench(make_bench, server):
    return make_bench(server)
