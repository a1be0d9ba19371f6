"""A model on a server becomes a release that `verify` accepts, and whose lies it finds."""

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from server_bench import Bench, plan_of, train

from privet.engine.assumptions import ONE_DEVICE, PUBLIC_START, TRUSTED_SERVER
from privet.federation.server.fleet_ledger import spent_by_device
from privet.federation.server.service import opener
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.release import Release, sha256
from privet.verification import verify

PRIVATE = {
    "rounds": {"rounds": 4},
    "privacy": {"epsilon": 6.0, "population": 40, "times": 2},
}


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, private=True)
    yield made
    made.close()


def _rounds(bench, host, n):
    for _ in range(n):
        host.tick()
        for device, value in (("a", 1.0), ("b", -2.0)):
            if host.ready(device, phone="p", system="s").__class__.__name__ == "Given":
                train(host, bench.store, device, value)
        bench.now += 10
        host.tick()


def _ledger(bench):
    return Ledger(bench.folder / "ledger.db")


def _verified(bench, folder):
    ledger = _ledger(bench)
    try:
        return verify(folder, ledger=ledger)
    finally:
        ledger.close()


def _tell(folder, lie):
    """Change the card, and the manifest to fit it."""
    trust = json.loads((folder / "trust.json").read_text())
    lie(trust)
    (folder / "trust.json").write_text(json.dumps(trust))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["trust.json"] = sha256(folder / "trust.json")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _problems(verification):
    return [f"{f.check}: {f.detail}" for f in verification.findings if not f.ok]


def test_a_finished_private_model_verifies_against_its_ledger(bench, tmp_path):
    host = bench.open(plan_of(**PRIVATE))
    _rounds(bench, host, 4)
    assert host.stopped
    folder = host.export(tmp_path / "release")
    found = _verified(bench, folder)
    assert _problems(found) == []
    assert "ledger" in [finding.check for finding in found.findings]
    release = Release.load(folder)
    assert release.privacy.epsilon == pytest.approx(6.0, rel=1e-3)
    assert release.privacy.unit == "device"
    assert release.privacy.adjacency is Adjacency.ADD_REMOVE
    assert {ONE_DEVICE, TRUSTED_SERVER} <= set(release.privacy.assumptions)
    assert release.predict([[0.1, 0.2, 0.3, 0.4]]).shape == (1,)


def test_a_model_that_goes_on_verifies_now_and_later(bench, tmp_path):
    host = bench.open(plan_of(**{**PRIVATE, "privacy": {**PRIVATE["privacy"], "times": 4}}))
    _rounds(bench, host, 2)
    folder = host.export(tmp_path / "release")
    assert _problems(_verified(bench, folder)) == []
    _rounds(bench, host, 2)
    assert _problems(_verified(bench, folder)) == []


def test_a_model_that_was_rolled_back_verifies(bench, tmp_path):
    host = bench.open(plan_of(**PRIVATE))
    _rounds(bench, host, 2)
    host.roll_back(1)
    _rounds(bench, host, 1)
    assert _problems(_verified(bench, host.export(tmp_path / "r"))) == []
    _rounds(bench, host, 1)
    host.roll_back(0)
    folder = host.export(tmp_path / "s")
    assert host.stopped
    assert _problems(_verified(bench, folder)) == []


def test_a_buffer_is_stated_for_zero_out_alone(bench, tmp_path):
    rounds = {"rule": "fedbuff", "buffer": 2, "rounds": 2, "seconds": 100}
    host = bench.open(plan_of(rounds=rounds, privacy=PRIVATE["privacy"]))
    _rounds(bench, host, 2)
    folder = host.export(tmp_path / "r")
    assert _problems(_verified(bench, folder)) == []
    assert [g.adjacency for g in Release.load(folder).guarantees] == [Adjacency.ZERO_OUT]


def test_a_model_without_privacy_that_goes_on_verifies_now_and_later(bench, tmp_path):
    host = bench.open(plan_of(rounds={"rounds": 5}))
    _rounds(bench, host, 2)
    folder = host.export(tmp_path / "r")
    assert _problems(_verified(bench, folder)) == []
    _rounds(bench, host, 3)
    assert host.stopped
    assert _problems(_verified(bench, folder)) == []
    _tell(folder, lambda trust: trust["mechanism"].update(steps_run=4))
    assert any("steps_run 2 follows" in said for said in _problems(_verified(bench, folder)))


def test_a_model_without_privacy_says_so(bench, tmp_path):
    host = bench.open(plan_of(rounds={"rounds": 2}))
    _rounds(bench, host, 2)
    folder = host.export(tmp_path / "r")
    assert _problems(_verified(bench, folder)) == []
    assert Release.load(folder).guarantees == ()
    assert Release.load(folder).trust["withheld"]


def test_known_noise_hides_nothing_whatever_the_plan_asks_for(bench, tmp_path):
    host = bench.open(plan_of(**{**PRIVATE, "privacy": {**PRIVATE["privacy"], "noise_seed": 3}}))
    _rounds(bench, host, 1)
    release = Release.load(host.export(tmp_path / "r"))
    assert release.guarantees == ()
    assert release.trust["withheld"]
    ledger = _ledger(bench)
    assert spent_by_device(ledger, "server", "a", delta=1e-5).in_all == math.inf
    ledger.close()


def test_a_model_that_starts_from_a_release_states_that_it_is_public(bench, tmp_path):
    first = bench.open(plan_of("first", rounds={"rounds": 1}))
    _rounds(bench, first, 1)
    start = first.export(tmp_path / "start")
    said = {"release": str(start), "public_start": "given by volunteers"}
    host = bench.open(plan_of("second", model={"name": "second", **said}, **PRIVATE))
    assert host.version == 0
    _rounds(bench, host, 4)
    folder = host.export(tmp_path / "r")
    assert _problems(_verified(bench, folder)) == []
    assert PUBLIC_START in Release.load(folder).privacy.assumptions


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda t: t["federation"]["served"].update(rounds_run=3), "follows from the settings"),
        (lambda t: t["federation"].update(sums=3), "3 sums of 4 rounds"),
        (lambda t: t["federation"]["served"].update(finished=False), "finished is False"),
        (lambda t: t["privacy"][0]["assumptions"].remove(ONE_DEVICE), "not stated"),
        (lambda t: t["mechanism"].update(participations=1), "mechanism implies"),
        (lambda t: t["data"].update(unit="town"), "unit device"),
        (lambda t: t["federation"]["served"].update(secure_sum=True), "not stated"),
        (lambda t: t["federation"]["served"].update(start="mine"), "first weights of seed"),
    ],
)
def test_a_card_that_lies_is_found_out(bench, tmp_path, lie, words):
    host = bench.open(plan_of(**PRIVATE))
    _rounds(bench, host, 4)
    folder = host.export(tmp_path / "r")
    _tell(folder, lie)
    assert words in "; ".join(_problems(_verified(bench, folder)))


class TestOdometer:
    def test_models_of_one_server_add_up_for_a_device(self, bench):
        hosts = [bench.open(plan_of(name, **PRIVATE)) for name in ("one", "two")]
        for host in hosts:
            _rounds(bench, host, 1)
        hosts[0].tick()
        train(hosts[0], bench.store, "c", 1.0)
        bench.now += 10
        hosts[0].tick()
        ledger = _ledger(bench)
        a = spent_by_device(ledger, "server", "a", delta=1e-5)
        c = spent_by_device(ledger, "server", "c", delta=1e-5)
        nobody = spent_by_device(ledger, "server", "z", delta=1e-5)
        privacy = hosts[0].plan.privacy
        once = privacy.odometer(1e-5, {"x": 1})["x"]
        twice = privacy.odometer(1e-5, {"x": 2})["x"]
        ledger.close()
        assert a.by_model == {"one": pytest.approx(once), "two": pytest.approx(once)}
        assert a.in_all == pytest.approx(twice, rel=1e-6)  # two Gaussians, of whatever model
        assert c.by_model == {"one": pytest.approx(once), "two": 0.0}
        assert nobody.in_all == 0.0

    def test_names_of_devices_are_not_in_the_ledger(self, bench):
        host = bench.open(plan_of(**PRIVATE))
        train(host, bench.store, "a-device-of-note", 1.0)
        bench.now += 10
        host.tick()
        ledger = _ledger(bench)
        (run,) = ledger.account("fleet:server").runs
        assert list(ledger.participations(run.id).values()) == [1]
        ledger.close()
        for path in bench.folder.glob("ledger.db*"):
            assert b"a-device-of-note" not in path.read_bytes()

    def test_a_cap_on_the_fleet_holds_for_all_models_together(self, bench):
        from privet.errors import BudgetExceeded

        ledger = _ledger(bench)
        ledger.open_account("fleet:server", unit="device")
        ledger.cap("fleet:server", 8.0, 1e-5)
        ledger.close()
        bench.open(plan_of("one", **PRIVATE))
        with pytest.raises(BudgetExceeded, match="cap of 'fleet:server'"):
            bench.open(plan_of("two", **PRIVATE))
        bench.open(
            plan_of("three", **{**PRIVATE, "privacy": {**PRIVATE["privacy"], "epsilon": 1.0}})
        )

    def test_a_server_has_no_model_without_privacy_under_a_cap(self, bench):
        from privet.errors import BudgetExceeded
        from privet.ledger import default_ledger_path

        bench.open(plan_of())
        places = {"state": bench.state, "store": bench.store, "secrets": bench.folder / "secrets"}
        opens = opener(name="ward", **places)
        opens(plan_of("plain")).close()
        ledger = Ledger(default_ledger_path())
        ledger.open_account("fleet:capped", unit="device")
        ledger.cap("fleet:capped", 8.0, 1e-5)
        with pytest.raises(BudgetExceeded, match="already spent on 'fleet:ward'"):
            ledger.cap("fleet:ward", 8.0, 1e-5)
        ledger.close()
        with pytest.raises(BudgetExceeded, match="an access without privacy"):
            opener(name="capped", **places)(plan_of("other"))
