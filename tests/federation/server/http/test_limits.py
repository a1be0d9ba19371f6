"""Nobody may ask for more than is allowed, in requests or in bytes."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from privet.federation.server.desk import Desk
from privet.federation.server.limits import MOST_JSON_BYTES, Buckets, Gate, network_of
from privet.federation.server.routes import application


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Clock()
    buckets = Buckets(2.0, clock)
    assert [buckets.wait("a") for _ in range(10)] == [0.0] * 10
    assert buckets.wait("a") == pytest.approx(0.5)
    clock.now += 0.25
    assert buckets.wait("a") == pytest.approx(0.25)
    clock.now += 0.25
    assert buckets.wait("a") == 0.0
    assert buckets.wait("a") > 0


def test_buckets_are_of_one_name_each():
    buckets = Buckets(0.2, Clock())
    assert buckets.wait("a") == 0
    assert buckets.wait("a") > 0
    assert buckets.wait("b") == 0


def test_a_bucket_never_holds_more_than_its_burst():
    clock = Clock()
    buckets = Buckets(1.0, clock)
    clock.now += 1e6
    assert [buckets.wait("a") > 0 for _ in range(6)] == [False] * 5 + [True]


def test_names_that_are_not_heard_of_are_forgotten(monkeypatch):
    monkeypatch.setattr("privet.federation.server.limits.MOST_NAMES", 3)
    buckets = Buckets(0.2, Clock())
    for name in "abcd":
        buckets.wait(name)
    assert len(buckets._levels) == 3
    assert buckets.wait("d") > 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("testclient", "other", False),
    ],
)
def test_an_address_stands_for_its_network(one, other, same):
    assert (network_of(one) == network_of(other)) is same


def test_an_address_that_asks_too_often_is_told_to_wait(make_server):
    server = make_server(address_rate=0.5)
    with TestClient(application(server.service)) as client:
        answers = [client.get("/v1/server") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[-1].json()["error"] == "too-many"
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 4


def test_a_device_that_asks_too_often_is_told_to_wait(started, phone, make_phone):
    started.service.device_limit.rate, started.service.device_limit.burst = 0.4, 2.0
    codes = [phone.client.get("/v1/offers", headers=phone.headers).status_code for _ in range(4)]
    assert codes == [200, 200, 429, 429]
    other = make_phone().enter()
    assert other.client.get("/v1/offers", headers=other.headers).status_code == 200


def padded(size):
    body = json.dumps({"sha256": "0" * 64}).encode()
    return body + b" " * (size - len(body))


@pytest.mark.parametrize("announced", [True, False])
def test_a_message_that_is_too_long_is_refused(phone, announced):
    content = padded(MOST_JSON_BYTES + 1)
    body = content if announced else iter([content[:1000], content[1000:]])
    answer = phone.client.post(
        f"/v1/tickets/{'t' * 20}/commit",
        content=body,
        headers=phone.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 413
    said = answer.json()
    assert "the message is too long" in said["what"]
    assert "64 KiB" in said["what"] + str(said["expected"])


@pytest.mark.parametrize("announced", [True, False])
def test_a_message_that_is_just_short_enough_is_read(phone, announced):
    content = padded(MOST_JSON_BYTES)
    body = content if announced else iter([content[:1000], content[1000:]])
    answer = phone.client.post(
        f"/v1/tickets/{'t' * 20}/commit",
        content=body,
        headers=phone.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 200
    assert answer.json()["accepted"] is False


@pytest.mark.parametrize("length", ["-1", "+5", "1e3", "0x10"])
def test_a_length_that_is_no_number_is_refused(phone, length):
    answer = phone.client.post(
        f"/v1/tickets/{'t' * 20}/commit",
        content=b"{}",
        headers=phone.headers | {"Content-Length": length},
    )
    assert answer.status_code == 413


def test_a_message_that_does_not_arrive_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("privet.federation.server.limits.STALLED_SECONDS", 0.05)
    said = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def stalled():
        if not said:
            await asyncio.sleep(60)
        return said.pop()

    async def app(_, receive, __):
        while True:
            await receive()

    gate = Gate(app, Buckets(0.0))
    with pytest.raises(HTTPException) as refused:
        asyncio.run(gate(scope(), stalled, None))
    assert refused.value.status_code == 408


def test_who_has_said_all_may_wait_long_for_the_answer(monkeypatch):
    monkeypatch.setattr("privet.federation.server.limits.STALLED_SECONDS", 0.05)
    said = [{"type": "http.request", "body": b"", "more_body": False}]

    async def then_silent():
        if said:
            return said.pop()
        await asyncio.sleep(0.3)
        return {"type": "http.disconnect"}

    heard = []

    async def app(_, receive, __):
        heard.extend([await receive(), await receive()])

    asyncio.run(Gate(app, Buckets(0.0))(scope(), then_silent, None))
    assert heard[-1] == {"type": "http.disconnect"}


def scope():
    return {"type": "http", "path": "/v1/x", "headers": [], "client": ("10.0.0.1", 1)}


def reads(desk, *bodies):
    """What comes of messages of one device that come one after the other."""

    async def all_of_them():
        tasks = []
        for body in bodies:
            tasks.append(asyncio.create_task(desk.read("d-1", body)))
            await asyncio.sleep(0.02)
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(all_of_them())


async def pieces(*seconds):
    for wait in seconds:
        await asyncio.sleep(wait)
        yield b"x"


@pytest.fixture
def desk():
    made = Desk.__new__(Desk)
    made._reads, made._sums = {}, SimpleNamespace(most_bytes=3)
    return made


def test_a_message_of_a_sum_that_does_not_arrive_is_not_waited_for(desk, monkeypatch):
    monkeypatch.setattr("privet.federation.server.desk.STALLED_SECONDS", 0.1)
    (slow,) = reads(desk, pieces(0.0, 5.0))
    assert slow.status == 408
    assert reads(desk, pieces(0.06, 0.06, 0.06)) == [b"xxx"]  # slow, but it comes
    assert desk._reads == {}


def test_a_device_says_one_thing_at_a_time_in_a_sum(desk):
    """Else each of them could be held in memory for as long as it takes to stall."""
    older, newest = reads(desk, pieces(0.0, 5.0), pieces(0.0, 0.0))
    assert older.status == 408
    assert newest == b"xx"


def test_a_message_of_a_sum_that_is_too_long_is_refused(desk):
    (long,) = reads(desk, pieces(0.0, 0.0, 0.0, 0.0))
    assert long.status == 413


def test_half_a_character_is_refused_like_any_other_field(started, phone):
    answer = phone.client.post(
        f"/v1/tickets/{'t' * 20}/commit",
        content=b'{"\\ud800": 1}',
        headers=phone.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
