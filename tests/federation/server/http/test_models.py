"""What a phone is told of a model, and how it gets it."""

import base64
import hashlib
import json
import threading
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privet.errors import FaultyEnvironment
from privet.federation import wire
from privet.federation.wire import Reason


def get(phone, path, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return phone.client.get(path, headers=phone.headers | named)


def test_a_place_in_a_round(phone):
    answer = wire.Accepted.model_validate(phone.ready().json())
    assert answer.base_version == 0
    assert answer.get_url == "/v1/models/har/versions/0"
    assert answer.resumable
    assert answer.work.epochs > 0
    assert 0 < answer.seconds_left <= 60


def test_to_ask_again_gives_the_same_ticket(phone):
    assert phone.ready().json()["ticket"] == phone.ready().json()["ticket"]


def test_no_place_and_why(phone, started):
    started.hosts["har"].no = Reason.SPENT
    answer = phone.ready()
    assert answer.status_code == 200
    assert answer.json() == {"v": 1, "status": "DFT", "reason": Reason.SPENT, "retry_after": 7.0}


@pytest.mark.parametrize("model", ["mood", "nothing"])
def test_a_model_that_the_app_does_not_have_is_as_one_that_is_not_there(phone, model):
    """Else a phone could find out what other developers train."""
    denied = phone.ready(model).json()
    assert (denied["status"], denied["reason"]) == ("DFT", Reason.UNSUBSCRIBED)
    answers = [get(phone, f"/v1/models/{model}/{what}") for what in ("manifest", "versions/0")]
    answers.append(get(phone, f"/v1/models/{model}/news?after=0&wait=0"))
    assert [answer.status_code for answer in answers] == [404] * 3
    assert len({answer.text for answer in answers}) == 1
    assert model not in answers[0].text


def test_a_manifest_is_signed_by_the_key_that_the_server_shows(phone):
    shown = phone.client.get("/v1/server").json()["public_key"]
    said = wire.SignedManifest.model_validate(get(phone, "/v1/models/har/manifest").json())
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(shown))
    signature = base64.b64decode(said.signature)
    key.verify(signature, said.manifest.signed_text())
    with pytest.raises(InvalidSignature):
        key.verify(signature, said.manifest.model_copy(update={"version": 1}).signed_text())
    content = get(phone, "/v1/models/har/versions/0").content
    assert hashlib.sha256(content).hexdigest() == said.manifest.sha256


def test_versions_have_a_tag_and_parts(phone):
    whole = get(phone, "/v1/models/har/versions/0")
    tag, content = whole.headers["ETag"], whole.content
    assert get(phone, "/v1/models/har/versions/0", if_none_match=tag).status_code == 304
    assert get(phone, "/v1/models/har/versions/0", if_none_match='"x"').status_code == 200
    size = len(content)
    for span, first, last in (
        ("bytes=0-9", 0, 9),
        ("bytes=7-7", 7, 7),
        ("bytes=100-", 100, size - 1),
        ("bytes=-7", size - 7, size - 1),
        (f"bytes=5-{size + 100}", 5, size - 1),
    ):
        part = get(phone, "/v1/models/har/versions/0", range=span)
        assert part.status_code == 206, span
        assert part.content == content[first : last + 1]
        assert part.headers["Content-Range"] == f"bytes {first}-{last}/{size}"
    beyond = get(phone, "/v1/models/har/versions/0", range=f"bytes={len(content)}-")
    assert beyond.status_code == 416
    assert beyond.headers["Content-Range"] == f"bytes */{len(content)}"
    for span in ("bytes=5-4", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=-"):
        assert get(phone, "/v1/models/har/versions/0", range=span).content == content
    other = get(phone, "/v1/models/har/versions/0", range="bytes=0-9", if_range='"other"')
    assert other.content == content


def test_a_large_version_goes_out_in_pieces(phone, started):
    content = bytes(range(256)) * 10_000  # 2.56 MB
    host = started.hosts["har"]
    started.store.put(host.weights_key(0), content)
    assert get(phone, "/v1/models/har/versions/0").content == content
    assert get(phone, "/v1/models/har/versions/0", range="bytes=3-").content == content[3:]


@pytest.mark.parametrize("version", ["1", "999", str(2**60)])
def test_a_version_that_is_not_there(phone, version):
    assert get(phone, f"/v1/models/har/versions/{version}").status_code in (404, 422)
    assert get(phone, f"/v1/models/har/manifest?version={version}").status_code in (404, 422)


def test_news_come_at_once_when_there_are_any(phone, started):
    started.hosts["har"]._publish(3)
    began = time.monotonic()
    answer = get(phone, "/v1/models/har/news?after=2&wait=20")
    assert answer.json() == {"v": 1, "version": 3}
    assert time.monotonic() - began < 5


def test_news_come_when_a_version_is_published(phone, started):
    timer = threading.Timer(0.3, started.hosts["har"]._publish, [1])
    timer.start()
    began = time.monotonic()
    answer = get(phone, "/v1/models/har/news?after=0&wait=20")
    timer.join()
    assert answer.json()["version"] == 1
    assert 0.2 < time.monotonic() - began < 10


def test_no_news_after_the_wait(phone):
    began = time.monotonic()
    assert get(phone, "/v1/models/har/news?after=0&wait=0.2").json()["version"] == 0
    assert 0.15 < time.monotonic() - began < 5
    assert get(phone, "/v1/models/har/news?after=0&wait=500").status_code == 422


def test_a_report_reaches_the_model(phone, started):
    message = {"version": 0, "tried": 20, "right": 11, "sent": time.time(), "nonce": "n" * 20}
    first = phone.client.post("/v1/models/har/reports", json=message, headers=phone.headers)
    again = phone.client.post("/v1/models/har/reports", json=message, headers=phone.headers)
    assert (first.status_code, again.status_code) == (204, 409)
    assert started.hosts["har"].reports == [(phone.device, 0, 20, 11)]


@pytest.mark.parametrize("extra", [{"records": 650}, {"classes": ["walking"]}])
def test_a_message_with_unknown_fields_is_refused(phone, extra):
    """No message has room for how many records a phone has, or of what."""
    answer = phone.ready(**extra)
    assert answer.status_code == 422
    said = answer.json()
    assert said["error"] == "bad-message"
    assert "650" not in json.dumps(said)
    assert "walking" not in json.dumps(said)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"sha256": NaN}', b"\xff\xfe", b'{"sha256": "%s"}' % (b"G" * 64)],
)
def test_what_is_no_message_is_refused(phone, body):
    answer = phone.client.post(
        f"/v1/tickets/{'t' * 20}/commit",
        content=body,
        headers=phone.headers | {"Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error", "what", "got", "expected", "fix"}


def test_a_fault_says_nothing_of_itself(phone, started, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("secret of the server")

    monkeypatch.setattr(started.hosts["har"], "ready", fail)
    answer = phone.ready()
    assert answer.status_code == 500
    assert answer.json()["error"] == "fault"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_a_model_that_cannot_be_served_now_is_asked_again_later(phone, started, monkeypatch):
    def fail(*_, **__):
        raise FaultyEnvironment("the disk is full", got="/secret/place")

    monkeypatch.setattr(started.hosts["har"], "ready", fail)
    answer = phone.ready()
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert "secret" not in answer.text


def test_an_unknown_path_and_a_wrong_method(phone):
    missing, wrong = phone.client.get("/v2/nothing"), phone.client.delete("/v1/offers")
    assert (missing.status_code, missing.json()["error"]) == (404, "not-found")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "method-not-allowed")


def test_the_api_describes_itself_and_loads_nothing_from_elsewhere(started):
    described = started.client.get("/openapi.json").json()
    assert "/v1/models/{model}/ready" in described["paths"]
    assert {"Ready", "Accepted", "Denied", "Outcome"} <= set(described["components"]["schemas"])
    assert started.client.get("/docs").status_code == 404


def test_nothing_secret_is_logged(phone, started, caplog):
    caplog.set_level("DEBUG")
    accepted = phone.ready().json()
    phone.client.put(accepted["put_url"], content=b"an update")
    phone.commit(accepted["ticket"], b"another")
    phone.client.get("/v1/offers", headers={"Authorization": "Bearer guessed-token"})
    phone.enter()
    signature = accepted["put_url"].rpartition("=")[2]
    logged = "\n".join(
        r.getMessage() for r in caplog.records if r.name.startswith(("privet", "uvicorn"))
    )
    assert phone.device in logged
    for secret in (phone.token, started.app_key, started.service.keys.admin, signature):
        assert secret not in logged
    assert "guessed-token" not in logged
