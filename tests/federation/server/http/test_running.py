"""The real server: a process of its own, on loopback, with TLS, killed and told to stop."""

import base64
import hashlib
import json
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).parents[3]))
from command_line import environment, run
from privet.errors import InputError
from privet.federation import wire
from privet.federation.server.certificate import self_signed
from privet.federation.server.home import Home
from privet.federation.server.running import GRACE_SECONDS, Listening
from privet.federation.server.updates import packed

PLAN = """
[model]
name = "har"
network = "linear"
shape = [4]
classes = ["no", "yes"]

[rounds]
rule = "flsys"
rounds = 5
seconds = 600.0
quorum = 1
"""


class Running:
    """`privet federate server` in a process."""

    def __init__(self, folder, home, *options):
        self.folder, self.home = folder, home
        self.log = (home / "server.log").open("ab")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "privet.cli",
                "federate",
                "server",
                folder,
                "--port",
                "0",
                *options,
            ],
            env=environment(home),
            stdout=self.log,
            stderr=self.log,
        )
        deadline = time.monotonic() + 120
        while not self.is_there():
            assert self.process.poll() is None, (home / "server.log").read_text()
            assert time.monotonic() < deadline, (home / "server.log").read_text()
            time.sleep(0.1)

    def is_there(self):
        file = self.folder / "running.json"
        if not file.exists() or json.loads(file.read_text())["process"] != self.process.pid:
            return False
        self.url = json.loads(file.read_text())["url"]
        return True

    def client(self):
        context = ssl.create_default_context(cafile=self.folder / "tls" / "certificate.pem")
        return httpx.Client(base_url=self.url, verify=context, trust_env=False, timeout=30)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(60)
        self.log.close()
        return code


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(*options):
        running.append(Running(tmp_path / "fleet", tmp_path, *options))
        return running[-1]

    yield begin
    for server in running:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """What an operator's command prints; in this process, as each process takes seconds."""
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path))

    def ask(*arguments):
        capsys.readouterr()
        code = run("federate", *arguments)
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out

    return ask


def entered(client, app_key):
    """A device's token."""
    key = Ed25519PrivateKey.generate()
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw

    def signed(message):
        signature = base64.b64encode(key.sign(message.signed_text())).decode()
        return message.model_copy(update={"signature": signature}).model_dump()

    common = {"sent": time.time(), "signature": "-"}
    register = wire.Register(
        app_key=app_key,
        public_key=base64.b64encode(key.public_key().public_bytes(*raw)).decode(),
        phone="Pixel 3",
        system="android-10",
        nonce=secrets.token_urlsafe(16),
        **common,
    )
    device = client.post("/v1/devices", json=signed(register)).raise_for_status().json()["device"]
    ask = wire.AskToken(device=device, nonce=secrets.token_urlsafe(16), **common)
    token = client.post("/v1/tokens", json=signed(ask)).raise_for_status().json()["token"]
    return {"Authorization": f"Bearer {token}"}


def ready(client, headers):
    message = {"phone": "Pixel 3", "system": "android-10", "sent": time.time()}
    message["nonce"] = secrets.token_urlsafe(16)
    answer = client.post("/v1/models/har/ready", json=message, headers=headers)
    return answer.raise_for_status().json()


def test_a_server_killed_and_told_to_stop(start, said, tmp_path):
    """One story, as each process takes seconds to start."""
    server = start("--tls-self-signed")
    (tmp_path / "har.toml").write_text(PLAN)
    said("plan", "add", server.folder, tmp_path / "har.toml")
    app_key = said("app", "add", server.folder, "diary", "--models", "har").strip()

    with server.client() as client:
        headers = entered(client, app_key)
        place = ready(client, headers)
        weights = client.get(place["get_url"], headers=headers).raise_for_status().content
        assert len(weights) > 40
        update = packed(np.full(10, 0.5, dtype=np.float32))
        first = update[:30]
        span = {"Content-Range": f"bytes 0-{len(first) - 1}/{len(update)}"}
        client.put(place["put_url"], content=first, headers=span).raise_for_status()
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/v1/server", trust_env=False)  # nobody has said to believe it

    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    server = start("--tls-self-signed")

    with server.client() as client:
        offset = int(client.head(place["put_url"]).headers["Upload-Offset"])
        assert offset == len(first)  # what had arrived is there
        span = {"Content-Range": f"bytes {offset}-{len(update) - 1}/{len(update)}"}
        client.put(place["put_url"], content=update[offset:], headers=span).raise_for_status()
        digest = {"sha256": hashlib.sha256(update).hexdigest()}
        commit = f"/v1/tickets/{place['ticket']}/commit"
        outcome = client.post(commit, json=digest, headers=headers).raise_for_status().json()
        assert outcome["accepted"], outcome  # the token of before is good, too

    told = json.loads(said("status", server.folder, "--json"))
    assert told["models"]["har"]["accepted"] == 1
    assert "har" in said("status", server.folder)
    assert "har" in said("plan", "list", server.folder)
    assert json.loads(said("plan", "show", server.folder, "har"))["rounds"]["seconds"] == 600.0
    assert "stopped" in said("stop", server.folder, "har")
    assert "diary" in said("app", "list", server.folder)
    new_key = said("app", "renew", server.folder, "diary").strip()
    with server.client() as client:
        entered(client, new_key)
    listed = json.loads(said("devices", server.folder, "--json"))
    assert [device["models"] for device in listed] == [["har"], ["har"]]
    assert f"{listed[0]['name']}  Pixel 3, android-10; har; since" in said("devices", server.folder)
    said("export", server.folder, "har", "--out", tmp_path / "release")
    card = json.loads((tmp_path / "release" / "trust.json").read_text())
    assert card["method"] == "flsys"
    assert server.end() == 0
    assert not (server.folder / "running.json").exists()
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log
    assert app_key not in log
    assert "signature=" not in log


def test_watchers_do_not_hold_up_the_end(start):
    server = start("--tls-self-signed")
    admin = {"Authorization": f"Bearer {_admin_key(server)}"}
    heard = []

    def listen():
        with (
            server.client() as client,
            client.stream("GET", "/v1/admin/events", headers=admin) as events,
        ):
            heard.extend(events.iter_lines())
            heard.append("the end")

    watcher = threading.Thread(target=listen)
    watcher.start()
    time.sleep(1)
    began = time.monotonic()
    assert server.end() == 0
    watcher.join(10)
    assert time.monotonic() - began < GRACE_SECONDS
    assert heard[:2] == ["id: 1", "event: started"]
    assert heard[-1] == "the end"


def _admin_key(server):
    from privet.federation.server.keys import ServerKeys

    return ServerKeys.kept_in(server.folder / "keys").admin


# -- what cannot be is refused in one line -------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], ["unencrypted", "--tls-cert"]),
        (["--port", "70000"], ["bad port", "70000"]),
        (["--tls-cert", "a.pem"], ["--tls-key"]),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], ["certificate", "a.pem"]),
        (["--tls-cert", "a", "--tls-key", "b", "--tls-self-signed"], ["two certificates"]),
        (["--database", "mysql://x"], ["bad database", "postgresql://"]),
        (["--store", "/tmp/x"], ["bad store", "s3://"]),
        (["--store", "s3://"], ["bad store", "s3://"]),
        (["--name", "a/b"], ["bad name"]),
        (["--address-rate", "-1"], ["--address-rate", "-1"]),
        (["--host", "203.0.113.7", "--plain-http"], ["cannot listen"]),
    ],
)
def test_bad_options(tmp_path, capsys, options, words):
    folder = tmp_path / "fleet"
    assert run("federate", "server", folder, *options) == 2
    shown = capsys.readouterr().err
    assert len(shown.strip().splitlines()) <= 3
    assert "Traceback" not in shown
    for word in words:
        assert word in " ".join(shown.split())


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert run("federate", "server", tmp_path) == 2
    assert "not a server's folder" in " ".join(capsys.readouterr().err.split())
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_port_that_is_taken(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run("federate", "server", tmp_path / "fleet", "--port", port) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_what_a_failed_first_start_chose_holds_for_nothing(tmp_path, capsys):
    folder = tmp_path / "fleet"
    assert run("federate", "server", folder, "--store", "s3://mistaken", "--port", "70000") == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        mistaken = ("--name", "mistaken", "--port", port)
        assert run("federate", "server", folder, *mistaken) == 2
    assert "cannot listen" in capsys.readouterr().err
    home, new = Home.entered(folder, name="meant")
    assert (home.choices.name, new) == ("meant", True)


@pytest.mark.parametrize(
    "url", ["https://host:port", "https://host:99999", "https://[::1", "http://127.0.0.1:0"]
)
def test_an_address_that_is_none(monkeypatch, capsys, url):
    monkeypatch.setenv("PRIVET_ADMIN_KEY", "a-key")
    assert run("federate", "status", url) == 2
    assert "not a server" in capsys.readouterr().err


def test_an_operators_key_of_strange_letters(monkeypatch, capsys):
    monkeypatch.setenv("PRIVET_ADMIN_KEY", "clé")
    assert run("federate", "status", "https://127.0.0.1:9") == 2
    assert "not an operator's key" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        ["status"],
        ["plan", "list"],
        ["app", "list"],
        ["app", "add", "SERVER", "x"],
        ["app", "renew", "SERVER", "x"],
        ["devices"],
        ["stop", "SERVER", "har"],
        ["rollback", "SERVER", "har", "--to", "1"],
        ["block", "SERVER", "d-1"],
    ],
)
def test_operators_without_a_server(tmp_path, capsys, verb):
    where = str(tmp_path / "nothing")
    arguments = [where if word == "SERVER" else word for word in verb]
    arguments += [] if "SERVER" in verb else [where]
    assert run("federate", *arguments) == 2
    assert "no server in this folder" in " ".join(capsys.readouterr().err.split())


def test_a_server_that_does_not_run(tmp_path, capsys):
    home, new = Home.entered(tmp_path / "fleet")
    assert new
    assert run("federate", "status", home.folder) == 3
    assert "does not run" in " ".join(capsys.readouterr().err.split())
    home.listens("http://127.0.0.1:9", None)  # as one that was killed leaves it
    assert run("federate", "status", home.folder) == 3
    assert "does not answer" in " ".join(capsys.readouterr().err.split())
    home.leave()


def test_a_url_needs_a_key(capsys, monkeypatch):
    monkeypatch.delenv("PRIVET_ADMIN_KEY", raising=False)
    assert run("federate", "status", "https://127.0.0.1:9") == 2
    assert "PRIVET_ADMIN_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "word"),
    [("http://ward.example", "unencrypted"), ("ftp://x", "not a server"), ("https://", "not a")],
)
def test_a_url_that_the_key_is_not_sent_to(capsys, monkeypatch, url, word):
    monkeypatch.setenv("PRIVET_ADMIN_KEY", "k" * 43)
    assert run("federate", "status", url) == 2
    assert word in " ".join(capsys.readouterr().err.split())


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("privet.commands.federate_server.PACKAGES", ("fastapi", "no_such_package"))
    for verb in (["server"], ["status"], ["plan", "list"]):
        assert run("federate", *verb, tmp_path / "fleet") == 3
        assert "privet[server]" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "fleet").exists()


# -- the folder ---------------------------------------------------------------------------------


def test_what_is_secret_is_the_owners_alone(tmp_path):
    home, _ = Home.entered(tmp_path / "fleet", name="ward")
    home.listens("http://127.0.0.1:1", None)
    for folder in (home.folder, home.folder / "keys", home.secrets):
        assert folder.stat().st_mode & 0o777 == 0o700
    for file in (*(home.folder / "keys").iterdir(), *home.folder.glob("*.json")):
        assert file.stat().st_mode & 0o777 == 0o600, file
    home.leave()


def test_keys_that_others_may_read_are_not_used(tmp_path, capsys):
    home, _ = Home.entered(tmp_path / "fleet")
    home.leave()
    (home.folder / "keys" / "token.key").chmod(0o640)
    assert run("federate", "server", home.folder) == 3
    assert "chmod 600" in " ".join(capsys.readouterr().err.split())


def test_a_folder_is_served_once_and_keeps_its_choices(tmp_path, capsys):
    home, _ = Home.entered(tmp_path / "fleet", name="ward")
    assert run("federate", "server", home.folder) == 2
    assert "another server runs" in " ".join(capsys.readouterr().err.split())
    key = home.keys.public_key
    home.leave()
    again, new = Home.entered(tmp_path / "fleet")
    assert (new, again.choices.name, again.keys.public_key) == (False, "ward", key)
    again.leave()
    database = "postgresql://me:pass-word@host/db"
    assert run("federate", "server", home.folder, "--database", database) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "another database" in shown
    assert "pass-word" not in shown


def test_a_store_is_one_servers(tmp_path):
    """Another one would delete what it knows nothing of: uploads, snapshots, counted updates."""
    home, _ = Home.entered(tmp_path / "fleet")
    store = home.open_store()
    store.put("updates/har/1/t", b"an update")
    assert home.open_store().get("updates/har/1/t") == b"an update"
    other, _ = Home.entered(tmp_path / "other")
    (tmp_path / "other" / "store").symlink_to(store.path)
    with pytest.raises(InputError, match="another server's store"):
        other.open_store()
    other.leave()
    home.leave()
    again, _ = Home.entered(tmp_path / "fleet")
    assert again.open_store().get("updates/har/1/t") == b"an update"
    again.leave()


def test_a_certificate_is_kept_while_it_holds(tmp_path):
    first = self_signed(tmp_path, "127.0.0.1")[0].read_bytes()
    assert self_signed(tmp_path, "localhost")[0].read_bytes() == first
    assert self_signed(tmp_path, "ward.example")[0].read_bytes() != first
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_without_tls_only_for_this_machine(host):
    assert not Listening(host=host).encrypted


def test_old_tls_is_not_spoken(tmp_path):
    from privet.federation.server.running import _modern

    context = _modern(None, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_importing_privet_needs_no_package_of_the_server(tmp_path):
    code = (
        "import sys, privet, privet.cli;"
        "heavy = {'fastapi', 'uvicorn', 'pydantic', 'jwt', 'httpx'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(tmp_path))
