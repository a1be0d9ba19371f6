"""What the claims of privacy rest on: configurations that would break them are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError
from privet.federation import (
    Coordinator,
    LocalWork,
    Material,
    Sampled,
    Teacher,
    UserPrivacy,
    rule_named,
)
from privet.federation.coordinator import Closing
from privet.federation.draws import Kind, share_of_each
from privet.federation.fitting import resume, settings_of, simulate
from privet.federation.one_by_one import OneByOne
from privet.federation.population import population_of
from privet.federation.running import Federation, engine_for
from privet.federation.simulator import FREE, Idle, Simulator
from privet.federation.together import Together
from privet.federation.trace_files import write
from privet.federation.traces import always, drawn
from privet.federation.update import Update
from privet.ledger import Ledger
from privet.privacy.randomness import Randomness, SecretStream
from privet.release import CUSTOM
from privet.training.run_folder import RunFolder
from privet.verification.federation import check_facts

STREAM = SecretStream(bytes(32))


def _sampled(*, patient: bool) -> Coordinator:
    privacy = UserPrivacy(
        clip=1.0, multiplier=1.0, participation=Sampled(rate=0.5, steps=3), divisor=4.0
    )
    rule = rule_named("fedavg", rate=0.5, seconds=5.0, patient=patient)
    return Coordinator(torch.zeros(3), rule, rounds=3, privacy=privacy, stream=STREAM)


def test_how_long_a_round_lasts_must_not_tell_whose_coin_it_waited_for() -> None:
    with pytest.raises(InputError, match="rounds end when those who were asked have answered"):
        _sampled(patient=False)
    assert _sampled(patient=True).rule.pacing.by_clock


def test_coins_that_anybody_can_draw_again_are_refused() -> None:
    teacher = Teacher(_material(), LocalWork(), seed=0)
    with pytest.raises(InputError, match="everybody can draw the coins again"):
        Simulator(_sampled(patient=True), Idle(3), teacher, always(2), seed=0)


def test_who_is_asked_follows_from_the_secret_coins_alone() -> None:
    """Not from the seed of the simulation, which is public and on the card."""
    asked = []
    for key, seed in ((1, 0), (1, 5), (2, 0)):
        places = Material(
            x=torch.zeros(60, 1),
            y=torch.zeros(60, dtype=torch.int64),
            clients=np.split(np.arange(60), 60),
            pool=np.zeros(0, dtype=np.int64),
            classes=1,
        )
        coordinator = _sampled(patient=True)
        teacher, coins = Teacher(places, LocalWork(), seed=seed), SecretStream(bytes([key] * 32))
        simulator = Simulator(coordinator, Idle(3), teacher, always(60), seed=seed, sampling=coins)
        simulator.next_round()
        asked.append((set(coordinator.times), coordinator.state()["asked"]))
    assert asked[0] == asked[1] != asked[2]
    assert 15 < len(asked[0][0]) < 45


def test_a_sampling_server_is_patient_under_privacy_and_can_be_asked_for() -> None:
    """Filled settings pass their own check; without privacy nobody waits longer than needed."""
    data = privet.data.load("digits")
    private = settings_of({"rule": "fedavg", "rate": 0.5, "clients": 20, "epsilon": 3.0})
    filled = private.filled_for(population_of(data, private).data)
    assert (filled.participation(), filled.divisor) == (Sampled(rate=0.5, steps=50), 10.0)
    assert filled.made_rule().pacing.by_clock
    assert not settings_of({"rule": "fedavg", "rate": 0.5}).made_rule().pacing.by_clock


def test_a_rejected_step_leaves_no_trace_in_adam() -> None:
    answers = iter([False, True])
    seen = [_adam(accept=lambda _: next(answers)), _adam(accept=None)]
    seen[0].receive(Update(client="a", base_version=0, change=torch.full((3,), 9.0)), 1.0)
    closed = seen[0].advance(10.0)
    assert closed is not None
    assert closed.how is Closing.REJECTED
    for c, now in ((seen[0], 10.0), (seen[1], 0.0)):
        c.receive(Update(client="b", base_version=0, change=torch.ones(3)), now + 1)
        c.advance(now + 10.0)
    assert torch.equal(seen[0].weights, seen[1].weights)


def _adam(accept: object) -> Coordinator:
    rule = rule_named("fedadam", cohort=1, seconds=10.0, patient=True)
    coordinator = Coordinator(torch.zeros(3), rule, rounds=3, accept=accept)  # type: ignore[arg-type]
    coordinator.rule = rule_named("flsys", seconds=10.0)  # whoever comes
    return coordinator


def _users(records: list[int]) -> Dataset:
    """User i has so many records; their values are its number."""
    owner = np.repeat(np.arange(len(records)), records)
    labels = np.arange(len(owner)) % 2
    part = Split(x=owner[:, None].astype(np.float32), y=labels, units=owner)
    return Dataset(
        name="made up",
        train=part,
        test=Split(x=np.zeros((2, 1), np.float32), y=np.array([0, 1])),
        bounds=Bounds(low=(0.0,), high=(100.0,)),
        classes=("a", "b"),
        nominal_size=len(records),
        licence="none",
        source="made up",
        unit="user",
    )


def test_who_is_a_volunteer_does_not_depend_on_who_else_is_there() -> None:
    """One user more at the end: the same volunteers, or the newcomer is one of them."""
    settings = settings_of({"pool": 6})
    compared = 0
    for users in range(12, 40):
        few, many = (population_of(_users([4] * n), settings).pool for n in (users, users + 1))
        assert few is not None
        assert many is not None
        if users not in many.x:
            assert set(few.x.ravel()) == set(many.x.ravel())
            compared += 1
    assert compared > 15


def test_volunteers_stay_volunteers_when_another_user_goes() -> None:
    settings, whole = settings_of({"pool": 6}), _users([4] * 30)
    pool = population_of(whole, settings).pool
    assert pool is not None
    volunteers, compared = set(pool.x.ravel()), 0
    for gone in range(30):
        rest = whole.training_on(whole.train.part(whole.train.x[:, 0] != gone), nominal_size=30)
        left = population_of(rest, settings).pool
        assert left is not None
        if gone not in volunteers:
            assert set(left.x.ravel()) == volunteers
            compared += 1
    assert compared > 15


def test_when_a_client_asks_follows_from_its_key() -> None:
    """Not from its place: a phone that asks later may be too late."""
    keys = np.array([70, 30, 50], dtype=np.uint64)
    early, late = share_of_each(3, Kind.DELAY, keys, 4), share_of_each(3, Kind.DELAY, keys[1:], 4)
    assert early[1:].tolist() == late.tolist()
    assert len({*early, *share_of_each(3, Kind.DELAY, keys, 5)}) == 6
    times = []
    for some in (keys, keys[1:]):
        material = replace(_material(), clients=[np.arange(2)] * len(some), keys=some)
        coordinator = Coordinator(torch.zeros(3), rule_named("flsys", seconds=90.0), rounds=3)
        teacher = Teacher(material, LocalWork(), seed=3)
        simulator = Simulator(coordinator, Idle(3), teacher, always(len(some)), seed=3)
        simulator.next_round()
        heap = simulator.state()["heap"]
        times.append({int(some[client]): time for time, kind, _, client in heap if kind == FREE})
    times[0].pop(70)
    assert times[0] == times[1] != {}


def _turns(data: Dataset, **options: object) -> dict[float, list[int]]:
    """In which steps the updates of which user were counted; a user by what its records say."""
    settings = settings_of({"model": "linear", "local_epochs": 1, **options})
    population = population_of(data, settings)
    settings = settings.filled_for(population.data)
    federation = Federation(
        population, settings, Randomness.seeded(0), privacy=settings.privacy(epsilon=8.0)
    )
    who = [float(population.data.train.x[rows[0], 0]) for rows in population.clients]
    turns: dict[float, list[int]] = {}
    before: dict[str, int] = {}
    while federation.next_step < settings.rounds:
        federation.step()
        times = federation.simulator.coordinator.times
        for name in (name for name in times if times[name] != before.get(name, 0)):
            turns.setdefault(who[int(name)], []).append(federation.next_step)
        before = dict(times)
    return turns


@pytest.mark.parametrize("gone", [0, 7])
def test_who_goes_takes_no_turn_of_others_with_it(gone: int) -> None:
    """All behind it move up, and still draw what they drew: that is what add/remove rests on."""
    whole = _users([3 + user % 5 for user in range(30)])
    rest = whole.train.part(whole.train.x[:, 0] != gone)
    options = {"rounds": 12, "epsilon": 8.0, "times": 3, "apart": 2, "seconds": 4 * 3600.0}
    options |= {"traces": "phones", "dropout": 0.3}
    there = _turns(whole, **options)
    there.pop(gone, None)
    assert there == _turns(whole.training_on(rest, nominal_size=30), **options)
    assert sum(map(len, there.values())) > 20


def _sent(data: Dataset, network: nn.Module) -> dict[float, tuple[float, torch.Tensor]]:
    """What comes of the first version, and when; a user by what its records say."""
    settings = settings_of(
        {"model": CUSTOM, "epsilon": 8.0, "times": 2, "rounds": 2, "batch": 4, "local_epochs": 2}
    )
    population = population_of(data, settings)
    settings = settings.filled_for(population.data)
    privacy = settings.privacy(epsilon=8.0)
    made = Federation(
        population, settings, Randomness.seeded(0), privacy=privacy, network=network
    ).simulator
    who = [float(population.data.train.x[rows[0], 0]) for rows in population.clients]
    sent: dict[float, tuple[float, torch.Tensor]] = {}
    received = made.coordinator.receive

    def note(update: Update, now: float) -> object:
        sent[who[int(update.client)]] = now, update.change.clone()
        return received(update, now)

    made.coordinator.receive = note  # type: ignore[assignment,method-assign]
    made.next_round()
    return sent


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("gone", [0, 7])
def test_who_goes_changes_nothing_that_others_send_nor_when(gone: int, dropout: float) -> None:
    """Of one version; also where the model draws. Side by side it is the same to rounding."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 4), nn.Dropout(dropout), nn.ReLU(), nn.Linear(4, 2))
    whole = _users([3 + user % 5 for user in range(30)])
    rest = whole.train.part(whole.train.x[:, 0] != gone)
    there = _sent(whole, network)
    left = _sent(whole.training_on(rest, nominal_size=30), network)
    there.pop(gone, None)
    assert there.keys() == left.keys()
    assert len(left) == 29
    for who, (when, change) in left.items():
        assert when == there[who][0]
        rounding = {} if dropout else {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(change, there[who][1], **({"rtol": 0, "atol": 0} | rounding))
    assert max(float(change.abs().max()) for _, change in left.values()) > 1e-3


@pytest.mark.parametrize("drawn_phones", [True, False])
def test_only_a_file_of_traces_knows_clients_by_number(
    tmp_path: Path, book: Ledger, *, drawn_phones: bool
) -> None:
    write(tmp_path / "traces.csv", drawn(range(8), days=1, seed=0))
    where = "phones" if drawn_phones else str(tmp_path / "traces.csv")
    options = {"clients": 8, "rounds": 1, "epsilon": 8.0, "seconds": 3600.0, "traces": where}
    card = simulate(privet.data.load("digits"), ledger=book, **options).trust
    assumed = any("file of traces" in one for one in card["privacy"][0]["assumptions"])
    assert assumed is not drawn_phones
    assert check_facts(card).ok
    card["federation"].pop("trace_file", None)
    assert check_facts(card).ok is drawn_phones


def test_lessons_follow_from_own_records_alone() -> None:
    """What is drawn for a user, as places among its own records."""
    whole = _users([6 + user % 5 for user in range(12)])
    rest = whole.training_on(whole.train.part(whole.train.x[:, 0] != 3), nominal_size=12)
    drawn = []
    for data, last in ((whole, 11), (rest, 10)):
        population = population_of(data, settings_of({}))
        material = population.material(torch.device("cpu"))
        lesson = Teacher(material, LocalWork(epochs=2, batch=4), seed=1).lesson(last, 5)
        drawn.append((lesson.rows - population.clients[last].min()).clip(-1).tolist())
    assert drawn[0] == drawn[1]


def _material(side: int = 4) -> Material:
    return Material(
        x=torch.zeros(8, side),
        y=torch.zeros(8, dtype=torch.int64),
        clients=np.split(np.arange(8), 2),
        pool=np.zeros(0, dtype=np.int64),
        classes=2,
    )


def _engine(model: nn.Module, **options: object) -> type:
    settings = settings_of(options)
    return type(engine_for(model, _material(), settings, settings.made_rule()))


def test_masks_of_one_client_must_not_follow_from_another() -> None:
    dense, dropping = nn.Linear(4, 2), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
    assert _engine(dense, epsilon=3.0) is Together
    assert _engine(dropping, epsilon=3.0) is OneByOne
    assert _engine(dropping, engine="together") is Together
    with pytest.raises(InputError, match="its masks would follow from who else takes part"):
        _engine(dropping, epsilon=3.0, engine="together")


def test_the_faster_engine_is_taken() -> None:
    convolving = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten())
    normed = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    assert _engine(convolving) is OneByOne
    assert _engine(convolving, batch=4) is Together
    assert _engine(normed) is OneByOne
    assert _engine(nn.Linear(4, 2), engine="one-by-one") is OneByOne


def test_a_journal_without_a_step_that_was_done_ends_a_resumed_run(tmp_path: Path) -> None:
    out, data = tmp_path / "run", privet.data.load("digits")
    options = {"clients": 20, "rounds": 6, "epsilon": 8.0, "seconds": 10.0, "times": 1}

    def stop(federation: object) -> None:
        if federation.next_step == 4:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(data, out=out, watch=stop, checkpoint_every=2, **options)
    journal = RunFolder(out).journal
    kept = journal.read_bytes()
    journal.write_bytes(kept.split(b"\n", 1)[1])
    with pytest.raises(InputError, match="the journal lacks a step that was done"):
        resume(out, data)
    journal.write_bytes(kept)
    with pytest.raises(KeyboardInterrupt):
        resume(out, data, watch=stop)


def test_work_is_counted_in_records_of_the_lesson() -> None:
    """With a sample and a pool it is not what the client has."""
    material = Material(
        x=torch.zeros(300, 1),
        y=torch.from_numpy(np.arange(300) % 3),
        clients=[np.arange(0, 200), np.arange(200, 210)],
        pool=np.arange(210, 300),
        classes=3,
    )
    work = LocalWork(epochs=2, batch=8, own_per_class=(5, 9), pool_per_class=(2, 4))
    teacher = Teacher(material, work, seed=0)
    for client in (0, 1):
        for turn in range(5):
            rows = teacher.lesson(client, turn).rows
            assert teacher.records(client, turn) == (rows >= 0).sum()
    whole = Teacher(material, LocalWork(epochs=2), seed=0)
    assert whole.records(0, 3) == 400 == (whole.lesson(0, 3).rows >= 0).sum()
