"""The line to a server: whom a phone believes, what it shows to whom, how long it waits."""

import json
import ssl

import httpx
import pytest

from privet.errors import CheckFailed, FaultyEnvironment, InputError
from privet.federation import wire
from privet.federation.phone import line as module
from privet.federation.phone.line import Declined, Line, Unreachable, wait_of
from privet.federation.phone.talking import Server
from privet.federation.phone.trusting import own_key

from .conftest import APP_KEY


def line_to(answer):
    return Line("https://server.test", transport=httpx.MockTransport(answer))


def ask(line):
    return line.ask("GET", "v1/server", wire.AboutServer.model_validate_json)


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "http://10.0.0.1:80", "ftp://localhost", "localhost:80", "https://"],
)
def test_only_this_machine_is_spoken_to_without_encryption(url):
    with pytest.raises(InputError):
        Line(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8", "http://localhost", "https://example.org"])
def test_addresses_that_will_do(url):
    Line(url).close()


def test_certificates_are_looked_at(monkeypatch):
    seen = []
    monkeypatch.setattr(module.httpx, "Client", lambda **options: seen.append(options["verify"]))
    Line("https://example.org")
    assert seen[0].verify_mode is ssl.CERT_REQUIRED
    assert seen[0].check_hostname


def test_a_file_that_is_no_certificate_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(InputError, match="no certificate"):
        Line("https://example.org", ca=tmp_path / "ca.pem")


def test_a_certificate_that_nobody_signed_is_the_environments_fault():
    def fails(_):
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    with pytest.raises(FaultyEnvironment, match="--ca FILE"):
        ask(line_to(fails))


@pytest.mark.parametrize(
    ("response", "seconds"),
    [
        (httpx.Response(429, headers={"Retry-After": "12"}), 12.0),
        (httpx.Response(503, headers={"Retry-After": "soon"}), 0.0),
        (httpx.Response(500), 0.0),
        (httpx.Response(503, headers={"Retry-After": "1e9"}), 3600.0),
        (httpx.Response(200, content=b"not what was agreed"), 0.0),
        (httpx.Response(200, content=b'{"server": "s", "public_key": "k", "more": 1}'), 0.0),
        (httpx.Response(200, content=b" " * (2**20 + 1)), 0.0),
    ],
)
def test_later(response, seconds):
    with pytest.raises(Unreachable) as caught:
        ask(line_to(lambda _: response))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(403, json={"error": "url-expired", "what": "the URL is over"}),
        httpx.Response(404, content=b"<html>"),
        httpx.Response(302, headers={"Location": "https://elsewhere.test"}),
    ],
)
def test_no(response):
    with pytest.raises(Declined) as caught:
        ask(line_to(lambda _: response))
    assert caught.value.status == response.status_code


def test_waits_double_and_never_undercut_the_server():
    assert [wait_of(tries, 0.0, 1.0) for tries in (0, 1, 2, 3, 60)] == [1, 2, 4, 8, 120]
    assert wait_of(0, 0.0, 0.0) == 0.5
    assert wait_of(0, 30.0, 0.0) == 30.0
    assert wait_of(0, 30.0, 1.0) > 30.0


def enter(server, folder, app_key=APP_KEY):
    line = Line("https://server.test", transport=server.transport())
    return Server.entered(line, folder, app_key=app_key, phone="p", system="s")


def test_a_phone_registers_once(server, tmp_path):
    first, second = enter(server, tmp_path), enter(server, tmp_path)
    assert first.me == second.me
    assert server.requests["POST /v1/devices"] == 1
    kept = json.loads(next(tmp_path.glob("app-*.json")).read_text())
    assert APP_KEY not in kept.values()


def test_two_apps_are_two_devices_with_one_key(server, tmp_path, monkeypatch):
    from . import conftest as there

    enter(server, tmp_path)
    monkeypatch.setattr(there, "APP_KEY", "another-app-key-of-length")
    enter(server, tmp_path, "another-app-key-of-length")
    assert len(server.devices) == 2
    assert len(set(server.devices.values())) == 1


def test_a_phone_does_not_change_its_server(server, tmp_path):
    enter(server, tmp_path)
    line = Line("https://other.test", transport=server.transport())
    with pytest.raises(InputError, match="another server"):
        Server.entered(line, tmp_path, app_key=APP_KEY, phone="p", system="s")


def test_a_wrong_app_key_is_declined(server, tmp_path):
    with pytest.raises(Declined, match="no app"):
        enter(server, tmp_path, "a-wrong-app-key-of-length")


def test_the_key_stays_the_owners(tmp_path):
    key = own_key(tmp_path / "key")
    assert own_key(tmp_path / "key").private_bytes_raw() == key.private_bytes_raw()
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(InputError, match="cannot be read"):
        own_key(tmp_path / "key")


def test_a_token_is_shown_to_its_own_server_alone(server, tmp_path):
    """Where updates go to a store, its presigned URL must not see who the phone is."""
    seen = {}

    def handle(request):
        seen[request.url.host] = request.headers.get("Authorization")
        if request.url.host == "store.test":
            return httpx.Response(200, headers={wire.OFFSET_HEADER: "0"})
        return server.handle(request)

    line = Line("https://server.test", transport=httpx.MockTransport(handle))
    phone = Server.entered(line, tmp_path, app_key=APP_KEY, phone="p", system="s")
    phone.offers()
    phone.arrived("https://store.test/bucket/update?signed")
    phone.put("https://store.test/bucket/update?signed", b"x", first=0, total=1)
    assert seen["server.test"].startswith("Bearer token-")
    assert seen["store.test"] is None


def test_tokens_are_renewed_before_they_end(server, tmp_path):
    phone = enter(server, tmp_path)
    now = [1e9]
    phone = Server(phone.line, phone.me, own_key(tmp_path / "key"), wall=lambda: now[0])
    for moment in (0.0, 569.0, 571.0):
        now[0] = 1e9 + moment
        phone.offers()
    assert server.requests["POST /v1/tokens"] == 2


def test_more_weights_than_the_model_has_are_not_taken(server, tmp_path):
    phone = enter(server, tmp_path)
    server.broken = lambda content: content + b"\0" * 5000
    with pytest.raises(Unreachable, match="more weights"):
        phone.fetch("m", 0, "v1/models/m/versions/0", tmp_path / "w", weights=15)


def test_a_manifest_of_another_version_is_refused(server, tmp_path):
    phone = enter(server, tmp_path)
    server.weights["m"][1] = server.weights["m"][0] + 1
    told = server._manifest

    def another(request, model, version):
        return told(httpx.Request("GET", "https://server.test/?version=1"), model, version)

    server._manifest = another
    with pytest.raises(CheckFailed, match="something else"):
        phone.fetch("m", 0, "v1/models/m/versions/0", tmp_path / "w", weights=15)


def test_a_store_without_encryption_is_not_sent_anything(server, tmp_path):
    """The server says where an update goes; what it says must not lead through the open."""
    phone, sent = enter(server, tmp_path), []

    def handle(request):
        sent.append(str(request.url))
        return httpx.Response(200, headers={wire.OFFSET_HEADER: "0"})

    line = Line("https://server.test", transport=httpx.MockTransport(handle))
    phone = Server(line, phone.me, own_key(tmp_path / "key"))
    update = tmp_path / "update"
    update.write_bytes(b"secret")
    for url in ("http://store.test/update?signed", "http://10.0.0.7:9000/x", "HTTP://store.test/x"):
        with pytest.raises(Declined, match="without encryption"):
            phone.put_whole(url, update)
    assert sent == []
    there = ["http://127.0.0.1:9000/bucket/update?signed", "https://store.test/update?signed"]
    for url in there:
        phone.put_whole(url, update)
    assert sent == there


def test_a_manifest_of_another_model_is_refused(server, tmp_path):
    """Signed by the server, of the same version and size: still not what was asked for."""
    phone, told = enter(server, tmp_path), server._manifest
    server.weights["other"] = dict(server.weights["m"])

    def of_another(request, _, version):
        return told(request, "other", version)

    server._manifest = of_another
    with pytest.raises(CheckFailed, match="something else"):
        phone.fetch("m", 0, "v1/models/m/versions/0", tmp_path / "w", weights=15)
    server._manifest = told
    phone.fetch("m", 0, "v1/models/m/versions/0", tmp_path / "w", weights=15)
