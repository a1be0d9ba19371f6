"""What is set up, what is refused before anybody is asked, and who a node is."""

import contextlib
import json
import tomllib
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flower_table import FEDBUFF, FLSYS, PLAN, PRIVACY, Node, key_of

from command_line import run
from privet.errors import InputError
from privet.federation.flower.enrolling import enrol
from privet.federation.flower.nodes import Roster
from privet.federation.flower.server_app import serve
from privet.federation.flower.starting import set_up
from privet.federation.server.state.sqlite import SqliteState


def test_a_key_is_the_same_node_in_either_form(tmp_path):
    key = key_of(1)
    (tmp_path / "ada.pub").write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "bea.pub").write_bytes(
        key_of(2).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    roster = Roster.read(tmp_path)
    assert roster.name_of(SimpleNamespace(node_id=9, public_key=pem)) == "ada"
    assert roster.name_of(Node(2, None).info) == "bea"
    assert roster.name_of(Node(3, None).info) is None
    assert roster.name_of(SimpleNamespace(node_id=9, public_key=b"no key")) is None


def test_an_open_roster_names_nodes_by_their_numbers(tmp_path):
    assert Roster.read(tmp_path).name_of(Node(3, None).info) == "node-3"


def _same_key_twice(folder):
    for name in ("ada", "bea"):
        content = key_of(1).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (folder / f"{name}.pub").write_bytes(content)


def _another_kind(folder):
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    (folder / "ada.pub").write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def _a_bad_name(folder):
    content = key_of(1).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / "ada of york.pub").write_bytes(content)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_same_key_twice, "one key of two nodes"),
        (_another_kind, "elliptic curve"),
        (lambda folder: (folder / "ada.pub").write_text("nonsense"), "no public key"),
        (_a_bad_name, "bad name of a node"),
    ],
)
def test_keys_that_cannot_be_told_apart_are_refused(tmp_path, make, says):
    make(tmp_path)
    with pytest.raises(InputError, match=says):
        Roster.read(tmp_path)


def _renames(world):
    (world.keys / "cyd.pub").rename(world.keys / "dan.pub")


def _exchanges_a_key_then_renames(world):
    world.put_key("cyd", 13)
    enrolled(world)
    (world.keys / "cyd.pub").rename(world.keys / "dan.pub")


def _exchanges_a_key_then_names_the_old_one(world):
    world.put_key("cyd", 13)
    enrolled(world)
    world.put_key("dan", 3)


def _swaps(world):
    world.put_key("ada", 2)
    world.put_key("bea", 1)


def enrolled(world):
    with contextlib.closing(SqliteState(world.path / "state.sqlite")) as state:
        enrol(state, "har", Roster.read(world.keys), world.path)


@pytest.mark.parametrize(
    "anew",
    [
        _renames,
        _exchanges_a_key_then_renames,
        _exchanges_a_key_then_names_the_old_one,
        _swaps,
    ],
)
def test_a_node_cannot_begin_anew_under_another_name(world, anew):
    enrolled(world)
    anew(world)
    with pytest.raises(InputError, match="under another name"):
        enrolled(world)


@pytest.mark.parametrize(
    ("rounds", "more", "says"),
    [
        ('rule = "fedbuff"\nrounds = 3\nbuffer = 2', "", "wait for ever"),
        (FEDBUFF.replace("buffer = 2", "buffer = 9"), PRIVACY, "more nodes than there are"),
        (FLSYS, "[evaluation]\nrecords = 5\n", "evaluation"),
        (FLSYS, "[work]\npool = 5\n", "pool"),
        (FLSYS, '[[sensing]]\nsensor = "x"\nleast_rate = 1.0\nrate = 2.0\n', "sensing"),
        (
            'rule = "fedavg"\nrounds = 3\nrate = 0.5\nseconds = 3.0\npatient = false',
            "[privacy]\nepsilon = 8.0\npopulation = 3\n",
            "patient",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_is_written(world, rounds, more, says):
    with pytest.raises(InputError, match=says):
        world.folder(rounds, more)
    assert not (world.path / "har").exists()


@pytest.mark.parametrize("field", ["quota = 3", "longest = 9.0", 'kinds = ["x"]'])
def test_what_is_of_phones_is_refused(world, field):
    plan = PLAN.replace("retry_seconds = 2.0", field)
    with pytest.raises(InputError, match="is of phones"):
        world.folder(plan=plan)


def test_a_private_model_needs_the_keys_of_its_nodes(world):
    with pytest.raises(InputError, match="nodes that anybody may start"):
        world.folder(FLSYS, PRIVACY, nodes=False)
    made = world.folder(FLSYS, PRIVACY)
    for key in made.nodes.glob("*"):
        key.unlink()
    with pytest.raises(InputError, match="nodes that anybody may start"):
        serve(None, {"privet-folder": str(made.path)})


def test_a_mistyped_folder_of_keys_does_not_open_the_model_to_all(world):
    made = world.folder(FLSYS)
    world.keys.rename(world.path / "elsewhere")
    with pytest.raises(InputError, match="no keys of nodes"):
        world.folder(FLSYS)
    assert Roster.read(made.nodes).closed


def test_keys_that_are_exchanged_leave_no_moment_without_any(world, monkeypatch):
    made = world.folder(FLSYS)
    before = sorted(Roster.read(made.nodes).names.values())
    for key in list(world.keys.iterdir()):
        key.rename(key.with_name(f"new-{key.name}"))

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("privet.federation.flower.starting.write_atomically", dies)
        with pytest.raises(KeyboardInterrupt):
            set_up(made.path, plan=made.plan, nodes=world.keys, ledger=world.path / "ledger.db")
    assert sorted(Roster.read(made.nodes).names.values()) == before
    world.folder(FLSYS)
    after = sorted(Roster.read(made.nodes).names.values())
    assert after == [f"new-{name}" for name in before]


def test_what_privacy_was_calibrated_for_cannot_change_once_it_began(world):
    folder = world.folder(FLSYS, PRIVACY)
    world.folder(FLSYS, PRIVACY.replace("8.0", "4.0"))
    world.run(folder, crash_after=3)
    with pytest.raises(InputError, match="cannot change"):
        world.folder(FLSYS, PRIVACY)
    assert "4.0" in folder.plan.read_text()


def test_a_folder_within_an_app_would_send_the_noises_keys_to_every_node(world):
    folder = world.folder(FLSYS, PRIVACY)
    inside = world.path / "my-app" / "models" / "har"
    inside.parent.mkdir(parents=True)
    (world.path / "my-app" / "pyproject.toml").write_text("[tool.flwr.app]\npublisher = 'us'\n")
    with pytest.raises(InputError, match="within a Flower app"):
        set_up(inside, plan=folder.plan, nodes=folder.nodes, ledger=world.path / "ledger.db")
    assert not inside.exists()
    folder.path.rename(inside)
    with pytest.raises(InputError, match="within a Flower app"):
        serve(None, {"privet-folder": str(inside)})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"privet-folder": "/nowhere"}, "no folder of"),
        ({}, "no folder of"),
        ({"privet-form": "tensors"}, "unknown form"),
        ({"privet-poll": 0}, "bad privet-poll"),
        ({"privet-network": "nowhere:Net"}, "no such network"),
    ],
)
def test_a_configuration_that_is_wrong_says_how_to_mend_it(world, config, says):
    folder = world.folder(FLSYS)
    said = config if config == {} else {"privet-folder": str(folder.path)} | config
    with pytest.raises(InputError, match=says):
        serve(None, said)


def test_a_network_of_ones_own_is_needed_where_the_plan_says_so(world):
    plan = PLAN.replace('"linear"', '"custom"')
    folder = world.folder(plan=plan)
    assert not folder.app.exists()
    with pytest.raises(InputError, match="network by name"):
        serve(None, {"privet-folder": str(folder.path)})


def test_the_command_sets_up_an_app_that_names_no_dependency(world, capsys):
    plan, folder = world.path / "har.toml", world.path / "made"
    plan.write_text(PLAN.format(rounds=FLSYS) + PRIVACY)
    more = ("--plan", plan, "--nodes", world.keys, "--tls-self-signed", "localhost")
    assert run("federate", "flower", folder, *more) == 0
    said = capsys.readouterr().out
    app = tomllib.loads((folder / "app" / "pyproject.toml").read_text())
    assert app["project"]["dependencies"] == []
    assert app["tool"]["flwr"]["app"]["config"]["privet-folder"] == str(folder)
    for option in ("--disable-runtime-dependency-installation", "--enable-supernode-auth"):
        assert option in said
    assert (folder / "tls" / "certificate.pem").exists()
    assert run("federate", "flower", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rounds_over"] == 0


def test_without_a_plan_there_is_nothing_to_set_up(tmp_path, capsys):
    assert run("federate", "flower", tmp_path / "new") == 2
    assert "--plan" in capsys.readouterr().err
