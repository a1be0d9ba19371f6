"""From a plan to phones that go: data sets, streams that are played, restarts."""

import threading

import pytest
import torch

import privet
from privet.errors import InputError
from privet.federation import wire
from privet.federation.flat import flat
from privet.federation.local_work import LocalWork, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone import line, starting
from privet.federation.phone.clock import FastClock
from privet.federation.phone.fleet import Fleet
from privet.federation.phone.given import GivenData
from privet.federation.phone.policies import Policies
from privet.federation.phone.records import HELD_OUT, POOL, TRAIN, Records
from privet.federation.phone.starting import Plan, Starter
from privet.federation.phone.training import Lessons
from privet.federation.population import population_of
from privet.federation.settings import FederationSettings
from privet.models import create

from .conftest import APP_KEY, FakeServer

SHAPE, CLASSES = (3, 100), 5


class Activities(FakeServer):
    """Offers a model of movements, and wants the accelerometer."""

    def __init__(self):
        super().__init__()
        self.weights = {"m": {0: flat(create("linear", SHAPE, CLASSES, init_seed=0))}}

    def offer(self, model):
        sensing = wire.Sensing(sensor="accelerometer", least_rate=5, rate=100, flush_seconds=30)
        classes = [f"c{number}" for number in range(CLASSES)]
        changes = {"shape": list(SHAPE), "classes": classes, "sensing": [sensing]}
        return super().offer(model).model_copy(update=changes)


def plan(folder, **changes):
    usual = {
        "url": "https://server.test",
        "ca": None,
        "app_keys": [APP_KEY],
        "folder": folder,
        "models": (),
        "data": {},
        "recordings": None,
        "first": 0,
        "count": 1,
        "traces": "always",
        "profile": "Pixel 3a",
        "speedup": 1000.0,
        "policies": Policies(),
        "seed": 0,
        "watch": lambda user: lambda event, facts: None,
    }
    return Plan(**usual | changes)


@pytest.fixture
def server(monkeypatch):
    made = Activities()
    monkeypatch.setattr(
        starting, "Line", lambda url, ca: line.Line(url, transport=made.transport())
    )
    return made


def run(plan, enough):
    clock = FastClock.kept_in(starting.own_folder(plan.folder), speedup=plan.speedup)
    starter, stop = Starter(plan, clock, threading.Event()), threading.Event()
    phones = [starter.start(plan.first + number) for number in range(plan.count)]
    watchdog = threading.Timer(60.0, stop.set)
    watchdog.start()
    done = Fleet(phones, clock, enough=enough).run(stop)
    watchdog.cancel()
    assert done
    return phones


def accepted(phone):
    return "accepted" in phone.models["m"].standing.fates


def test_what_is_collected_is_trained_on(server, tmp_path):
    """Streams are played, cut into windows, trained on; raw samples are there to be forgotten."""
    (phone,) = run(plan(tmp_path, recordings="simulated"), accepted)
    records = phone.models["m"].records
    assert records.count()
    x, y = records.read(TRAIN)
    assert x.shape[1:] == SHAPE
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    assert set(y.tolist()) <= set(range(CLASSES))
    assert list((tmp_path / "raw" / "accelerometer").glob("*.safetensors"))


def test_many_phones_have_a_folder_each(server, tmp_path):
    data = {"": GivenData("activities", None, FederationSettings())}
    phones = run(plan(tmp_path, data=data, first=2, count=3), accepted)
    assert [phone.folder.name for phone in phones] == ["phone-2", "phone-3", "phone-4"]
    assert len(server.devices) == 3
    again = run(plan(tmp_path, data=data, first=2, count=3), accepted)
    assert len(server.devices) == 3
    assert [phone.models["m"].standing.fates for phone in again] == [
        phone.models["m"].standing.fates for phone in phones
    ]


def test_a_users_records_are_the_simulators(tmp_path):
    """Of a pool, too: the same lesson, and from the same weights the same change."""
    settings = FederationSettings(pool=5, init_seed=3)
    given = GivenData("activities", None, settings)
    records = Records(tmp_path, shape=SHAPE, classes=CLASSES, key=given.key(7))
    given.give(7, records)
    population = population_of(privet.data.load("activities"), settings)
    material = population.material(torch.device("cpu"))
    work = LocalWork(
        epochs=2, batch=16, learning_rate=0.1, own_per_class=(3, 6), pool_per_class=(2, 4)
    )
    network = create("linear", SHAPE, CLASSES, init_seed=0)
    lesson = Teacher(material, work, seed=9).lesson(7, 4)
    (expected,) = OneByOne(network, material, work).changes(flat(network), [lesson])
    said = wire.Work(
        epochs=2,
        batch=16,
        learning_rate=0.1,
        optimizer="sgd",
        own_per_class=(3, 6),
        pool_per_class=(2, 4),
    )
    lessons = Lessons(network=network, records=records, seed=9)
    weights = tmp_path / "weights.safetensors"
    starting_weights = {"weights": flat(network)}
    from privet.federation.phone.storage import save_tensors

    save_tensors(weights, starting_weights)
    course = lessons.begun(said, weights, 4)
    course._pupil.go_on()
    assert torch.equal(course.change(), expected)
    assert records.count(POOL) == 5 * CLASSES
    late = population.data.test.units == 7
    assert records.count(HELD_OUT) == late.sum()


def test_data_that_do_not_fit_are_refused(tmp_path):
    given = GivenData("digits", None, FederationSettings(clients=3))
    with pytest.raises(InputError, match="does not fit the model"):
        given.give(0, Records(tmp_path, shape=SHAPE, classes=CLASSES))
    with pytest.raises(InputError, match="no such user"):
        given.give(3, Records(tmp_path, shape=(1, 8, 8), classes=10))


def test_a_model_that_the_app_does_not_have(server, tmp_path):
    wanted = plan(tmp_path, models=("other",), recordings="simulated")
    with pytest.raises(InputError, match="does not have this model"):
        run(wanted, accepted)


def test_a_file_of_traces_may_be_for_more_phones(tmp_path):
    path = tmp_path / "traces.csv"
    path.write_text("client,start,stop\n0,0,10\n5,3,4\n")
    around = starting.surroundings_of(plan(tmp_path, traces=str(path), first=0, count=1))
    assert around[0].at(5.0).charging
    assert not around[5].at(2.0).charging


def test_a_phone_whose_trace_has_ended_is_done(server, tmp_path):
    """It would wait for a charger for ever, and the others' process with it."""
    path = tmp_path / "traces.csv"
    path.write_text("client,start,stop\n0,0,0.001\n")
    data = {"": GivenData("activities", None, FederationSettings())}
    begun = plan(tmp_path / "phone", data=data, traces=str(path))
    (phone,) = run(begun, lambda phone: phone.over)
    assert not phone.models["m"].standing.fates
