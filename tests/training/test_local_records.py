"""Training on randomised records: what it costs, what it sees, and what it says."""

import contextlib
import json
import shutil

import dp_accounting as dp
import numpy as np
import pytest
import torch

import privet
from privet.cli import app
from privet.data.dataset import LearnedFact, Split
from privet.errors import BudgetExceeded, CheckFailed, InputError
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.models import Fronted, create
from privet.models.local import expected, usual_norm, usual_pool
from privet.privacy.accounting import pure_epsilon, total_epsilon
from privet.privacy.events import to_json
from privet.privacy.filters import RenyiFilter
from privet.privacy.local import LEVELS, RecordRandomiser
from privet.privacy.randomness import Randomness
from privet.release import RELEASED_FILES, Release, sha256
from privet.training import local_records
from privet.training.local_card import mechanism_of
from privet.training.local_records import LocalSettings, features_of, randomised
from privet.verification import verify

QUICK = {"epsilon": 10.0, "epochs": 2, "batch": 16}


@pytest.fixture
def ledger(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def digits():
    return privet.data.load("digits")


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def kept_pairs(folder):
    return local_records._read(folder / "internal" / "randomised.pt")


def killed(*_, **__):
    raise KeyboardInterrupt


# --- what it learns ----------------------------------------------------------------------------


def accuracy(digits, epsilon, **options):
    """Known noise: repeatable, and without an epsilon."""
    release = privet.train("stobatch-ldp", digits, epsilon=epsilon, noise_seed=3, **options)
    return release.trust["utility"]["test_accuracy"]


def test_it_learns_at_large_epsilon_and_nothing_at_small(digits):
    assert accuracy(digits, 40.0) > 0.8
    # 360 test records of ten classes; a mere guess is above 0.25 with probability below 1e-14.
    assert accuracy(digits, 0.1) < 0.25


def test_partners_are_made_behind_the_noise(digits):
    robust = accuracy(digits, 60.0, adversarial="madry", adversarial_size=0.1, epochs=10)
    assert robust > 0.6


# --- what it sees ------------------------------------------------------------------------------


def test_training_is_a_function_of_the_randomised_records(make_data, ledger, monkeypatch):
    settings = LocalSettings(**QUICK).filled_for(make_data())
    pairs = randomised(make_data(), settings, Randomness.seeded(0))
    monkeypatch.setattr(local_records, "randomised", lambda *_: pairs)
    one, other = (
        privet.train("stobatch-ldp", make_data(seed=seed), ledger=ledger, **QUICK)
        for seed in (0, 1)
    )
    assert same(weights(one.model), weights(other.model))


def test_another_draw_of_noise_is_another_model(make_data, ledger):
    one, other = (privet.train("stobatch-ldp", make_data(), ledger=ledger, **QUICK) for _ in "ab")
    assert not same(weights(one.model), weights(other.model))


@pytest.mark.parametrize("missing", [0, 1, 30])
def test_there_are_always_as_many_randomised_records(make_data, missing):
    data = make_data()
    left = Split(x=data.train.x[missing:], y=data.train.y[missing:])
    data = make_data(train=left, nominal_size=80)
    pairs = randomised(data, LocalSettings(**QUICK).filled_for(data), Randomness.seeded(0))
    assert pairs.x.shape == (80, 4)
    assert pairs.x.min() >= 0
    assert pairs.x.max() <= 1


def test_a_planted_record_is_no_longer_than_any_other(make_data):
    """Values far beyond the declared bounds: clamped, shortened, and as well hidden."""
    data = make_data()
    x = data.train.x.copy()
    x[0] = 1e30
    data = make_data(train=Split(x=x, y=data.train.y))
    settings = LocalSettings(**QUICK).filled_for(data)
    randomiser = settings.randomiser_for(data)
    levels = randomiser.in_levels(features_of(data, 0))
    assert levels[0].tolist() == [63] * 4  # all of the norm, shared out and rounded down
    assert np.abs(levels).sum(1).max() <= randomiser.longest


@pytest.mark.parametrize("epsilon", [3.0, 20.0])
def test_the_front_shows_the_mean_of_what_the_head_has_learned_from(digits, epsilon):
    """Of eight images, each number randomised 5,000 times; 512 means, none 5 deviations off."""
    settings = LocalSettings(epsilon=epsilon, record_norm=10.0).filled_for(digits)
    randomiser = settings.randomiser_for(digits)
    levels = randomiser.in_levels(features_of(digits, settings.pool)[:8])
    noised = randomiser._noised(np.tile(levels, (5000, 1)), Randomness.seeded(0).noise)
    drawn = noised.reshape(5000, 8, 64) / LEVELS
    scaled = torch.from_numpy(digits.bounds.clamp_and_scale(digits.train.x[:8]))
    shown = settings.network(digits).front(scaled).flatten(1).numpy()
    off = np.abs(shown - drawn.mean(0)) - 1 / LEVELS  # levels are rounded down
    assert (off < 5 * drawn.std(0) / np.sqrt(5000)).all()


def test_what_the_head_is_shown_rises_everywhere():
    v = torch.linspace(0, 4, 401, dtype=torch.float64)
    for noise in (0.1, 1.0, 30.0):
        shown = expected(v, noise)
        assert (shown.diff() > 0).all()
        assert (shown >= 0).all()
        assert (shown <= 1).all()


# --- what it costs -----------------------------------------------------------------------------


def test_the_ledger_is_charged_once_before_a_record_is_touched(make_data, ledger, monkeypatch):
    seen = []
    touch = local_records.features_of

    def watched(data, pool):
        (run,) = ledger.account("made-up").runs
        seen.append((run.planned, run.charged, run.status))
        return touch(data, pool)

    monkeypatch.setattr(local_records, "features_of", watched)
    release = privet.train("stobatch-ldp", make_data(), ledger=ledger, **QUICK)
    assert seen == [(1, 1, "open")]
    (run,) = ledger.account("made-up").runs
    assert (run.charged, run.redone, run.status) == (1, 0, "settled")
    assert pure_epsilon(run.step_event) == pytest.approx(release.privacy.epsilon)


def test_a_cap_that_does_not_fit_is_kept(make_data, ledger, tmp_path, monkeypatch):
    ledger.open_account("made-up")
    ledger.cap("made-up", 16.0, 1e-5)
    privet.train("stobatch-ldp", make_data(), ledger=ledger, **QUICK)
    monkeypatch.setattr(local_records, "randomised", killed)
    with pytest.raises(BudgetExceeded):
        privet.train("stobatch-ldp", make_data(), ledger=ledger, out=tmp_path / "no", **QUICK)
    assert not (tmp_path / "no").exists()
    assert len(ledger.account("made-up").runs) == 1


def test_the_cap_counts_at_least_what_a_laplace_number_costs(make_data):
    """Many numbers on a grid: never below one continuous draw of the same pure epsilon."""
    data = make_data()
    event = LocalSettings(**QUICK).filled_for(data).randomiser_for(data).event
    cap = RenyiFilter.for_cap(30.0, 1e-5)
    records = dp.LaplaceDpEvent(1 / pure_epsilon(event.events[0]))
    assert cap.cost(records) < cap.cost(event.events[0]) <= pure_epsilon(event.events[0])
    assert cap.cost(event) == pytest.approx(sum(cap.cost(part) for part in event.events))
    assert cap.cost(event) <= 10.0


def test_learned_facts_are_paid_out_of_the_target(make_data, ledger, tmp_path):
    data = make_data(learned=(LearnedFact(name="nominal size", epsilon=4.0),))
    release = privet.train("stobatch-ldp", data, ledger=ledger, out=tmp_path / "r", **QUICK)
    assert release.privacy.epsilon == pytest.approx(10.0)
    assert pure_epsilon(ledger.account("made-up").runs[-1].step_event) == pytest.approx(6.0)
    assert verify(tmp_path / "r", ledger=ledger).ok


# --- killed and resumed ------------------------------------------------------------------------


def cut_short(data, ledger, folder, at=8, **options):
    def stop(trainer):
        if trainer.next_step == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        privet.train(
            "stobatch-ldp", data, ledger=ledger, out=folder, watch=stop, checkpoint_every=5,
            **QUICK | options,
        )  # fmt: skip


def test_a_resumed_run_goes_on_with_the_records_it_has_drawn(
    make_data, ledger, tmp_path, monkeypatch
):
    data, folder = make_data(), tmp_path / "cut"
    cut_short(data, ledger, folder, ema=0.9)
    pairs = kept_pairs(folder)
    with monkeypatch.context() as patched:
        patched.setattr(local_records, "features_of", killed)  # no record is looked at again
        release = local_records.resume(folder, data, ledger=ledger)
    assert (kept_pairs(folder).x == pairs.x).all()
    (run,) = ledger.account("made-up").runs
    assert (run.charged, run.redone, run.status) == (1, 0, "settled")
    assert verify(folder, ledger=ledger).ok
    monkeypatch.setattr(local_records, "randomised", lambda *_: pairs)
    whole = privet.train("stobatch-ldp", data, ledger=ledger, ema=0.9, **QUICK)
    assert same(weights(release.model), weights(whole.model))


def test_killed_before_anything_was_kept_it_draws_anew_at_the_same_price(
    make_data, ledger, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(local_records, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            privet.train("stobatch-ldp", make_data(), ledger=ledger, out=tmp_path / "r", **QUICK)
    assert ledger.account("made-up").runs[0].charged == 1
    local_records.resume(tmp_path / "r", make_data(), ledger=ledger)
    (run,) = ledger.account("made-up").runs
    assert (run.planned, run.charged, run.redone) == (1, 1, 0)
    assert verify(tmp_path / "r", ledger=ledger).ok


def test_killed_before_the_charge_it_has_cost_nothing(make_data, ledger, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "charge", killed)
        with pytest.raises(KeyboardInterrupt):
            privet.train("stobatch-ldp", make_data(), ledger=ledger, out=tmp_path / "r", **QUICK)
    with pytest.raises(InputError, match="none is charged"):
        local_records.resume(tmp_path / "r", make_data(), ledger=ledger)


def test_a_run_goes_on_with_its_own_data_and_its_own_entry_only(make_data, ledger, tmp_path):
    folder = tmp_path / "cut"
    cut_short(make_data(), ledger, folder)
    with pytest.raises(InputError, match="data changed"):
        local_records.resume(folder, make_data(seed=1), ledger=ledger)
    record = json.loads((folder / "internal" / "run.json").read_text())
    cheaper = record | {"settings": record["settings"] | {"epsilon": 40.0}}
    (folder / "internal" / "run.json").write_text(json.dumps(cheaper))
    with pytest.raises(CheckFailed, match="not in the ledger as what it is"):
        local_records.resume(folder, make_data(), ledger=ledger)
    (folder / "internal" / "run.json").write_text(json.dumps(record))
    (folder / "internal" / "randomised.pt").write_bytes(b"cut off")
    with pytest.raises(InputError, match="corrupt randomised records"):
        local_records.resume(folder, make_data(), ledger=ledger)


# --- what it says ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("local")


@pytest.fixture
def released(home, make_data, tmp_path):
    """A fresh copy of one release, and the ledger that was charged for it."""
    with contextlib.closing(Ledger(home / "ledger.db")) as book:
        if not (home / "run").exists():
            privet.train("stobatch-ldp", make_data(), ledger=book, out=home / "run", **QUICK)
        yield shutil.copytree(home / "run", tmp_path / "copy"), book


def forged(folder, change):
    card = json.loads((folder / "trust.json").read_text())
    change(card)
    (folder / "trust.json").write_text(json.dumps(card))
    digests = {name: sha256(folder / name) for name in RELEASED_FILES}
    (folder / "manifest.json").write_text(json.dumps({"files": digests}))


def failed(folder, ledger=None):
    """Which checks say no, apart from the report's, which any change of the card shows."""
    found = {finding.check for finding in verify(folder, ledger=ledger).findings if not finding.ok}
    return found - {"report matches the card"}


def test_the_card_states_pure_epsilons_and_what_they_rest_on(released):
    folder, ledger = released
    assert verify(folder, ledger=ledger).ok
    release = Release.load(folder)
    first, second = release.guarantees
    assert (first.adjacency, second.adjacency) == (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    assert {g.delta for g in release.guarantees} == {0.0}
    assert {g.basis for g in release.guarantees} == {"proved"}
    assert first.epsilon == pytest.approx(10.0, rel=1e-6)
    assert first.epsilon <= 10.0
    assert first.epsilon < second.epsilon < 2 * first.epsilon
    assert first.accountant == "pure epsilons, added up"
    assert any("at most as many units" in text for text in first.assumptions)
    assert not any("floating point" in text for text in first.assumptions)
    mechanism = release.trust["mechanism"]
    assert mechanism["noise_scale"] == pytest.approx(0.5 / 7.5, rel=1e-6)  # c = 4/8, 3/4 of 10
    assert mechanism["redrawn"] == pytest.approx(np.exp(-2.5), rel=1e-6)
    assert mechanism["keep_probability"] == pytest.approx(1 - np.exp(-2.5) / 2, rel=1e-6)


def of_mechanism(name, factor):
    return lambda card: card["mechanism"].update({name: card["mechanism"][name] * factor})


def less_epsilon(card):
    card["privacy"][0]["epsilon"] /= 2


def less_replace_one(card):
    card["privacy"][1]["epsilon"] = card["privacy"][0]["epsilon"]


def event_of_more_noise(card):
    card["events"][-1]["event"]["events"][0]["noise_parameter"] /= 2


def event_of_redrawn_labels(card):
    card["events"][-1]["event"]["events"][1]["noise_parameter"] = 0.5


def no_assumption(card):
    card["privacy"][0]["assumptions"].pop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (less_epsilon, "epsilon (add-remove, delta=0)"),
        (less_replace_one, "epsilon (replace-one, delta=0)"),
        (of_mechanism("noise_scale", 2), "events match the mechanism"),
        (of_mechanism("record_norm", 0.5), "events match the mechanism"),
        (of_mechanism("redrawn", 2), "events match the mechanism"),
        (of_mechanism("keep_probability", 0.9), "settings match the mechanism"),
        (of_mechanism("dimensions", 2), "settings match the mechanism"),
        (of_mechanism("places", 2), "mechanism makes sense"),
        (of_mechanism("steps", 2), "settings match the mechanism"),
        (event_of_more_noise, "events match the mechanism"),
        (event_of_redrawn_labels, "events match the mechanism"),
        (no_assumption, "assumptions"),
        (lambda card: card["privacy"][0].update(delta=1e-5), "mechanism makes sense"),
        (lambda card: card["privacy"][0].update(unit="user"), "mechanism makes sense"),
        (lambda card: card["data"].update(grouped=True), "mechanism makes sense"),
        (lambda card: card["provenance"]["config"].update(epsilon=5.0), "settings match"),
        (lambda card: card["provenance"]["config"].update(label_share=0.5), "settings match"),
    ],
)
def test_a_forged_card_does_not_verify(released, change, said):
    folder, _ = released
    forged(folder, change)
    assert any(check.startswith(said) for check in failed(folder))


def test_a_card_that_is_forged_throughout_does_not_pass_its_ledger(released):
    folder, ledger = released

    def halve(card):
        """Twice the noise in mechanism, events, settings and figures, all of one mind."""
        claimed = RecordRandomiser.calibrate(
            epsilon=5.0, label_share=0.25, norm=0.5, dimensions=4, classes=2
        )
        card["mechanism"] |= mechanism_of(claimed, 80)
        card["events"][-1]["event"] = to_json(claimed.event)
        card["provenance"]["config"]["epsilon"] = 5.0
        for stated in card["privacy"]:
            stated["epsilon"] = total_epsilon([claimed.event], 0.0, Adjacency(stated["adjacency"]))

    forged(folder, halve)
    assert failed(folder) == set()
    assert failed(folder, ledger) == {"ledger"}


@pytest.mark.parametrize("name", ["record_norm", "noise_scale", "redrawn", "places"])
def test_a_card_without_its_numbers_is_bad_input(released, name):
    folder, _ = released
    forged(folder, lambda card: card["mechanism"].pop(name))
    with pytest.raises(InputError, match=f"mechanism.{name}"):
        verify(folder)


def test_known_noise_gives_no_epsilon(make_data, ledger, tmp_path):
    folder = tmp_path / "known"
    release = privet.train(
        "stobatch-ldp", make_data(), ledger=ledger, out=folder, noise_seed=1, **QUICK
    )
    assert release.privacy is None
    assert release.trust["withheld"]
    (run,) = ledger.account("made-up").runs
    assert run.step_event == dp.NonPrivateDpEvent()
    assert verify(folder, ledger=ledger).ok


def test_no_secret_is_left_in_the_folder(make_data, ledger, tmp_path, monkeypatch):
    keys = []
    fresh = Randomness.fresh.__func__

    def watched(cls, *given):
        made = fresh(cls, *given)
        keys.extend([made.noise.key, made.sampling.key])
        return made

    monkeypatch.setattr(Randomness, "fresh", classmethod(watched))
    cut_short(make_data(), ledger, tmp_path / "r")
    written = [path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert keys
    assert not any(key in content for key in keys for content in written)


def test_a_release_is_loaded_with_the_norm_it_was_trained_with(digits, ledger, tmp_path):
    options = {"epsilon": 30.0, "epochs": 3, "record_norm": 2.0, "pool": 4, "model": "mlp"}
    release = privet.train("stobatch-ldp", digits, ledger=ledger, out=tmp_path / "r", **options)
    assert release.config["model"] == "local-4-mlp"
    loaded = privet.load(tmp_path / "r")
    assert isinstance(loaded.model, Fronted)
    assert float(loaded.model.front.norm) == 2.0
    assert torch.equal(loaded.scores(digits.test.x), release.scores(digits.test.x))
    assert verify(tmp_path / "r", ledger=ledger).ok


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": 1e-5}, "no delta"),
        ({"label_share": 0.0}, "bad label_share"),
        ({"label_share": 1.0}, "bad label_share"),
        ({"record_norm": 0.0}, "bad record_norm"),
        ({"epsilon": 0.0}, "bad epsilon"),
        ({"pool": -1}, "bad pool"),
        ({"pool": 3}, "cannot be averaged"),
        ({"model": "cnn"}, "needs images"),
        ({"model": "no-such"}, "unknown model"),
        ({"augment": "shift"}, "images"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_entered(
    make_data, ledger, options, said
):
    with pytest.raises(InputError, match=said):
        privet.train("stobatch-ldp", make_data(), ledger=ledger, **QUICK | options)
    assert ledger.names() == []


def test_units_of_several_records_and_more_records_than_declared_are_refused(make_data, ledger):
    grouped = Split(x=make_data().train.x, y=make_data().train.y, units=np.arange(80) // 2)
    users = make_data(train=grouped, unit="user", nominal_size=40)
    few = make_data(nominal_size=79)
    for data, said in ((users, "units of several records"), (few, "more records than")):
        with pytest.raises(InputError, match=said):
            privet.train("stobatch-ldp", data, ledger=ledger, **QUICK)
    assert ledger.names() == []


# --- maps and commands -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "pool", "norm"),
    [((1, 8, 8), 8, 8.0), ((1, 28, 28), 7, 49 / 8), ((3, 32, 32), 8, 8.0), ((1, 31, 37), 8, 8.0),
     ((1, 2, 2), 2, 0.5), ((30,), 0, 30 / 8)],
)  # fmt: skip
def test_the_usual_map_goes_by_the_shape(shape, pool, norm):
    assert usual_pool(shape) == pool
    assert usual_norm(shape, pool) == norm
    model = create(f"local-{pool}-linear", shape, 5)
    assert model(torch.rand(3, *shape)).shape == (3, 5)


def test_from_the_command_line(tmp_path, capsys):
    folder = str(tmp_path / "local")

    def told(*arguments):
        with contextlib.suppress(SystemExit):
            app(list(arguments))
        return capsys.readouterr().out

    card = told(
        "train", "stobatch-ldp", "--data", "digits", "--epsilon", "20", "--epochs", "2",
        "--label-share", "0.2", "--record-norm", "10", "--pool", "4", "--out", folder, "--json",
    )  # fmt: skip
    assert json.loads(card)["mechanism"]["dimensions"] == 16
    assert "stobatch-ldp" in told("methods")
    assert "verified" in told("verify", folder)
    assert "whole-number Laplace noise" in (tmp_path / "local" / "report.html").read_text()
