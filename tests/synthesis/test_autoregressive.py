"""The private generator: its objective, its layers' shares, one patient's influence, an audit."""

import dp_accounting as dp
import numpy as np
import pytest
import torch

import privet
from privet.data.records.coding import coded_dataset
from privet.data.records.simulator import simulate
from privet.errors import InputError
from privet.files import read_json
from privet.guarantee import Adjacency
from privet.models.generators import create_generator
from privet.privacy.clipping import make_clipper
from privet.privacy.geometry import layer_sizes
from privet.synthesis.autoregressive import (
    SHARES,
    AutoregressiveSettings,
    PlainAutoregressiveSettings,
    RecordLoss,
)
from privet.training import dpsgd

TINY = {"epsilon": 2.0, "model": "rows-16-0", "epochs": 2.0, "batch": 40}


@pytest.fixture
def ledger(tmp_path):
    with_ledger = privet.Ledger(tmp_path / "ledger.db")
    yield with_ledger
    with_ledger.close()


def test_the_objective_is_the_weighted_sum():
    outputs = torch.tensor([[1.0, 10.0, 100.0, 1000.0], [2.0, 0.0, 0.0, 1.0]])
    loss = RecordLoss(static=2.0, habits=0.5, rows=0.1, outcome=3.0)(outputs, torch.zeros(2))
    assert loss.tolist() == [2 + 5 + 10 + 3000, 4 + 3]


def test_shares_name_layers_that_are_there():
    data = coded_dataset(simulate(20))
    network = create_generator("rows-16-1", data.schema)
    assert set(SHARES) <= set(layer_sizes(network))


def test_the_statement_is_about_patients_and_follows_from_the_events(ledger):
    """The epsilon of the card is that of dp-accounting for the sampled Gaussian that ran."""
    records = simulate(120)
    release = dpsgd.run(coded_dataset(records), AutoregressiveSettings(**TINY), ledger=ledger)
    stated = release.privacy
    assert (stated.unit, stated.basis, stated.adjacency) == (
        "patient",
        "proved",
        Adjacency.ADD_REMOVE,
    )
    mechanism = release.trust["mechanism"]
    accountant = dp.pld.PLDAccountant()
    step = dp.PoissonSampledDpEvent(
        mechanism["sampling_rate"], dp.GaussianDpEvent(mechanism["noise_multiplier"])
    )
    accountant.compose(step, mechanism["steps"])
    assert stated.epsilon == pytest.approx(accountant.get_epsilon(stated.delta), rel=1e-3)
    assert stated.epsilon <= 2.0
    assert mechanism["sampling_rate"] == pytest.approx(40 / records.schema.nominal_size)


def clipped_sum(data, chosen):
    """What the chosen patients add up to, clipped as in a step."""
    settings = AutoregressiveSettings(**TINY | {"model": "rows-16-1"}).filled_for(data)
    torch.manual_seed(0)
    network = settings.network(data)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    x = torch.from_numpy(data.train.x[chosen]).float() / 255
    clipper = make_clipper(
        network,
        settings.loss,
        settings.clip_norm,
        probe=(x[:2], torch.zeros(2, dtype=torch.long)),
        geometry=settings.extras().geometry,
    )
    return clipper.clipped_sum(x, torch.zeros(len(x), dtype=torch.long))


def test_one_patient_moves_the_sum_by_no_more_than_the_clip_norm():
    data = coded_dataset(simulate(60))
    everyone = clipped_sum(data, np.arange(50))
    for left_out in (0, 17, 49):
        rest = clipped_sum(data, np.delete(np.arange(50), left_out))
        assert (everyone - rest).norm() <= 1.0 + 1e-3
        assert (everyone - rest).norm() > 0.5


def test_stays_of_one_patient_count_as_one_unit(ledger):
    """Ten stays of one patient are one draw of the sampler, not ten."""
    records = simulate(40)
    data = coded_dataset(records)
    assert data.train.n_units == 40 < len(records)
    one = dpsgd.run(data, AutoregressiveSettings(**TINY), ledger=ledger)
    assert one.trust["data"]["grouped"]
    assert one.trust["mechanism"]["contribution"] == 1


def test_an_audit_of_the_run_stays_below_its_proof(ledger, tmp_path):
    """Canaries of the run itself: the lower bound at 95 % may exceed the proof in 1 of 20 seeds."""
    records = simulate(300)
    settings = AutoregressiveSettings(**TINY | {"canaries": 400, "epochs": 1.0})
    release = dpsgd.run(coded_dataset(records), settings, ledger=ledger, out=tmp_path / "run")
    rows = read_json(tmp_path / "run/internal/audit.json")["audit"]
    assert rows
    assert all(row["epsilon"] <= release.privacy.epsilon for row in rows)


@pytest.mark.parametrize(
    "settings",
    [{"adversarial": "madry"}, {"augment": "shift"}, {"input_noise": 0.1}],
)
@pytest.mark.parametrize("kind", [AutoregressiveSettings, PlainAutoregressiveSettings])
def test_options_about_images_are_refused(kind, settings):
    target = {"epsilon": 1.0} if kind is AutoregressiveSettings else {}
    with pytest.raises(InputError, match="as they are"):
        kind(**target, **settings)


@pytest.mark.parametrize("name", ["rows-17-1", "cnn", "rows-0-1", "rows-16"])
def test_unknown_generators_are_refused(name):
    with pytest.raises(InputError, match="unknown generator"):
        create_generator(name, coded_dataset(simulate(5)).schema)


def test_first_weights_are_those_of_the_seed():
    schema = coded_dataset(simulate(5)).schema
    one, same, other = (create_generator("rows-16-1", schema, init_seed=s) for s in (1, 1, 2))
    assert torch.equal(one.read.weight, same.read.weight)
    assert not torch.equal(one.read.weight, other.read.weight)


def test_examples_with_classes_are_refused(ledger):
    with pytest.raises(InputError, match="no patient records"):
        dpsgd.run(privet.data.load("digits"), AutoregressiveSettings(**TINY), ledger=ledger)
