"""One phone, two models: one training at a time, in order, and answers for apps meanwhile."""

import pytest
import torch

from privet.errors import CheckFailed, InputError
from privet.federation.flat import load_flat
from privet.federation.phone.conditions import Conditions, Network
from privet.federation.phone.stages import AT_WORK, Stage
from privet.federation.phone.storage import locked
from privet.models import create

from .conftest import APP_KEY, CLASSES, SHAPE


@pytest.fixture
def both(make_server, make_bench):
    return make_bench(make_server(models=("first", "second")))


def act(bench):
    until = bench.phone.act(bench.clock.moment)
    bench.clock.moment = max(bench.clock.moment, min(until, bench.clock.moment + 60.0))


def stages(bench):
    return {name: model.standing.stage for name, model in bench.phone.models.items()}


def test_models_train_one_after_the_other(both):
    worked = []
    for _ in range(100):
        act(both)
        at_work = [name for name, stage in stages(both).items() if stage in AT_WORK]
        assert len(at_work) <= 1
        worked += [name for name in at_work if worked[-1:] != [name]]
        if all(model.standing.fates for model in both.phone.models.values()):
            break
    assert worked[:2] == ["first", "second"]
    assert [model.standing.fates for model in both.phone.models.values()] == [{"accepted": 1}] * 2


def test_what_is_used_most_comes_first(both):
    both.phone.models["second"].uses = 3
    for _ in range(100):
        act(both)
        if at_work := [name for name, stage in stages(both).items() if stage in AT_WORK]:
            break
    assert at_work == ["second"]


def test_while_one_is_paused_the_other_waits(both):
    while Stage.TRAINING not in stages(both).values():
        act(both)
    both.around.conditions = Conditions(charging=False)
    for _ in range(10):
        act(both)
    assert sorted(stages(both).values()) == [Stage.PAUSED, Stage.QUEUED]
    both.around.conditions = Conditions()
    for _ in range(100):
        act(both)
    assert all(model.standing.fates["accepted"] for model in both.phone.models.values())


def test_apps_are_answered_while_the_phone_trains(both):
    while Stage.TRAINING not in stages(both).values():
        act(both)
    name = next(name for name, stage in stages(both).items() if stage is Stage.TRAINING)
    x = torch.rand(5, 4)
    model = both.phone.models[name]
    before = torch.get_rng_state()
    scores = both.phone.answer(APP_KEY, name, x)
    assert torch.equal(torch.get_rng_state(), before)
    oracle = create(both.server.network, SHAPE, CLASSES, init_seed=9)
    load_flat(oracle, both.server.weights[name][0])
    assert torch.equal(scores, oracle.eval()(x).detach())
    assert model.uses == 1
    assert model.standing.stage is Stage.TRAINING


def test_an_app_that_is_not_registered_is_refused(both):
    while Stage.TRAINING not in stages(both).values():
        act(both)
    with pytest.raises(CheckFailed, match="no app of this phone"):
        both.phone.answer("another-app-key-of-length", "first", torch.rand(1, 4))
    with pytest.raises(InputError, match="does not have this model"):
        both.phone.answer(APP_KEY, "third", torch.rand(1, 4))


def test_before_a_version_is_here_nothing_is_answered(both):
    with pytest.raises(InputError, match="no version"):
        both.phone.answer(APP_KEY, "first", torch.rand(1, 4))


def test_one_process_a_folder(tmp_path):
    with locked(tmp_path), pytest.raises(InputError, match="another phone"), locked(tmp_path):
        pass
    assert (tmp_path / "lock").stat().st_mode & 0o077 == 0


def test_files_are_the_owners_alone(both):
    for _ in range(100):
        act(both)
    secret = [path for path in both.folder.rglob("*") if path.is_file()]
    assert len(secret) > 6
    assert [path for path in secret if path.stat().st_mode & 0o077] == []


def test_apps_that_use_a_model_get_its_newest_version(both):
    """Also where the phone may not train; a model that nobody uses is not fetched."""
    for _ in range(100):
        act(both)
    both.around.conditions = Conditions(charging=False)
    both.clock.moment += 20_000.0  # rounds that were begun are over
    for _ in range(10):
        act(both)
    assert set(stages(both).values()) <= {Stage.IDLE, Stage.REQUESTING}
    for model in both.server.weights.values():
        model[1] = model[0] + 1
    both.phone.answer(APP_KEY, "first", torch.rand(1, 4))
    for wait in (1.0, 3600.0):
        both.clock.moment += wait
        both.phone.act(both.clock.moment)
    versions = {name: model.standing.version for name, model in both.phone.models.items()}
    assert versions == {"first": 1, "second": 0}


def test_a_phone_that_may_not_work_sleeps(both):
    """Wherever its models stand when the charger is pulled out, it does not spin."""
    for acts in range(0, 40, 3):
        both.around.conditions = Conditions()
        for _ in range(acts):
            act(both)
        both.around.conditions = Conditions(charging=False, network=Network.NONE)
        for _ in range(8):
            act(both)
        assert both.phone.act(both.clock.moment) > both.clock.moment
