"""The trust card: its fields, what is withheld, and totals against an independent sum."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

from privet.data.dataset import LearnedFact, Split
from privet.engine import handover
from privet.engine.account import RunAccount
from privet.engine.assumptions import PUBLIC_START
from privet.engine.examples import Examples
from privet.engine.generators import TORCH_DRAWS
from privet.engine.handover import (
    accuracy_figures,
    hand_over,
    private_figures,
    state,
)
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.engine.tuned import DECLARED, Tuning
from privet.errors import CheckFailed, InputError
from privet.guarantee import Adjacency, Basis
from privet.privacy.accounting import epsilon_of, sampled_gaussian
from privet.privacy.clipping import FastClipper, cross_entropy
from privet.privacy.randomness import Randomness

CPU = torch.device("cpu")
PLAN = Plan(
    steps=5, sampling_rate=0.25, clip_norm=1.0, noise_multiplier=1.2, normaliser=20.0, delta=1e-4
)
FACTS = (LearnedFact(name="bounds", epsilon=0.5), LearnedFact(name="size", epsilon=0.25))


@pytest.fixture
def finished(ledger, make_data):
    """A trainer after `steps` steps, with its data."""

    def make(*, secret=True, steps=5, contribution=1, draws_by_torch=False, **changes):
        data = make_data(name="toy", **changes)
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        trainer = PrivateTrainer(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            examples=Examples.of(data.train, data.bounds, CPU, contribution=contribution),
            plan=PLAN,
            clipper=FastClipper(model, cross_entropy, 1.0),
            randomness=Randomness.fresh(4) if secret else Randomness.seeded(1),
            account=RunAccount.open(ledger, "toy", PLAN, label="t", private=secret, journal=None),
            origin=Origin.of(data),
            draws_by_torch=draws_by_torch,
        )
        for batch in trainer.batches():
            trainer.step(batch)
            if trainer.next_step == steps:
                break
        return trainer, data

    return make


def test_the_card_has_every_field_and_is_json(finished):
    trainer, data = finished()
    trust = hand_over(trainer, data, config={"learning_rate": 0.5}).trust
    assert set(trust) == {
        "format", "method", "analysis", "data", "privacy", "withheld", "tuning", "mechanism",
        "events", "robustness", "attacks", "audit", "utility", "provenance",
    }  # fmt: skip
    assert json.loads(json.dumps(trust, allow_nan=False)) == trust
    assert trust["mechanism"] == {
        "sampler": "poisson", "sampling_rate": 0.25, "steps": 5, "steps_run": 5, "redone_steps": 0,
        "clip_norm": 1.0, "noise_multiplier": 1.2, "normaliser": 20.0, "cycle": 1, "bands": [],
        "noise": "independent", "contribution": 1, "clipping": {"name": "flat", "numbers": {}},
        "torch_draws": False, "precision": "float32",
    }  # fmt: skip
    assert trust["data"]["nominal_size"] == 80
    assert trust["provenance"]["init_seed"] == 4
    assert trust["provenance"]["config"] == {"learning_rate": 0.5}
    assert trust["provenance"]["model"] == {"parameters": 10, "trainable": 10}


def test_every_statement_is_complete(finished):
    guarantees = hand_over(*finished()).guarantees
    assert [g.adjacency for g in guarantees] == [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE]
    for g in guarantees:
        assert g.basis is Basis.PROVED
        assert (g.delta, g.unit, g.sampler) == (1e-4, "example", "poisson")
        assert g.accountant
        assert any("secret" in assumption for assumption in g.assumptions)
    assert guarantees[0].epsilon < guarantees[1].epsilon


def test_epsilon_is_that_of_the_whole_plan(finished):
    release = hand_over(*finished())
    event = sampled_gaussian(1.2, 0.25, 5)
    assert release.privacy.epsilon == pytest.approx(epsilon_of(event, 1e-4), rel=1e-9)


def test_a_run_that_stopped_early_claims_no_less_than_its_plan(finished, ledger):
    trainer, data = finished(steps=2)
    release = hand_over(trainer, data)
    assert release.trust["mechanism"]["steps_run"] == 2
    assert release.privacy.epsilon >= epsilon_of(sampled_gaussian(1.2, 0.25, 5), 1e-4) - 1e-9
    assert ledger.run(trainer.account.run_id).committed == 2  # the rest is given back
    with pytest.raises(CheckFailed):
        trainer.step(next(trainer.batches()))


def test_learned_facts_add_once_or_twice(finished):
    release = hand_over(*finished(learned=FACTS))
    add_remove, replace_one = release.guarantees
    event = sampled_gaussian(1.2, 0.25, 5)
    assert add_remove.epsilon == pytest.approx(epsilon_of(event, 1e-4) + 0.75, rel=1e-9)
    assert replace_one.epsilon == pytest.approx(
        epsilon_of(event, 1e-4, Adjacency.REPLACE_ONE) + 2 * 0.75, rel=1e-9
    )
    assert [e["label"] for e in release.trust["events"]] == [
        "learned: bounds", "learned: size", "train",
    ]  # fmt: skip
    assert release.trust["events"][0]["event"] == {"type": "Laplace", "noise_multiplier": 2.0}


def test_redone_steps_are_in_the_event_and_in_epsilon(finished, ledger):
    trainer, data = finished()
    for _ in range(3):
        ledger.recharge(trainer.account.run_id)
    release = hand_over(trainer, data)
    assert release.trust["events"][-1]["event"]["count"] == 5 + 3
    assert release.trust["mechanism"]["redone_steps"] == 3
    assert release.privacy.epsilon == pytest.approx(
        epsilon_of(sampled_gaussian(1.2, 0.25, 8), 1e-4), rel=1e-9
    )


def test_known_noise_withholds_epsilon(finished):
    release = hand_over(*finished(secret=False))
    assert release.trust["privacy"] == []
    assert release.privacy is None
    assert len(release.trust["withheld"]) == 1
    assert "known seed" in release.trust["withheld"][0]


def test_a_private_test_set_is_not_reported(finished):
    trainer, data = finished(test_is_public=False)
    release = hand_over(trainer, data)
    assert release.trust["utility"] == {}
    assert release.trust["data"]["test_is_public"] is False
    figures = private_figures(release, data)  # for the curator alone
    assert figures["train_examples"] == 80
    assert figures["test_examples"] == 20
    assert "accuracy" not in json.dumps(release.trust)


def test_accuracy_is_counted_and_its_interval_is_exact(finished):
    trainer, data = finished()
    release = hand_over(trainer, data)
    with torch.no_grad():
        chosen = trainer.model(torch.from_numpy(data.test.x)).argmax(1).numpy()
    hits, n = int(np.sum(chosen == data.test.y)), 20
    utility = release.trust["utility"]
    assert utility == accuracy_figures(release, data)
    assert (utility["test_accuracy"], utility["test_examples"]) == (hits / n, n)
    low = 0.0 if hits == 0 else beta.ppf(0.025, hits, n - hits + 1)
    high = 1.0 if hits == n else beta.ppf(0.975, hits + 1, n - hits)
    assert utility["interval95"] == pytest.approx([low, high], abs=1e-9)


def test_nothing_of_the_records_or_keys_is_in_the_card(finished):
    trainer, data = finished()
    text = json.dumps(hand_over(trainer, data).trust)
    for stream in (trainer.randomness.noise, trainer.randomness.sampling):
        assert stream.key.hex() not in text
    assert "80" not in json.dumps(json.loads(text)["mechanism"])  # not the true size


def test_the_digest_of_the_data_is_keyed(finished, tmp_path):
    from privet.data.identity import set_digest

    trainer, data = finished()
    trust = hand_over(trainer, data).trust
    digest = trust["provenance"]["data_digest"]
    ledger, run = trainer.account.ledger, trainer.account.run_id
    snapshot = set_digest(data, ledger.digest_key)
    assert digest == ledger.commitment(snapshot, run, facts=trust["data"])
    restated = trust["data"] | {"unit": "hospital"}
    assert digest not in (snapshot, ledger.commitment(snapshot, run, facts=restated))


def test_two_releases_on_the_same_records_carry_different_digests(finished):
    digests = [hand_over(*finished()).trust["provenance"]["data_digest"] for _ in range(2)]
    assert digests[0] != digests[1]


def test_a_model_of_the_users_own_carries_the_assumption_about_its_first_weights(finished):
    trainer, data = finished()
    stated = hand_over(trainer, data).guarantees[0].assumptions
    assert PUBLIC_START not in stated  # this one began from a public seed
    trainer, data = finished()
    trainer.randomness = replace(trainer.randomness, init_seed=None)
    assert PUBLIC_START in hand_over(trainer, data).guarantees[0].assumptions


UNCHARGED = Tuning(kind="uncharged", detail="of a search")


@pytest.mark.parametrize("tuning", [DECLARED, UNCHARGED], ids=lambda tuning: tuning.kind)
def test_every_guarantee_rests_on_how_the_settings_were_chosen(finished, monkeypatch, tuning):
    trainer, data = finished(steps=1)
    monkeypatch.setattr(handover, "total_epsilon", lambda *_: 1.0)  # not asked about here
    release = state(trainer, data, method="m", model_name="custom", config=None, tuning=tuning)
    assert len(release.guarantees) == 2
    for guarantee in release.guarantees:
        said = [a for a in guarantee.assumptions if "settings" in a or "search" in a]
        assert said == [tuning.assumption]
    assert release.trust["tuning"]["kind"] == tuning.kind


def test_what_is_handed_over_by_hand_was_declared(finished, monkeypatch):
    monkeypatch.setattr(handover, "total_epsilon", lambda *_: 1.0)
    release = hand_over(*finished(steps=1))
    assert release.trust["tuning"]["kind"] == "declared"
    assert DECLARED.assumption in release.privacy.assumptions


@pytest.mark.parametrize("contribution", [1, 3])
def test_the_card_says_how_many_records_of_a_unit_a_step_used(finished, make_data, contribution):
    records = make_data().train
    users = Split(x=records.x, y=records.y, units=np.arange(80) // 4)
    trainer, data = finished(
        contribution=contribution, train=users, unit="user", nominal_size=20, secret=False
    )
    mechanism = hand_over(trainer, data).trust["mechanism"]
    assert mechanism["contribution"] == contribution


def test_data_that_the_run_was_not_reserved_for_are_refused(finished, make_data, ledger):
    trainer, data = finished(steps=1, secret=False)
    with pytest.raises(InputError, match=r"given other data.*'elsewhere'.*'toy'"):
        hand_over(trainer, make_data(name="elsewhere"))
    assert ledger.run(trainer.account.run_id).committed == 5  # nothing was closed
    assert hand_over(trainer, data).trust["data"]["name"] == "toy"


HOSPITALS = {"unit": "hospital", "train": lambda split: replace(split, units=np.arange(80) // 20)}
RESTATED = {
    "the unit": {"unit": "hospital"},
    "the unit and whose each record is": HOSPITALS,
    "no learned facts": {"learned": ()},
    "a cheaper fact": {"learned": (LearnedFact(name="bounds", epsilon=0.1),)},
    "a public test set": {"test_is_public": True},
    "fewer records": {"train": lambda split: split.part(np.arange(80) < 60)},
    "another order": {"train": lambda split: replace(split, x=split.x[::-1], y=split.y[::-1])},
    "the size": {"nominal_size": 100},
}


@pytest.mark.parametrize("name", RESTATED)
def test_data_that_are_restated_at_the_end_are_refused(finished, ledger, name):
    """The statement is about the data that trained: their unit, the cost of their facts."""
    trainer, data = finished(secret=False, steps=1, learned=FACTS, test_is_public=False)
    changes = {
        field: value(getattr(data, field)) if callable(value) else value
        for field, value in RESTATED[name].items()
    }
    with pytest.raises(InputError, match="the trainer was given other data"):
        hand_over(trainer, replace(data, **changes))
    with pytest.raises(InputError, match="the trainer was given other data"):
        state(trainer, replace(data, **changes), method="m", model_name="custom", config=None)
    assert ledger.run(trainer.account.run_id).status == "open"
    hand_over(trainer, data)


def test_draws_of_torch_are_an_assumption_where_there_are_any(finished):
    for draws in (True, False):
        stated = hand_over(*finished(draws_by_torch=draws)).guarantees
        assert all((TORCH_DRAWS in g.assumptions) is draws for g in stated)


def test_a_unit_that_is_only_a_name_is_an_assumption(finished):
    found = hand_over(*finished(unit="patient")).guarantees[0]
    assert found.unit == "patient"
    assert any("no patient has more than one record" in a for a in found.assumptions)
    trainer, data = finished()
    assert not any(
        "more than one record" in a for a in hand_over(trainer, data).guarantees[0].assumptions
    )


def test_a_run_is_handed_over_once(finished, ledger):
    """Else weights that were trained on without noise could be stated as proved."""
    trainer, data = finished(secret=False)
    first = hand_over(trainer, data)
    with pytest.raises(InputError, match=r"handed over already.*settled.*keep the release"):
        hand_over(trainer, data)
    assert ledger.run(trainer.account.run_id).committed == 5
    assert first.trust["mechanism"]["steps_run"] == 5


def test_what_is_no_trainer_or_no_data_is_refused_and_nothing_is_closed(finished, ledger):
    trainer, data = finished(secret=False)
    with pytest.raises(InputError, match=r"what privet\.make_private returned"):
        hand_over(trainer.model, data)
    with pytest.raises(InputError, match="no Dataset"):
        hand_over(trainer, "toy")
    assert ledger.run(trainer.account.run_id).status == "open"
