"""What is handed to phones: a release, or the model of a server's plan before its first round."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, final

from torch import nn

from privet.data.dataset import Bounds
from privet.errors import FaultyEnvironment, InputError
from privet.federation.flat import load_flat
from privet.files import read_json
from privet.models import create
from privet.release import Release, require_unchanged, require_whole

PLAN: Final = ".toml"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Handed:
    """A network with the weights that phones begin with.

    Attributes:
        model: its name of `privet models`.
        network: with its weights.
        shape, classes, bounds: of the examples.
        work: what the plan asks of a phone; None: nobody has said.
        source: where it is from, in words.
    """

    model: str
    network: nn.Module
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    bounds: Bounds
    work: Mapping[str, Any] | None
    source: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """A plan if it is a .toml file, else a release."""
        return cls._of_plan(path) if path.suffix == PLAN else cls._of_release(path)

    @classmethod
    def _of_release(cls, folder: Path) -> Self:
        require_unchanged(folder)
        require_whole(folder)
        if "classes" not in read_json(folder / "config.json"):
            raise InputError("no classifier", got=folder, expected="a release that has classes")
        release = Release.load(folder)
        low, high = (tuple(release.config["bounds"][end]) for end in ("low", "high"))
        return cls(
            model=release.config["model"],
            network=release.model,
            shape=tuple(release.config["shape"]),
            classes=tuple(map(str, release.config["classes"])),
            bounds=Bounds(low=low, high=high),
            work=None,
            source="release",
        )

    @classmethod
    def _of_plan(cls, path: Path) -> Self:
        if find_spec("pydantic") is None:
            raise FaultyEnvironment(
                "a plan needs the server's packages",
                got="no pydantic",
                fix="pip install 'privet[server]'",
            )
        from privet.federation.server.opening import first_weights
        from privet.federation.server.plan import ModelPlan

        plan = ModelPlan.load(path)
        name = plan.settings.model
        assert name is not None  # plans are filled in
        network = create(name, plan.shape, len(plan.classes), init_seed=0)
        load_flat(network, first_weights(plan))
        return cls(
            model=name,
            network=network,
            shape=plan.shape,
            classes=plan.classes,
            bounds=Bounds(low=plan.low, high=plan.high),
            work=plan.work().model_dump(exclude={"v"}),
            source=f"plan of {plan.name}",
        )
