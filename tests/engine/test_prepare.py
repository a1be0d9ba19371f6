"""make_private: what is checked, what is reserved, what decides the plan."""

import warnings

import pytest
import torch
from torch import nn

from privet.data.dataset import LearnedFact
from privet.engine.prepare import left_for_training, make_private
from privet.errors import BudgetExceeded, InputError
from privet.ledger import Ledger
from privet.models import without_batchnorm
from privet.privacy.accounting import epsilon_of
from privet.privacy.clipping import FastClipper, ReferenceClipper

# Every record in every step: calibration is then exact and instant.
TARGET = {"epsilon": 8.0, "delta": 1e-3, "batch": 80, "epochs": 4}


@pytest.fixture
def fresh(tmp_path):
    opened = Ledger(tmp_path / "own.db")
    yield opened
    opened.close()


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)


def private(model, data, ledger, **changes):
    return make_private(model, sgd(model), data, ledger=ledger, **(TARGET | changes))


def test_the_whole_plan_is_reserved_within_the_target(fresh, make_data):
    trainer = private(plain(), make_data(), fresh)
    record = fresh.run(trainer.account.run_id)
    assert (record.planned, record.charged) == (4, 0)
    assert record.step_event == trainer.plan.event(1).event
    assert epsilon_of(trainer.plan.event(), 1e-3) <= 8.0
    assert trainer.randomness.secret


def test_the_plan_follows_the_declared_size_and_not_the_records(fresh, make_data, monkeypatch):
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 1.0)
    plans = [
        private(plain(), make_data(n=n, nominal_size=80, name=f"d{n}"), fresh, batch=20).plan
        for n in (60, 80, 81)
    ]
    assert plans[0] == plans[1] == plans[2]
    assert (plans[0].sampling_rate, plans[0].normaliser) == (0.25, 20.0)


def test_training_learns_what_a_line_can_tell_apart(fresh, make_data):
    data = make_data(n=400)
    model = plain()
    trainer = private(model, data, fresh, epsilon=50.0, batch=400, epochs=40)
    for batch in trainer.batches():
        trainer.step(batch)
    scores = model(torch.from_numpy(data.train.x)).argmax(1).numpy()
    assert (scores == data.train.y).mean() > 0.9


def test_the_default_ledger_is_the_one_of_the_users_home(make_data, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path / "elsewhere"))
    model = plain()
    trainer = make_private(model, sgd(model), make_data(), **TARGET)
    assert trainer.account.ledger.path == tmp_path / "elsewhere" / "ledger.db"
    trainer.account.ledger.close()


@pytest.mark.parametrize(
    ("middle", "kind"),
    [
        (nn.Tanh(), FastClipper),
        (nn.LayerNorm(8), FastClipper),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), ReferenceClipper),
    ],
)
def test_the_clipper_follows_the_model(fresh, make_data, middle, kind):
    trainer = private(nn.Sequential(nn.Linear(4, 8), middle, nn.Linear(8, 2)), make_data(), fresh)
    assert isinstance(trainer._clipper, kind)
    assert trainer._clipper.clip_norm == trainer.plan.clip_norm


def mixing():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def test_a_refused_model_leaves_nothing_reserved(fresh, make_data):
    """Else a user who mends the model would find the budget gone."""
    data = make_data()
    private(plain(), data, fresh).account.settle()
    fresh.cap(data.name, 12.0, 1e-3)
    model = mixing()
    with pytest.raises(InputError, match="without_batchnorm"):
        private(model, data, fresh)
    assert [r.committed for r in fresh.account(data.name).runs] == [0]
    private(without_batchnorm(model), data, fresh)
    with pytest.raises(BudgetExceeded):  # the cap did bind
        private(plain(), data, fresh)


def mean_loss(outputs, y):
    return nn.functional.cross_entropy(outputs, y)


def test_a_refused_loss_leaves_nothing_reserved(fresh, make_data):
    data = make_data()
    with pytest.raises(InputError, match='reduction="none"'):
        private(plain(), data, fresh, loss=mean_loss)
    assert fresh.account(data.name).runs == ()


def test_a_refused_optimiser_leaves_nothing_reserved(fresh, make_data):
    data, model = make_data(), plain()
    foreign = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(InputError, match="not in the model"):
        make_private(model, foreign, data, ledger=fresh, **TARGET)
    committed = [r.committed for r in fresh.account(data.name).runs]
    assert sum(committed) == 0


def test_the_check_uses_no_record(fresh, make_data):
    """A model that looks at its inputs sees only made-up ones before the first step."""
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append(x.detach().clone())
            return x

    data = make_data()
    private(nn.Sequential(Watching(), nn.Linear(4, 2)), data, fresh)
    records = {row.tobytes() for row in data.train.x}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inputs of vmap cannot be read, and are the same probe
        plain_inputs = [x for x in seen if not torch._C._functorch.is_functorch_wrapped_tensor(x)]
    assert plain_inputs
    assert all(row.numpy().tobytes() not in records for x in plain_inputs for row in x)


def test_what_learning_facts_cost_is_taken_off_the_target(make_data):
    learned = (LearnedFact(name="bounds", epsilon=0.5), LearnedFact(name="size", epsilon=0.25))
    assert left_for_training(3.0, make_data(learned=learned)) == 2.25
    assert left_for_training(3.0, make_data()) == 3.0


def test_facts_that_cost_everything_leave_nothing_to_train_with(make_data):
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=3.0),))
    with pytest.raises(InputError, match="nothing is left for training"):
        left_for_training(3.0, data)


def test_training_and_learned_facts_together_keep_the_target(fresh, make_data):
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=2.0),))
    trainer = private(plain(), data, fresh)
    assert epsilon_of(trainer.plan.event(), 1e-3) + 2.0 <= 8.0
