import numpy as np
import pytest

from privet.data.dataset import Bounds
from privet.engine.account import RunAccount
from privet.engine.plan import Plan
from privet.errors import InputError
from privet.tuning import rehearsal
from privet.tuning.rehearsal import RECORDS, made_up, rehearse
from privet.tuning.search import Search

PLAN = Plan(
    steps=5, sampling_rate=0.2, clip_norm=1.0, noise_multiplier=2.0, normaliser=16.0, delta=1e-5
)


@pytest.fixture
def rehearse_on():
    def run(data, **axes):
        search = Search.of({"learning_rate": [0.1, 0.2], **axes}, {"epsilon": 3.0, "epochs": 1})
        search = search.filled(search.base.filled_for(data))
        rehearse(search, PLAN, data)

    return run


def test_made_up_records_have_the_public_facts_and_nothing_else(make_data):
    bounds = Bounds(low=(0.0, -5.0, 10.0, 0.0), high=(1.0, 5.0, 20.0, 1.0))
    one, other = make_data(seed=0, bounds=bounds), make_data(n=40, seed=1, bounds=bounds)
    first, second = made_up(one).train, made_up(other).train
    assert (first.x == second.x).all()
    assert len(first) == RECORDS
    assert (first.x >= bounds.low).all()
    assert (first.x <= bounds.high).all()
    assert set(first.y) == {0, 1}


def test_nothing_is_charged_and_no_record_is_touched(make_data, rehearse_on, monkeypatch):
    data = make_data()

    def refuse(*_):
        raise AssertionError("a rehearsal asked the ledger")

    monkeypatch.setattr(RunAccount, "charge", refuse)
    data.train.x[:] = np.nan  # whoever computes with it spoils its weights
    built = []
    build = rehearsal.build

    def build_and_note(*args, **options):
        built.append(build(*args, **options))
        return built[-1]

    monkeypatch.setattr(rehearsal, "build", build_and_note)
    rehearse_on(data, model=["linear", "mlp"])
    assert len(built) == 2  # once for each kind, not for each learning rate
    weights = [p for trainer in built for p in trainer.model.parameters()]
    assert all(bool(w.isfinite().all()) for w in weights)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"model": ["linear", "resnet"]}, "resnet"),
        ({"augment": ["none", "shift"]}, "image"),
        ({"model": ["linear", "cnn"]}, "needs images"),
    ],
)
def test_a_candidate_that_cannot_be_trained_is_found(make_data, rehearse_on, axes, words):
    with pytest.raises(InputError, match=words):
        rehearse_on(make_data(), **axes)
