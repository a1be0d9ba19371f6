"""A network that attacks, trained privately on a run's own records: one epsilon for both."""

import copy
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest

import privet
from privet.data.dataset import Split
from privet.errors import BudgetExceeded, InputError
from privet.ledger import Ledger
from privet.privacy.accounting import sampled_gaussian
from privet.privacy.events import from_json, to_json
from privet.release import MANIFEST, Release, sha256
from privet.training import dpsgd
from privet.training.settings import Settings
from privet.verification import verify
from privet.verification.books import check_ledger
from privet.verification.fixed_parts import check_fixed_parts
from privet.verification.mechanism import check_mechanism
from privet.verification.statements import check_epsilons, check_grounds

sys.path.insert(0, str(Path(__file__).parents[1]))
from made_up_images import image_data

SHAPE = (1, 8, 8)
STATEMENT = "trained on made-up public images"
TARGET = 4.0
DELTA = 1e-5


class KilledError(Exception):
    """Instead of a kill."""


def images(name, seed, n=60, **changes):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 3).astype(np.int64)
    x = rng.uniform(0, 0.3, size=(n, *SHAPE)).astype(np.float32)
    x[np.arange(n), 0, 2 * y + 1] = 0.8
    return image_data(name, x, y, ("low", "middle", "high"), **changes)


def attacker(folder, name, data, ledger, **changes):
    """A private network against the public classifier of the house."""
    asked = {"epsilon": 2.0, "delta": DELTA, "epochs": 2, "batch": 20, "perturber": "ain-4"}
    asked |= {"classifier": str(folder / "h"), "public_classifier": STATEMENT, "bounds": "0.3"}
    out = folder / name
    privet.train("ain", data, analysis="sound", out=out, ledger=ledger, **(asked | changes))
    return str(out)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A public classifier, and a network that was trained privately on the secret records."""
    folder = tmp_path_factory.mktemp("paid")
    ledger = Ledger(folder / "ledger.db")
    privet.train(
        "plain", images("public", 0), epochs=5, model="linear", out=folder / "h", ledger=ledger
    )
    attacker(folder, "ain", images("secret", 1), ledger)
    return folder


@pytest.fixture
def ledger(house):
    return Ledger(house / "ledger.db")


def hardened(house, ledger, data=None, **changes):
    asked = {"epsilon": TARGET, "delta": DELTA, "epochs": 2, "batch": 20, "model": "linear"}
    asked |= {"adversarial": "ain", "attacker": str(house / "ain"), "private_attacker": True}
    data = data or images("secret", 1)
    return privet.train("dpsgd", data, ledger=ledger, **(asked | changes))


@pytest.fixture(scope="module")
def trained(house):
    hardened(house, Ledger(house / "ledger.db"), out=house / "hard")
    return house / "hard"


@pytest.fixture
def card(trained):
    return copy.deepcopy(Release.load(trained).trust)


def event_of(trust):
    """Of the steps on a card, from its mechanism alone."""
    mechanism = trust["mechanism"]
    rate, steps = mechanism["sampling_rate"], mechanism["steps"]
    return sampled_gaussian(mechanism["noise_multiplier"], rate, steps)


@pytest.mark.parametrize(
    ("adjacency", "relation"),
    [
        ("add-remove", dp.NeighboringRelation.ADD_OR_REMOVE_ONE),
        ("replace-one", dp.NeighboringRelation.REPLACE_ONE),
    ],
)
def test_the_card_states_what_dp_accounting_makes_of_both(house, card, adjacency, relation):
    accountant = dp.pld.PLDAccountant(relation)
    accountant.compose(event_of(Release.load(house / "ain").trust))
    accountant.compose(event_of(card))
    (stated,) = [g for g in card["privacy"] if g["adjacency"] == adjacency]
    assert stated["epsilon"] == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert stated["basis"] == "proved"


def test_the_target_is_that_of_both_and_is_used_up(card):
    (stated,) = [g["epsilon"] for g in card["privacy"] if g["adjacency"] == "add-remove"]
    assert 0.999 * TARGET <= stated <= TARGET


def test_the_release_verifies_with_its_ledger_and_without(trained, ledger):
    for known in (ledger, None):
        found = verify(trained, ledger=known)
        assert found.ok, [f for f in found.findings if not f.ok]
    assert not any("its own release is not here" in text for text in found.unproven)


def test_where_the_network_is_gone_verify_says_what_it_cannot_know(house, trained, tmp_path):
    shutil.move(house / "ain", tmp_path / "away")
    try:
        found = verify(trained)
    finally:
        shutil.move(tmp_path / "away", house / "ain")
    assert found.ok
    assert any("its own release is not here" in text for text in found.unproven)


def test_the_card_says_what_it_rests_on(house, card):
    (part,) = card["fixed_parts"]
    assert not part["public"]
    assert part["spent"]["run"] == Release.load(house / "ain").trust["provenance"]["run"]
    for stated in card["privacy"]:
        assumed = " | ".join(stated["assumptions"])
        assert "nor were rate, steps and target of this run by looking at it" in assumed
        assert "for the network that attacks: the classifier" in assumed
        assert STATEMENT in assumed


def test_the_ledger_is_charged_once_for_each(house, tmp_path):
    (tmp_path / "h").symlink_to(house / "h")
    ledger, data = Ledger(tmp_path / "ledger.db"), images("secret", 1)
    source = attacker(tmp_path, "ain", data, ledger)
    before = {run.id: run for run in ledger.account("secret").runs}
    release = hardened(house, ledger, data, attacker=source)
    after = {run.id: run for run in ledger.account("secret").runs}
    (new,) = set(after) - set(before)
    assert all(after[run] == before[run] for run in before)
    assert new == release.trust["provenance"]["run"]
    turn = dp.SelfComposedDpEvent(after[new].step_event, after[new].committed)
    assert turn == event_of(release.trust)  # not that of the network as well


def test_a_cap_counts_the_network_and_the_run_once(house, tmp_path):
    (tmp_path / "h").symlink_to(house / "h")
    ledger, data = Ledger(tmp_path / "ledger.db"), images("secret", 1)
    source = attacker(tmp_path, "ain", data, ledger)
    cap = ledger.cap("secret", 6.0, DELTA)
    hardened(house, ledger, data, attacker=source, out=tmp_path / "hard")
    trusts = [Release.load(tmp_path / name).trust for name in ("ain", "hard")]
    spent = cap.epsilon_spent(sum(cap.cost(event_of(trust)) for trust in trusts))
    assert ledger.account("secret").spent_epsilon == pytest.approx(spent)
    with pytest.raises(BudgetExceeded):
        hardened(house, ledger, data, attacker=source, epsilon=8.0)


def test_a_network_that_took_the_whole_target_leaves_nothing(house, ledger):
    runs = len(ledger.account("secret").runs)
    with pytest.raises(InputError, match="next to nothing is left for this run") as refused:
        hardened(house, ledger, epsilon=2.0)  # as much as it was trained for
    assert "--epsilon above 2" in str(refused.value)
    assert len(ledger.account("secret").runs) == runs


def test_what_was_paid_for_other_records_is_not_counted_for_these(house, ledger):
    with pytest.raises(InputError, match="trained on other records"):
        hardened(house, ledger, images("another", 5))
    assert "another" not in ledger.names()


@pytest.mark.parametrize("said", [{}, {"private_attacker": False, "public_attacker": STATEMENT}])
def test_records_that_overlap_under_another_name_are_refused_whatever_is_said(house, ledger, said):
    some = images("some of it", 1, n=30)
    assert np.array_equal(some.train.x, images("secret", 1).train.x[:30])
    with pytest.raises(InputError, match=r"trained on other records|shares records with 'some of"):
        hardened(house, ledger, some, **said)


def test_a_network_of_other_private_records_is_public_here_and_its_cost_is_not_added(
    house, ledger, tmp_path
):
    stated = {"private_attacker": False, "public_attacker": "of the clinic next door"}
    release = hardened(house, ledger, images("elsewhere", 7), out=tmp_path / "run", **stated)
    (part,) = release.trust["fixed_parts"]
    assert part["spent"]["data"] == "secret"
    assert [from_json(e["event"]) for e in release.trust["events"]] == [event_of(release.trust)]
    assert any("what it cost 'secret' is not in here" in a for a in release.privacy.assumptions)
    assert verify(tmp_path / "run", ledger=ledger).ok


def test_called_public_it_is_refused_and_the_way_out_is_named(house, ledger):
    stated = {"private_attacker": False, "public_attacker": STATEMENT}
    with pytest.raises(InputError, match=r"is not public.*--private-attacker"):
        hardened(house, ledger, **stated)


def test_a_classifier_behind_the_network_that_has_seen_the_records_is_refused(house, tmp_path):
    """The network is paid for; the classifier that it was trained against is not.

    One of that one's records has come to these since: no name tells, but the ledger does.
    """
    shutil.copytree(house, tmp_path / "house")
    ledger, data = Ledger(tmp_path / "house" / "ledger.db"), images("secret", 1)
    ours, theirs = data.train, images("public", 0).train
    both = Split(x=np.append(ours.x, theirs.x[:1], 0), y=np.append(ours.y, theirs.y[:1]))
    with pytest.raises(
        InputError, match="the classifier of the network that attacks is not public"
    ):
        hardened(house, ledger, replace(data, train=both, nominal_size=61))


def test_a_network_without_a_proof_is_refused(house, ledger, tmp_path):
    (tmp_path / "h").symlink_to(house / "h")
    known = attacker(tmp_path, "known", images("secret", 1), ledger, noise_seed=3)
    with pytest.raises(InputError, match="no proved epsilon that could be counted"):
        hardened(house, ledger, attacker=known)
    privet.train(
        "ain", images("secret", 1), classifier=str(house / "h"), perturber="ain-4", bounds="0.3",
        epochs=1, out=tmp_path / "bare", ledger=ledger,
    )  # fmt: skip
    with pytest.raises(InputError, match="no proved epsilon that could be counted"):
        hardened(house, ledger, attacker=str(tmp_path / "bare"))


def test_a_ledger_that_was_not_charged_for_it_is_refused(house, tmp_path):
    other = Ledger(tmp_path / "ledger.db")
    with pytest.raises(InputError, match="the ledger was not charged for the network"):
        hardened(house, other)
    assert other.names() == []


def test_a_sampler_for_other_neighbours_is_refused(house, ledger):
    with pytest.raises(InputError, match="proved for other neighbours"):
        hardened(house, ledger, sampler="shuffled")


def rewritten(folder, change):
    """The release with another card, and a manifest that names it."""
    trust = json.loads((folder / "trust.json").read_text())
    change(trust)
    (folder / "trust.json").write_text(json.dumps(trust))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["trust.json"] = sha256(folder / "trust.json")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return str(folder)


def less(event):
    """Half the steps."""
    return dp.SelfComposedDpEvent(event.event, event.count // 2)


def test_a_network_whose_card_was_made_cheaper_is_refused(house, ledger, tmp_path):
    def cheaper(trust):
        trust["events"] = [{"label": "train", "event": to_json(less(event_of(trust)))}]

    shutil.copytree(house / "ain", tmp_path / "ain")
    source = rewritten(tmp_path / "ain", cheaper)
    with pytest.raises(InputError, match="the card of the network that attacks does not hold"):
        hardened(house, ledger, attacker=source)


def failing(checks):
    return " | ".join(f.detail for f in checks if not f.ok)


def test_an_event_that_was_taken_out_is_missed(trained, card):
    assert not failing(check_mechanism(card))
    card["events"] = [{"label": "train", "event": to_json(event_of(card))}]
    assert "mechanism implies" in failing(check_mechanism(card))
    assert "the events give" in failing(check_epsilons(card))


def test_a_cost_that_was_taken_out_altogether_is_missed(trained, card):
    card["events"] = [{"label": "train", "event": to_json(event_of(card))}]
    del card["fixed_parts"][0]["spent"]
    assert "may have seen the records" in failing(check_fixed_parts(trained, card))
    card["provenance"]["config"]["attacker_spent"] = None
    found = failing(check_fixed_parts(trained, card))
    assert "is counted is stated otherwise than was asked" in found


def test_a_cost_that_was_changed_everywhere_is_not_that_of_the_networks_card(trained, card, ledger):
    """Events, entry and settings agree with each other, and with nothing else."""
    assert not failing(check_ledger(card, ledger))
    spent = card["fixed_parts"][0]["spent"]
    small = less(from_json(spent["events"][0]))
    spent["events"] = [to_json(small)]
    card["provenance"]["config"]["attacker_spent"] = json.dumps(spent)
    whole = dp.ComposedDpEvent([small, event_of(card)])
    card["events"] = [{"label": "train", "event": to_json(whole)}]
    assert not failing(check_mechanism(card))
    assert "says that it cost something else" in failing(check_fixed_parts(trained, card))
    assert "not so here" in failing(check_ledger(card, ledger))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "another"}, "paid for other records"),
        ({"unit": "patient"}, "paid for other records, or other units"),
        ({"adjacencies": ["add-remove"]}, "proves nothing for replace-one"),
        ({"run": "0" * 16}, "not what was found when the run began"),
    ],
)
def test_an_entry_about_other_records_fails(trained, card, changed, said):
    card["fixed_parts"][0]["spent"] |= changed
    assert said in failing(check_fixed_parts(trained, card))


def test_a_run_of_the_network_that_the_ledger_does_not_know_fails(card, ledger):
    card["fixed_parts"][0]["spent"]["run"] = "0" * 16
    assert "is not in the ledger" in failing(check_ledger(card, ledger))


def test_an_assumption_about_the_network_that_was_left_out_is_missed(card):
    for stated in card["privacy"]:
        stated["assumptions"] = [a for a in stated["assumptions"] if "classifier" not in a]
    assert "for the network that attacks: the classifier" in failing(check_grounds(card))


def test_a_classifier_cannot_be_counted(trained, card):
    """Only a network that attacks has a cost; no other part gets out of being withheld by one."""
    card["fixed_parts"][0] |= {"part": "classifier"}
    assert "what the classifier cost is not" in failing(check_fixed_parts(trained, card))


def test_a_killed_run_states_both_costs(house, ledger, tmp_path):
    def kill(trainer):
        if trainer.next_step == 3:
            raise KilledError

    data, run = images("secret", 1), tmp_path / "run"
    with pytest.raises(KilledError):
        hardened(house, ledger, data, watch=kill, out=run, checkpoint_every=1)
    release = dpsgd.resume(run, data, ledger=ledger)
    assert 0.999 * TARGET <= release.privacy.epsilon <= TARGET
    assert verify(run, ledger=ledger).ok


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"private_attacker": True}, "a statement about no network"),
        (
            {"adversarial": "ain", "attacker": "runs/ain", "private_attacker": True,
             "public_attacker": "x"},
            "public, or trained privately",
        ),
        ({"adversarial": "ain", "attacker": "runs/ain"}, "--private-attacker"),
    ],
)  # fmt: skip
def test_what_is_said_about_the_network_must_make_sense(asked, said):
    with pytest.raises(InputError, match=said) as refused:
        Settings(epsilon=3.0, **asked)
    assert "\n" not in str(refused.value)


def test_a_target_for_several_runs_covers_the_network_as_well(house, ledger):
    """As tuning would ask: the network once, and what a run stands for (here: three of them)."""
    asked = {"epsilon": TARGET, "delta": DELTA, "epochs": 2, "batch": 20, "model": "linear"}
    asked |= {"adversarial": "ain", "attacker": str(house / "ain"), "private_attacker": True}
    settings, data = Settings(**asked), images("secret", 1)
    plan = settings.plan_for(data, whole=lambda run: dp.SelfComposedDpEvent(run, 3))
    accountant = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event_of(Release.load(house / "ain").trust))
    accountant.compose(plan.sampler.event(plan.noise_multiplier, plan.turns), 3)
    assert 0.99 * TARGET <= accountant.get_epsilon(DELTA) <= 1.001 * TARGET
    assert plan.noise_multiplier > 1.1 * settings.plan_for(data).noise_multiplier
