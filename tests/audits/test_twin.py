"""A twin shares all that epsilon rests on, and no record."""

import json
from dataclasses import asdict

import numpy as np
import pytest

import privet
from privet.audits import twin
from privet.audits.twin import audited_twin, made_up, plan_of, settings_of
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.noise import GaussianNoise


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def card(home):
    """Of a short private run on digits."""
    ledger = Ledger(home / "ledger.db")
    release = privet.train(
        "dpsgd", privet.data.load("digits"), epsilon=4, batch=256, epochs=2, ledger=ledger
    )
    return json.loads(json.dumps(dict(release.trust)))


def test_plan_and_settings_are_those_of_the_card(card):
    plan, settings = plan_of(card), settings_of(card)
    assert (settings.epsilon, settings.batch, settings.epochs) == (4, 256, 2)
    calibrated = settings.plan_for(privet.data.load("digits"))
    assert asdict(plan) == asdict(calibrated)
    assert plan.running_epsilon(plan.steps) == pytest.approx(4, abs=0.05)


def test_delta_and_correlated_noise_are_those_of_the_card(home):
    ledger = Ledger(home / "other.db")
    data = privet.data.load("digits")
    for changes in ({"delta": 1e-6}, {"sampler": "cyclic-poisson", "bands": 4, "cycle": 4}):
        release = privet.train(
            "dpsgd", data, epsilon=4, batch=256, epochs=1, model="linear", ledger=ledger, **changes
        )
        plan = plan_of(release.trust)
        assert plan.delta == changes.get("delta", 1e-5)
        assert len(plan.bands) == changes.get("bands", 0)
        assert asdict(plan) == asdict(settings_of(release.trust).plan_for(data))


def test_its_records_are_nobody_s(card):
    data = made_up(card)
    real = privet.data.load("digits")
    assert len(data.train) == data.nominal_size == real.nominal_size
    assert data.shape == real.shape
    assert data.train.x.min() >= 0
    assert data.train.x.max() <= 16
    assert not np.isin(data.train.x.reshape(len(data.train), -1)[:, 20], real.train.x).all()


def test_no_record_is_read_and_nothing_is_charged(card, home, monkeypatch):
    ledger = Ledger(home / "ledger.db")
    before = len(ledger.account("digits").runs)
    monkeypatch.setattr(privet.data, "load", None)
    audited_twin(card, canaries=100, seed=0)
    assert len(ledger.account("digits").runs) == before


def test_the_twin_runs_the_engine_under_the_plan(card, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        twin, "take_steps", lambda trainer, *_: seen.update(plan=trainer.plan, model=trainer.model)
    )
    audited_twin(card, canaries=100, seed=0)
    assert asdict(seen["plan"]) == asdict(plan_of(card))
    assert sum(p.numel() for p in seen["model"].parameters()) == 9930


def test_who_took_part_shows_as_much_as_epsilon_allows(card):
    """The likelihood ratio: its mean under "took no part" is 1, and both kinds stand apart."""
    audit = audited_twin(card, canaries=3000, seed=1)
    scores, included = audit.scores.numpy(), audit.included.numpy()
    inside, outside = scores[included], scores[~included]
    apart = (inside.mean() - outside.mean()) / outside.std()
    assert 0.5 < apart < 1.6
    assert np.exp(outside).mean() == pytest.approx(1.0, abs=0.3)


def test_a_run_with_another_noise_than_it_says_stands_out(card):
    """A planted bug: a quarter of the noise that the plan accounts."""
    honest = audited_twin(card, canaries=2000, seed=2)
    add_to = GaussianNoise.add_to

    def quarter(self, total, *, step, stream):
        noisy = add_to(self, total, step=step, stream=stream)
        return total.double() + (noisy - total.double()) / 4

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GaussianNoise, "add_to", quarter)
        broken = audited_twin(card, canaries=2000, seed=2)

    def found(audit):
        top = np.argsort(-audit.scores.numpy())[:200]
        return audit.included.numpy()[top].mean()

    assert found(broken) == 1.0
    assert found(honest) < 0.99


@pytest.mark.parametrize(
    "change",
    [
        {"method": "plain"},
        {"method": "securesgd", "analysis": "paper"},
        {"method": "stobatch", "analysis": "paper"},
        {"provenance": {"config": {}}},
    ],
)
def test_releases_that_no_settings_are_known_of_are_refused(card, change):
    with pytest.raises(InputError, match="no twin"):
        audited_twin({**card, **change}, canaries=10)
