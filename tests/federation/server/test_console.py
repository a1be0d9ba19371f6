"""The console in a real browser, against a server that serves real models."""

import hashlib
import os
import re
import shutil
import socket
import threading
from contextlib import ExitStack
from importlib import resources

import dp_accounting as dp
import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

import uvicorn

from privet.commands.federate_console import console as show_console
from privet.federation import wire
from privet.federation.phone.line import Line
from privet.federation.phone.talking import Server as Talking
from privet.federation.server import console
from privet.federation.server.home import Home
from privet.federation.server.keys import ServerKeys
from privet.federation.server.routes import application
from privet.federation.server.running import Server
from privet.federation.server.service import Service, opener
from privet.federation.server.state.sqlite import SqliteState
from privet.federation.server.store.folder import FolderStore
from privet.federation.server.updates import packed

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
PATIENCE = 20_000  # milliseconds; only what is broken waits so long
SIZE = 10
HOSTILE = "<img src=x onerror=window.harmed=1><script>window.harmed=1</script>"
ODD = "a-0__Z-9" * 8  # as long, and as odd, as names of models may be

OPEN = """
[model]
name = "{name}"
network = "linear"
shape = [4]
classes = ["no", "yes"]

[rounds]
rule = "fedbuff"
rounds = 30
buffer = 3
stale = 5

[phones]
longest = 1000

[evaluation]
records = 20
"""
PRIVATE = """
[model]
name = "mood"
network = "linear"
shape = [4]
classes = ["no", "yes"]

[rounds]
rule = "flsys"
rounds = 30
seconds = 600
quorum = 1

[privacy]
epsilon = 4
delta = 1e-5
clip = 1.0
times = 8
divisor = 10
population = 100
"""


# -- a server, and phones ---------------------------------------------------------------------


class Fleet:
    """A server in this process that may stop and start again, and phones that obey."""

    def __init__(self, folder):
        self.folder = folder
        self.keys = ServerKeys.kept_in(folder / "keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.lines = []
        self.start()

    def start(self):
        state = SqliteState(self.folder / "state.sqlite")
        store = FolderStore(self.folder / "store")
        opens = opener(name="tests", state=state, store=store, secrets=self.folder / "secrets")
        self.state = state
        self.service = Service(
            "tests", keys=self.keys, state=state, store=store, opens=opens,
            device_rate=0.0, address_rate=0.0,
        )  # fmt: skip
        config = uvicorn.Config(
            application(self.service), log_config=None, ws="none", timeout_graceful_shutdown=5
        )
        listens = threading.Event()
        self.server = Server(config, self.service, listens.set)
        door = socket.create_server(("127.0.0.1", self.port))
        self.thread = threading.Thread(target=self._run, args=(door,))
        self.thread.start()
        assert listens.wait(30)

    def _run(self, door):
        with door:
            self.server.run(sockets=[door])

    def stop(self):
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()

    def ask(self, path, **message):
        headers = {"Authorization": f"Bearer {self.keys.admin}"}
        answer = httpx.post(
            f"{self.url}/v1/admin/{path}", json=message, headers=headers, timeout=60
        )
        assert answer.is_success, answer.text
        return answer.json()

    def add(self, *plans):
        names = [self.ask("plans", toml=plan)["model"] for plan in plans]
        self.app_key = self.ask("apps", name="diary", models=names)["key"]

    def phone(self, name):
        line = Line(self.url)
        self.lines.append(line)
        return Talking.entered(
            line, self.folder / name, app_key=self.app_key, phone="Pixel 3", system="android-10"
        )

    def tell(self, kind, **fields):
        """As if this had happened."""
        loop = self.server_loop()
        loop.call_soon_threadsafe(lambda: self.service.happenings.tell(kind, **fields))

    def server_loop(self):
        return self.service._tasks[""].get_loop()


def give(phone, model, value=0.1):
    """One update; whether it counts."""
    answer = phone.ready(model)
    assert isinstance(answer, wire.Accepted), answer
    content = packed(np.full(SIZE, value, dtype=np.float32))
    phone.put(answer.put_url, content, first=0, total=len(content))
    return phone.commit(answer.ticket, hashlib.sha256(content).hexdigest()).accepted


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path / "fleet")
    yield fleet
    for line in fleet.lines:
        line.close()
    fleet.stop()


@pytest.fixture
def two_models(fleet):
    fleet.add(OPEN.format(name="har"), PRIVATE)
    return fleet


# -- a browser --------------------------------------------------------------------------------


def _absent(reason):
    if os.environ.get("PRIVET_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        _absent("no Chromium here: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("no playwright here: pip install 'privet[test]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


class Window:
    """A page, and what it asked for and complained of."""

    def __init__(self, page, fleet):
        self.page, self.fleet = page, fleet
        self.asked, self.complaints = [], []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self):
        self.page.goto(f"{self.fleet.url}/console")
        return self

    def sign_in(self, key=None):
        self.page.get_by_label("Key", exact=True).fill(key or self.fleet.keys.admin)
        self.page.get_by_role("button", name="Sign in").click()
        return self

    def card(self, model):
        return self.page.get_by_role("article", name=model, exact=True)

    def sees(self, locator, text):
        from playwright.sync_api import expect

        expect(locator).to_contain_text(text, timeout=PATIENCE)

    def is_live(self):
        self.sees(self.page.locator("#link"), "live")
        return self


@pytest.fixture
def open_window(browser, fleet):
    with ExitStack() as held:

        def open_it(**options):
            context = browser.new_context(**options)
            held.callback(context.close)
            return Window(context.new_page(), fleet).open()

        yield open_it


@pytest.fixture
def window(two_models, open_window):
    """Signed in, and live."""
    return open_window().sign_in().is_live()


# -- the files --------------------------------------------------------------------------------


def test_the_page_has_a_strict_policy_and_no_script_of_its_own(fleet):
    answer = httpx.get(f"{fleet.url}/console")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<script[^>]*>([^<]*)</script>", answer.text) == [""]
    assert not re.search(r"\son\w+=|style=|javascript:", answer.text)
    assert not re.search(r"https?://", answer.text)
    assert fleet.keys.admin not in answer.text


def test_only_the_console_s_own_files_are_served(fleet):
    for name in ("main.js", "console.css", "look.css", "icon.svg"):
        answer = httpx.get(f"{fleet.url}/console/{name}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("__init__.py", "page.html.jinja", "..%2F..%2Fkeys.py", "nothing.js"):
        assert httpx.get(f"{fleet.url}/console/{name}").status_code == 404


def test_no_file_makes_html_of_text():
    scripts = [f for f in resources.files(console).iterdir() if f.name.endswith(".js")]
    assert len(scripts) > 5
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser|localStorage"
    )
    for script in scripts:
        assert not re.search(forbidden, script.read_text("utf-8")), script.name


def test_the_command_shows_the_address_and_the_key(tmp_path, capsys):
    home, _ = Home.entered(tmp_path / "fleet")
    try:
        home.listens("http://127.0.0.1:8470", None)
        show_console(tmp_path / "fleet")
    finally:
        home.leave()
    said = "".join(capsys.readouterr().out.split())
    assert "http://127.0.0.1:8470/console" in said
    assert home.keys.admin in said


# -- in the browser ---------------------------------------------------------------------------


def test_a_wrong_key_is_refused_and_not_kept(two_models, open_window):
    window = open_window().sign_in("A" * 43)
    window.sees(window.page.get_by_role("alert"), "not the operator's key")
    assert window.page.evaluate("sessionStorage.length") == 0
    assert not window.page.locator("#board").is_visible()
    window.sign_in("käse <b>")  # no key can be this: it is not even sent
    window.sees(window.page.get_by_role("alert"), "not the operator's key")
    assert sum("/v1/admin/" in url for url in window.asked) == 1
    window.sign_in().is_live()


def test_numbers_come_without_a_reload_when_an_update_counts(two_models, window):
    page, har = window.page, window.card("har")
    page.evaluate("window.same = true")
    window.sees(har, "0 updates; a step needs 3")
    window.sees(har, "No round is over yet")
    phones = [two_models.phone(f"p{i}") for i in range(3)]
    assert give(phones[0], "har")
    window.sees(har, "1 update; a step needs 3")
    bar = har.get_by_role("progressbar", name="Updates of har in this round")
    assert (bar.get_attribute("aria-valuenow"), bar.get_attribute("aria-valuemax")) == ("1", "3")
    assert all(give(phone, "har") for phone in phones[1:])
    window.sees(har, "version 1")
    window.sees(har, "Round 2 of 30")
    assert "3 updates" in har.get_by_role("img", name="Updates by round").get_attribute(
        "aria-label"
    )
    phones[0].report("har", version=1, tried=20, right=13)
    window.sees(har, "65.0% (version 1)")
    assert page.evaluate("window.same") is True
    assert window.complaints == []


def test_the_stream_alone_brings_the_numbers(two_models, open_window):
    window = open_window()
    window.page.add_init_script("window.setInterval = () => 0")  # nothing is asked again and again
    window.open().sign_in().is_live()
    assert give(two_models.phone("p"), "har")
    window.sees(window.card("har"), "1 update; a step needs 3")


def test_nothing_is_asked_of_anybody_else_and_the_key_is_in_no_address(two_models, window):
    give(two_models.phone("p"), "har")
    window.sees(window.card("har"), "1 update;")
    assert len(window.asked) > 10
    assert all(url.startswith(two_models.url + "/") for url in window.asked)
    assert not any(two_models.keys.admin in url for url in window.asked)
    assert window.page.context.cookies() == []
    assert window.complaints == []


def test_refused_updates_are_shown_with_their_reason(two_models, window):
    phone = two_models.phone("p")
    assert not give(phone, "har", value=1e6)
    window.sees(window.card("har"), "1 the update is longer than the plan allows")
    refusals = window.page.get_by_role("region", name="Recent refusals")
    window.sees(refusals, f"har: an update of {phone.me.device} is refused")


def test_the_budget_is_that_of_the_accountant_rounded_up(two_models, window):
    mood = window.card("mood")
    window.sees(mood, "ε ≤ 0.00 spent so far, of at most 4.00")
    phone = two_models.phone("p")
    assert give(phone, "mood")
    host = two_models.service.desks["mood"].host
    real = host._place.clock
    object.__setattr__(host._place, "clock", lambda: real() + 601)
    host.tick()
    two_models.tell("published", model="mood", version=1)
    window.sees(mood, "version 1")
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp.GaussianDpEvent(host.plan.privacy.multiplier))
    spent = accountant.get_epsilon(1e-5)
    shown = mood.get_by_role("progressbar", name="Spent epsilon of mood").get_attribute(
        "aria-valuetext"
    )
    at_most = float(re.match(r"ε ≤ ([\d.]+) spent so far, of at most 4.00", shown)[1])
    assert spent <= at_most <= spent + 0.02
    for text in ("proved", "device", "blanking out one device", f"median ε {at_most:.2f}, most ε"):
        window.sees(mood, text)


def test_what_devices_and_plans_say_stays_text(fleet, open_window):
    fleet.add(OPEN.format(name=ODD), PRIVATE)
    fleet.state.add_count("mood", "refused", HOSTILE)
    window = open_window().sign_in().is_live()
    fleet.tell("registered", device="d-1", phone=HOSTILE, system=HOSTILE)
    fleet.tell("denied", model=HOSTILE, device=HOSTILE, reason=HOSTILE)
    fleet.tell(HOSTILE, model=HOSTILE)
    fleet.service.refusals[HOSTILE] += 1
    happened = window.page.get_by_role("region", name="What happened")
    window.sees(happened, f"d-1 is registered: {HOSTILE}, {HOSTILE}")
    window.sees(window.page.get_by_role("region", name="Recent refusals"), HOSTILE)
    window.sees(window.card("mood"), f"1 {HOSTILE}")
    window.sees(window.page.get_by_role("region", name="Requests turned away"), HOSTILE)
    assert window.card(ODD).is_visible()
    assert window.page.locator("img, #board script").count() == 0
    assert window.page.evaluate("window.harmed") is None
    assert window.complaints == []


def test_the_browser_itself_would_refuse_html(window):
    harm = "document.getElementById('told').innerHTML = '<b>x</b>'"
    assert "TrustedHTML" in window.page.evaluate(
        f"() => {{ try {{ {harm} }} catch (error) {{ return error.message }} }}"
    )


def test_a_lost_connection_is_said_and_found_again(two_models, window):
    link = window.page.locator("#link")
    two_models.stop()
    window.sees(link, "connection lost, trying again")
    two_models.start()
    window.is_live()
    give(two_models.phone("p"), "har")
    window.sees(window.card("har"), "1 update;")


def test_where_the_stream_cannot_pass_it_asks_again_and_again(two_models, browser, open_window):
    window = open_window()
    window.page.route("**/v1/admin/events*", lambda route: route.abort())
    window.sign_in()
    window.sees(window.page.locator("#link"), "every 5 seconds")
    give(two_models.phone("p"), "har")
    window.sees(window.card("har"), "1 update;")


def test_stop_and_roll_back_ask_first(two_models, window):
    page, har = window.page, window.card("har")
    phones = [two_models.phone(f"p{i}") for i in range(3)]
    for _ in range(2):
        assert all(give(phone, "har") for phone in phones)
    window.sees(har, "version 2")
    har.get_by_role("button", name="Stop har").click()
    question = page.get_by_role("dialog", name="Stop har?")
    question.get_by_role("button", name="Cancel").click()
    assert not two_models.service.desks["har"].host.stopped
    har.get_by_role("button", name="Stop har").click()
    question.get_by_role("button", name="Stop training").click()
    window.sees(har, "stopped by the operator")
    har.get_by_role("button", name="Go on with har").click()
    page.get_by_role("dialog").get_by_role("button", name="Go on").click()
    window.sees(har.locator(".state"), "training")
    har.get_by_role("button", name="Roll back har").click()
    question = page.get_by_role("dialog", name="Roll har back?")
    question.get_by_label("Version").select_option("1")
    question.get_by_role("button", name="Roll back").click()
    window.sees(har, "version 3")
    window.sees(har.get_by_role("img", name="Updates by round"), "rolled back")
    assert two_models.service.desks["har"].host.version == 3
    assert window.complaints == []


def test_a_refused_action_says_why_and_stays(two_models, window):
    har = window.card("har")
    phones = [two_models.phone(f"p{i}") for i in range(3)]
    assert all(give(phone, "har") for phone in phones)
    window.sees(har, "version 1")
    har.get_by_role("button", name="Roll back har").click()
    two_models.stop()
    question = window.page.get_by_role("dialog", name="Roll har back?")
    question.get_by_role("button", name="Roll back").click()
    window.sees(question.get_by_role("alert"), "It was not done")
    two_models.start()


def test_sign_out_forgets_the_key_and_a_new_tab_must_ask(two_models, window):
    window.page.reload()
    window.is_live()
    window.page.get_by_role("button", name="Sign out").click()
    assert window.page.get_by_label("Key", exact=True).is_visible()
    assert window.page.evaluate("sessionStorage.length") == 0
    assert window.card("har").count() == 0


def test_a_server_without_models_says_what_to_do(fleet, open_window):
    window = open_window().sign_in().is_live()
    window.sees(window.page.locator("#no-models"), "privet federate plan add")
    window.sees(window.page.locator("#no-apps"), "privet federate app add")


def test_everything_is_reached_by_the_keyboard(two_models, open_window):
    page = open_window().page
    page.keyboard.type(two_models.keys.admin)
    page.keyboard.press("Enter")
    page.get_by_role("article", name="har", exact=True).wait_for()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Stop…":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "ask-no"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Stop…"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1300])
def test_it_fits_the_window_and_is_accessible(two_models, open_window, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here")
    size = {"width": width, "height": 900}
    window = open_window(color_scheme=scheme, viewport=size)
    found = [axe.Axe().run(window.page)]
    phones = [two_models.phone(f"p{i}") for i in range(3)]
    for _ in range(2):
        assert all(give(phone, "har") for phone in phones)
    assert not give(phones[0], "har", value=1e6)
    phones[1].report("har", version=1, tried=20, right=13)
    window.sign_in().is_live()
    window.sees(window.card("har"), "version 2")
    for summary in window.page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    assert window.page.evaluate("document.documentElement.scrollWidth") <= width
    found.append(axe.Axe().run(window.page))
    window.card("har").get_by_role("button", name="Roll back har").click()
    found.append(axe.Axe().run(window.page))
    for results in found:
        assert results.violations_count == 0, results.generate_report()
