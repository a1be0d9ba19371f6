"""Connections that ask for nothing, or for too much before they ask."""

import asyncio
import contextlib

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")

import uvicorn
from uvicorn.server import ServerState

from privet.federation.server import connections
from privet.federation.server.connections import MOST_HEAD_BYTES, counted
from privet.federation.server.running import Listening

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = 0.3


async def answers(scope, receive, send):
    """Reads the body, waits for longer than a head may take if it is asked to, and answers."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    if scope["path"] == "/waits":
        await asyncio.sleep(2 * SLOW)
    length = [(b"content-length", b"8")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"answered"})


@contextlib.asynccontextmanager
async def door(most=None):
    config = uvicorn.Config(answers, http=counted(most), lifespan="off", log_config=None, ws="none")
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),
        host="127.0.0.1",
    )
    opened = []

    async def enter():
        opened.append(await asyncio.open_connection(*server.sockets[0].getsockname()))
        return opened[-1]

    try:
        yield enter
    finally:
        for _, writer in opened:
            writer.close()
        server.close()


async def heard(reader):
    """All that is said until the connection ends; None: it does not."""
    try:
        return await asyncio.wait_for(reader.read(), 20 * SLOW)
    except ConnectionError:
        return b""
    except TimeoutError:
        return None


async def asked(reader, writer, said=ASK):
    writer.write(said)
    return await asyncio.wait_for(reader.readuntil(b"answered"), 5)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(connections, "STALLED_SECONDS", SLOW)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", ASK[:-2], ASK[:-2] + b"X: 1"])
def test_a_request_that_does_not_come_is_not_waited_for(begun):
    async def tried():
        async with door() as enter:
            reader, writer = await enter()
            writer.write(begun)
            return await heard(reader)

    assert asyncio.run(tried()) == b""


def test_nor_is_the_next_one_of_a_connection():
    async def tried():
        async with door() as enter:
            reader, writer = await enter()
            await asked(reader, writer)
            writer.write(b"GET / HT")  # from here on uvicorn's own patience is over
            return await heard(reader)

    assert asyncio.run(tried()) == b""


def test_an_answer_may_take_long_and_be_followed_by_others():
    async def tried():
        async with door() as enter:
            reader, writer = await enter()
            await asked(reader, writer, ASK.replace(b" / ", b" /waits "))
            await asyncio.sleep(2 * SLOW)  # nothing is asked, for now
            return await asked(reader, writer)

    assert asyncio.run(tried()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "said",
    [
        ASK[:-2] + b"X: ",
        b"GET /",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
)
def test_a_head_without_end_is_not_read(said, monkeypatch):
    monkeypatch.setattr(connections, "STALLED_SECONDS", 60.0)

    async def tried():
        async with door() as enter:
            reader, writer = await enter()
            writer.write(said)
            with contextlib.suppress(ConnectionError):
                for _ in range(2 * MOST_HEAD_BYTES // 1024):
                    writer.write(b"a" * 1024)
                    await writer.drain()
            return await heard(reader)

    said_then = asyncio.run(tried())
    assert said_then is not None
    assert b"answered" not in said_then


def test_a_long_body_is_read():
    body = b"b" * (8 * MOST_HEAD_BYTES)
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def tried():
        async with door() as enter:
            return await asked(*await enter(), head + body)

    assert asyncio.run(tried()).endswith(b"answered")


def test_an_address_holds_so_many_connections_and_no_more(monkeypatch):
    monkeypatch.setattr(connections, "STALLED_SECONDS", 60.0)

    async def tried():
        async with door(most=2) as enter:
            first, second = await enter(), await enter()
            assert b"answered" in await asked(*first)
            assert b"answered" in await asked(*second)
            third = await enter()
            assert await heard(third[0]) == b""
            first[1].close()
            await first[1].wait_closed()
            for _ in range(100):  # until the server has noticed
                again = await enter()
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    return await asked(*again)
                await asyncio.sleep(0.02)
            return b""

    assert b"answered" in asyncio.run(tried())


@pytest.mark.parametrize(
    ("listening", "most"),
    [
        (Listening(), connections.MOST_OF_AN_ADDRESS),
        (Listening(self_signed=True, host="0.0.0.0"), connections.MOST_OF_AN_ADDRESS),
        (Listening(plain=True, host="0.0.0.0"), None),
        (Listening(proxy="127.0.0.1"), None),
    ],
)
def test_a_proxy_in_front_is_not_counted_as_one_address(listening, most, monkeypatch):
    from privet.federation.server import running

    monkeypatch.setattr(running, "application", lambda _: answers)
    config = running._config(None, listening, None, None)
    assert config.http.door._most == most
