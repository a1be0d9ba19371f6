"""Who is let in, and what does not help to be let in."""

import base64
import hmac
import json
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privet.federation.server.identity import ALGORITHM, AUDIENCE, TOKEN_SECONDS


def refused(answer, status, error):
    assert answer.status_code == status, answer.text
    said = answer.json()
    assert set(said) == {"error", "what", "got", "expected", "fix"}
    assert said["error"] == error
    return said


def offers(phone, token):
    return phone.client.get("/v1/offers", headers={"Authorization": f"Bearer {token}"})


def forged(started, *, secret=None, algorithm=ALGORITHM, **changes):
    """By hand: a library would refuse to make most of these."""
    claims = {"sub": "d-1", "aud": AUDIENCE, "exp": time.time() + 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    said = f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims)}"
    key = started.service.keys.token if secret is None else secret
    digest = "sha512" if algorithm == "HS512" else "sha256"
    signature = b"" if algorithm == "none" else hmac.digest(key, said.encode(), digest)
    return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def part(said):
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


def test_a_token_made_by_hand_with_the_servers_secret_is_good(phone, started):
    """Else the refusals below would show nothing."""
    assert offers(phone, forged(started, sub=phone.device)).status_code == 200


def test_a_phone_that_signs_is_let_in(phone, started):
    answer = offers(phone, phone.token)
    assert answer.status_code == 200
    assert [offer["model"] for offer in answer.json()["offers"]] == ["har"]
    assert started.state.device(phone.device).public_key == phone.public_key


def test_a_wrong_key_of_an_app_is_refused(make_phone):
    phone = make_phone("x" * 43)
    answer = phone.client.post("/v1/devices", json=phone.signed(phone.register_message()))
    said = refused(answer, 401, "app-unknown")
    assert "x" * 10 not in str(said)


def test_the_key_of_an_app_is_kept_as_a_digest_alone(started):
    everything = b"".join(p.read_bytes() for p in started.home.rglob("*") if p.is_file())
    assert started.app_key.encode() not in everything
    assert b"diary" in everything


def test_a_signature_by_another_key_is_refused(make_phone):
    phone = make_phone()
    message = phone.signed(phone.register_message(), Ed25519PrivateKey.generate())
    refused(phone.client.post("/v1/devices", json=message), 401, "bad-signature")


@pytest.mark.parametrize("field", ["phone", "system", "nonce", "sent", "public_key"])
def test_what_is_changed_after_it_was_signed_is_refused(make_phone, field):
    phone, other = make_phone(), make_phone()
    message = phone.signed(phone.register_message())
    changed = {
        "phone": "Pixel 4",
        "system": "android-11",
        "nonce": "n" * 20,
        "sent": message["sent"] + 1,
        "public_key": other.public_key,
    }
    answer = phone.client.post("/v1/devices", json=message | {field: changed[field]})
    refused(answer, 401, "bad-signature")


def test_a_registration_that_is_replayed_is_refused(make_phone):
    phone = make_phone()
    message = phone.signed(phone.register_message())
    assert phone.client.post("/v1/devices", json=message).status_code == 200
    refused(phone.client.post("/v1/devices", json=message), 409, "replayed")


def test_a_replay_is_refused_by_a_server_that_was_started_again(make_phone, started, make_server):
    from fastapi.testclient import TestClient

    from privet.federation.server.routes import application

    phone = make_phone()
    message = phone.signed(phone.register_message())
    assert phone.client.post("/v1/devices", json=message).status_code == 200
    with TestClient(application(make_server().service)) as again:
        refused(again.post("/v1/devices", json=message), 409, "replayed")


def test_who_registers_twice_keeps_the_name(phone):
    first = phone.device
    assert phone.enter().device == first


def test_a_second_app_adds_its_models(phone, started):
    key = started.client.post(
        "/v1/admin/apps", json={"name": "music", "models": ["mood"]}, headers=started.admin
    ).json()["key"]
    assert phone.ready("mood").json()["status"] == "DFT"
    phone.app_key = key
    device = phone.device
    assert phone.enter().device == device
    assert phone.ready("mood").json()["status"] == "AFT"


def test_a_token_message_that_is_replayed_is_refused(phone):
    message = phone.signed(phone.token_message())
    assert phone.client.post("/v1/tokens", json=message).status_code == 200
    refused(phone.client.post("/v1/tokens", json=message), 409, "replayed")


@pytest.mark.parametrize("off", [-301, 301])
def test_a_clock_that_is_off_is_refused(phone, make_phone, off):
    message = phone.signed(phone.token_message(sent=time.time() + off))
    refused(phone.client.post("/v1/tokens", json=message), 401, "stale-clock")
    new = make_phone()
    message = new.signed(new.register_message(sent=time.time() + off))
    refused(new.client.post("/v1/devices", json=message), 401, "stale-clock")


def test_a_nonce_is_remembered_as_long_as_its_message_is_believed(phone, clock, started):
    message = phone.signed(phone.token_message(sent=time.time() + 290))
    assert phone.client.post("/v1/tokens", json=message).status_code == 200
    clock.ahead = 580.0  # still believed: 290 seconds old
    started.service.identity.forget_nonces()
    refused(phone.client.post("/v1/tokens", json=message), 409, "replayed")


def test_another_devices_name_does_not_help(phone, make_phone):
    other = make_phone().enter()
    other.device = phone.device
    answer = other.client.post("/v1/tokens", json=other.signed(other.token_message()))
    refused(answer, 401, "bad-signature")


def test_a_token_is_over_in_time(phone, clock):
    assert offers(phone, phone.token).status_code == 200
    clock.ahead = TOKEN_SECONDS + 1
    refused(offers(phone, phone.token), 401, "token-expired")
    clock.ahead = 0
    phone.renew()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"secret": b"x" * 32}, "token-invalid"),
        ({"algorithm": "none"}, "token-invalid"),
        ({"algorithm": "HS512"}, "token-invalid"),
        ({"aud": "somebody"}, "token-invalid"),
        ({"exp": None}, "token-invalid"),
        ({"aud": None}, "token-invalid"),
        ({"sub": None}, "token-invalid"),
        ({"exp": "soon"}, "token-invalid"),
        ({"sub": "d-nobody"}, "device-unknown"),
    ],
)
def test_a_forged_token_is_refused(phone, started, changes, error):
    token = forged(started, **{"sub": phone.device} | changes)
    refused(offers(phone, token), 401, error)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "é"])
def test_what_is_no_token_is_refused(phone, token):
    answer = phone.client.get(
        "/v1/offers", headers={"Authorization": f"Bearer {token}".encode("latin-1")}
    )
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/json"


def test_no_token_at_all_is_refused(phone):
    refused(phone.client.get("/v1/offers"), 401, "no-access")


def test_a_changed_token_is_refused(phone):
    head, body, signature = phone.token.split(".")
    swapped = "B" if signature[0] != "B" else "C"
    refused(offers(phone, f"{head}.{body}.{swapped}{signature[1:]}"), 401, "token-invalid")


def test_a_blocked_device_is_out_at_once_and_for_good(phone, started):
    block = f"/v1/admin/devices/{phone.device}/block"
    assert started.client.post(block, json={}, headers=started.admin).status_code == 200
    refused(offers(phone, phone.token), 403, "device-blocked")
    answer = phone.client.post("/v1/tokens", json=phone.signed(phone.token_message()))
    refused(answer, 403, "device-blocked")
    answer = phone.client.post("/v1/devices", json=phone.signed(phone.register_message()))
    refused(answer, 403, "device-blocked")
    assert (
        started.client.post(block, json={"blocked": False}, headers=started.admin).status_code
        == 200
    )
    assert offers(phone, phone.token).status_code == 200


def test_who_is_blocked_while_a_token_is_looked_at_is_out(phone, started, monkeypatch):
    """What was read before it must not be believed after it."""
    token, identity = forged(started, sub=phone.device), started.service.identity
    models_of = started.state.models_of

    def blocked_meanwhile(device):
        monkeypatch.undo()
        identity.block(device, blocked=True)
        return models_of(device)

    monkeypatch.setattr(started.state, "models_of", blocked_meanwhile)
    assert offers(phone, token).status_code == 200  # it was asked before
    refused(offers(phone, token), 403, "device-blocked")


def test_a_ready_that_was_heard_is_of_no_use(phone):
    nonce = "n" * 20
    assert phone.ready(nonce=nonce).status_code == 200
    refused(phone.ready(nonce=nonce), 409, "replayed")
    refused(phone.ready(sent=time.time() - 400), 401, "stale-clock")


def test_a_key_has_one_spelling(phone, started):
    """The last character but one of base64 has bits that mean nothing: no key is two devices."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    place = letters.index(phone.public_key[-2])
    for other in {letters[place ^ 1], letters[place ^ 2]}:
        spelt = f"{phone.public_key[:-2]}{other}="
        assert base64.b64decode(spelt, validate=True) == base64.b64decode(phone.public_key)
        message = phone.signed(phone.register_message(public_key=spelt))
        refused(phone.client.post("/v1/devices", json=message), 401, "bad-signature")


def test_a_device_that_is_blocked_while_it_asks_is_not_remembered_as_admitted(
    phone, started, monkeypatch
):
    identity, read = started.service.identity, started.state.device

    def blocked_meanwhile(name):
        found = read(name)
        monkeypatch.undo()
        identity.block(name, blocked=True)
        return found

    monkeypatch.setattr(started.state, "device", blocked_meanwhile)
    offers(phone, phone.token)
    refused(offers(phone, phone.token), 403, "device-blocked")
