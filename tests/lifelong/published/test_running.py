"""L2DP-ML as published in a folder of versions: the claim on the card, the ledger, crashes."""

import json
import shutil
from contextlib import closing

import dp_accounting as dp
import pytest
import torch

from privet.errors import BudgetExceeded, InputError
from privet.files import read_json
from privet.ledger import Ledger
from privet.lifelong.fitting import extend, fit
from privet.release import INTERNAL, Release, read_weights
from privet.verification import verify

QUICK = {"analysis": "paper", "batch": 12, "epochs": 2.0, "learning_rate": 0.05}
STEPS = 8  # of each task: two passes over four batches


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def learned(tmp_path_factory, lights):
    """Made once, to be looked at."""
    folder = tmp_path_factory.mktemp("stream")
    with closing(Ledger(folder / "ledger.db")) as opened:
        fit("l2dp", lights(), out=folder / "life", ledger=opened, epsilon=1.0, **QUICK)
        yield folder / "life", opened


def version(out, number):
    return out / "versions" / f"{number:02d}"


def weights(out, number):
    return Release.load(version(out, number)).model.state_dict()


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_every_version_claims_the_same_and_proves_nothing(learned):
    out, ledger = learned
    for number in (1, 2, 3):
        assert verify(version(out, number), ledger=ledger).ok
        trust = read_json(version(out, number) / "trust.json")
        (claim,) = trust["privacy"]
        assert (claim["basis"], claim["epsilon"], claim["delta"]) == ("claimed", 1.0, 0.0)
        assert len(claim["gaps"]) == 13, "the audit, twelve of the proof, and no known seed"
        assert trust["analysis"] == "paper"
        assert trust["withheld"][0].startswith("nothing is proved")
        assert trust["mechanism"]["steps_run"] == STEPS


def test_the_ledger_has_an_access_without_privacy_for_each_task(learned):
    _, ledger = learned
    for number in range(3):
        (run,) = ledger.account(f"lights/{number}").runs
        assert (run.step_event, run.charged, run.status) == (dp.NonPrivateDpEvent(), 1, "settled")


def test_the_noise_is_one_draw_for_all_versions(learned):
    out, _ = learned
    kept = read_weights(out / INTERNAL / "noise.safetensors")
    for number in (1, 2, 3):
        found = weights(out, number)
        assert torch.equal(found["input_noise"], kept["inputs"] / 12)
        assert torch.equal(found["hidden_noise"], kept["hidden"] / 12)
    assert not same(weights(out, 2), weights(out, 3)), "and yet they learn"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda t: t["privacy"][0].update(epsilon=0.1), "nothing is proved, and that is said"),
        (lambda t: t["privacy"][0].update(gaps=[]), "basis of the figures"),
        (lambda t: t["privacy"].clear(), "basis of the figures"),
        (lambda t: t["provenance"]["config"].update(batch=6), "settings match the steps"),
    ],
)
def test_a_card_that_was_changed_is_found_out(tmp_path, learned, change, finding):
    changed = tmp_path / "changed"
    shutil.copytree(version(learned[0], 2), changed)
    trust = read_json(changed / "trust.json")
    change(trust)
    (changed / "trust.json").write_text(json.dumps(trust))
    assert finding in [f.check for f in verify(changed).findings if not f.ok]


@pytest.mark.parametrize("variant", ["agem", "offset"])
def test_what_claims_nothing_carries_no_epsilon(tmp_path, ledger, lights, variant):
    out = tmp_path / "life"
    fit("l2dp", lights(sizes=(48, 48)), out=out, ledger=ledger, variant=variant, **QUICK)
    trust = read_json(version(out, 2) / "trust.json")
    assert trust["privacy"] == []
    assert trust["withheld"][0].startswith("trained without privacy")
    assert trust["provenance"]["config"]["epsilon"] is None
    assert trust["provenance"]["config"]["epsilon_labels"] is None
    assert not [name for name in trust["mechanism"] if "epsilon" in name or "scale" in name]
    assert verify(version(out, 2), ledger=ledger).ok
    assert ledger.account("lights/0").runs[0].step_event == dp.NonPrivateDpEvent()


class Killed(BaseException):
    """Stands for a process that dies."""


@pytest.mark.parametrize("variant", ["published", "offset", "agem"])
@pytest.mark.parametrize("taken", [STEPS + 1, STEPS + 5, 2 * STEPS])
def test_a_killed_stream_goes_on_bit_for_bit(tmp_path, ledger, lights, variant, taken):
    """Killed within the second task, or behind its last step; the noise is secret and kept."""
    seen = [0]

    def die(_):
        seen[0] += 1
        if seen[0] == taken:
            raise Killed

    target = {"epsilon": 1.0} if variant == "published" else {"variant": variant}
    options = {"ledger": ledger, "checkpoint_every": 2, **target, **QUICK}
    with pytest.raises(Killed):
        fit("l2dp", lights(), out=tmp_path / "cut", watch=die, **options)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "cut", whole)  # one draw of noise for both
    shutil.rmtree(version(whole, 2))
    extend(whole, stream=lights(), ledger=ledger)
    extend(tmp_path / "cut", stream=lights(), ledger=ledger)
    for number in (1, 2, 3):
        assert same(weights(tmp_path / "cut", number), weights(whole, number)), number


def test_tasks_that_come_later_change_no_version(tmp_path, ledger, lights):
    """What the first tasks filled in holds for them, too: a smaller batch would be other noise."""
    whole = tmp_path / "whole"
    options = {"ledger": ledger, "epsilon": 1.0, "noise_seed": 3, **QUICK}
    fit("l2dp", lights(), out=whole, **options)
    out = tmp_path / "life"
    fit("l2dp", lights(sizes=(48,)), out=out, **options)
    before = (version(out, 1) / "manifest.json").read_bytes()
    extend(out, stream=lights(), ledger=ledger)
    assert (version(out, 1) / "manifest.json").read_bytes() == before
    for number in (1, 2, 3):
        assert same(weights(out, number), weights(whole, number)), number
    gaps = read_json(version(out, 3) / "trust.json")["privacy"][0]["gaps"]
    assert "known seed" in gaps[-1]


def test_no_cap_has_room_for_it(tmp_path, ledger, lights):
    ledger.open_account("lights/1")
    ledger.cap("lights/1", 100.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        fit("l2dp", lights(), out=tmp_path / "life", ledger=ledger, epsilon=1.0, **QUICK)
    assert (version(tmp_path / "life", 1) / "manifest.json").exists()
    assert not version(tmp_path / "life", 2).exists()
    assert ledger.account("lights/1").runs == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no privacy target"),
        ({"epsilon": 1.0, "delta": 1e-5}, "there is no delta"),
        ({"epsilon": 1.0, "variant": "agem"}, "takes no target"),
        ({"epsilon": 1.0, "admission": 0.1}, "no such setting"),
        ({"epsilon": 1.0, "augment": "shift"}, "as published has no such setting"),
        ({"epsilon": 1.0, "memory": "objective"}, "no memory of objectives"),
    ],
)
def test_bad_wishes_are_refused_before_a_folder_is_made(tmp_path, ledger, lights, options, said):
    with pytest.raises(InputError, match=said):
        fit("l2dp", lights(), out=tmp_path / "life", ledger=ledger, analysis="paper", **options)
    assert not (tmp_path / "life").exists()
    assert ledger.names() == []
