"""`privet federate client`: what is refused before anything is sent, and what is said of it."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from command_line import run

URL = "http://127.0.0.1:9"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "app.key"
    path.write_text("an-app-key-of-enough-length\n")
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"url": "http://example.org"}, "unencrypted"),
        ({"url": "nowhere"}, "not a server's address"),
        ({"--app-key-file": "missing.key"}, "no such file with an app's key"),
        ({"url": "http://127.0.0.1:port"}, "not a server's address"),
        ({"url": "http://127.0.0.1:70000"}, "not a server's address"),
        ({"--user": "-1"}, "bad number of users"),
        ({"--phones": "0"}, "bad number of users"),
        ({"--data": None}, "where are the records from"),
        ({"--recordings": "simulated"}, "where are the records from"),
        ({"--data": "nothing"}, "nothing"),
        ({"--speedup": "0"}, "bad speedup"),
        ({"--least-battery": "2"}, "bad least battery"),
        ({"--traces": "missing.csv"}, "no such file of traces"),
        ({"--phone": "Brick"}, "unknown kind of phone"),
        ({"--ca": "missing.pem"}, "no certificate"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, key, capsys, changes, said):
    usual = {"url": URL, "--app-key-file": key, "--data": "digits", "--clients": "5"}
    given = usual | {"--folder": tmp_path / "phone"} | changes
    url = given.pop("url")
    pairs = [part for name, value in given.items() if value is not None for part in (name, value)]
    assert run("federate", "client", url, *pairs) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"short", b"\xff\xfe", b"two words of enough length"])
def test_a_file_without_an_apps_key(tmp_path, capsys, content):
    (tmp_path / "app.key").write_bytes(content)
    given = ("--app-key-file", tmp_path / "app.key", "--data", "activities")
    assert run("federate", "client", URL, *given, "--folder", tmp_path / "phone") == 2
    assert "no app's key in this file" in " ".join(capsys.readouterr().err.split())


def test_the_help_teaches(capsys):
    assert run("federate", "client", "--help") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for part in ("Records never leave", "--speedup", "privet federate app", "Example:", "--ca"):
        assert part in shown


def test_without_the_extra_the_environment_is_at_fault(tmp_path, key):
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "from privet import cli\n"
        f"cli.main(['federate', 'client', {URL!r}, '--app-key-file', {str(key)!r},"
        f" '--data', 'digits', '--clients', '5', '--folder', {str(tmp_path / 'phone')!r}])"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 3
    assert "pip install 'privet[server]'" in outcome.stderr
