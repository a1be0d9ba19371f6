"""AdLM with a proof: relevance paid for, weights of inputs, one total."""

import copy
from dataclasses import replace

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting import pld

import privet
from privet.audits.canary_run import RunAudit
from privet.audits.mechanism import Subject, audit_mechanism, refutes
from privet.data.dataset import LearnedFact
from privet.engine.account import Unpaid
from privet.errors import BudgetExceeded, InputError
from privet.files import read_json
from privet.ledger import Ledger
from privet.privacy.events import from_json
from privet.privacy.noise import LaplaceNoise
from privet.privacy.randomness import Randomness
from privet.privacy.tradeoff import Stated
from privet.training import adlm
from privet.training.adlm import (
    AdlmSettings,
    Relevance,
    fixed_network,
    learn_relevance,
    shares_of,
    summed_shares,
)
from privet.training.dpsgd import build, take_steps
from privet.verification import verify
from privet.verification.settings import check_settings

QUICK = {"epsilon": 3.0, "epochs": 4.0, "model": "linear"}


@pytest.fixture
def book(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.fixture(scope="module")
def kept_plans():
    return {}


@pytest.fixture(autouse=True)
def _calibrated_once(monkeypatch, kept_plans):
    """A plan is a function of public facts; to find it again takes a second."""
    exact = AdlmSettings.plan_for

    def plan_for(self, data, whole=None):
        facts = (self.epsilon, self.epochs, data.nominal_size, data.learned)
        if facts not in kept_plans:
            kept_plans[facts] = exact(self, data, whole)
        return kept_plans[facts]

    monkeypatch.setattr(AdlmSettings, "plan_for", plan_for)


@pytest.fixture
def finished(make_data, book, tmp_path):
    """A run with its release, of epsilon 3, a tenth of it for relevance."""
    release = adlm.run(make_data(), AdlmSettings(**QUICK), out=tmp_path / "run", ledger=book)
    return release, tmp_path / "run"


def test_shares_of_a_record_add_up_to_one_or_nothing():
    network = fixed_network((3, 4), 5)
    x = torch.rand(40, 3, 4, generator=torch.Generator().manual_seed(0))
    x[0] = 0.0
    v = shares_of(network, x)
    assert v.shape == (40, 12)
    assert float(v[0].abs().sum()) == 0.0
    assert float(v.abs().sum(1).max()) <= 1.0
    assert v[1:].sum(1).tolist() == pytest.approx([1.0] * 39)
    assert float(v.min()) >= 0.0


def test_what_is_released_lies_on_a_grid(make_data):
    """The low bits of doubles would tell the sum (Mironov, 2012); here, with and without a record,
    the same numbers are possible."""
    data, settings = make_data(), AdlmSettings(**QUICK)
    fewer = replace(data, train=data.train.part(np.arange(len(data.train)) > 0))
    step = LaplaceNoise(scale=1.0 / settings.relevance_epsilon, sensitivity=1.0).step_for(4)
    for one in (data, fewer):
        found = learn_relevance(one, settings, Randomness.fresh())
        steps = np.array(found.values) * data.nominal_size / step
        assert np.abs(steps - np.rint(steps)).max() < 1e-4
        assert np.ptp(steps) > 1000


def test_a_record_moves_the_sum_by_its_own_share_whatever_it_holds(make_data):
    """L1 sensitivity 1 under add/remove: the others stay, ordinary or absurd."""
    data = make_data(n=30)
    network = fixed_network(data.shape, 2)
    whole = summed_shares(network, data.train, data.bounds)
    rest = summed_shares(network, data.train.part(np.arange(30) != 7), data.bounds)
    moved = np.abs(whole - rest).sum()
    assert 0.9 < moved <= 1.0
    x = data.train.x.copy()
    x[7] = 1e30
    wild = summed_shares(network, replace(data.train, x=x), data.bounds)
    assert np.abs(wild - rest).sum() <= 1.0


def test_a_unit_of_many_records_counts_once(make_data):
    data = make_data(n=30)
    units = np.where(np.arange(30) < 12, 0, np.arange(30) - 11)
    grouped = replace(data.train, units=units)
    network = fixed_network(data.shape, 2)
    whole = summed_shares(network, grouped, data.bounds)
    rest = summed_shares(network, grouped.part(units != 0), data.bounds)
    assert 0.9 < np.abs(whole - rest).sum() <= 1.0


def test_relevance_is_bigger_where_the_ink_is():
    data = privet.data.load("digits")
    settings = AdlmSettings(epsilon=3.0)
    beta = learn_relevance(data, settings, Randomness.fresh()).beta.reshape(8, 8)
    ink = data.train.x.reshape(-1, 8, 8).mean(0)
    assert np.corrcoef(beta.ravel(), ink.ravel())[0, 1] > 0.7
    assert beta[:, [0, 7]].max() < beta[:, 2:6].mean()


@pytest.mark.parametrize("power", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    "values", [(1.0, 2.0, 3.0, 4.0), (-1.0, 0.0, 0.0, 5.0), (-1.0, -2.0, -1.0, -3.0)]
)
def test_weights_keep_the_length_of_an_even_gradient(values, power):
    found = Relevance(values=values)
    assert found.beta.sum() == pytest.approx(4.0)
    assert found.beta.min() > 0.05
    s = np.asarray(found.weights(power))
    assert np.square(s).sum() == pytest.approx(4.0)
    if power == 0.0:
        assert s.tolist() == pytest.approx([1.0] * 4)
    if power == 0.5:
        assert np.square(s).tolist() == pytest.approx(found.beta.tolist())


def test_known_weights_by_hand():
    """Mean 2.5: 0.04, 1.2, 1.2, 1.56 -> floor 0.1, sum 4.06."""
    beta = Relevance(values=(0.1, 3.0, 3.0, 3.9)).beta
    assert beta.tolist() == pytest.approx([0.4 / 4.06, 4.8 / 4.06, 4.8 / 4.06, 6.24 / 4.06])


def test_noise_of_the_relevance_has_the_scale_that_is_paid(make_data):
    """Scale 1 / e_1 on the sum: 600 draws of its absolute value, 4 % standard error."""
    data, settings = make_data(), AdlmSettings(epsilon=2.0, relevance_share=0.25)
    exact = summed_shares(fixed_network(data.shape, 2), data.train, data.bounds)
    drawn = [learn_relevance(data, settings, Randomness.fresh()).values for _ in range(150)]
    noise = np.asarray(drawn) * data.nominal_size - exact
    assert np.abs(noise).mean() == pytest.approx(1 / 0.5, rel=0.2)
    assert np.median(noise) == pytest.approx(0.0, abs=0.5)


def test_relevance_is_divided_by_the_declared_size_whatever_the_true_one(make_data):
    """The true number is secret. 80 shares of 1, of 160 declared: 1/2; 1 would say 80.

    The noise of four inputs has deviation 0.28 in 160; a failure by chance is below 1e-30.
    """
    data, settings = make_data(n=80, nominal_size=160), AdlmSettings(epsilon=100.0)
    values = learn_relevance(data, settings, Randomness.seeded(0)).values
    assert sum(values) == pytest.approx(0.5, rel=0.1)


def test_the_release_of_the_relevance_keeps_its_epsilon_under_audit(make_data):
    """Without and with a record that no other is like: the best statistic there is, 99.9 %."""
    data = make_data(n=20)
    x = data.train.x.copy()
    x[0] = [0.0, 0.0, 0.0, 1.0]
    records = replace(data.train, x=x)
    network, epsilon = fixed_network(data.shape, 2), 1.0
    whole = summed_shares(network, records, data.bounds)
    rest = summed_shares(network, records.part(np.arange(20) > 0), data.bounds)

    def sample(included, runs, seed):
        noise = np.random.default_rng(seed).laplace(0, 1 / epsilon, (runs, 4))
        return noise + (whole if included else rest)

    subject = Subject(
        name="relevance",
        claim=Stated(epsilon),
        delta=0.0,
        pair="",
        sample=sample,
        # Beyond both sums it is a constant but for rounding, which would tell this sampler's worlds
        # apart; what is released has noise on a grid.
        statistic=lambda rows: (np.abs(rows - rest) - np.abs(rows - whole)).sum(1).round(9),
    )
    evidence = audit_mechanism(subject, runs=100_000)
    assert not refutes(evidence, subject)
    assert evidence.epsilon > 0.8  # and comes near: the sensitivity is used up


def test_a_run_states_both_plans_and_keeps_its_target(finished, book):
    """By dp-accounting itself: pure epsilon of the one, privacy losses of the other."""
    release, folder = finished
    assert verify(folder, ledger=book).ok
    events = release.trust["events"]
    assert [event["label"] for event in events] == ["learned: relevance", "train"]
    assert release.trust["data"]["learned"] == [{"name": "relevance", "epsilon": 0.1 * 3.0}]
    assert release.trust["mechanism"]["clipping"]["name"] == "by-input"
    assert 2.97 < release.privacy.epsilon <= 3.0
    learned, trained = sorted(book.account("made-up").runs, key=lambda run: run.planned)
    assert learned.step_event == dp.LaplaceDpEvent(1 / (0.1 * 3.0))
    assert (learned.charged, learned.status) == (1, "settled")
    assert trained.charged == release.trust["mechanism"]["steps"]
    relevance, steps = (from_json(e["event"]) for e in events)
    by_steps = pld.PLDAccountant(value_discretization_interval=1e-3)
    by_steps.compose(steps)
    basic = 1 / relevance.noise_multiplier + by_steps.get_epsilon(1e-5)
    assert release.privacy.epsilon == pytest.approx(basic, rel=2e-3)
    together = pld.PLDAccountant(value_discretization_interval=1e-3)
    together.compose(dp.ComposedDpEvent([relevance, steps]))
    assert together.get_epsilon(1e-5) <= release.privacy.epsilon * (1 + 2e-3)


def test_a_card_that_hides_the_price_of_the_relevance_is_found_out(finished):
    release, _ = finished
    assert [finding.ok for finding in check_settings(release.trust)] == [True, True]
    for change in (
        lambda trust: trust["data"].update(learned=[]),
        lambda trust: trust["provenance"]["config"].update(relevance_share=0.01),
        lambda trust: trust["mechanism"]["clipping"]["numbers"].update({"0": 1.5}),
    ):
        changed = copy.deepcopy(release.trust)
        change(changed)
        assert not next(iter(check_settings(changed))).ok


def stopping_at(step):
    def stop(trainer):
        if trainer.next_step == step:
            raise KeyboardInterrupt

    return stop


def test_a_resumed_run_ends_where_it_would_have_ended(make_data, book, tmp_path):
    """With known noise; the relevance is kept, not drawn again."""
    data, settings = make_data(), AdlmSettings(**QUICK, noise_seed=5, checkpoint_every=5)
    with pytest.raises(KeyboardInterrupt):
        adlm.run(data, settings, out=tmp_path / "run", ledger=book, watch=stopping_at(8))
    resumed = adlm.resume(tmp_path / "run", data, ledger=book)
    whole = adlm.run(data, settings, ledger=book)
    one, other = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    numbers = [r.trust["mechanism"]["clipping"]["numbers"] for r in (resumed, whole)]
    assert numbers[0] == numbers[1]
    assert resumed.privacy is None  # known noise proves nothing


def test_a_resumed_run_has_the_relevance_it_paid_for_once(make_data, book, tmp_path):
    data, settings = make_data(), AdlmSettings(**QUICK, checkpoint_every=5)
    with pytest.raises(KeyboardInterrupt):
        adlm.run(data, settings, out=tmp_path / "run", ledger=book, watch=stopping_at(8))
    kept = read_json(tmp_path / "run" / "internal" / "run.json")["settings"]["relevance"]
    release = adlm.resume(tmp_path / "run", data, ledger=book)
    assert list(release.trust["provenance"]["config"]["relevance"]["values"]) == kept["values"]
    assert release.trust["mechanism"]["redone_steps"] == 0
    assert release.privacy.epsilon <= 3.0
    assert verify(tmp_path / "run", ledger=book).ok
    labels = [run.label for run in book.account("made-up").runs]
    assert sorted(labels) == ["adlm run", "learn relevance"]


def test_a_run_without_room_for_both_pays_for_neither(make_data, book, tmp_path):
    data = make_data()
    book.open_account(data.name)
    book.cap(data.name, 2.0, 1e-5)  # room for the relevance, 0.3, and not for the steps
    with pytest.raises(BudgetExceeded):
        adlm.run(data, AdlmSettings(**QUICK), out=tmp_path / "run", ledger=book)
    assert not (tmp_path / "run").exists()
    assert sum(run.committed for run in book.account(data.name).runs) == 0


def test_a_model_that_cannot_be_trained_costs_nothing(make_data, book):
    digits = privet.data.load("digits")
    with pytest.raises(InputError, match="no weights of single inputs"):
        adlm.run(digits, AdlmSettings(epsilon=3.0, model="cnn-tiny"), ledger=book)
    assert book.names() == []


def test_relevance_is_never_given(make_data, book):
    given = AdlmSettings(**QUICK, relevance=Relevance(values=(1.0, 1.0, 1.0, 1.0)))
    with pytest.raises(InputError, match="learned, and paid for"):
        adlm.run(make_data(), given, ledger=book)
    with pytest.raises(InputError, match="learned, and paid for"):
        AdlmSettings(**QUICK, relevance="even")


def test_facts_that_were_learned_before_are_paid_too(make_data, book):
    data = make_data(learned=(LearnedFact(name="size", epsilon=0.5),))
    release = adlm.run(data, AdlmSettings(**QUICK), ledger=book)
    assert [f["name"] for f in release.trust["data"]["learned"]] == ["size", "relevance"]
    assert release.privacy.epsilon <= 3.0


def test_the_audit_of_a_run_does_not_exceed_its_epsilon(make_data):
    """Canaries in the scaled coordinates, 95 %; a wrong alarm once in twenty runs, at most."""
    data = make_data()
    uneven = Relevance(values=(4.0, 1.0, 0.5, 0.5))
    settings = AdlmSettings(
        epsilon=2.0, epochs=10.0, model="mlp", canaries=200, noise_seed=11, relevance=uneven
    ).filled_for(data)
    plan = settings.plan_for(settings.paid_by(data))
    trainer = build(data, settings, plan, randomness=Randomness.seeded(11, 0), account=Unpaid())
    take_steps(trainer, settings, None, None)
    rows = RunAudit.of(trainer.canaries, subject="itself").rows()
    assert rows
    assert all(row["epsilon"] <= 2.0 for row in rows)


@pytest.mark.parametrize("model", ["cnn", "cnn-tiny"])
def test_a_network_that_does_not_fit_leads_to_those_that_do(model):
    """Not to one that is refused next."""
    with pytest.raises(InputError, match=r"Fix: use --model mlp or linear$") as caught:
        privet.train("adlm", privet.data.load("digits"), epsilon=3.0, model=model)
    assert "padded" not in str(caught.value)


def test_bad_shares_are_refused():
    with pytest.raises(InputError, match="bad relevance_share"):
        AdlmSettings(epsilon=1.0, relevance_share=0.0)
    with pytest.raises(InputError, match="unknown clipping"):
        AdlmSettings(epsilon=1.0, clipping="flat")
