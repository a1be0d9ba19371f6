"""A planned search: what is public about it, its entry in the ledger, and one trial of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import dp_accounting as dp

from privet.data.dataset import Dataset
from privet.engine.account import RunAccount
from privet.engine.handover import release_config, state
from privet.engine.plan import Plan
from privet.engine.trainer import PrivateTrainer
from privet.engine.tuned import Selected, Tuning
from privet.errors import CheckFailed
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training import dpsgd
from privet.training.run_folder import RunFolder
from privet.training.settings import Settings
from privet.tuning.checkpoint import Standing
from privet.tuning.search import Search


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A search, planned and reserved: everything about it that is public or known to the house."""

    data: Dataset
    search: Search
    plan: Plan
    selected: Selected
    ledger: Ledger
    run_id: str
    began: str
    folder: RunFolder | None

    @classmethod
    def of(
        cls, record: Mapping[str, Any], data: Dataset, ledger: Ledger, folder: RunFolder | None
    ) -> Self:
        """From what `run.json` says."""
        axes = {name: tuple(values) for name, values in record["search"].items()}
        return cls(
            data=data,
            search=Search(base=Settings(**record["settings"]), axes=axes),
            plan=Plan.from_json(record["plan"]),
            selected=Selected(**record["selected"]),
            ledger=ledger,
            run_id=record["run"],
            began=record["began"],
            folder=folder,
        )

    @property
    def tuning(self) -> Tuning:
        """What the card says about the choice."""
        return Tuning(
            kind="charged",
            detail=f"the best of a random number of runs ({self.selected.mean:g} expected), by a"
            f" noisy score, among {len(self.search)} candidates",
            selected=self.selected,
        )

    @property
    def event(self) -> DpEvent:
        """What the ledger holds: all trials and the choice, in one."""
        if self.search.base.noise_seed is not None:
            return dp.NonPrivateDpEvent()
        return self.selected.event(self.plan.event())

    def reserve(self) -> None:
        """Once and in full, before anything is touched; refused by the ledger if a cap is in."""
        name = "" if self.folder is None else f" {self.folder.folder.name}"
        self.ledger.reserve(
            self.data.name,
            label=f"tune dpsgd{name}",
            step_event=self.event,
            steps=1,
            run_id=self.run_id,
            adjacency=self.plan.sampler.adjacencies[0],
        )

    def require_reserved(self) -> None:
        """Refuse to go on with a search that is not the one the ledger reserved."""
        run = self.ledger.run(self.run_id)
        if (run.dataset, run.step_event, run.planned) != (self.data.name, self.event, 1):
            raise CheckFailed(f"the search of run {self.run_id} is not the one that was reserved")

    def remember(self, standing: Standing) -> None:
        """For `resume`."""
        if self.folder is not None and self.search.base.keep_keys:
            standing.save(self.folder.checkpoint)

    def trainer(
        self, data: Dataset, settings: Settings, trial: int, keys: Randomness
    ) -> PrivateTrainer:
        """A trial's trainer, with keys of its own."""
        plan = settings.plan_like(self.plan)
        randomness = Randomness(
            init_seed=settings.init_seed,
            sampling=keys.sampling.branch(purpose="trial", step=trial),
            noise=keys.noise.branch(purpose="trial", step=trial),
            secret=keys.secret,
        )
        # All steps of all trials are the one event that was charged.
        account = RunAccount(self.ledger, self.run_id, None, cycle=plan.steps)
        return dpsgd.build(data, settings, plan, randomness=randomness, account=account)

    def model(self, trainer: PrivateTrainer, settings: Settings) -> Release:
        """A trial's model, to predict with; nothing is stated about it."""
        assert settings.model is not None
        config = release_config(self.data, settings.model)
        return Release(model=trainer.released_model(), config=config, trust={})

    def state(self, trainer: PrivateTrainer, settings: Settings) -> Release:
        """The release of a trial, should it win."""
        assert settings.model is not None
        searched = {name: list(values) for name, values in self.search.axes.items()}
        release = state(
            trainer,
            self.data,
            method="dpsgd",
            model_name=settings.model,
            config=asdict(settings) | {"noise_seed": None, "search": searched},
            tuning=self.tuning,
        )
        # The hour of the end would tell how many trials there were.
        provenance = {**release.trust["provenance"], "created": self.began}
        return replace(release, trust={**release.trust, "provenance": provenance})
