"""Updates arrive whole, in parts, or not at all; and nowhere but where they belong."""

import asyncio
import base64
import hashlib
import re
from concurrent.futures import Future

import pytest
from starlette.requests import ClientDisconnect

from privet.federation.server.errors import Refused
from privet.federation.server.host import Decision
from privet.federation.server.store.folder import FolderStore
from privet.federation.server.uploads import PIECE_BYTES, Part, Uploads
from privet.federation.wire import Reason

CONTENT = bytes(range(256)) * 8


@pytest.fixture
def accepted(phone):
    return phone.ready().json()


def put(phone, accepted, content, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return phone.client.put(accepted["put_url"], content=content, headers=named)


def offset(phone, accepted):
    answer = phone.client.head(accepted["put_url"])
    assert answer.status_code == 204
    return int(answer.headers["Upload-Offset"])


def test_an_update_that_was_put_is_committed(phone, accepted, started):
    assert offset(phone, accepted) == 0
    answer = put(phone, accepted, CONTENT)
    assert answer.status_code == 204
    assert answer.headers["Upload-Offset"] == str(len(CONTENT))
    assert phone.commit(accepted["ticket"], CONTENT).json() == {
        "v": 1,
        "accepted": True,
        "reason": None,
    }
    key = f"updates/har/1/{accepted['ticket']}"
    assert started.store.get(key) == CONTENT


def test_an_update_with_a_wrong_digest_does_not_count_but_may_be_sent_again(phone, accepted):
    put(phone, accepted, CONTENT[:-1])
    assert phone.commit(accepted["ticket"], CONTENT).json()["accepted"] is False
    assert put(phone, accepted, CONTENT).status_code == 204
    assert phone.commit(accepted["ticket"], CONTENT).json()["accepted"] is True


def test_nothing_is_put_after_the_decision(phone, accepted, started):
    put(phone, accepted, CONTENT)
    phone.commit(accepted["ticket"], CONTENT)
    answer = put(phone, accepted, b"another")
    assert (answer.status_code, answer.json()["error"]) == (409, "decided")
    assert started.store.get(f"updates/har/1/{accepted['ticket']}") == CONTENT


def test_uploads_that_nothing_waits_for_are_tidied_up(phone, accepted, started, make_phone):
    put(phone, accepted, CONTENT)
    other = make_phone().enter()
    waiting = other.ready().json()
    put(other, waiting, CONTENT[:100])
    phone.commit(accepted["ticket"], CONTENT)
    started.store.put("updates/har/1/" + "u" * 22, b"of a ticket that nobody knows")
    started.service.tidy()
    assert list(started.store.list("updates/")) == [f"updates/har/1/{waiting['ticket']}"]


def test_an_update_in_parts(phone, accepted):
    total = len(CONTENT)
    assert (
        put(phone, accepted, CONTENT[:500], content_range=f"bytes 0-499/{total}").headers[
            "Upload-Offset"
        ]
        == "500"
    )
    assert offset(phone, accepted) == 500
    wrong = put(phone, accepted, CONTENT[600:], content_range=f"bytes 600-{total - 1}/{total}")
    assert wrong.status_code == 409
    assert wrong.headers["Upload-Offset"] == "500"
    assert wrong.json()["error"] == "wrong-offset"
    rest = put(phone, accepted, CONTENT[500:], content_range=f"bytes 500-{total - 1}/{total}")
    assert rest.status_code == 204
    assert phone.commit(accepted["ticket"], CONTENT).json()["accepted"] is True


def test_an_upload_may_begin_again(phone, accepted, started):
    put(phone, accepted, b"x" * 1000)
    put(phone, accepted, CONTENT[:100])
    assert started.store.get(f"updates/har/1/{accepted['ticket']}") == CONTENT[:100]


@pytest.mark.parametrize("announced", [True, False])
def test_an_update_that_is_too_long_is_refused_and_not_kept(phone, accepted, announced):
    content = b"x" * (accepted["most_bytes"] + 1)
    body = content if announced else iter([content[:1000], content[1000:]])
    answer = put(phone, accepted, body)
    assert answer.status_code == 413
    assert answer.json()["error"] == "too-large"
    assert offset(phone, accepted) == 0


def test_an_update_without_a_length_is_taken(phone, accepted):
    assert put(phone, accepted, iter([CONTENT[:1000], CONTENT[1000:]])).status_code == 204
    assert phone.commit(accepted["ticket"], CONTENT).json()["accepted"] is True


def test_a_part_that_is_longer_than_it_says_is_refused(phone, accepted):
    answer = put(phone, accepted, CONTENT, content_range="bytes 0-99/200")
    assert answer.status_code == 413


def test_a_total_above_the_limit_is_refused_at_the_first_part(phone, accepted):
    most = accepted["most_bytes"]
    answer = put(phone, accepted, b"x", content_range=f"bytes 0-0/{most + 1}")
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "span",
    ["bytes 5-4/10", "bytes 0-10/10", "bytes */10", "0-9/10", "bytes 0-9/*", "bytes -1-9/10"],
)
def test_a_range_that_makes_no_sense_is_refused(phone, accepted, span):
    answer = put(phone, accepted, b"x", content_range=span)
    assert answer.status_code == 400
    assert answer.json()["error"] == "bad-range"


def digest_of(content):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def test_a_digest_is_checked_over_all_parts(phone, accepted):
    total, digest = len(CONTENT), digest_of(CONTENT)
    first = {"content_range": f"bytes 0-499/{total}", "repr_digest": digest}
    rest = {"content_range": f"bytes 500-{total - 1}/{total}", "repr_digest": digest}
    assert put(phone, accepted, CONTENT[:500], **first).status_code == 204
    assert put(phone, accepted, CONTENT[500:], **rest).status_code == 204
    assert put(phone, accepted, b"y" + CONTENT[1:500], **first).status_code == 204
    wrong = put(phone, accepted, CONTENT[500:], **rest)
    assert (wrong.status_code, wrong.json()["error"]) == (400, "wrong-digest")
    assert offset(phone, accepted) == 0


@pytest.mark.parametrize("digest", ["md5=:AAAA:", "sha-256=abc", "", "sha-256=:" + "=" * 44 + ":"])
def test_a_digest_of_another_kind_is_refused(phone, accepted, digest):
    answer = put(phone, accepted, CONTENT, repr_digest=digest)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("found", "swapped"),
    [
        (r"signature=\w", "signature=!"),
        (r"most=\d+", "most=999999999"),
        (r"expires=\d+", "expires=9999999999"),
        (r"updates/har/1/", "updates/har/2/"),
        (r"updates/har/", "updates/mood/"),
    ],
)
def test_a_url_that_was_changed_is_refused(phone, accepted, found, swapped):
    url, changed = re.subn(found, swapped, accepted["put_url"])
    assert changed == 1
    for answer in (phone.client.put(url, content=b"x"), phone.client.head(url)):
        assert answer.status_code == 403


def test_another_tickets_url_is_refused(phone, accepted, make_phone):
    other = make_phone().enter().ready().json()
    url = accepted["put_url"].replace(accepted["ticket"], other["ticket"])
    assert phone.client.put(url, content=b"x").status_code == 403


def test_a_url_is_over_in_time(started):
    url = started.service.keys.upload_url("updates/har/1/" + "t" * 20, seconds=-5, most_bytes=10)
    answer = started.client.put(url, content=b"x")
    assert (answer.status_code, answer.json()["error"]) == (403, "url-expired")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/uploads/updates/har/1/../../../keys/admin.key",
        "/v1/uploads/updates/har/1/%2e%2e%2f%2e%2e%2fkeys",
        "/v1/uploads/updates/..%2f..%2fkeys/1/tttttttttttttttttttt",
        "/v1/uploads/updates/har/-1/tttttttttttttttttttt",
        "/v1/uploads/../keys/admin.key",
        "/v1/uploads/updates/%2fetc/1/tttttttttttttttttttt",
        "/v1/uploads/updates/har/1/ttttttttttttttttttt%00",
    ],
)
def test_a_path_cannot_lead_out_of_the_store(phone, started, path):
    def files():
        return {p: p.read_bytes() for p in (started.home / "keys").iterdir()}

    before = files()
    answer = phone.client.put(f"{path}?expires=9999999999&most=100&signature=x", content=b"evil")
    assert answer.status_code in (403, 404, 422)
    assert files() == before
    assert not any(p.is_file() and b"evil" in p.read_bytes() for p in started.home.rglob("*"))


def test_another_devices_ticket_is_of_no_use(phone, accepted, make_phone, started):
    put(phone, accepted, CONTENT)
    other = make_phone().enter()
    answer = other.commit(accepted["ticket"], CONTENT)
    assert answer.json() == {"v": 1, "accepted": False, "reason": "no such ticket"}
    assert phone.commit(accepted["ticket"], CONTENT).json()["accepted"] is True


def test_a_ticket_that_was_never_given_is_unknown(phone):
    answer = phone.commit("t" * 22, CONTENT)
    assert answer.json() == {"v": 1, "accepted": False, "reason": "no such ticket"}


# -- connections that break, where no client of a test can make them ---------------------------


async def pieces(*content, then=None):
    for piece in content:
        yield piece
    if then is not None:
        raise then


def take(uploads, part, body, most=1 << 20):
    return asyncio.run(uploads.take("updates/m/1/t", part, body, most_bytes=most))


@pytest.fixture
def uploads(tmp_path):
    return Uploads(FolderStore(tmp_path))


def test_what_came_before_the_connection_broke_is_kept(uploads, tmp_path):
    part = Part(first=0, last=2047, total=2048)
    with pytest.raises(Refused, match="broke"):
        take(uploads, part, pieces(CONTENT[:700], CONTENT[700:900], then=ClientDisconnect()))
    assert uploads.offset("updates/m/1/t") == 900
    again = Uploads(FolderStore(tmp_path))  # also by a server that was killed meanwhile
    rest = Part(first=900, last=2047, total=2048)
    assert take(again, rest, pieces(CONTENT[900:])) == 2048
    assert FolderStore(tmp_path).get("updates/m/1/t") == CONTENT


def test_a_phone_that_says_nothing_is_not_waited_for(uploads, monkeypatch):
    monkeypatch.setattr("privet.federation.server.uploads.STALLED_SECONDS", 0.05)

    async def stalled():
        yield CONTENT[:100]
        await asyncio.sleep(30)

    with pytest.raises(Refused, match="broke"):
        take(uploads, Part(first=0, last=2047, total=2048), stalled())
    assert uploads.offset("updates/m/1/t") == 100


def test_a_newer_request_ends_an_older_one(uploads):
    """A phone that comes back has lost its first connection, which the server cannot know."""

    async def both():
        held, go = asyncio.Event(), asyncio.Event()

        async def old():
            yield b"o" * PIECE_BYTES
            held.set()
            await go.wait()
            yield b"o" * PIECE_BYTES

        whole = Part(first=0, last=2 * PIECE_BYTES - 1, total=2 * PIECE_BYTES)
        first = asyncio.create_task(uploads.take("updates/m/1/t", whole, old(), most_bytes=1 << 20))
        await held.wait()
        new = Part(first=0, last=9, total=10)
        await uploads.take("updates/m/1/t", new, pieces(b"n" * 10), most_bytes=1 << 20)
        go.set()
        with pytest.raises(Refused, match="newer"):
            await first

    asyncio.run(both())
    assert uploads.offset("updates/m/1/t") == 10


def test_an_update_is_never_in_memory_as_a_whole(uploads, monkeypatch):
    longest = []
    append = uploads._store.append

    def watched(key, offset, content):
        longest.append(len(content))
        return append(key, offset, content)

    monkeypatch.setattr(uploads._store, "append", watched)
    size = 20 * PIECE_BYTES
    body = pieces(*[b"x" * 10_000] * (size // 10_000))
    take(uploads, Part(), body, most=size)
    assert max(longest) < PIECE_BYTES + 10_000
    assert sum(longest) == size // 10_000 * 10_000


def test_what_came_while_the_model_was_stopped_may_be_sent_again(phone, started, monkeypatch):
    """Nothing was decided of it: see `taking.UNDECIDED`."""
    said, content = phone.ready().json(), b"x" * 100
    assert phone.client.put(said["put_url"], content=content).status_code == 204
    closed = Future()
    closed.set_result(Decision(accepted=False, reason=Reason.CLOSED))
    monkeypatch.setattr(started.hosts["har"], "commit", lambda *_: closed)
    assert phone.commit(said["ticket"], content).json()["reason"] == Reason.CLOSED
    monkeypatch.undo()
    assert phone.client.put(said["put_url"], content=content).status_code == 204
    assert phone.commit(said["ticket"], content).json()["accepted"] is True
