"""What only the operator may ask, and what becomes of it."""

import asyncio
import io
import json
import zipfile

import pytest

from privet.errors import BudgetExceeded
from privet.federation.server.happenings import KEPT, Happenings
from privet.federation.server.operating import _no


@pytest.mark.parametrize("path", ["status", "apps", "devices", "plans", "events"])
@pytest.mark.parametrize("key", [None, "x" * 43, "", "é"])
def test_without_the_operators_key_nothing_is_told(started, phone, path, key):
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode("latin-1")}
    answer = started.client.get(f"/v1/admin/{path}", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (401, "no-access")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("apps", {"name": "mine", "models": []}),
        ("plans", {"toml": ""}),
        ("models/har/stop", {}),
        ("models/har/rollback", {"to": 0}),
        ("devices/d-1/block", {}),
    ],
)
def test_a_devices_token_is_no_operators_key(started, phone, path, message):
    answer = started.client.post(f"/v1/admin/{path}", json=message, headers=phone.headers)
    assert answer.status_code == 401
    assert not started.hosts["har"].stopped


def test_the_operators_key_is_no_devices_token(started):
    assert started.client.get("/v1/offers", headers=started.admin).status_code == 401


def act(started, path, message=None):
    return started.client.post(f"/v1/admin/{path}", json=message or {}, headers=started.admin)


def test_status_tells_of_models_apps_and_who_was_turned_away(started, phone):
    started.client.get("/v1/offers", headers={"Authorization": "Bearer wrong"})
    told = started.client.get("/v1/admin/status", headers=started.admin).json()
    assert set(told["models"]) == {"har", "mood"}
    assert told["models"]["har"]["devices"] == 1
    assert told["models"]["mood"]["devices"] == 0
    assert told["turned_away"] == {"token-invalid": 1}
    assert [(app["name"], app["models"]) for app in told["apps"]] == [("diary", ["har"])]
    assert started.app_key not in json.dumps(told)


def test_stop_resume_and_roll_back_reach_the_model(started):
    host = started.hosts["har"]
    assert act(started, "models/har/stop").status_code == 200
    assert host.stopped
    assert act(started, "models/har/resume").status_code == 200
    assert not host.stopped
    host._publish(4)
    assert act(started, "models/har/rollback", {"to": 2}).json() == {"model": "har", "version": 5}
    assert act(started, "models/har/rollback", {"to": 99}).status_code == 400
    assert act(started, "models/nothing/stop").status_code == 404
    assert act(started, "devices/d-nobody/block").status_code == 400


def test_a_release_is_fetched_as_a_file(started):
    path = "/v1/admin/models/har/release"
    answer = started.client.get(path, headers=started.admin)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert sorted(archive.namelist()) == ["internal/notes", "trust.json"]
    assert started.client.get(path).status_code == 401


def plan_of(name, **changes):
    said = {
        "model": {"name": name, "network": "linear", "shape": [4], "classes": ["no", "yes"]},
        "rounds": {"rule": "flsys", "rounds": 5, "seconds": 60.0} | changes,
    }
    lines = []
    for section, fields in said.items():
        lines.append(f"[{section}]")
        lines += [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
    return "\n".join(lines)


def test_a_plan_is_revised_and_what_is_fixed_stays(started):
    revised = act(started, "plans", {"toml": plan_of("har", seconds=30.0)})
    assert revised.json() == {"v": 1, "model": "har", "new": False}
    assert started.hosts["har"].plan.settings.seconds == 30.0
    refused = act(started, "plans", {"toml": plan_of("har", rule="fedbuff", buffer=3)})
    assert refused.status_code == 400
    assert "cannot change" in refused.json()["what"]


@pytest.mark.parametrize(
    "toml", ["=", "[model]\nname = 3", "[unknown]\n", plan_of("../keys"), plan_of("a b")]
)
def test_a_plan_that_cannot_be_is_refused(started, toml):
    answer = act(started, "plans", {"toml": toml})
    assert answer.status_code == 400, answer.text
    assert set(started.hosts) == {"har", "mood"}


def test_a_plan_that_the_cap_does_not_allow(started, monkeypatch):
    async def over(_):
        raise BudgetExceeded("this run would exceed the cap", got="epsilon 12 in all")

    monkeypatch.setattr(started.service, "plan", over)
    answer = act(started, "plans", {"toml": plan_of("new")})
    assert answer.status_code == 409
    assert answer.json()["what"] == "this run would exceed the cap: got epsilon 12 in all"
    assert isinstance(_no(answer), BudgetExceeded)


def test_an_app_needs_models_that_there_are_and_a_name_of_its_own(started):
    assert act(started, "apps", {"name": "b", "models": ["nothing"]}).status_code == 404
    assert act(started, "apps", {"name": "diary", "models": []}).status_code == 409
    assert act(started, "apps", {"name": "../b", "models": []}).status_code == 422
    more = act(started, "apps", {"name": "diary", "models": ["mood"]})
    assert more.json()["key"] is None


def test_a_renewed_key_registers_and_the_old_one_does_not(started, phone, make_phone):
    new = act(started, "apps/diary/renew", {}).json()
    assert new["name"] == "diary"
    assert phone.ready("har").json()["status"] == "AFT", "who is registered stays"
    stranger = make_phone()
    old = stranger.client.post("/v1/devices", json=stranger.signed(stranger.register_message()))
    assert (old.status_code, old.json()["error"]) == (401, "app-unknown")
    stranger.app_key = new["key"]
    assert stranger.enter().ready("har").json()["status"] == "AFT"
    assert act(started, "apps/nobody/renew", {}).status_code == 404
    assert act(started, "apps/diary/renew", {}).json()["key"] != new["key"]


def test_devices_are_listed_page_by_page(started, make_phone):
    names = sorted(make_phone().enter().device for _ in range(5))
    act(started, f"devices/{names[2]}/block", {"blocked": True})
    page = started.client.get("/v1/admin/devices?most=3", headers=started.admin).json()
    rest = started.client.get(
        f"/v1/admin/devices?most=3&after={page[-1]['name']}", headers=started.admin
    ).json()
    assert [device["name"] for device in page + rest] == names
    assert [device["blocked"] for device in page + rest] == [False, False, True, False, False]
    assert page[0] | {"since": 0} == {
        "name": names[0],
        "phone": "Pixel 3",
        "system": "android-10",
        "since": 0,
        "blocked": False,
        "models": ["har"],
    }


def test_a_model_more_reaches_phones_that_are_there(started, phone):
    assert phone.ready("mood").json()["status"] == "DFT"
    act(started, "apps", {"name": "diary", "models": ["mood"]})
    assert phone.ready("mood").json()["status"] == "AFT"


def test_hosts_are_closed_and_tick(started):
    host = started.hosts["har"]
    before = host.ticks
    for _ in range(20):
        started.client.get("/v1/server")
        if host.ticks > before:
            break
        asyncio.run(asyncio.sleep(0.1))
    assert host.ticks > before


def test_a_fault_in_a_tick_does_not_end_the_ticking(started, monkeypatch):
    monkeypatch.setattr("privet.federation.server.desk.AFTER_A_FAULT", 0.01)
    host, ticks = started.hosts["har"], []

    def fail():
        ticks.append(1)
        raise RuntimeError("a fault")

    monkeypatch.setattr(host, "tick", fail)
    for _ in range(50):
        if len(ticks) >= 3:
            break
        asyncio.run(asyncio.sleep(0.05))
    assert len(ticks) >= 3


# -- what happens ------------------------------------------------------------------------------


def events(said):
    return [json.loads(event.split("data: ")[1]) for event in said]


def test_those_who_come_later_hear_the_last_happenings_and_then_new_ones():
    async def watch():
        happenings = Happenings()
        for number in range(KEPT + 5):
            happenings.tell("ready", n=number)
        heard = []
        async for event in happenings.watched(KEPT + 2):
            heard.append(event)
            if len(heard) == 3:
                happenings.tell("published", model="har", version=1)
            if len(heard) == 4:
                happenings.end()
        return heard, happenings

    heard, happenings = asyncio.run(watch())
    said = events(heard)
    assert [event["number"] for event in said] == [KEPT + 3, KEPT + 4, KEPT + 5, KEPT + 6]
    assert said[-1]["kind"] == "published"
    assert heard[-1].startswith(f"id: {KEPT + 6}\nevent: published\ndata: ")
    assert heard[-1].endswith("\n\n")
    assert happenings._watchers == set()


def test_a_slow_watcher_holds_nobody_up(monkeypatch):
    monkeypatch.setattr("privet.federation.server.happenings.WAITING", 3)

    async def watch():
        happenings = Happenings()
        heard = []
        happenings.tell("first")
        async for event in happenings.watched(0):
            heard.append(event)
            if len(heard) == 1:
                for _ in range(10):
                    happenings.tell("ready")
                happenings.end()
        return heard

    assert [event["number"] for event in events(asyncio.run(watch()))] == [1, 3, 4]
