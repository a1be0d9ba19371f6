"""A model's folder on the SuperLink's host, from which every new run goes on.

| in the folder  | what                                                                        |
|----------------|-----------------------------------------------------------------------------|
| `plan.toml`    | what is trained; changed, it is a revision, from the next run on            |
| `nodes/`       | NAME.pub: the public key of every node that takes part                      |
| `flower.json`  | its name, and which ledger is charged                                       |
| `home/`        | journal, snapshots, versions, keys of the noise; the owner's alone          |
| `app/`         | the Flower app, for `flwr run`                                              |
| `release/`     | the model with its trust card, once all rounds are over                     |
"""

import math
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

from privet.errors import InputError
from privet.federation.flower.nodes import Roster
from privet.federation.pacing import Buffer
from privet.federation.server.home import name_for
from privet.federation.server.plan import ModelPlan, PhonePolicy
from privet.federation.server.state.sqlite import SqliteState
from privet.files import read_json, write_json

FORMAT: Final = "privet-flower/1"
ABOUT: Final = "flower.json"


@final
@dataclass(frozen=True)
class Folder:
    """Where things are."""

    path: Path

    @property
    def plan(self) -> Path:
        """What is trained."""
        return self.path / "plan.toml"

    @property
    def nodes(self) -> Path:
        """Whose keys are known."""
        return self.path / "nodes"

    @property
    def app(self) -> Path:
        """For `flwr run`."""
        return self.path / "app"

    @property
    def home(self) -> Path:
        """What is kept."""
        return self.path / "home"

    @property
    def begun(self) -> bool:
        """Whether a ServerApp has been here."""
        return (self.home / "state.sqlite").exists()

    @property
    def release(self) -> Path:
        """What comes out."""
        return self.path / "release"

    @property
    def ledger(self) -> Path:
        """Which is charged, whoever starts the ServerApp, and as whom."""
        return Path(self._about["ledger"])

    @property
    def server(self) -> str:
        """Its name in the ledger and on the card."""
        return str(self._about["server"])

    @property
    def _about(self) -> dict[str, Any]:
        about = read_json(self.path / ABOUT)
        if about.get("format") != FORMAT:
            raise InputError("not a folder of `privet federate flower`", got=self.path)
        return about

    @classmethod
    def existing(cls, said: object) -> Self:
        """As an app's configuration names it."""
        path = Path(str(said or ""))
        if not said or not (path / ABOUT).is_file():
            raise InputError(
                "no folder of `privet federate flower` here",
                got=said or "no privet-folder in [tool.flwr.app.config]",
                expected="its absolute path on the host of the ServerApp",
                fix="privet federate flower FOLDER --plan PLAN.toml",
            )
        found = cls(path)
        found.require_outside_apps()
        return found

    def require_outside_apps(self) -> None:
        """Refuse a place from which Flower would send the keys of the noise to every node.

        It packs all JSON, TOML and Python below an app's pyproject.toml.
        """
        for above in self.path.resolve().parents:
            project = above / "pyproject.toml"
            if project.is_file() and "tool.flwr" in project.read_text(errors="replace"):
                raise InputError(
                    "a model's folder within a Flower app",
                    got=f"{self.path}, below {project}",
                    expected="a place outside: Flower sends what is in an app to every node, and"
                    " the keys of the noise would be with it",
                    fix="name or move it elsewhere; if the app was ever run, take a new model",
                )

    def standing(self, model: str) -> tuple[int, int]:
        """Rounds that are over, and the newest version."""
        if not self.begun:
            return 0, 0
        with closing(SqliteState(self.home / "state.sqlite")) as state:
            last = state.rounds(model, last=1)
        return (last[-1].round, last[-1].version) if last else (0, 0)

    def note(self, ledger: Path) -> None:
        """Say which ledger is charged; the first one is, for good."""
        file = self.path / ABOUT
        if not file.exists():
            said = {"server": name_for(self.path), "ledger": str(ledger.resolve())}
            write_json(file, {"format": FORMAT, **said})


def require_for_flower(plan: ModelPlan, roster: Roster) -> None:
    """Refuse what nodes of Flower cannot be asked for, and what would not be proved of them."""
    _require_plain(plan)
    pacing = plan.rule.pacing
    if math.isinf(pacing.seconds):
        raise InputError(
            "rounds that may wait for ever",
            got=f"'{plan.rule.name}' without seconds",
            expected="an end, also where nodes are gone",
            fix="[rounds] seconds = 3600.0",
        )
    if plan.privacy is None:
        return
    if not roster.closed:
        raise InputError(
            "a private model, and nodes that anybody may start",
            got="no NAME.pub in nodes/",
            expected="the public keys of the nodes: a cap holds for a key, not for a number"
            " that the SuperLink gives again",
            fix="privet federate flower FOLDER --nodes KEYS, a folder of NAME.pub",
        )
    participation = plan.privacy.participation
    if isinstance(pacing, Buffer) and pacing.size * participation.apart > len(roster.names):
        raise InputError(
            "a buffer of more nodes than there are",
            got=f"buffer {pacing.size}, a node in one of {participation.apart} steps,"
            f" {len(roster.names)} nodes",
            fix="a smaller buffer",
        )


def _require_plain(plan: ModelPlan) -> None:
    usual, asked = PhonePolicy(), plan.phones
    for name in ("kinds", "systems", "quota", "longest"):
        if getattr(asked, name) != getattr(usual, name):
            raise _no(f"[phones] {name}", "phones and their kinds")
    for what, there in (
        ("[rounds] secure_sum", plan.secure_sum),
        ("[[sensing]]", plan.sensing),
        ("[evaluation]", plan.evaluated),
        ("[work] pool", plan.settings.pool),
    ):
        if there:
            raise _no(what, "`privet federate server`")


def _no(what: str, of: str) -> InputError:
    return InputError(f"{what} is of {of}", got="a plan for Flower", fix=f"leave out {what}")
