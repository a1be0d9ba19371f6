"""The loop over Flower's messages, with nodes that answer late, twice, wrongly or never."""

import json

import httpx
import numpy as np
import pytest
import torch
from flower_table import (
    FEDBUFF,
    FLSYS,
    KNOWN_NOISE,
    PRIVACY,
    Node,
    Table,
    adding,
    failing,
    moved,
    replied,
)
from safetensors.torch import load_file
from server_bench import Crash as DiskCrash
from server_bench import Fuse

from privet.federation.coordinator import Answer, Coordinator
from privet.federation.flat import flat
from privet.federation.flower import rounds
from privet.federation.server.home import Home
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.opening import first_weights
from privet.federation.server.plan import ModelPlan
from privet.federation.update import Update
from privet.guarantee import Adjacency
from privet.release import Release
from privet.verification import verify


def weights(release):
    return load_file(release / "weights.safetensors")


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def replay(folder, events, shift):
    """A fresh coordinator, with the folder's own noise, that takes the updates in their order."""
    plan = ModelPlan.load(folder.plan)
    keys = ModelKeys.of(plan, folder.home / "secrets", begun=True)
    coordinator = Coordinator(
        first_weights(plan),
        plan.rule,
        rounds=plan.settings.rounds,
        privacy=plan.privacy,
        stream=keys.randomness.noise if plan.privacy else None,
    )
    turns, versions = {}, {0: coordinator.weights.clone()}
    for event in events:
        name, base = event.fields["device"], event.fields["base"]
        coordinator.advance(event.at)
        turn = turns[name] = turns.get(name, 0) + 1
        change = (versions[base] + torch.tensor(shift[name] * turn)) - versions[base]
        update = Update(client=name, base_version=base, change=change.float())
        assert coordinator.receive(update, event.at)[0] is Answer.ACCEPTED
        versions.setdefault(coordinator.version, coordinator.weights.clone())
    return coordinator


SHIFT = {"ada": 0.01, "bea": 0.02, "cyd": 0.03}


@pytest.mark.parametrize("privacy", ["", PRIVACY], ids=["plain", "private"])
def test_asynchronous_rounds_are_the_coordinators_with_the_same_noise_and_order(world, privacy):
    folder = world.folder(FEDBUFF, privacy)
    _, release = world.run(folder)
    events = world.events(folder)
    assert len(events) == 6
    assert len({event.fields["base"] for event in events}) > 1
    replayed = replay(folder, events, SHIFT)
    assert replayed.stopped
    assert torch.equal(flat(Release.load(release).model), replayed.weights)


@pytest.mark.parametrize("crash", [1, 2, 5, 7, 11, 13, 18])
def test_a_killed_server_goes_on_in_a_new_run_to_the_same_bits(world, crash):
    whole = world.folder(FLSYS, KNOWN_NOISE, name="whole")
    _, expected = world.run(whole)
    world.now = 1000.0
    folder = world.folder(FLSYS, KNOWN_NOISE, name="killed")
    _, nothing = world.run(folder, crash_after=crash)
    assert nothing is None
    _, release = world.run(folder)
    assert same(weights(release), weights(expected))
    assert len(world.events(folder)) == 12
    assert json.loads((release / "trust.json").read_text())["federation"]["sums"] == 4


@pytest.mark.parametrize("place", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
def test_a_server_that_dies_at_any_touch_of_a_disk_goes_on_to_the_same_bits(
    world, monkeypatch, place
):
    whole = world.folder(FLSYS, KNOWN_NOISE, name="whole")
    _, expected = world.run(whole)
    world.now = 1000.0
    folder = world.folder(FLSYS, KNOWN_NOISE, name="killed")
    fuse, opens = Fuse(place), (Home.open_state, Home.open_store)
    with monkeypatch.context() as patched:
        patched.setattr(Home, "open_state", lambda home: fuse.wrap(opens[0](home)))
        patched.setattr(Home, "open_store", lambda home: fuse.wrap(opens[1](home)))
        with pytest.raises(DiskCrash):
            world.run(folder)
    _, release = world.run(folder)
    assert same(weights(release), weights(expected))
    assert len(world.events(folder)) == 12


def test_answers_to_a_dead_run_are_never_pulled(world):
    folder = world.folder(FEDBUFF)
    before, _ = world.run(folder, crash_after=3)
    after, _ = world.run(folder)
    old = {message.metadata.message_id for message in before.pushed}
    asked = {event.fields["ticket"] for event in world.events(folder)}
    assert asked - old == asked & {message.metadata.message_id for message in after.pushed}


def test_a_finished_model_is_handed_over_once(world):
    folder = world.folder(FLSYS)
    _, release = world.run(folder)
    card = (release / "trust.json").read_bytes()
    table, again = world.run(folder)
    assert again == release
    assert (release / "trust.json").read_bytes() == card
    assert table.pushed == []


def test_more_rounds_after_the_last_one_give_a_release_of_their_own(world):
    folder = world.folder(FLSYS)
    world.run(folder)
    world.folder(FLSYS.replace("rounds = 4", "rounds = 6"))
    _, release = world.run(folder)
    versions = [
        json.loads((place / "trust.json").read_text())["federation"]["served"]["version"]
        for place in (release, folder.path / "release-4")
    ]
    assert versions == [6, 4]


def test_a_reply_that_comes_twice_counts_once(world):
    folder = world.folder(FEDBUFF)

    def doubled(table):
        table.again = True

    world.run(folder, each=doubled)
    tickets = [event.fields["ticket"] for event in world.events(folder)]
    assert len(tickets) == len(set(tickets)) == 6


def test_a_lost_message_is_sent_again_when_its_time_is_over(world):
    plan_rounds = FEDBUFF.replace("buffer = 2", "buffer = 3").replace("40.0", "500.0")
    folder = world.folder(plan_rounds)

    def loses_the_first(table):
        table.lost = {0}

    table, _ = world.run(folder, each=loses_the_first)
    first = table.pushed[0].metadata
    sent = [m.metadata for m in table.pushed if m.metadata.dst_node_id == first.dst_node_id]
    assert first.ttl == 50.0
    assert sent[1].created_at > 0
    assert world.events(folder)[2].at >= 50.0


def test_a_late_answer_does_not_count_where_rounds_have_a_deadline(world):
    slow = {}

    def late(message):
        version = message.metadata.group_id
        slow.setdefault(version, world.now)
        return replied(message, moved(message, 1.0)) if world.now > slow[version] + 7 else None

    world.nodes[2].answers = late
    folder = world.folder(FLSYS)
    world.run(folder)
    assert {event.fields["device"] for event in world.events(folder)} == {"ada", "bea"}


def test_a_message_lives_no_longer_than_its_round(world):
    table, _ = world.run(world.folder(FLSYS))
    assert all(0 < message.metadata.ttl <= 5.0 for message in table.pushed)


def test_a_node_that_fails_has_a_rest_and_nobody_reads_why(world, caplog, capsys):
    world.nodes[0].answers = failing
    folder = world.folder(FEDBUFF, PRIVACY)
    table, _ = world.run(folder)
    assert {event.fields["device"] for event in world.events(folder)} == {"bea", "cyd"}
    assert world.counts(folder)[("refused", "NODE_ERROR")] >= 1
    assert "secret" not in caplog.text + capsys.readouterr().out
    asked = [m for m in table.pushed if m.metadata.dst_node_id == 1]
    assert 1 <= len(asked) < len(table.pushed)


def test_an_answer_in_anothers_name_does_not_count(world):
    def forged(message):
        reply = replied(message, moved(message, 9.0))
        reply.metadata.__dict__["_src_node_id"] = 2
        return reply

    world.nodes[0].answers = forged
    folder = world.folder(FEDBUFF)
    world.run(folder)
    assert {event.fields["device"] for event in world.events(folder)} == {"bea", "cyd"}


def test_an_answer_without_anything_does_not_end_the_run(world):
    def empty(message):
        reply = replied(message, {})
        reply.__dict__["_content"] = None
        return reply

    world.nodes[0].answers = empty
    world.nodes[1].answers = lambda message: replied(message, {"other": np.zeros(3, np.float32)})
    folder = world.folder(FLSYS)
    world.run(folder)
    assert {event.fields["device"] for event in world.events(folder)} == {"cyd"}
    counts = world.counts(folder)
    assert counts[("refused", "NODE_ERROR")] >= 1 <= counts[("refused", "MALFORMED")]


def test_bytes_that_flower_cannot_read_cost_their_sender_alone(world, monkeypatch):
    """Flower reads them, raises, and has let go of all that it pulled with them."""
    world.nodes[0].answers = lambda message: replied(message, {"broken": np.zeros(1)})
    gone, pull = set(), Table.pull_messages

    def pulls(table, ids):
        found = [r for r in pull(table, ids) if r.metadata.reply_to_message_id not in gone]
        gone.update(reply.metadata.reply_to_message_id for reply in found)
        if any("broken" in reply.content.array_records["arrays"] for reply in found):
            raise ValueError("not an object of Flower's")
        return found

    monkeypatch.setattr(Table, "pull_messages", pulls)
    folder = world.folder(FEDBUFF, PRIVACY)
    table, _ = world.run(folder)
    assert [event.fields["device"] for event in world.events(folder)].count("bea") == 3
    assert {event.fields["device"] for event in world.events(folder)} == {"bea", "cyd"}
    assert world.counts(folder)[("refused", "NODE_ERROR")] >= 1
    assert world.now < 1000.0 + 40.0  # others waited for no time to run out
    assert len([m for m in table.pushed if m.metadata.dst_node_id == 1]) < len(table.pushed) / 2


@pytest.mark.parametrize("error", [httpx.ConnectError("gone"), OSError("gone")])
def test_a_superlink_that_is_gone_ends_the_run(world, monkeypatch, error):
    def gone(table, ids):
        raise error

    folder = world.folder(FLSYS)
    monkeypatch.setattr(Table, "pull_messages", gone)
    with pytest.raises(type(error), match="gone"):
        world.run(folder)


def test_answers_are_pulled_a_few_at_a_time(world, monkeypatch):
    monkeypatch.setattr(rounds, "MOST_BYTES", 40)
    asked = []
    monkeypatch.setattr(
        Table,
        "pull_messages",
        lambda table, ids, pull=Table.pull_messages: asked.append(len(ids)) or pull(table, ids),
    )
    folder = world.folder(FLSYS)
    world.run(folder)
    assert set(asked) == {1}
    assert len(world.events(folder)) == 12


def test_a_node_that_dies_does_not_stop_the_run(world):
    def dies(table):
        if len(table.pushed) > 3:
            world.nodes[1].online = False

    folder = world.folder(FEDBUFF, PRIVACY)
    _, release = world.run(folder, each=dies)
    assert len(world.events(folder)) == 6
    assert (release / "manifest.json").exists()


def test_a_node_that_came_back_is_asked_again_at_once(world):
    silent = world.nodes[0]
    silent.answers = lambda message: None
    folder = world.folder(FEDBUFF.replace("buffer = 2", "buffer = 3"))

    def comes_back(table):
        if world.now == 1003.0:
            silent.session, silent.answers = "2", adding(0.01)

    table, _ = world.run(folder, each=comes_back)
    assert len([m for m in table.pushed[:4] if m.metadata.dst_node_id == 1]) == 2
    first = world.events(folder)[0]
    assert max(event.at for event in world.events(folder)[:3]) < 10 > first.at


def test_a_node_that_only_seemed_gone_does_not_count_twice_with_one_lesson(world):
    """It is asked again, and answers both: the same lesson from the same version."""
    folder = world.folder(FEDBUFF.replace("rounds = 3", "rounds = 12"))
    ada, works = world.nodes[0], world.nodes[0].answers

    def slowly(message):
        first = message.metadata.group_id == "0"
        return works(message) if world.now > (1003 if first else 1005) else None

    ada.answers = slowly

    def flickers(table):
        ada.session = str(world.now > 1001)

    table, _ = world.run(folder, each=flickers)
    asked = [message for message in table.pushed if message.metadata.dst_node_id == 1]
    assert [message.metadata.group_id for message in asked[:2]] == ["0", "1"]
    counted = [e.fields for e in world.events(folder) if e.fields["device"] == "ada"]
    turns = {
        message.metadata.message_id: message.content.config_records["config"]["privet-turn"]
        for message in asked
    }
    assert [turns[fields["ticket"]] for fields in counted] == list(range(len(counted)))
    assert len(counted) >= 2


def test_numbers_that_are_not_finite_count_as_zero_under_privacy_alone(world):
    world.nodes[0].answers = lambda m: replied(m, moved(m, float("nan")))
    private = world.folder(FLSYS, KNOWN_NOISE, name="private")
    _, release = world.run(private)
    assert {e.fields["device"] for e in world.events(private)} == {"ada", "bea", "cyd"}
    assert all(torch.isfinite(part).all() for part in weights(release).values())
    plain = world.folder(FLSYS, name="plain")
    world.run(plain)
    assert {e.fields["device"] for e in world.events(plain)} == {"bea", "cyd"}
    assert world.counts(plain)[("refused", "MALFORMED")] >= 1


def test_an_update_is_clipped_by_the_server(world):
    world.nodes[0].answers = lambda m: replied(m, moved(m, 1e6))
    folder = world.folder(FLSYS, KNOWN_NOISE)
    _, release = world.run(folder)
    assert all(part.abs().max() < 100 for part in weights(release).values())


def test_nobody_counts_who_is_not_on_the_roster(world):
    world.nodes.append(Node(4, adding(9.0)))
    world.nodes.append(Node(5, adding(9.0), keyed=99))
    folder = world.folder(FLSYS)
    table, _ = world.run(folder)
    assert {m.metadata.dst_node_id for m in table.pushed} == {1, 2, 3}


def test_a_cap_goes_by_the_key_not_by_the_number_of_a_node(world):
    """A SuperLink that lost its database gives other numbers; what was spent stays spent."""
    once = PRIVACY.replace("times = 4", "times = 1")
    folder = world.folder(FLSYS, once)
    world.run(folder, crash_after=12)
    for node in world.nodes:
        node.keyed, node.number = node.number, node.number + 100
    world.run(folder)
    took_part = [event.fields["device"] for event in world.events(folder)]
    assert sorted(took_part) == ["ada", "bea", "cyd"]


def test_caps_last_for_all_rounds_where_rounds_end_by_the_clock(world):
    rounds = FLSYS.replace("rounds = 4", "rounds = 12")
    folder = world.folder(rounds, PRIVACY.replace("times = 4", "times = 2"))
    world.run(folder)
    by_node = {}
    for event in world.events(folder):
        by_node.setdefault(event.fields["device"], []).append(event.at // 5)
    assert {len(rounds) for rounds in by_node.values()} == {2}
    assert {b - a for a, b in by_node.values()} == {6}


def test_a_cohort_is_asked_and_nobody_else(world):
    folder = world.folder('rule = "fedavg"\nrounds = 3\nseconds = 20.0\ncohort = 2')
    table, _ = world.run(folder)
    assert [len(event.fields["devices"]) for event in world.events(folder, "invited")] == [2, 2, 2]
    assert len(table.pushed) == 6


def test_coins_are_thrown_for_the_whole_roster_whoever_is_there(world):
    """A node that is away is drawn as often, and adds nothing: as the proof has it."""
    world.nodes[2].online = False
    rounds = 'rule = "fedavg"\nrounds = 12\nseconds = 3.0\nrate = 0.5'
    privacy = "[privacy]\nepsilon = 8.0\npopulation = 3\n"
    folder = world.folder(rounds, privacy)
    _, release = world.run(folder)
    drawn = [set(event.fields["devices"]) for event in world.events(folder, "invited")]
    assert len(drawn) >= 12
    assert any("cyd" in one for one in drawn)
    for event in world.events(folder):
        assert event.fields["device"] in set().union(*drawn) - {"cyd"}
    (first, *_) = Release.load(release).guarantees
    assert first.sampler == "server-sampled"
    assert first.adjacency is Adjacency.ADD_REMOVE


def test_who_is_taken_off_the_roster_is_drawn_and_asked_no_more(world):
    folder = world.folder(FLSYS)
    world.run(folder, crash_after=6)
    (world.keys / "cyd.pub").unlink()
    world.folder(FLSYS)
    seen = len(world.events(folder))
    world.run(folder)
    assert "cyd" not in {event.fields["device"] for event in world.events(folder)[seen:]}


@pytest.mark.parametrize(
    ("rounds", "adjacency"), [(FLSYS, Adjacency.ADD_REMOVE), (FEDBUFF, Adjacency.ZERO_OUT)]
)
def test_the_release_verifies_and_states_a_node(world, rounds, adjacency):
    folder = world.folder(rounds, PRIVACY)
    world.run(folder, crash_after=4)
    _, path = world.run(folder)
    with world.ledger() as ledger:
        found = verify(path, ledger=ledger)
    assert [f"{f.check}: {f.detail}" for f in found.findings if not f.ok] == []
    assert "ledger" in [finding.check for finding in found.findings]
    release = Release.load(path)
    first = release.guarantees[0]
    assert (first.unit, first.adjacency) == ("node", adjacency)
    assert first.epsilon == pytest.approx(8.0, rel=1e-3)
    assert any("SuperLink" in assumed for assumed in first.assumptions)
    assert not any("device" in assumed for assumed in first.assumptions)
    assert release.trust["data"]["name"] == "fleet:har"


def test_two_runs_at_a_time_are_refused(world):
    from privet.errors import InputError

    folder = world.folder(FLSYS)

    def second(table):
        with pytest.raises(InputError, match="another server runs"):
            world.run(folder)
        table.answer()

    world.run(folder, each=second)
