"""`privet federate flower`: rounds over Flower, from a folder and by an app of Flower's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from privet.commands.federate_server import require_packages
from privet.commands.screen import Json, out, print_json, print_listing
from privet.errors import FaultyEnvironment

if TYPE_CHECKING:
    from privet.federation.flower.folder import Folder
    from privet.federation.server.plan import ModelPlan


def require_flower() -> None:
    """Say which extra is missing, if it is."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise FaultyEnvironment(
            "this needs Flower", got="no flwr", fix="pip install 'privet[flower]'"
        )
    require_packages()


def flower(
    folder: Path,
    /,
    *,
    plan: Path | None = None,
    nodes: Path | None = None,
    tls_self_signed: Annotated[str | None, Parameter(name="--tls-self-signed")] = None,
    json: Json = False,
) -> None:
    """Train over Flower: set up FOLDER with a ServerApp of privet's, and say how to start it.

    The ServerApp runs the same rules and the same accounting as `federate server`, asynchronously:
    it asks whoever is free, and takes what comes. ClientApps stay as they are. All that a new run
    goes on from is in FOLDER, on the host where Flower runs the ServerApp; keep it secret.

    A node is known by its public key, as for `flwr supernode register`. Under [privacy] only nodes
    whose keys are in FOLDER take part, epsilon protects a node with all its records, and the
    release in FOLDER/release has a trust card that `privet verify` checks.

    The same command again brings another plan, or other nodes; they count from the next run on.

    Example: privet federate flower har --plan har.toml --nodes keys --tls-self-signed fl.lan

    Then, as it says: flower-superlink on this host, flower-supernode on every other, flwr run.

    Parameters
    ----------
    folder
        Of the model; a new one is set up.
    plan
        What is trained: a plan as of `privet federate plan`; of [phones] it may have
        ticket_seconds (how long an answer counts) and retry_seconds (how long a node that failed
        is let alone). `network = "custom"`: your own app has it.
    nodes
        A folder with NAME.pub for every node, OpenSSH or PEM; these and no others take part.
    tls_self_signed
        Make a certificate for this host name, to try TLS: FOLDER/tls.
    json
        Where things are, as JSON, nothing else.
    """
    require_flower()
    from privet.federation.flower.starting import set_up
    from privet.federation.server.certificate import self_signed
    from privet.ledger import default_ledger_path

    made, read = set_up(folder, plan=plan, nodes=nodes, ledger=default_ledger_path())
    if tls_self_signed is not None:
        self_signed(made.path / "tls", tls_self_signed)
    if json:
        over, version = made.standing(read.name)
        said = {"folder": str(made.path), "model": read.name, "ledger": str(made.ledger)}
        print_json(said | {"rounds_over": over, "version": version})
        return
    _tell(made, read, host=tls_self_signed or "HOST")


def _tell(folder: "Folder", plan: "ModelPlan", *, host: str) -> None:
    """What to do next, word for word."""
    from privet.federation.flower.nodes import Roster
    from privet.federation.flower.starting import lines_for
    from privet.release import CUSTOM

    names = sorted(Roster.read(folder.nodes).names.values())
    own = plan.settings.model == CUSTOM
    over, version = folder.standing(plan.name)
    made, here = folder.path / "tls", " ".join(names) or "whoever comes"
    tls = str(made) if made.exists() else "TLS"
    print_listing(
        [
            ("model", plan.name),
            ("nodes", here),
            ("ledger", str(folder.ledger)),
            ("rounds", f"{over} of {plan.settings.rounds} are over; version {version}"),
            ("app", "your own, with the lines below" if own else str(folder.app)),
        ]
    )
    lines = [f"{section}  {line}" for section, line in lines_for(folder)]
    if own:
        lines.append('[tool.flwr.app.config]  privet-network = "MODULE:CALLABLE"')
    out.print("\nan app of your own keeps its clientapp, and says:", highlight=False)
    for line in lines:
        out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    out.print("\nthis host (FLWR_HOME/config.toml tells flwr of it):", highlight=False)
    for line in (
        f"flower-superlink --host 0.0.0.0 --port 8000 --ssl-ca-certfile {tls}/certificate.pem"
        f" --ssl-certfile {tls}/certificate.pem --ssl-keyfile {tls}/key.pem"
        f" --enable-supernode-auth --database {folder.path}/superlink.db"
        " --disable-runtime-dependency-installation",
        f"flwr supernode register {folder.nodes}/NAME.pub SUPERLINK    # each",
        f"flwr run {'YOUR-APP' if own else folder.app} SUPERLINK --stream",
    ):
        out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    out.print("every node:", highlight=False)
    out.print(
        f"  flower-supernode --superlink {host}:8000 --root-certificates certificate.pem"
        " --auth-supernode-private-key NAME --node-config 'data=\"records.toml\"'",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
