"""`privet federate`: many clients learn one model, and none of them shows its records."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from privet.commands.federate_client import client
from privet.commands.federate_console import console
from privet.commands.federate_flower import flower
from privet.commands.federate_operator import (
    apps_app,
    block,
    devices,
    export,
    plan_app,
    rollback,
    status,
    stop,
)
from privet.commands.federate_options import (
    Population,
    PopulationOptions,
    Privacy,
    PrivacyOptions,
    RoundOptions,
    Rounds,
    Run,
    RunOptions,
    Work,
    WorkOptions,
)
from privet.commands.federate_server import server
from privet.commands.federate_to_phone import to_phone
from privet.commands.options import given
from privet.commands.screen import DataDir, Json, out, print_json, print_listing, step_bar
from privet.commands.subjects import reference_to

federate_app = App(
    name="federate",
    help="Many clients learn one model together; epsilon, if asked for, protects a client with all"
    " its records.\n\nStart here: privet federate simulate flsys --data activities"
    " --model har-wild-32 --pool 40 --batch 32 --optimizer adam --client-rate 0.003 --rounds 15"
    " --out runs/together\n\n"
    "Or really: privet federate server fleet",
)
for served in (server, plan_app, apps_app, status, console, export, rollback, stop, devices, block):
    federate_app.command(served)
federate_app.command(client)
federate_app.command(flower)
federate_app.command(to_phone)


@federate_app.command
def simulate(
    rule: str,
    /,
    *,
    data: str,
    epsilon: float | None = None,
    delta: float | None = None,
    out_folder: Annotated[Path, Parameter(name="--out")],
    data_dir: DataDir = None,
    json: Json = False,
    population: Population = PopulationOptions(),  # noqa: B008 - frozen
    work: Work = WorkOptions(),  # noqa: B008 - frozen
    rounds: Rounds = RoundOptions(),  # noqa: B008 - frozen
    privacy: Privacy = PrivacyOptions(),  # noqa: B008 - frozen
    how: Run = RunOptions(),  # noqa: B008 - frozen
) -> None:
    """Let a population learn on this machine, by a virtual clock, and write the release.

    A killed run goes on by `privet resume OUT`, to the same weights.

    Example: privet federate simulate flsys --data digits --clients 100 --skew 0.3 --rounds 20
    --out runs/together

    Example: privet federate simulate fedavg --rate 0.2 --data activities --rounds 40
    --epsilon 8 --out runs/private

    Example: privet federate simulate flsys --traces phones --seconds 21600 --dropout 0.3
    --data digits --clients 100 --rounds 20 --out runs/phones

    Parameters
    ----------
    rule
        How updates become a model; see `privet federate rules`.
    data
        A name from `privet data list`, or your description file (.toml).
    epsilon
        Privacy target for a client, with all its records and all its updates; default: none. The
        server is trusted: what it publishes is protected.
    delta
        Of the target; well below 1 / number of clients; default 1e-5.
    out_folder
        Folder of the release, new or empty.
    data_dir
        Where the files of a named data set are.
    json
        Print the trust card as JSON, nothing else.
    population
        Who takes part.
    work
        What a client does.
    rounds
        How updates become a model.
    privacy
        What a client is protected by.
    how
        How it is computed.
    """
    import privet
    from privet.federation.fitting import settings_of
    from privet.federation.fitting import simulate as learn

    target = {"epsilon": epsilon, "delta": delta}
    options: dict[str, Any] = {name: value for name, value in target.items() if value is not None}
    options |= given(population, work, rounds, privacy, how)
    settings_of({"rule": rule, **options})  # what is refused is refused before data are read
    loaded = privet.data.load(data, data_dir)
    with step_bar(quiet=json) as watch:
        release = learn(
            loaded,
            rule=rule,
            out=out_folder,
            watch=watch,
            reference=reference_to(data, data_dir),
            **options,
        )
    if json:
        print_json(release.trust)
        return
    from privet.reports import print_card

    print_card(release.trust, out, report=out_folder / "report.html")
    out.print(f"rounds     privet federate show {out_folder}", highlight=False, soft_wrap=True)


@federate_app.command
def show(folder: Path, /, *, json: Json = False) -> None:
    """Accuracy by round and by the clock, and what became of the clients' work.

    It is for whoever may see the records: who took part is not hidden in it.

    Parameters
    ----------
    folder
        The --out folder of a simulation.
    json
        Machine-readable.
    """
    from privet.federation.showing import told

    found = told(folder)
    if json:
        print_json(found)
        return
    print_listing(_lines(found))


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [
        (
            f"round {reading['round']}",
            f"{100 * reading['test_accuracy']:.1f} %, after {_duration(reading['hours'])} of the"
            " clock",
        )
        for reading in found["rounds"]
    ]
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(found["jobs"].items()))
    return [
        *lines,
        ("updates", fates or "none"),
        ("wasted", f"{100 * found['wasted_share']:.1f} % of the records trained on"),
        ("clients", f"{found['clients_that_took_part']} of {found['clients']} took part"),
        ("most steps", f"{found['most_steps_of_a_client']} of one client"),
        *_spending(found),
        ("picture", str(found["picture"])),
    ]


def _duration(hours: float) -> str:
    """In hours; rounds that are shorter in minutes or seconds."""
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{60 * hours:.1f} min" if 60 * hours >= 1 else f"{3600 * hours:.1f} s"


def _spending(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Both ways of counting, and which of them holds; then what single clients spent."""
    if "epsilon" not in found:
        return []
    capped, sampled = found["epsilon"]["self-selected"], found["epsilon"]["server-sampled"]
    if found["participation"] == "self-selected":
        coins = f"had a server asked each with chance {found['epsilon']['rate']:.3g}"
        said = f"{capped:.3g}, clients chose themselves; {coins}: {sampled:.3g}"
    else:
        said = f"{sampled:.3g}, the server sampled; had clients chosen themselves: {capped:.3g}"
    lines = [("epsilon", said)]
    if spent := found["spent_by_clients"]:
        least, median, most = (f"{spent[name]:.3g}" for name in ("least", "median", "most"))
        lines.append(("spent", f"by clients: least {least}, median {median}, most {most}"))
    return lines


@federate_app.command
def rules(*, json: Json = False) -> None:
    """List the rules of aggregation, and what each can be combined with.

    Parameters
    ----------
    json
        Machine-readable.
    """
    from privet.federation.showing import described_rules

    found = described_rules()
    if json:
        print_json(found)
        return
    print_listing((rule["name"], f"{rule['summary']} ({rule['allows']})") for rule in found)


@federate_app.command
def traces(
    *,
    out_file: Annotated[Path, Parameter(name="--out")],
    clients: int = 100,
    days: int = 14,
    seed: int = 0,
) -> None:
    """Write when drawn phones can train, as a file that `--traces` reads.

    A row for each stretch of time: client,start,stop, in seconds since the start; and the phone's
    speed,down,up, in records and bytes a second, which may be left out. Edit it, or make one of
    your own measurements.

    Parameters
    ----------
    out_file
        A CSV file; it must not exist yet.
    clients
        How many phones.
    days
        For how long.
    seed
        Of the draws; public.
    """
    from privet.errors import InputError
    from privet.federation.trace_files import write
    from privet.federation.traces import drawn

    for name, value, least in (("clients", clients, 1), ("days", days, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"bad {name}", got=value, expected=f"a whole number, at least {least}")
    written = write(out_file, drawn(range(clients), days=days, seed=seed))
    out.print(f"{written} stretches of {clients} phones in {out_file}", highlight=False)
