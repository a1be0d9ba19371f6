"""The virtual clock: who is counted when, what is lost, and that a killed simulation goes on."""

import io
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privet.errors import InputError
from privet.federation import (
    Capped,
    Coordinator,
    LocalWork,
    Material,
    Teacher,
    UserPrivacy,
    rule_named,
)
from privet.federation import simulator as simulating
from privet.federation.coordinator import Closed, Closing
from privet.federation.draws import Kind, drawn_from
from privet.federation.flat import flat
from privet.federation.local_work import Lesson
from privet.federation.one_by_one import OneByOne
from privet.federation.simulator import Simulator, Weather
from privet.federation.traces import Phone, always, drawn
from privet.privacy.randomness import Randomness, SecretStream


class _Ones:
    """An engine whose every client moves by one; it remembers how many it trained at a time."""

    def __init__(self, size: int = 2) -> None:
        self.size, self.groups = size, list[int]()

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        del weights
        self.groups.append(len(lessons))
        return torch.ones(len(lessons), self.size)


def _teacher(clients: int, records: int = 10, *, epochs: int = 1) -> Teacher:
    n = clients * records
    material = Material(
        x=torch.zeros(n, 1),
        y=torch.zeros(n, dtype=torch.int64),
        clients=np.split(np.arange(n), clients),
        pool=np.zeros(0, dtype=np.int64),
        classes=1,
    )
    return Teacher(material, LocalWork(epochs=epochs), seed=0)


def _run(
    phones: Sequence[Phone], rule: str = "flsys", *, rounds: int = 3, **options: float
) -> tuple[Simulator, list[Closed]]:
    weather = Weather(dropout=options.pop("dropout", 0.0), late=0.0)
    coordinator = Coordinator(torch.zeros(2), rule_named(rule, **options), rounds=rounds)
    simulator = Simulator(
        coordinator, _Ones(), _teacher(len(phones)), phones, seed=0, weather=weather
    )
    closed: list[Closed] = []
    simulator.run(closed.append)
    return simulator, closed


def test_slow_phones_miss_the_deadline_and_do_not_begin() -> None:
    phones = [Phone(speed=1.0), Phone(speed=0.5), Phone(speed=0.1)]  # 10, 20 and 100 s of work
    simulator, closed = _run(phones, seconds=25.0)
    assert [c.updates for c in closed] == [2, 2, 2]
    assert [c.time for c in closed] == [25.0, 50.0, 75.0]
    assert simulator.tally.jobs["too slow"] == 3
    assert simulator.tally.wasted == 0.0


def test_phones_that_stop_charging_lose_their_work() -> None:
    phones = [Phone(speed=1.0), Phone(speed=1.0, stretches=((0.0, 5.0), (30.0, 100.0)))]
    simulator, closed = _run(phones, seconds=20.0)
    assert [c.updates for c in closed] == [1, 1, 2]  # at 30 there is no time left before 40
    assert simulator.tally.jobs["lost"] == 1
    assert simulator.tally.wasted == pytest.approx(10 / 50)


def test_a_phone_that_comes_later_asks_when_it_comes() -> None:
    phones = [Phone(speed=1.0, stretches=((7.0, 100.0),))]
    _, closed = _run(phones, seconds=20.0, rounds=1)
    assert closed[0].updates == 1


def test_a_cohort_waits_for_its_slowest_a_buffer_does_not() -> None:
    phones = [Phone(speed=10.0)] * 4 + [Phone(speed=0.1)]
    _, synchronous = _run(phones, "fedavg", cohort=5, rounds=2)
    assert [c.time for c in synchronous] == [100.0, 200.0]
    simulator, buffered = _run(phones, "fedbuff", buffer=4, stale=50, rounds=100)
    assert buffered[9].time == pytest.approx(10.0)  # four quick phones, one second each
    # The slow phone's first update comes once, a hundred versions behind: too late here.
    assert simulator.tally.jobs["stale"] <= 1


def test_dropouts_are_as_many_as_asked_for() -> None:
    """400 phones, half of them drop out in each of 5 rounds: four standard deviations are 90."""
    simulator, closed = _run(always(400), seconds=10.0, rounds=5, dropout=0.5)
    assert abs(simulator.tally.jobs["dropped"] - 1000) < 90
    assert sum(c.updates for c in closed) + simulator.tally.jobs["dropped"] == 2000
    assert simulator.tally.wasted == pytest.approx(0.5, abs=0.045)


def test_all_who_will_be_in_time_are_trained_together() -> None:
    phones = [Phone(speed=1.0), Phone(speed=0.6), Phone(speed=0.55), Phone(speed=0.1)]
    simulator, _ = _run(phones, seconds=25.0, rounds=2)
    assert isinstance(simulator.work.engine, _Ones)
    assert simulator.work.engine.groups == [3, 3]


def test_a_quorum_that_is_not_met_moves_nothing() -> None:
    simulator, closed = _run([Phone(speed=1.0)], seconds=20.0, quorum=2, rounds=3)
    assert [c.how for c in closed] == [Closing.TOO_FEW] * 3
    assert float(simulator.coordinator.weights.abs().sum()) == 0.0
    assert simulator.tally.jobs["taken"] == 1  # kept over all three, counted once


def test_phones_that_never_come_end_the_simulation_in_words() -> None:
    with pytest.raises(InputError, match="no phone will ever answer"):
        _run([Phone(stretches=())], "fedavg", cohort=1, seconds=float("inf"))


def test_a_sampling_server_asks_at_its_rate() -> None:
    """300 clients at rate 0.2 over 20 rounds: 1,200 expected, four deviations are 124."""
    coordinator = Coordinator(
        torch.zeros(2), rule_named("fedavg", rate=0.2, seconds=5.0, patient=True), rounds=20
    )
    simulator = Simulator(
        coordinator,
        _Ones(),
        _teacher(300),
        always(300),
        seed=0,
        weather=Weather(late=0.0),
        sampling=SecretStream(bytes(32)),
    )
    counts: list[int] = []
    simulator.run(lambda closed: counts.append(closed.updates))
    assert abs(sum(counts) - 1200) < 124
    assert len(set(counts)) > 5  # of each round its own coins


def _learning(rule: str) -> Callable[[], Simulator]:
    draw = np.random.default_rng(1)
    n, clients = 240, 12
    y = draw.integers(0, 2, n)
    x = draw.normal(size=(n, 3)).astype(np.float32) + y[:, None]
    material = Material(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.from_numpy(y),
        clients=np.array_split(np.arange(n), clients),
        pool=np.zeros(0, dtype=np.int64),
        classes=2,
    )
    work = LocalWork(epochs=2, batch=8, learning_rate=0.1)
    phones = drawn(range(clients), days=3, seed=2)

    def new() -> Simulator:
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        options = {"fedbuff": {"buffer": 4}, "flsys": {"seconds": 7200.0}}[rule]
        return Simulator(
            Coordinator(flat(net), rule_named(rule, **options), rounds=12),
            OneByOne(net, material, work),
            Teacher(material, work, seed=0),
            phones,
            seed=4,
            weather=Weather(dropout=0.2),
        )

    return new


@pytest.mark.parametrize("rule", ["flsys", "fedbuff"])
@pytest.mark.parametrize("killed", [1, 5, 9])
def test_a_killed_simulation_goes_on_to_the_same_bits(rule: str, killed: int) -> None:
    new = _learning(rule)
    whole = new()
    story: list[Closed] = []
    whole.run(story.append)
    broken, saved = new(), io.BytesIO()

    def stop(closed: Closed) -> None:
        if closed.round == killed:
            torch.save(broken.state(), saved)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.run(stop)
    saved.seek(0)
    revived = new()
    revived.restore(torch.load(saved, weights_only=True))
    rest: list[Closed] = []
    revived.run(rest.append)
    assert rest == story[killed:]
    assert torch.equal(revived.coordinator.weights, whole.coordinator.weights)
    assert revived.tally == whole.tally
    assert float((whole.coordinator.weights - new().coordinator.weights).abs().max()) > 0.01


@pytest.mark.parametrize("fields", [{"dropout": 1.0}, {"late": -1.0}])
def test_bad_weather_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InputError, match="bad"):
        Weather(**fields)


COURSES: dict[str, tuple[dict[str, float], list[int], float, dict[str, int]]] = {
    "flsys": (
        {"seconds": 900.0},
        [9, 7, 10, 6, 11, 7, 13, 7, 11, 10, 14, 6],
        10800.0,
        {"lost": 58, "taken": 111, "too slow": 27, "dropped": 38},
    ),
    "fedavg": (
        {"cohort": 8, "seconds": 900.0},
        [4, 5, 2, 5, 6, 3, 3, 4, 2, 5, 4, 5],
        10800.0,
        {"lost": 18, "taken": 48, "dropped": 23},
    ),
    "fedbuff": (
        {"buffer": 5, "stale": 3, "seconds": 900.0},
        [5] * 12,
        1900.0,
        {"lost": 44, "taken": 60, "dropped": 23},
    ),
}


@pytest.mark.parametrize("rule", COURSES)
def test_the_course_of_events_is_what_it_was(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a simulator had it that kept every stretch in its heap and looked at every phone.

    It drew the delays of a round in one go, by place.
    """

    def by_place(seed: int, kind: Kind, keys: np.ndarray, number: int) -> np.ndarray:
        return drawn_from(seed, kind, number).random(30)[keys]

    monkeypatch.setattr(simulating, "share_of_each", by_place)
    options, updates, end, fates = COURSES[rule]
    phones = [
        Phone(
            stretches=tuple(
                (600.0 * h, 600.0 * h + 300.0 * (1 + c % 3)) for h in range(c % 4, 40, 2 + c % 3)
            ),
            speed=(0.02, 0.1, 1.0)[c % 3],
        )
        for c in range(30)
    ]
    simulator = Simulator(
        Coordinator(torch.zeros(2), rule_named(rule, **options), rounds=12),
        _Ones(),
        _teacher(30),
        phones,
        seed=3,
        weather=Weather(dropout=0.2, late=60.0),
    )
    closed: list[Closed] = []
    simulator.run(closed.append)
    assert [c.updates for c in closed] == updates
    assert closed[-1].time == pytest.approx(end, abs=1e-5)
    assert simulator.tally.jobs == fates


class _Broken(_Ones):
    """Its third client of a call diverges."""

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        changes = super().changes(weights, lessons)
        changes[2, 1] = float("nan")
        return changes


def test_an_update_that_is_not_finite_ends_the_run_before_the_model_moves() -> None:
    coordinator = Coordinator(torch.zeros(2), rule_named("flsys", quorum=0), rounds=3)
    simulator = Simulator(coordinator, _Broken(), _teacher(5), always(5), seed=0)
    with pytest.raises(InputError, match="an update of '2' is not a number somewhere"):
        simulator.next_round()
    assert torch.equal(coordinator.weights, torch.zeros(2))


@pytest.mark.parametrize("apart", [1, 8])
def test_capped_phones_spread_their_steps(apart: int) -> None:
    """60 phones that are always there, five steps each of 40 rounds: no cap is spent at once.

    Also where their steps might follow one another.
    """
    privacy = UserPrivacy(
        clip=1.0, multiplier=1.0, participation=Capped(times=5, apart=apart), divisor=7.5
    )
    coordinator = Coordinator(
        torch.zeros(2),
        rule_named("flsys", quorum=0),
        rounds=40,
        privacy=privacy,
        stream=Randomness.seeded(0).noise,
    )
    simulator = Simulator(coordinator, _Ones(), _teacher(60), always(60), seed=0)
    closed: list[Closed] = []
    simulator.run(closed.append)
    assert coordinator.times == {str(client): 5 for client in range(60)}
    updates = [round_.updates for round_ in closed]
    # In turns of eight rounds; each round's share is binomial, 60 phones by 1/8.
    assert updates[:8] == updates[8:16] == updates[32:]
    assert sum(updates[:8]) == 60
    assert max(updates) <= 7.5 + 4 * (60 / 8 * 7 / 8) ** 0.5
    assert min(updates) >= 1


def test_a_phone_that_missed_its_turn_takes_the_next() -> None:
    """It sleeps through the rounds of its turn; its cap is not lost."""
    privacy = UserPrivacy(clip=1.0, multiplier=1.0, participation=Capped(times=2), divisor=1.0)
    coordinator = Coordinator(
        torch.zeros(2),
        rule_named("flsys", quorum=0, seconds=100.0),
        rounds=8,
        privacy=privacy,
        stream=Randomness.seeded(0).noise,
    )
    sleeper = Phone(stretches=((350.0, 360.0), (790.0, 800.0)))
    Simulator(coordinator, _Ones(), _teacher(1), [sleeper], seed=0, weather=Weather(late=0.0)).run()
    assert coordinator.times == {"0": 2}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_clients_that_are_sure_to_come_are_trained_together(dropout: float) -> None:
    """They take no time, so no two are ever at work at once; still one call trains a round."""
    simulator, closed = _run(always(20), "flsys", rounds=3, dropout=dropout)
    engine = simulator.work.engine
    assert isinstance(engine, _Ones)
    assert engine.groups == [round_.updates for round_ in closed]
    assert simulator.tally.jobs["taken"] == sum(engine.groups)


def test_nobody_is_trained_whose_cap_is_spent_or_whose_update_is_here() -> None:
    """Two steps each of nine rounds, four apart: over after eight. A quorum keeps updates."""
    privacy = UserPrivacy(
        clip=1.0, multiplier=1.0, participation=Capped(times=2, apart=4), divisor=2.0
    )
    rule, stream = rule_named("flsys", quorum=0), Randomness.seeded(0).noise
    capped = Coordinator(torch.zeros(2), rule, rounds=9, privacy=privacy, stream=stream)
    waiting = Coordinator(torch.zeros(2), rule_named("flsys", quorum=21), rounds=3)
    for coordinator, trained in ((capped, 40), (waiting, 20)):
        simulator = Simulator(coordinator, _Ones(), _teacher(20), always(20), seed=0)
        simulator.run()
        assert isinstance(simulator.work.engine, _Ones)
        assert sum(simulator.work.engine.groups) == trained == simulator.tally.jobs["taken"]


def test_who_was_expected_and_did_not_come_leaves_nothing_behind() -> None:
    """Only eight are asked of 20 who could; nothing of the others waits for the next round."""
    simulator, _ = _run(always(20), "fedavg", rounds=4, cohort=8)
    engine = simulator.work.engine
    assert isinstance(engine, _Ones)
    assert engine.groups == [8] * 4
    assert simulator.work.state()["changes"] == []
    assert simulator.work.state()["versions"] == {}


def test_a_round_that_ends_early_leaves_nothing_of_those_who_were_still_to_come() -> None:
    """All who are expected are trained, five are counted; the rest is for nothing."""
    rule = rule_named("fedbuff", buffer=5, stale=0)
    simulator = Simulator(
        Coordinator(torch.zeros(2), rule, rounds=9), _Ones(), _teacher(20), always(20), seed=0
    )
    for _ in range(4):
        simulator.next_round()
        at_work = [(j["client"], j["version"], j["turn"]) for j in simulator.work.state()["jobs"]]
        assert {tuple(of) for of, _ in simulator.work.state()["changes"]} <= set(at_work)
    assert isinstance(simulator.work.engine, _Ones)
    assert sum(simulator.work.engine.groups) > 20 + 3 * 5
