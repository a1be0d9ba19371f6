"""`privet federate client`: a phone, or many, that take part in what a server trains."""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from privet.commands.screen import DataDir, Json, err, out, print_json, print_listing

if TYPE_CHECKING:
    from privet.federation.phone.given import GivenData
    from privet.federation.phone.hub import Phone
    from privet.federation.phone.starting import Plan


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The phone, and what its user lets it do.

    Attributes
    ----------
    traces
        When a phone charges and has a free network, and how fast it is: always (default: this
        machine, as fast as it is), phones (drawn: nights on the charger), or a file of
        `privet federate traces`.
    phone
        Kind of phone, which speeds and energy follow: Pixel 3a (default) or Pixel 3.
    speedup
        Seconds of the phones' clock in one of the wall's; default 1. The server's deadlines are
        stretched likewise, so rounds of 6 s at 60 are rounds of 6 minutes to the phone.
    recordings
        Instead of --data: streams that the phone's collectors are played: a folder with
        USER/SENSOR.csv (seconds,label,x,y,z), or simulated: those behind `activities`.
    clients
        To how many made-up clients the records are dealt out; default: the users of the data.
    skew
        Alpha of Dirichlet for the labels of each made-up client; default: no skew.
    pool
        Records of each class that every client gets a copy of; default 0.
    battery_too
        Train on battery, too, above --least-battery.
    least_battery
        Off the charger only above this share of a full battery; default 0.3.
    metered_too
        Use networks that cost, too.
    only_idle
        Train only while nobody uses the phone.
    least_records
        Take part only with at least so many records, also where the model asks for fewer.
    seed
        What lessons and drawn traces are made of; public; default 0.
    """

    traces: str = "always"
    phone: str = "Pixel 3a"
    speedup: float = 1.0
    recordings: str | None = None
    clients: int | None = None
    skew: float | None = None
    pool: int = 0
    battery_too: bool = False
    least_battery: float = 0.3
    metered_too: bool = False
    only_idle: bool = False
    least_records: int = 1
    seed: int = 0


Several = Parameter(negative="", consume_multiple=True)
PhoneOptions = Annotated[ClientOptions, Parameter(name="*", group="The phone and its user")]


def client(
    url: str,
    /,
    *,
    app_key_file: Annotated[list[Path], Several],
    data: Annotated[list[str] | None, Several] = None,
    user: int = 0,
    phones: int = 1,
    folder: Path,
    model: Annotated[list[str] | None, Several] = None,
    ca: Path | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
    data_dir: DataDir = None,
    json: Json = False,
    options: PhoneOptions = ClientOptions(),  # noqa: B008 - frozen
) -> None:
    """Be a phone: collect, wait for charger and network, train, send updates, evaluate.

    Records never leave the folder; what is sent is how far the weights moved. The phone chooses
    itself when it takes part. Killed at any moment, the same command goes on where it was. It
    ends when the server says that training is over; Ctrl-C stops it cleanly.

    Example: privet federate client https://fl.example.org --ca ca.pem --app-key-file app.key
    --data activities --user 3 --folder phone3

    Example: privet federate client http://127.0.0.1:8470 --app-key-file app.key
    --data activities --phones 20 --folder phones --traces phones --speedup 600

    Parameters
    ----------
    url
        Of the server: https://HOST:PORT; http:// only on this machine.
    app_key_file
        A file with the app's key, as `privet federate app add` printed it; one for each app on
        the phone.
    data
        Where the records are from: a name of `privet data list`, or MODEL=NAME for each model.
    user
        Which user of the data the phone is, from 0; with --phones the first one.
    phones
        How many phones run in this process, one for each user from --user on; default 1.
    folder
        Of the phone: its key, records, versions and where it stands; with --phones, of all.
    model
        Take part in these only; default: in all that the app has.
    ca
        The certificate (PEM) that must have signed the server's; no others are believed.
    once
        End when each phone has been answered once for each model.
    data_dir
        Where the files of a named data set are.
    json
        Print at the end what became of all rounds, as JSON, nothing else.
    options
        The phone, and what its user lets it do.
    """
    from privet.federation.phone.clock import FastClock
    from privet.federation.phone.fleet import Fleet
    from privet.federation.phone.starting import Starter
    from privet.federation.phone.storage import locked

    plan = _plan(url, app_key_file, data, user, phones, folder, model, ca, data_dir, json, options)
    with locked(folder), _stopped_by_signals() as stop:
        clock = FastClock.kept_in(folder, speedup=options.speedup)
        starter = Starter(plan, clock, stop)
        started = (starter.start(user + number) for number in range(phones))
        fleet = Fleet(
            [phone for phone in started if phone is not None],
            clock,
            enough=_answered if once else lambda phone: phone.over,
        )
        done = fleet.run(stop)
        starter.line.close()
    _tell(fleet.phones, plan, done=done, as_json=json)


def _plan(
    url: str,
    app_key_files: list[Path],
    data: list[str] | None,
    user: int,
    phones: int,
    folder: Path,
    models: list[str] | None,
    ca: Path | None,
    data_dir: Path | None,
    quiet: bool,
    options: ClientOptions,
) -> "Plan":
    from privet.errors import InputError
    from privet.federation.phone.policies import Policies
    from privet.federation.phone.starting import Plan

    if user < 0 or phones < 1:
        raise InputError("bad number of users", got=f"{user}, {phones}", expected="0.., 1..")
    if (data is None) == (options.recordings is None):
        raise InputError(
            "where are the records from",
            got="none" if data is None else "--data and --recordings",
            expected="--data NAME, or --recordings FOLDER",
        )
    return Plan(
        url=url,
        ca=ca,
        app_keys=[_key_in(path) for path in app_key_files],
        folder=folder,
        models=models or (),
        data=_given(data or [], data_dir, options),
        recordings=options.recordings,
        first=user,
        count=phones,
        traces=options.traces,
        profile=options.phone,
        speedup=options.speedup,
        policies=Policies(
            only_charging=not options.battery_too,
            least_battery=options.least_battery,
            only_unmetered=not options.metered_too,
            only_idle=options.only_idle,
            least_records=options.least_records,
        ),
        seed=options.seed,
        watch=_watcher(quiet=quiet),
    )


def _given(
    names: list[str], data_dir: Path | None, options: ClientOptions
) -> dict[str, "GivenData"]:
    """By model; under "" what all others get."""
    from privet.federation.phone.given import GivenData
    from privet.federation.settings import FederationSettings

    settings = FederationSettings(
        clients=options.clients, skew=options.skew, pool=options.pool, init_seed=options.seed
    )
    pairs = [name.rpartition("=") for name in names]
    return {model: GivenData(name, data_dir, settings) for model, _, name in pairs}


def _key_in(path: Path) -> str:
    from privet.errors import InputError
    from privet.federation.wire import looks_like_a_secret

    if not path.is_file():
        raise InputError("no such file with an app's key", got=path)
    key = path.read_bytes().strip().decode("ascii", errors="replace")
    if not looks_like_a_secret(key):
        raise InputError(
            "no app's key in this file",
            got=path,
            expected="the one line that `privet federate app add` printed",
        )
    return key


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM: what is being done is finished, and the rest stands on disk."""
    stop = threading.Event()
    names = (signal.SIGINT, signal.SIGTERM)
    before = {name: signal.signal(name, lambda *_: stop.set()) for name in names}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _answered(phone: "Phone") -> bool:
    """Whether each model has been told of an update, or training is over."""
    return all(
        model.over or any(fate.split(":")[0] in ("accepted", "refused") for fate in fates)
        for model in phone.models.values()
        for fates in [model.standing.fates]
    )


SAID = {
    "told": "green",
    "denied": "dim",
    "waits": "yellow",
    "later": "yellow",
    "declined": "red",
    "ended": "dim",
}


def _watcher(*, quiet: bool) -> Callable[[int], Callable[[str, Mapping[str, Any]], None]]:
    """A line for each thing that happens."""

    def of_phone(user: int) -> Callable[[str, Mapping[str, Any]], None]:
        def say(event: str, facts: Mapping[str, Any]) -> None:
            if quiet or event == "ended":
                return
            who = "" if user < 0 else f"phone {user}  {facts['model']}  "
            err.print(f"{who}{_sentence(event, facts)}", style=SAID[event], highlight=False)

        return say

    return of_phone


def _sentence(event: str, facts: Mapping[str, Any]) -> str:
    if event == "told":
        fate = "accepted" if facts["accepted"] else f"refused: {facts['reason']}"
        return f"round {facts['round']}, from version {facts['base_version']}: {fate}"
    if event == "denied":
        return f"not now: {facts['reason']}"
    if event == "later":
        return f"will try again: {facts['why']}"
    if event == "waits":
        here = f" ({facts['records']} are here)" if "records" in facts["why"] else ""
        return f"waits: {facts['why']}{here}"
    return f"the server declines: {facts['why']}"


def _peak_memory() -> float:
    """MiB that this process had at most. Not `ru_maxrss`: that begins with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes, but on Linux


def _tell(phones: Sequence["Phone"], plan: "Plan", *, done: bool, as_json: bool) -> None:
    """What became of all rounds."""
    found = {
        "done": done,
        "peak_memory_mb": round(_peak_memory(), 1),
        "phones": [
            {
                "user": plan.first + number,
                "devices": [me.device for me in phone.apps],
                "models": {
                    name: {
                        "stage": model.standing.stage.value,
                        "version": model.standing.version,
                        "rounds": model.standing.fates,
                    }
                    for name, model in phone.models.items()
                },
            }
            for number, phone in enumerate(phones)
        ],
    }
    if as_json:
        print_json(found)
        return
    total: Counter[str] = Counter()
    for phone in phones:
        for model in phone.models.values():
            total.update(model.standing.fates)
    rows = [(fate, str(count)) for fate, count in sorted(total.items())]
    print_listing([*rows, ("peak memory", f"{found['peak_memory_mb']} MB")])
    if not done:
        out.print("stopped; the same command goes on where it was", highlight=False)
