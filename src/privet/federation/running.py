"""A federation that is ready to go: a population, its phones, an engine, a coordinator, a clock.

Everything is made from the settings and public seeds, but for the noise and the server's coins,
which are drawn from secret streams.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from privet.data.dataset import Dataset
from privet.engine.account import Account
from privet.engine.generators import draws_by_itself
from privet.errors import InputError
from privet.federation import trace_files, traces
from privet.federation.at_work import Engine
from privet.federation.coordinator import Closed, Coordinator
from privet.federation.draws import Keys
from privet.federation.flat import flat, load_flat
from privet.federation.local_work import Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.pacing import Buffer, Cohort, Deadline
from privet.federation.population import Population
from privet.federation.rule import Rule
from privet.federation.settings import (
    ALWAYS,
    AUTO,
    ONE_BY_ONE,
    PHONES,
    TOGETHER,
    FederationSettings,
)
from privet.federation.simulator import Simulator, Weather
from privet.federation.together import Together, faster, stackable
from privet.federation.user_privacy import UserPrivacy
from privet.models import create
from privet.privacy.accounting import COARSE_INTERVAL, epsilon_of
from privet.privacy.randomness import Randomness
from privet.release import CUSTOM

USUAL_DAY: Final = 86_400.0
LONGEST_TRACE: Final = 3650  # days


@final
@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How many there are: what a progress bar wants to know of a plan."""

    steps: int


@final
class Federation:
    """One simulation, round by round.

    Args:
        population: clients and pool.
        settings: filled.
        randomness: the noise's and the server's secret streams.
        privacy: how updates are hidden; None: not at all.
        network: of the caller's own, where `settings` name none; a copy is trained.
    """

    def __init__(
        self,
        population: Population,
        settings: FederationSettings,
        randomness: Randomness,
        *,
        privacy: UserPrivacy | None,
        network: nn.Module | None = None,
    ) -> None:
        self.settings, self.data, self.privacy = settings, population.data, privacy
        self.plan = Rounds(steps=settings.rounds)
        self.note = ""
        self.history: list[dict[str, Any]] = []
        device = torch.device(settings.device)
        self.model = _network(population.data, settings, network).to(device)
        material, rule = population.material(device), settings.made_rule()
        _require_fillable(rule, len(material.clients), apart=settings.apart)
        self.simulator = Simulator(
            Coordinator(
                flat(self.model),
                rule,
                rounds=settings.rounds,
                privacy=privacy,
                stream=None if privacy is None else randomness.noise,
            ),
            engine_for(self.model, material, settings, rule),
            Teacher(material, settings.work(), seed=settings.init_seed),
            _phones(population.keys, settings, rule),
            seed=settings.init_seed,
            weather=Weather(dropout=settings.dropout),
            sampling=None if privacy is None else randomness.sampling,
        )

    @property
    def next_step(self) -> int:
        """Rounds that are over."""
        return self.simulator.coordinator.round

    def charge_to(self, account: Account) -> None:
        """Ask this account for leave from now on; before, records are taken for made up."""
        self.simulator.coordinator.account = account

    @property
    def by_clock(self) -> bool:
        """Whether no client has a say in when others are counted."""
        return self.simulator.coordinator.rule.pacing.by_clock

    @property
    def standing(self) -> str:
        """For a progress bar: the accuracy at the last look, and what a client may have spent."""
        seen = [f"accuracy {100 * r['test_accuracy']:.1f} %" for r in self.history[-1:]]
        return ", ".join([*seen, self._spent()])

    def _spent(self) -> str:
        sums, privacy = self.simulator.coordinator.sums, self.privacy
        if privacy is None:
            return "no privacy"
        if not sums:
            return "epsilon 0"
        part = privacy.participation
        event = part.event_of(privacy.multiplier, 1 + part.turn_of(sums - 1))
        return f"epsilon {epsilon_of(event, self.settings.delta, interval=COARSE_INTERVAL):.2f}"

    def step(self) -> Closed:
        """The next round."""
        closed = self.simulator.next_round()
        if self.next_step in self._looked_at:
            self.history.append(self._reading(closed))
        return closed

    def released_model(self) -> nn.Module:
        """The model as the last round left it; one of its own."""
        model = copy.deepcopy(self.model)
        load_flat(model, self.simulator.coordinator.weights)
        return model.eval()

    def accuracy(self) -> float:
        """Share of the test records that the model has right."""
        model, test = self.released_model(), self.data.test
        x = torch.from_numpy(self.data.bounds.clamp_and_scale(test.x))
        device = torch.device(self.settings.device)
        with torch.no_grad():
            guesses = [model(part.to(device)).argmax(1).cpu() for part in torch.split(x, 1024)]
        return float((torch.cat(guesses).numpy() == test.y).mean())

    def state(self) -> dict[str, Any]:
        """All that a killed run needs; secret under privacy."""
        return {"simulator": self.simulator.state(), "history": list(self.history)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another process stopped."""
        self.simulator.restore(state["simulator"])
        self.history = list(state["history"])

    @cached_property
    def _looked_at(self) -> set[int]:
        """After which rounds the model is tried on test records; the last one is among them."""
        rounds = self.settings.rounds
        looks = min(rounds, self.settings.looks)
        return {math.ceil(rounds * look / looks) for look in range(1, looks + 1)}

    def _reading(self, closed: Closed) -> dict[str, Any]:
        return {
            "round": self.next_step,
            "hours": closed.time / 3600.0,
            "version": closed.version,
            "test_accuracy": self.accuracy(),
        }


def engine_for(
    model: nn.Module, material: Material, settings: FederationSettings, rule: Rule
) -> Engine:
    """Which is faster, or as was asked for; see `benchmarks/federation_speed.py`.

    Stacked clients draw from one generator, so what one draws would follow from who else is there.
    Under privacy that must not be.
    """
    alone = settings.epsilon is not None and draws_by_itself(model, _scores, _made_up(material))
    if settings.engine == TOGETHER and alone:
        raise InputError(
            "clients side by side under privacy, and a model that draws",
            got="dropout, or the like: its masks would follow from who else takes part",
            fix=f"--engine {ONE_BY_ONE}, or a model without dropout",
        )
    may = settings.engine == AUTO and stackable(model, material.x.device) and not alone
    together = may and faster(model, material.x.device, settings.batch)
    together = together or settings.engine == TOGETHER
    kind = Together if together else OneByOne
    return kind(model, material, settings.work(), proximal=rule.proximal)


def _require_fillable(rule: Rule, clients: int, *, apart: int) -> None:
    """A client counts once in `apart` steps, so no step may wait for more than there are."""
    pacing = rule.pacing
    if isinstance(pacing, Buffer):
        if pacing.size * apart > clients and math.isinf(pacing.seconds):
            raise InputError(
                "a buffer of more clients than there are",
                got=f"--buffer {pacing.size}, a client in one of {apart} steps, {clients} clients",
                fix=f"--buffer {max(1, clients // (2 * apart))}, or --seconds for a deadline",
            )
    elif isinstance(pacing, Deadline | Cohort) and pacing.least > clients:
        raise InputError(
            "steps that ask for more updates than there are clients",
            got=f"{pacing.least} updates, {clients} clients",
            fix="a smaller --quorum, or fewer --attackers of krum",
        )


def _scores(scores: Tensor, labels: Tensor) -> Tensor:
    del labels
    return scores


def _made_up(material: Material) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(material.x[:2]), torch.zeros_like(material.y[:2])


def _network(data: Dataset, settings: FederationSettings, own: nn.Module | None) -> nn.Module:
    assert settings.model is not None
    if settings.model != CUSTOM:
        return create(settings.model, data.shape, len(data.classes), init_seed=settings.init_seed)
    if own is None:
        raise InputError(
            "the run has a network of the caller's own",
            got="none",
            fix="privet.federation.resume(folder, data, network=...)",
        )
    network = copy.deepcopy(own).cpu()
    require_scores(network, data.shape, len(data.classes))
    return network


def require_scores(network: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Refuse what does not give a row of scores for each example, a column for each class."""
    made_up, expected = torch.zeros(2, *shape), (2, classes)
    try:
        with torch.no_grad():
            got = tuple(copy.deepcopy(network).eval()(made_up).shape)
    except Exception as error:  # whatever a network of the caller's own may raise
        raise InputError(
            "the network does not take the examples", got=str(error).splitlines()[0]
        ) from error
    if got != expected:
        raise InputError("the network gives no scores", got=got, expected=str(expected))


def _phones(keys: Keys, settings: FederationSettings, rule: Rule) -> list[traces.Phone]:
    if settings.traces == ALWAYS:
        return traces.always(len(keys))
    phones = traces.drawn(keys.tolist(), days=_days(settings, rule), seed=settings.init_seed)
    return phones if settings.traces == PHONES else trace_files.read(settings.traces, phones)


def _days(settings: FederationSettings, rule: Rule) -> int:
    """For how long phones are drawn: twice the rounds' time; a year where they have no end."""
    seconds = rule.pacing.seconds
    days = 365 if math.isinf(seconds) else math.ceil(2 * seconds * settings.rounds / USUAL_DAY) + 2
    if days > LONGEST_TRACE:
        raise InputError(
            "rounds that would take longer than phones are drawn for",
            got=f"{settings.rounds} rounds of {seconds:g} s",
            expected=f"at most {LONGEST_TRACE // 2} days in all",
            fix="fewer rounds, or shorter ones",
        )
    return days
