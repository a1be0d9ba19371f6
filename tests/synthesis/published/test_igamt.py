"""What is claimed of IGAMT and its baselines, and what the claims miss."""

import math
import sys
from pathlib import Path

import pytest
from dp_accounting.rdp import RdpAccountant

import privet
from privet.data.identity import enter_in_ledger
from privet.data.records.simulator import simulate
from privet.errors import CheckFailed, InputError
from privet.guarantee import REFUTED, Basis
from privet.privacy import moments
from privet.privacy.accounting import sampled_gaussian
from privet.synthesis.family import FAMILY
from privet.synthesis.fitting import METHODS, fit
from privet.synthesis.published.igamt import POISSON, RAW, STATE, gaps_of
from privet.synthesis.published.settings import PublishedIgamt, claimed_epsilon
from privet.synthesis.published.trainer import Noising
from privet.verification.release import verify

sys.path.insert(0, str(Path(__file__).parent))
from few_records import few_records, settings_of

N, B = 14_024, 32  # of the papers' records and batches


@pytest.fixture
def ledger(tmp_path):
    opened = privet.Ledger(tmp_path / "ledger.db")
    yield opened
    opened.close()


def steps_of(epochs):
    return round(epochs * N / B)


def by_renyi(multiplier, epochs):
    accountant = RdpAccountant()
    accountant.compose(sampled_gaussian(multiplier, B / N, steps_of(epochs)))
    return accountant.get_epsilon(1e-5)


# --- the claim -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "by_moments"), [(3, 1.2212), (100, 3.2754)])
def test_the_thesis_asks_the_moments_accountant_once(epochs, by_moments):
    says = claimed_epsilon(1.0, rate=B / N, steps=steps_of(epochs), delta=1e-5)
    assert says == pytest.approx(by_moments, abs=1e-4)
    alone = moments.epsilon(
        noise_multiplier=1.0, rate=B / N, steps=steps_of(epochs), delta=1e-5, moments=256
    )
    assert says == pytest.approx(alone)


@pytest.mark.parametrize(
    ("epochs", "multiplier", "renyi"),
    [
        (3, 1.0, 0.886),  # what one release of multiplier sigma would cost
        (3, 0.5, 6.48),  # a sensitivity of 2 C
        (100, 1.0, 2.84),
        (100, 0.5, 22.4),
        (100, 1 / math.sqrt(3), 12.6),  # three releases on a batch
        (100, 1 / math.sqrt(4), 22.4),  # and four: with a critic of masks
    ],
)
def test_what_the_claim_would_be_with_all_that_is_released(epochs, multiplier, renyi):
    """A Renyi accountant beside the moments: what is claimed, and what the texts leave out."""
    assert by_renyi(multiplier, epochs) == pytest.approx(renyi, rel=0.005)
    says = claimed_epsilon(multiplier, rate=B / N, steps=steps_of(epochs), delta=1e-5)
    assert renyi < says < renyi + 2


def test_the_paper_adds_three_budgets():
    once = claimed_epsilon(1.0, rate=B / N, steps=1000, delta=1e-5 / 3)
    says = claimed_epsilon(1.0, rate=B / N, steps=1000, delta=1e-5, calls=3)
    assert says == pytest.approx(3 * once)


@pytest.mark.parametrize("version", ["thesis", "aaai"])
def test_noise_by_the_claim_and_the_claim_by_the_noise(version):
    data = few_records()
    asked = settings_of("igamt", "paper", epsilon=1.5, version=version).filled_for(data)
    course = asked.course_for(data)
    sigma = asked.noising(data, course).sigma
    given = settings_of("igamt", "paper", sigma=sigma, version=version).filled_for(data)
    size, steps = data.nominal_size, course.steps
    assert given.claimed(size, steps) == pytest.approx(1.5, rel=1e-6)
    assert given.claimed(size, steps) <= 1.5
    assert given.claimed(size, steps, learned=0.25) == pytest.approx(1.75, rel=1e-6)
    assert asked.claimed(size, steps, learned=0.25) == 1.5
    assert asked.calls == {"thesis": 1, "aaai": 3}[version]


@pytest.mark.parametrize("name", FAMILY)
def test_the_card_claims_and_proves_nothing(name, ledger):
    own = settings_of(name, "paper", epochs=1.0)
    release = METHODS[name].analyses["paper"].run(few_records(), own, ledger=ledger)
    (claim,) = release.trust["privacy"]
    assert claim["basis"] == Basis.CLAIMED.value
    assert claim["epsilon"] == 1.5
    assert POISSON in claim["gaps"]
    assert claim["gaps"][0].startswith(REFUTED) == (name == "igamt")
    assert release.privacy is None
    assert "nothing is proved" in release.trust["withheld"][0]


@pytest.mark.parametrize("version", ["thesis", "aaai"])
def test_a_claim_that_follows_from_the_noise_is_recomputed(version, ledger, tmp_path):
    own = settings_of("igamt", "paper", sigma=2.0, version=version, epochs=1.0)
    folder = tmp_path / "r"
    release = METHODS["igamt"].analyses["paper"].run(few_records(), own, ledger=ledger, out=folder)
    assert verify(folder, ledger=ledger).ok
    release.trust["privacy"][0]["epsilon"] *= 0.9
    (tmp_path / "other").mkdir()
    release.save(tmp_path / "other")
    wrong = [f for f in verify(tmp_path / "other", ledger=ledger).findings if not f.ok]
    assert any("is claimed" in finding.detail for finding in wrong)


def test_no_cap_has_room_for_a_run_as_published(ledger):
    data = few_records()
    enter_in_ledger(data, ledger)
    ledger.cap(data.name, 100.0, 1e-5)
    with pytest.raises(CheckFailed, match="no cap has room"):
        METHODS["vae"].analyses["paper"].run(data, settings_of("vae", "paper"), ledger=ledger)


# --- the gaps ------------------------------------------------------------------------------------


def gaps(name, *, clip_norm=0.5, **options):
    own = settings_of(name, "paper", clip_norm=clip_norm, **options)
    return gaps_of(own, Noising(sigma=1.0, clip_norm=clip_norm, parts=own.noised_parts))


def test_an_audit_refutes_each_version_of_igamt():
    from privet.audits.registry import subjects

    for version, subject in (("thesis", "igamt"), ("aaai", "igamt-aaai")):
        found = gaps("igamt", version=version)
        assert f"`privet audit mechanism {subject}`" in found[0]
        assert subject in subjects()
        assert set(RAW) <= set(found)
    assert not set(RAW) & set(gaps("igamt", without="imitator"))


def test_parts_that_are_noised_and_not_accounted_are_counted():
    assert "4 parts are noised on the same batch, and 1 accounted" in gaps("igamt")
    assert not any("parts are noised" in gap for gap in gaps("igamt", version="aaai"))
    assert "2 parts are noised on the same batch, and 1 accounted" in gaps("daae")
    assert not any("parts are noised" in gap for gap in gaps("vae"))


def test_a_gan_whose_critic_alone_sees_records_has_no_such_gap():
    assert STATE in gaps("vae")
    assert STATE not in gaps("gan")


def test_the_noise_that_does_not_know_c_is_a_gap_above_one_half():
    assert not any("2 C" in gap for gap in gaps("gan"))
    (gap,) = (gap for gap in gaps("gan", clip_norm=4.0) if "2 C" in gap)
    assert "multiplier is 0.125, accounted is 1" in gap


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.5, "sigma": 1.0}, "got both"),
        ({}, "neither epsilon nor sigma"),
        ({"epsilon": 1.5, "version": "journal"}, "unknown version"),
        ({"epsilon": 1.5, "without": "decoder"}, "cannot go without 'decoder'"),
        ({"epsilon": 1.5, "ema": 0.9}, "as published does not know this"),
        ({"epsilon": 1.5, "optimizer": "sgd"}, "as published does not know this"),
        ({"epsilon": 1.5, "model": "gru-16-1-4"}, "another coder"),
        ({"epsilon": 1.5, "decay": 1.5}, "bad decay"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"sigma": 0.0}, "bad sigma"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        PublishedIgamt(**options)


def test_only_igamt_has_versions_and_ablations():
    assert {"version", "without"} <= METHODS["igamt"].analyses["none"].options
    for name in set(FAMILY) - {"igamt"}:
        for analysis in ("paper", "none"):
            assert not {"version", "without"} & METHODS[name].analyses[analysis].options


def test_the_papers_sizes_are_the_defaults():
    data = few_records()
    own = METHODS["igamt"].analyses["paper"].settings(epsilon=1.5).filled_for(data)
    assert own.model == "transformer-128-2-128+batchnorm+generator+mixed+time"
    assert (own.clip_norm, own.learning_rate, own.critic_rate, own.decay) == (0.5, 5e-4, 1e-4, 0.99)
    assert METHODS["igamt"].analyses["none"].settings()._batch_for(N) == 32
    vae = METHODS["vae"].analyses["none"].settings().filled_for(data)
    assert vae.model == "gru-128-1-128"


def test_a_first_look_is_small(ledger):
    """One pass, larger batches, a small network; what is set wins."""
    looked = []
    with pytest.raises(KeyboardInterrupt):
        fit(
            "daae", simulate(150), analysis="none", quick=True, ledger=ledger, watch=stopped(looked)
        )
    with pytest.raises(KeyboardInterrupt):
        fit("daae", simulate(150), analysis="none", quick=True, ledger=ledger, batch=50,
            model="gru-16-1-4", watch=stopped(looked))  # fmt: skip
    assert [t.plan.steps for t in looked] == [1, 3]
    assert [t.model.form.width for t in looked] == [32, 16]


def stopped(seen):
    def stop(trainer):
        seen.append(trainer)
        raise KeyboardInterrupt

    return stop
