import contextlib
import json
import shutil

import pytest
import safetensors.torch

from privet.engine.assumptions import WHEN_REDONE
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.accounting import epsilon_of, sampled_gaussian
from privet.privacy.events import from_json, to_json
from privet.release import RELEASED_FILES, sha256
from privet.reports import render_report
from privet.reports.recomputing import curves_of
from privet.signing import new_key, sign
from privet.training import train
from privet.verification import verify


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("verified")


@pytest.fixture
def copy(home, make_data, tmp_path):
    """A fresh copy of one small release."""
    folder = home / "run"
    if not folder.exists():
        book = Ledger(home / "ledger.db")
        train(
            "dpsgd", make_data(), epsilon=3.0, delta=1e-5, epochs=3, model="linear",
            out=folder, ledger=book,
        )  # fmt: skip
        book.close()
    return shutil.copytree(folder, tmp_path / "copy")


def failed(folder, **options):
    return {finding.check for finding in verify(folder, **options).findings if not finding.ok}


def change_card(folder, change, *, reseal=True):
    """Change trust.json; `reseal` recomputes the manifest, as a careful forger would."""
    card = json.loads((folder / "trust.json").read_text())
    change(card)
    (folder / "trust.json").write_text(json.dumps(card))
    if reseal:
        reseal_manifest(folder)


def reseal_manifest(folder):
    digests = {name: sha256(folder / name) for name in RELEASED_FILES}
    manifest = {"format": "privet-manifest/1", "files": digests}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_an_untouched_release_verifies_and_says_what_it_cannot_prove(copy):
    result = verify(copy)
    assert result.ok
    assert any("integrity only" in statement for statement in result.unproven)
    assert any("not audited" in statement for statement in result.unproven)


def halve_epsilon(card):
    card["privacy"][0]["epsilon"] /= 2


def remove_event(card):
    card["events"].pop()


def fewer_steps(card):
    card["events"][0]["event"]["count"] //= 2


def fewer_steps_everywhere(card):
    card["events"][0]["event"]["count"] //= 2
    card["mechanism"]["steps"] //= 2


def more_noise(card):
    card["mechanism"]["noise_multiplier"] *= 2


def another_sampler(card):
    card["mechanism"]["sampler"] = "shuffled"


def looser_delta(card):
    card["privacy"][0]["delta"] = 1e-9


def other_adjacency(card):
    card["privacy"][1]["adjacency"] = "add-remove"


def withheld_yet_stated(card):
    card["withheld"] = ["a reason"]


def nothing_proved(card):
    card["privacy"] = []


def halve_replace_one(card):
    card["privacy"][1]["epsilon"] /= 2


def fewer_steps_than_were_run(card):
    card["mechanism"]["steps"] = 1
    card["events"][0]["event"]["count"] = 1
    for stated in card["privacy"]:
        event = sampled_gaussian(
            card["mechanism"]["noise_multiplier"], card["mechanism"]["sampling_rate"], 1
        )
        stated["epsilon"] = epsilon_of(event, stated["delta"], stated["adjacency"])


def another_unit(card):
    card["privacy"][0]["unit"] = "hospital"


def another_normaliser(card):
    card["mechanism"]["normaliser"] *= 2


def another_batch(card):
    card["provenance"]["config"]["batch"] = 3


def other_bounds(card):
    card["data"]["bounds"] = {"low": [0.0], "high": [2.0]}


def withheld_yet_claimed(card):
    card["withheld"] = ["a reason"]
    card["privacy"] = [dict(card["privacy"][0], basis="claimed", epsilon=0.01)]


def private_utility(card):
    card["data"]["test_is_public"] = False


def audited_above(card):
    audit = dict(card["privacy"][0], basis="audited", epsilon=card["privacy"][0]["epsilon"] + 1)
    card["privacy"].append(audit)


def no_assumptions(card):
    for stated in card["privacy"]:
        stated["assumptions"] = []


def another_accountant(card):
    card["privacy"][0]["accountant"] = "magic"


def a_claim_beside(card):
    card["privacy"].append(dict(card["privacy"][0], basis="claimed", epsilon=0.001))


def tuned_elsewhere(card):
    card["tuning"]["kind"] = "public"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (halve_epsilon, "epsilon (add-remove, delta=1e-05)"),
        (remove_event, "events match the mechanism"),
        (fewer_steps, "events match the mechanism"),
        (fewer_steps_everywhere, "epsilon (add-remove, delta=1e-05)"),
        (more_noise, "events match the mechanism"),
        (another_sampler, "mechanism makes sense"),
        (halve_replace_one, "epsilon (replace-one, delta=1e-05)"),
        (fewer_steps_than_were_run, "mechanism makes sense"),
        (another_unit, "mechanism makes sense"),
        (another_normaliser, "mechanism makes sense"),
        (another_batch, "settings match the mechanism"),
        (no_assumptions, "assumptions"),
        (another_accountant, "accountant"),
        (a_claim_beside, "basis of the figures"),
        (tuned_elsewhere, "choice of the settings"),
        (other_bounds, "config matches the card"),
        (withheld_yet_claimed, "epsilon withheld"),
        (looser_delta, "epsilon (add-remove, delta=1e-09)"),
        (other_adjacency, "epsilon (add-remove, delta=1e-05)"),
        (withheld_yet_stated, "epsilon withheld"),
        (nothing_proved, "guarantee"),
        (private_utility, "no uncharged figures"),
        (audited_above, "audit against the proved epsilon"),
    ],
)
def test_a_changed_card_is_contradicted_even_when_resealed(copy, change, named):
    change_card(copy, change)
    assert named in failed(copy)


# --- one rule at a time: forgeries that break just one rule of the mechanism, and sound twins ----

TURNS = {
    "shuffled": {"sampler": "shuffled"},
    "fixed-batches": {"sampler": "fixed-batches"},
    "banded": {"sampler": "cyclic-poisson", "cycle": 4, "bands": 3},
}


@pytest.fixture
def by_turns(home, make_data, tmp_path):
    """A fresh copy of a small release whose units have turns, in cycles of four steps."""

    def make(name):
        if not (home / name).exists():
            with contextlib.closing(Ledger(home / f"{name}.db")) as book:
                train(
                    "dpsgd", make_data(), epsilon=3.0, delta=1e-5, epochs=2, batch=20,
                    model="linear", out=home / name, ledger=book, **TURNS[name],
                )  # fmt: skip
        return shutil.copytree(home / name, tmp_path / "copy")

    return make


def unchanged(card):
    assert card["mechanism"]["cycle"] == 4


def for_add_remove(card):
    """The numbers agree: add/remove epsilons of these events are zero-out epsilons."""
    card["privacy"][0]["adjacency"] = "add-remove"


def one_step_redone(card):
    """Also in the events, epsilons and assumptions: it is charged, but no proof covers it."""
    card["mechanism"]["redone_steps"] = 1
    card["events"][0]["event"]["count"] += 1
    event = from_json(card["events"][0]["event"])
    for stated in card["privacy"]:
        stated["epsilon"] = epsilon_of(event, stated["delta"], stated["adjacency"])
        stated["assumptions"].append(WHEN_REDONE)


def band(card, *coefficients):
    card["mechanism"].update(noise="correlated", bands=list(coefficients))
    card["provenance"]["config"]["bands"] = len(coefficients)


def four_bands(card):
    band(card, 0.5, 0.4, 0.3, 0.2)


def five_bands(card):
    band(card, 0.5, 0.4, 0.3, 0.2, 0.1)


def strong_bands(card):
    band(card, 0.9, 0.8)


def no_config(card):
    """As a user's own loop hands over."""
    card["provenance"]["config"] = {}


def no_config_and_half_the_update(card):
    no_config(card)
    card["mechanism"]["normaliser"] *= 2


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("shuffled", for_add_remove, "nothing is proved for add-remove under shuffled"),
        ("shuffled", one_step_redone, "redone under shuffled"),
        ("fixed-batches", one_step_redone, "redone under fixed-batches"),
        ("banded", one_step_redone, "redone under cyclic-poisson"),
        ("shuffled", four_bands, "does not keep a unit's turns apart"),
        ("fixed-batches", five_bands, "outlasts the cycle"),
        ("banded", strong_bands, "raise the sensitivity"),
        ("shuffled", no_config_and_half_the_update, "expected batch at the nominal size"),
    ],
)
def test_every_rule_of_the_mechanism_is_needed(by_turns, name, change, said):
    folder = by_turns(name)
    change_card(folder, change)
    against = {f.check: f.detail for f in verify(folder).findings if not f.ok}
    assert set(against) - {"report matches the card"} == {"mechanism makes sense"}
    assert said in against["mechanism makes sense"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shuffled", unchanged),
        ("fixed-batches", unchanged),
        ("banded", unchanged),
        ("fixed-batches", four_bands),
        ("shuffled", no_config),
    ],
)
def test_no_rule_of_the_mechanism_is_against_what_is_sound(by_turns, name, change):
    folder = by_turns(name)
    change_card(folder, change)
    assert failed(folder) <= {"report matches the card"}


def test_a_report_that_says_something_else_is_named(copy):
    report = (copy / "report.html").read_text()
    (copy / "report.html").write_text(report.replace("ε = 3", "ε = 0.01"))
    reseal_manifest(copy)
    assert failed(copy) == {"report matches the card"}


def test_drawings_may_differ_between_plotting_versions(copy):
    report = (copy / "report.html").read_text()
    assert "<svg" in report
    (copy / "report.html").write_text(report.replace("<path", "<path data-drawn='elsewhere'"))
    reseal_manifest(copy)
    assert failed(copy) == set()


def test_a_foreign_file_is_named(copy):
    (copy / "train.csv").write_text("age,ill\n")
    assert failed(copy) == {"foreign files"}


@pytest.mark.parametrize(
    "malformed",
    [
        {"privacy": 5},
        {"data": []},
        {"provenance": None},
        {"mechanism": {"steps": "many"}},
        {"events": 5},
        {"analysis": "whatever"},
    ],
)
def test_a_malformed_card_is_bad_input(copy, malformed):
    change_card(copy, lambda card: card.update(malformed))
    with pytest.raises(InputError):
        verify(copy)


def test_a_malformed_learned_fact_is_bad_input(copy):
    change_card(copy, lambda card: card["data"].update(learned=[{"name": "x", "epsilon": 0}]))
    with pytest.raises(InputError):
        verify(copy)


def test_a_change_that_is_not_resealed_is_named_by_its_digest(copy):
    change_card(copy, halve_epsilon, reseal=False)
    assert {"digest of trust.json", "epsilon (add-remove, delta=1e-05)"} <= failed(copy)


def test_a_changed_weight_is_named(copy):
    weights = safetensors.torch.load_file(copy / "weights.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1e-3
    safetensors.torch.save_file(weights, copy / "weights.safetensors")
    assert failed(copy) == {"digest of weights.safetensors"}


def test_a_weight_that_is_not_finite_is_named(copy):
    weights = safetensors.torch.load_file(copy / "weights.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    safetensors.torch.save_file(weights, copy / "weights.safetensors")
    reseal_manifest(copy)
    assert failed(copy) == {"weights finite"}


def test_a_missing_report_is_named(copy):
    (copy / "report.html").unlink()
    assert failed(copy) == {"digest of report.html"}


@pytest.mark.parametrize("name", ["weights.safetensors", "config.json", "trust.json"])
def test_a_release_without_a_file_it_needs_is_bad_input(copy, name):
    (copy / name).unlink()
    with pytest.raises(InputError, match=name):
        verify(copy)


def test_a_signature_holds_until_anything_changes(copy, tmp_path):
    secret, public = new_key(tmp_path / "key")
    sign(copy, secret)
    assert failed(copy, key=public) == set()
    change_card(copy, lambda card: card["provenance"].update(created="2001-01-01"))
    assert "signature" in failed(copy, key=public)


def test_a_signature_by_another_key_does_not_pass_for_ours(copy, tmp_path):
    ours = new_key(tmp_path / "ours")
    theirs = new_key(tmp_path / "theirs")
    sign(copy, theirs[0])
    assert failed(copy, key=ours[1]) == {"signature"}
    assert failed(copy) == set()  # without a key only integrity is checked, and it says so
    assert any("signer" in statement for statement in verify(copy).unproven)


def test_a_stripped_signature_is_missed_only_without_the_key(copy, tmp_path):
    _, public = new_key(tmp_path / "key")
    assert failed(copy, key=public) == {"signature"}


def test_the_ledger_must_agree_where_there_is_one(copy, home):
    book = Ledger(home / "ledger.db")
    assert failed(copy, ledger=book) == set()
    run = json.loads((copy / "trust.json").read_text())["provenance"]["run"]
    book._db.execute("UPDATE runs SET charged = charged - 1 WHERE id = ?", (run,))
    assert failed(copy, ledger=book) == {"ledger"}
    book._db.execute("UPDATE runs SET charged = charged + 1 WHERE id = ?", (run,))
    book.close()


def test_a_forgery_that_is_consistent_in_itself_fails_where_the_ledger_is(copy, home):
    def more_noise_everywhere(card):
        mechanism = card["mechanism"]
        mechanism["noise_multiplier"] *= 3
        event = sampled_gaussian(
            mechanism["noise_multiplier"], mechanism["sampling_rate"], mechanism["steps"]
        )
        card["events"][0]["event"] = to_json(event)
        for stated in card["privacy"]:
            stated["epsilon"] = epsilon_of(event, stated["delta"], stated["adjacency"])
        card["provenance"]["config"]["epsilon"] = card["privacy"][0]["epsilon"]

    change_card(copy, more_noise_everywhere)
    card = json.loads((copy / "trust.json").read_text())
    (copy / "report.html").write_text(render_report(card, curves_of(card)))
    reseal_manifest(copy)
    assert failed(copy) == set()  # unsigned: integrity only, and verify says so
    book = Ledger(home / "ledger.db")
    assert failed(copy, ledger=book) == {"ledger"}
    book.close()


@pytest.mark.parametrize("field", ["privacy", "events", "mechanism", "provenance"])
def test_an_incomplete_card_is_bad_input(copy, field):
    change_card(copy, lambda card: card.pop(field))
    with pytest.raises(InputError, match=field):
        verify(copy)


def test_a_known_noise_seed_leaves_no_epsilon_and_verify_says_so(tmp_path, make_data):
    book = Ledger(tmp_path / "seeded.db")
    release = train(
        "dpsgd", make_data(), epsilon=3.0, epochs=2, model="linear", noise_seed=1,
        out=tmp_path / "seeded", ledger=book,
    )  # fmt: skip
    book.close()
    assert release.privacy is None
    assert release.guarantees == ()
    result = verify(tmp_path / "seeded")
    withheld = [f for f in result.findings if f.check == "epsilon withheld"]
    assert "known seed" in withheld[0].detail
    assert result.ok


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "12 steps charged, 0 redone"),
        ({"sampler": "shuffled"}, "3 turns charged: 12 steps in cycles of 4"),
        ({"sampler": "cyclic-poisson", "cycle": 2}, "6 turns charged: 12 steps in cycles of 2"),
    ],
)
def test_what_the_ledger_charged_is_called_by_its_name(tmp_path, make_data, options, said):
    with contextlib.closing(Ledger(tmp_path / "ledger.db")) as book:
        train(
            "dpsgd", make_data(), epsilon=3.0, epochs=3, batch=20, model="linear",
            out=tmp_path / "run", ledger=book, **options,
        )  # fmt: skip
        findings = verify(tmp_path / "run", ledger=book).findings
    (finding,) = [finding for finding in findings if finding.check == "ledger"]
    assert (finding.ok, finding.detail) == (True, said)
