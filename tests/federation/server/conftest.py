"""Databases and stores that the server's tests run against, each where it can be had."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.store.folder import FolderStore

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def _absent(reason):
    if os.environ.get("PRIVET_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres():
    """A private cluster in a folder of its own, reached by a socket in it; no network."""
    programs = _postgres_programs()
    if programs is None:
        _absent("no PostgreSQL server here: apt-get install postgresql")
    owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="privet-pg-"))
    if owner:
        shutil.chown(folder, "postgres", "postgres")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **owner}
    data = str(folder / "data")
    init = [programs / "initdb", "-D", data, "-U", "privet", "--auth=trust", "-N", "-E", "UTF8"]
    subprocess.run(init, check=True, **quiet)
    settings = [f"-cunix_socket_directories={folder}", "-clisten_addresses=", "-cfsync=off"]
    server = subprocess.Popen([programs / "postgres", "-D", data, *settings], **quiet)
    try:
        _wait_for(folder / ".s.PGSQL.5432", server)
        yield f"host={folder} user=privet"
    finally:
        server.send_signal(signal.SIGINT)  # at once, whoever is still connected
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_programs():
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def _wait_for(path, server):
    import psycopg

    for _ in range(200):
        assert server.poll() is None, "PostgreSQL did not start"
        if path.exists():
            try:
                psycopg.connect(f"host={path.parent} user=privet dbname=postgres").close()
            except psycopg.OperationalError:
                pass
            else:
                return
        time.sleep(0.05)
    raise TimeoutError("PostgreSQL does not answer")


@pytest.fixture
def database(postgres):
    """An empty database; its URL."""
    import psycopg

    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(f"{postgres} dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres} dbname={name}"


@pytest.fixture(params=["sqlite", "postgres"])
def open_state(request, tmp_path):
    """Opens the same state again and again."""
    opened = []
    if request.param == "postgres":
        from privet.federation.server.state.postgres import PostgresState

        url = request.getfixturevalue("database")

        def make():
            opened.append(PostgresState(url))
            return opened[-1]
    else:

        def make():
            opened.append(SqliteState(tmp_path / "state.db"))
            return opened[-1]

    yield make
    for state in opened:
        state.close()


@pytest.fixture(scope="session")
def s3_server():
    """A server that speaks S3, in this process."""
    pytest.importorskip("boto3", reason="the extra s3 is not installed")
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    running.start()
    yield f"http://127.0.0.1:{port}"
    running.stop()


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    return request.getfixturevalue("s3_store")


@pytest.fixture
def s3_store(s3_server, monkeypatch):
    import boto3

    from privet.federation.server.store.s3 import S3Store

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1").create_bucket(Bucket=bucket)
    return S3Store(f"s3://{bucket}/privet/x?endpoint={s3_server}")
