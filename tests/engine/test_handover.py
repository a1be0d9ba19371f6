"""The trust card: its fields, what is withheld, and totals against an independent sum."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

from privet.data.dataset import LearnedFact
from privet.engine.account import RunAccount
from privet.engine.examples import Examples
from privet.engine.handover import PUBLIC_START, accuracy_figures, hand_over, private_figures
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.errors import CheckFailed
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

    def make(*, secret=True, steps=5, **changes):
        data = make_data(name="toy", **changes)
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        trainer = PrivateTrainer(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            examples=Examples.of(data.train, data.bounds, CPU),
            plan=PLAN,
            clipper=FastClipper(model, cross_entropy, 1.0),
            randomness=Randomness.fresh(4) if secret else Randomness.seeded(1),
            account=RunAccount.open(ledger, "toy", PLAN, label="t", private=secret, journal=None),
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
    digest = hand_over(trainer, data).trust["provenance"]["data_digest"]
    ledger, run = trainer.account.ledger, trainer.account.run_id
    assert digest == ledger.commitment(set_digest(data, ledger.digest_key), run)
    assert digest != set_digest(data, ledger.digest_key)


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


def test_a_unit_that_is_only_a_name_is_an_assumption(finished):
    trainer, data = finished()
    named = replace(data, unit="patient")
    found = hand_over(trainer, named).guarantees[0]
    assert found.unit == "patient"
    assert any("no patient has more than one record" in a for a in found.assumptions)
    trainer, data = finished()
    assert not any(
        "more than one record" in a for a in hand_over(trainer, data).guarantees[0].assumptions
    )
