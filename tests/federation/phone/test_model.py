"""The machine of one model: every arrow, a kill at every stage, every way to fail."""

import httpx
import pytest
import torch

from privet.errors import FaultyEnvironment
from privet.federation import wire
from privet.federation.local_work import LocalWork, Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone import model as module
from privet.federation.phone import sending
from privet.federation.phone import standing as files
from privet.federation.phone.conditions import Network
from privet.federation.phone.stages import ARROWS, IN_A_ROUND, Stage
from privet.federation.phone.standing import Standing, Ticket
from privet.federation.phone.storage import save_tensors
from privet.models import create


def one_round(bench):
    return bench.until_fate()


def expected_change(bench, turn=0):
    """What the simulator's client makes of the same records, among others who have theirs."""
    x, y = bench.examples
    others = torch.rand(30, 4), torch.randint(0, 3, (30,))
    clients = [range(10), range(10, 30), range(30, 51)]
    material = Material(
        x=torch.cat([others[0], x]),
        y=torch.cat([others[1], y]),
        clients=[torch.tensor(list(rows)).numpy() for rows in clients],
        pool=torch.zeros(0, dtype=torch.int64).numpy(),
        classes=3,
    )
    work = LocalWork(epochs=2, batch=4, learning_rate=0.1, optimizer=bench.server.work.optimizer)
    net = create(bench.server.network, (4,), 3, init_seed=0)
    lesson = Teacher(material, work, seed=bench.seed).lesson(bench.client, turn)
    weights = bench.server.weights["m"][0]
    return OneByOne(net, material, work).changes(weights, [lesson])[0]


def sent(bench):
    (ticket,) = bench.server.uploads
    return bench.server.change(ticket)


def test_a_round(bench):
    assert one_round(bench) == {"accepted": 1}
    (told,) = bench.told()
    assert told["accepted"]
    assert told["ticket"] in bench.server.outcomes
    assert not (bench.model.folder / "update.safetensors").exists()
    assert bench.model.standing.ticket is None


def test_the_phone_trains_what_the_simulator_trains(bench):
    one_round(bench)
    assert torch.equal(sent(bench), expected_change(bench))


def test_its_second_round_is_the_simulators_second_turn(bench):
    one_round(bench)
    first = set(bench.server.uploads)
    one_round(bench)
    (ticket,) = set(bench.server.uploads) - first
    assert torch.equal(bench.server.change(ticket), expected_change(bench, turn=1))
    assert not torch.equal(expected_change(bench), expected_change(bench, turn=1))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_pauses_change_no_bit(make_server, make_bench, monkeypatch, optimizer):
    """Slices of one step, the charger pulled out in between, others drawing meanwhile."""
    monkeypatch.setattr(module.Course, "slice", _one_step)
    work = wire.Work(epochs=2, batch=4, learning_rate=0.1, optimizer=optimizer)
    bench = make_bench(make_server(work=work))
    bench.until(Stage.TRAINING)
    pauses = 0
    while bench.model.standing.stage is Stage.TRAINING:
        torch.rand(pauses + 1)
        bench.around.set(charging=False)
        assert bench.step() is Stage.PAUSED
        bench.around.set(charging=True)
        assert bench.step() is Stage.TRAINING
        bench.step()
        pauses += 1
    assert pauses > 5
    one_round(bench)
    assert torch.equal(sent(bench), expected_change(bench))


def _one_step(course, surroundings, mode):
    left = iter([True])
    course._pupil.go_on(lambda: next(left, False))
    return 1.0


IN_ORDER = [
    Stage.REQUESTING,
    Stage.ACCEPTED,
    Stage.QUEUED,
    Stage.DOWNLOADING,
    Stage.TRAINING,
    Stage.STORED,
    Stage.UPLOADING,
]


@pytest.mark.parametrize("stage", IN_ORDER)
def test_killed_at_any_stage_it_goes_on_to_the_same_update(bench, stage):
    bench.until(stage)
    bench.again()
    assert bench.model.standing.stage is stage
    assert one_round(bench) == {"accepted": 1}
    assert torch.equal(sent(bench), expected_change(bench))
    assert len(bench.told()) == 1


def test_killed_while_paused(bench):
    bench.until(Stage.TRAINING)
    bench.around.set(hot=True)
    assert bench.step() is Stage.PAUSED
    bench.again()
    bench.around.set(hot=False)
    assert one_round(bench) == {"accepted": 1}
    assert torch.equal(sent(bench), expected_change(bench))


class Killed(BaseException):
    pass


@pytest.mark.parametrize("place", range(24))
def test_killed_at_any_write(bench, monkeypatch, place):
    """Every file that is written, before and after: the update counts once, and is the same."""
    writes = iter(range(10**6))
    whole = files.write

    def dying(path, standing):
        number = next(writes)
        if number == place // 2 and place % 2 == 0:
            raise Killed
        whole(path, standing)
        if number == place // 2:
            raise Killed

    monkeypatch.setattr(files, "write", dying)
    fates = {}
    for _ in range(100):
        try:
            bench.step()
        except Killed:
            bench.again()
        fates = bench.model.standing.fates
        if fates:
            break
    assert fates == {"accepted": 1}
    assert len(bench.server.outcomes) == 1
    assert torch.equal(sent(bench), expected_change(bench))
    assert {line["ticket"] for line in bench.told()} == set(bench.server.outcomes)


@pytest.mark.parametrize(
    "outcome",
    [
        httpx.ConnectError("gone"),
        httpx.ReadTimeout("slow"),
        httpx.Response(503, headers={"Retry-After": "7"}),
        httpx.Response(500),
    ],
    ids=["no network", "no answer", "busy", "ill"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "ready"),
        ("GET", "manifest"),
        ("GET", "versions"),
        ("HEAD", "uploads"),
        ("PUT", "uploads"),
        ("POST", "commit"),
    ],
)
def test_what_fails_is_tried_again(bench, method, path, outcome):
    bench.server.faults += [(method, path, outcome)] * 2
    before = bench.clock.moment
    assert one_round(bench) == {"accepted": 1}
    assert not bench.server.faults
    assert torch.equal(sent(bench), expected_change(bench))
    # Half of 1 s and of 2 s of the wall, ten times that by its clock; or what the server asks for.
    asked = isinstance(outcome, httpx.Response) and "Retry-After" in outcome.headers
    assert bench.clock.moment - before >= (140 if asked else 15)


def test_the_answer_to_a_commit_is_lost(bench):
    """The server has counted it; asked again it says the same, and the phone knows."""

    def lose(request):
        if request.url.path.endswith("commit") and not lost:
            lost.append(request)
            raise httpx.ReadError("cut")

    lost = []
    bench.server.after = lose
    assert one_round(bench) == {"accepted": 1}
    assert len(lost) == 1
    assert len(bench.server.outcomes) == 1


def test_a_commit_that_may_have_arrived_is_asked_for_after_the_deadline(bench):
    bench.server.faults.append(("POST", "commit", httpx.ReadError("cut")))
    bench.until(Stage.UPLOADING)
    bench.step()
    assert bench.model.standing.sent
    bench.clock.moment = bench.model.standing.held.deadline + 1
    bench.again()
    assert one_round(bench) == {"accepted": 1}


def test_an_upload_goes_on_where_it_was_cut_off(bench, monkeypatch):
    monkeypatch.setattr(sending, "CHUNK", 50)
    bench.until(Stage.UPLOADING)
    for _ in range(2):
        bench.step()
    arrived = len(sent_so_far(bench))
    assert arrived == 100
    bench.again()
    puts = bench.server.requests["PUT /v1/uploads/ticket-of-m-N"]
    assert one_round(bench) == {"accepted": 1}
    total = len(sent_so_far(bench))
    more = bench.server.requests["PUT /v1/uploads/ticket-of-m-N"] - puts
    assert more == -(-(total - 100) // 50)


def sent_so_far(bench):
    (content,) = bench.server.uploads.values()
    return content


@pytest.mark.parametrize(("speed", "chunk"), [(1e9, 2**16), (1e4, 10**4), (1.0, 512)])
def test_parts_are_what_a_link_carries_in_a_second(bench, speed, chunk):
    bench.around.seconds_up = lambda size: size / speed
    assert sending.chunk_of(bench.around) == chunk


def test_a_store_that_knows_no_parts_gets_all_at_once(bench):
    bench.server.resumable = False
    assert one_round(bench) == {"accepted": 1}


def test_a_download_goes_on_where_it_was_cut_off(bench):
    cut = []
    bench.server.broken = lambda content: content if cut else (cut.append(1), content[:64])[1]
    bench.until(Stage.DOWNLOADING)
    part = bench.model.weights(0).with_name(bench.model.weights(0).name + ".part")
    part.write_bytes(bench.server.content("m", 0)[:33])
    asked = []
    bench.server.after = lambda request: asked.append(request.headers.get("Range"))
    cut.append(1)
    bench.until(Stage.TRAINING)
    assert "bytes=33-" in asked
    assert one_round(bench) == {"accepted": 1}


def test_weights_that_nobody_signed_are_not_trained_on(bench):
    """The server's bytes are changed on the way: fetched again, and again, until they are right."""
    bad = [1, 1]

    def broken(content):
        return content[:-4] + b"\0\0\0\1" if bad and bad.pop() else content

    bench.server.broken = broken
    assert one_round(bench) == {"accepted": 1}
    assert torch.equal(sent(bench), expected_change(bench))
    later = [facts["why"] for event, facts in bench.said if event == "later"]
    assert later.count("the weights of 'm' 0 do not arrive as they were sent") == 2


def test_a_manifest_by_another_key_is_refused(bench):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from privet.errors import CheckFailed

    bench.until(Stage.DOWNLOADING)
    bench.server.key = Ed25519PrivateKey.generate()
    with pytest.raises(CheckFailed, match="not signed by the server"):
        bench.step()


@pytest.mark.parametrize("stage", sorted(IN_A_ROUND - {Stage.PAUSED}))
def test_the_deadline_ends_a_round_wherever_it_is(bench, stage):
    bench.until(stage)
    bench.clock.moment = bench.model.standing.held.deadline
    assert bench.step() is Stage.DISCARD
    assert bench.step() is Stage.IDLE
    assert bench.model.standing.fates == {"late": 1}
    assert not (bench.model.folder / "update.safetensors").exists()
    assert not bench.server.outcomes


def test_the_deadline_ends_a_pause(bench):
    bench.until(Stage.TRAINING)
    bench.around.set(charging=False)
    bench.step()
    bench.clock.moment = bench.model.standing.held.deadline
    assert bench.step() is Stage.DISCARD


def test_denied_it_waits_as_long_as_it_is_told(bench):
    bench.server.denials = [(wire.Reason.QUOTA, 60.0)]
    bench.until(Stage.BACKOFF)
    asked_at = bench.model.standing.until - 600.0
    bench.until(Stage.ACCEPTED)
    assert bench.clock.moment - asked_at >= 600.0
    assert bench.server.requests["POST /v1/models/m/ready"] == 2


def test_a_phone_that_cannot_be_in_time_does_not_begin(bench):
    """STTp: 42 records at 30 s are 1,260 s, with a margin 1,575; there are 1,000 x 10 / 10."""
    bench.around.seconds = 30.0
    bench.server.seconds_left = 157.0
    assert one_round(bench) == {"too slow": 1}
    assert not bench.server.uploads
    bench.server.seconds_left = 158.0
    assert one_round(bench) == {"too slow": 1, "accepted": 1}


def test_not_ready_it_asks_nobody(bench):
    bench.around.set(charging=False)
    for _ in range(5):
        assert bench.step() is Stage.IDLE
    assert not bench.server.requests["POST /v1/models/m/ready"]


def test_a_disk_that_takes_nothing_more_is_the_environments_fault(tmp_path):
    with pytest.raises(FaultyEnvironment, match="cannot write what a phone keeps"):
        save_tensors(tmp_path / "missing" / "x.safetensors", {"x": torch.zeros(2)})


def test_it_says_once_what_it_waits_for(make_server, make_bench):
    work = wire.Work(epochs=2, batch=4, learning_rate=0.1, optimizer="sgd", least_records=10_000)
    bench = make_bench(make_server(work=work))
    for _ in range(3):
        assert bench.step() is Stage.IDLE
    waits = [facts for event, facts in bench.said if event == "waits"]
    assert [facts["why"] for facts in waits] == ["it needs 10000 records or more"]
    assert waits[0]["records"] == bench.model.records.count()


def test_an_update_waits_for_the_network_it_may_use(bench):
    bench.until(Stage.STORED)
    bench.around.set(network=Network.METERED)
    assert bench.step() is Stage.STORED
    bench.around.set(network=Network.UNMETERED)
    bench.until(Stage.UPLOADING)
    bench.around.set(network=Network.NONE)
    bench.step()
    assert not bench.server.uploads
    bench.around.set(network=Network.UNMETERED)
    assert one_round(bench) == {"accepted": 1}


def test_declined_it_gives_the_round_up_and_rests(bench):
    no = httpx.Response(403, json={"error": "url-expired", "what": "over"})
    bench.until(Stage.UPLOADING)
    bench.server.faults.append(("PUT", "uploads", no))
    assert one_round(bench) == {"declined: url-expired": 1}
    assert bench.model.standing.until >= bench.clock.moment
    assert one_round(bench)["accepted"] == 1


def test_a_token_that_is_over_is_renewed(bench):
    bench.until(Stage.TRAINING)
    bench.server.tokens.clear()
    assert one_round(bench) == {"accepted": 1}
    assert bench.server.requests["POST /v1/tokens"] == 2


@pytest.mark.parametrize("chunk", [50, 2**16])
def test_what_does_not_arrive_as_it_was_sent_is_sent_anew(bench, monkeypatch, chunk):
    monkeypatch.setattr(sending, "CHUNK", chunk)
    bench.until(Stage.UPLOADING)
    total = (bench.model.folder / "update.safetensors").stat().st_size
    bench.server.uploads[bench.model.standing.held.ticket] = b"?" * total
    assert one_round(bench) == {"accepted": 1}
    assert torch.equal(sent(bench), expected_change(bench))


def test_what_never_arrives_whole_is_given_up(bench):
    bench.server.undecided = [wire.Reason.BROKEN] * 9
    assert one_round(bench) == {"refused: broken": 1}
    assert bench.server.requests["POST /v1/tickets/ticket-of-m-N/commit"] == 4


def test_while_the_model_is_stopped_an_update_waits(bench):
    bench.server.undecided = [wire.Reason.CLOSED] * 2
    assert one_round(bench) == {"accepted": 1}
    assert len(bench.told()) == 1


def test_refused_it_is_told_why(bench):
    bench.until(Stage.UPLOADING)
    bench.server.outcomes[bench.model.standing.held.ticket] = wire.Outcome(
        accepted=False, reason=wire.Reason.LATE
    )
    assert one_round(bench) == {"refused: late": 1}
    assert bench.told()[0]["reason"] == "the deadline is over"


def test_when_training_is_over_it_tries_the_last_version_and_rests(make_server, make_bench):
    server = make_server(tries=6)
    bench = make_bench(server)
    one_round(bench)
    server.weights["m"][1] = server.weights["m"][0] + 0.1
    server.denials = [(wire.Reason.STOPPED, 0.0)]
    bench.until(Stage.BACKOFF)
    bench.step()
    assert bench.model.over
    assert bench.phone.over
    assert [report[1:3] for report in server.reports] == [(0, 6), (1, 6)]
    assert bench.model.act(bench.clock.moment) == float("inf")


def test_who_has_too_few_held_out_records_reports_nothing(make_server, make_bench):
    bench = make_bench(make_server(tries=7))
    assert one_round(bench) == {"accepted": 1}
    assert bench.server.reports == []


def test_a_server_that_wants_no_report_stops_no_round(make_server, make_bench):
    bench = make_bench(make_server(tries=6))
    no = httpx.Response(409, json={"error": "unwanted", "what": "no"})
    bench.server.faults.append(("POST", "reports", no))
    assert one_round(bench) == {"accepted": 1}


SPECIFIED = {
    ("idle", "requesting"),
    ("requesting", "backoff"),
    ("requesting", "accepted"),
    ("backoff", "idle"),
    ("accepted", "idle"),
    ("accepted", "queued"),
    ("queued", "downloading"),
    ("downloading", "training"),
    ("training", "stored"),
    ("training", "paused"),
    ("paused", "training"),
    ("stored", "uploading"),
    ("uploading", "idle"),
    ("discard", "idle"),
    *((stage.value, "discard") for stage in IN_A_ROUND),
}


def test_only_the_arrows_of_the_specification_exist():
    ticket = Ticket(
        ticket="t",
        round=0,
        base_version=0,
        get_url="",
        put_url="",
        resumable=True,
        most_bytes=1,
        deadline=1.0,
        work={},
        accepted_at=0.0,
    )
    found = {(a.value, b.value) for a, onward in ARROWS.items() for b in onward}
    assert found == SPECIFIED
    for start in Stage:
        for end in Stage:
            standing = Standing(stage=start, ticket=ticket)
            if (start.value, end.value) in SPECIFIED:
                assert standing.to(end).stage is end
            else:
                with pytest.raises(ValueError, match="no arrow"):
                    standing.to(end)
