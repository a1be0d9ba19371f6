"""What a developer says of a model: what is trained, when, by whom, and what that may tell of them.

    [model]      name, network or release, shape, classes, bounds, seed, public_start, keep_versions
    [rounds]     rule, rounds, seconds, quorum, buffer, stale, cohort, rate, patient, server_rate,
                 proximal, trim, attackers, secure_sum
    [work]       epochs, batch, learning_rate, optimizer, sample, pool, public_pool, least_records
    [privacy]    epsilon, delta, clip, times, apart, bands, divisor, population, noise_seed
    [phones]     kinds, systems, quota, longest, retry_seconds, ticket_seconds
    [[sensing]]  sensor, least_rate, rate, flush_seconds, keep_days
    [evaluation] records

Rounds, work and privacy are those of `FederationSettings`, under the same names but for the three
of `RENAMED`, and are checked there.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self, final

from privet.errors import InputError
from privet.federation.allowed import require_allowed
from privet.federation.pacing import Cohort
from privet.federation.rule import Rule
from privet.federation.secure_sum.encoding import MOST_CLIENTS
from privet.federation.secure_sum.terms import LEAST_THRESHOLD
from privet.federation.server.plan_sections import (
    OF_PRIVACY,
    OF_ROUNDS,
    OF_WORK,
    RENAMED,
    Sections,
    bounds_from,
    classes_from,
    require_kinds,
    require_known,
    require_name,
    require_population,
    sensing_from,
    settings_from,
    shape_from,
    texts_from,
)
from privet.federation.settings import FederationSettings
from privet.federation.user_privacy import UserPrivacy
from privet.federation.wire import Offer, Sensing, Work

ANY: Final = "*"


@final
@dataclass(frozen=True, kw_only=True)
class PhonePolicy:
    """Which phones may train, and how many.

    Attributes:
        kinds, systems: that are known to work; '*': all.
        quota: most tickets that are out at a time; None: no limit.
        longest: norm above which an update is refused; under privacy clipping takes its place.
        retry_seconds: after which a phone that was denied asks again.
        ticket_seconds: how long a ticket holds at most; a deadline may end it before.
    """

    kinds: tuple[str, ...] = (ANY,)
    systems: tuple[str, ...] = (ANY,)
    quota: int | None = None
    longest: float | None = None
    retry_seconds: float = 60.0
    ticket_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        if self.quota is not None and self.quota < 1:
            raise InputError("bad quota", got=self.quota, expected="at least 1 ticket")
        for name in ("longest", "retry_seconds", "ticket_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"bad {name}", got=value, expected="a positive, finite number")

    def fits(self, phone: str, system: str) -> bool:
        """Whether this kind is known to work."""
        known = ((phone, self.kinds), (system, self.systems))
        return all(ANY in names or name in names for name, names in known)


@final
@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """One model's plan; see the module.

    Attributes:
        name: of the model.
        settings: rounds, work and privacy, with all defaults filled in.
        shape, classes: of an example, and of what it may be.
        low, high: bounds of the inputs, as phones scale them.
        release: folder whose weights are the first version; None: drawn from the seed.
        public_start: the statement that these are public, in words; a private model needs it.
        population: how many devices there are, as far as is public.
        secure_sum: whether single updates stay hidden from the server.
        least_records: that a phone must have before it says it is ready.
        phones: which may train.
        sensing: what is collected.
        evaluated: records on which a phone tries a version; 0: none.
        keep_versions: how many of the newest stay in the store.
    """

    name: str
    settings: FederationSettings
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (1.0,)
    release: str | None = None
    public_start: str | None = None
    population: int | None = None
    secure_sum: bool = False
    least_records: int = 1
    phones: PhonePolicy = field(default_factory=PhonePolicy)
    sensing: tuple[Sensing, ...] = ()
    evaluated: int = 0
    keep_versions: int = 50

    def __post_init__(self) -> None:
        require_name(self.name)
        for what, value in (
            ("least_records", self.least_records),
            ("versions", self.keep_versions),
        ):
            if value < 1:
                raise InputError(f"bad number of {what}", got=value, expected="at least 1")
        if not self.classes or not self.shape or min(self.shape) < 1:
            raise InputError(
                "a model of no shape", got=f"shape {self.shape}, {len(self.classes)} classes"
            )
        if self.evaluated < 0:
            raise InputError("bad [evaluation] records", got=self.evaluated, expected="at least 0")
        if self.settings.epsilon is not None:
            self._require_private()
        if self.secure_sum:
            self._require_summable()

    @classmethod
    def load(cls, path: str | Path, *, own_network: bool = False) -> Self:
        """From a TOML file."""
        try:
            said = tomllib.loads(Path(path).read_text())
            return cls.from_json(said, own_network=own_network)
        except FileNotFoundError:
            raise InputError("file not found", got=path) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError("not TOML", got=f"{path}: {error}") from None

    @classmethod
    def from_json(cls, said: Mapping[str, Any], *, own_network: bool = False) -> Self:
        """From sections, as TOML and `to_json` have them.

        With `own_network` the network may be `custom`: a module of the caller's own.
        """
        parts = Sections(said)
        model, rounds, work = parts.take("model"), parts.take("rounds"), parts.take("work")
        privacy, phones = parts.take("privacy"), parts.take("phones")
        evaluation, sensing = parts.take("evaluation"), parts.take_list("sensing")
        parts.require_empty()
        own = {"model": model, "rounds": rounds, "work": work, "phones": phones}
        for section, part in {**own, "evaluation": evaluation}.items():
            require_kinds(section, part)
        shape, low, high = (
            shape_from(model.pop("shape", ())),
            *bounds_from(model.pop("bounds", [0.0, 1.0])),
        )
        chosen = {
            name: part.pop(old)
            for part, old, name in (
                *((model, n, n) for n in ("release", "public_start", "keep_versions")),
                (privacy, "population", "population"),
                (rounds, "secure_sum", "secure_sum"),
                (work, "least_records", "least_records"),
                (evaluation, "records", "evaluated"),
            )
            if old in part
        }
        settings = settings_from(model, rounds, work, privacy, own_network=own_network)
        plan = {
            "name": model.pop("name", ""),
            "classes": classes_from(model.pop("classes", [])),
            "phones": _phones(phones),
            "sensing": tuple(sensing_from(item) for item in sensing),
        }
        for name, part in (("model", model), ("evaluation", evaluation)):
            require_known(name, part, ())
        population = chosen.get("population")
        require_population(settings, population)
        filled = settings.filled(shape=shape, population=population or 1)
        return cls(**plan, **chosen, settings=filled, shape=shape, low=low, high=high)

    def to_json(self) -> dict[str, Any]:
        """The sections, with every default spelt out; `from_json` takes them back."""
        given = asdict(self.settings)
        renamed = {new: old for old, new in RENAMED.items()}
        said = {renamed.get(name, name): value for name, value in given.items()}
        private: tuple[str, ...] = OF_PRIVACY if self.settings.epsilon is not None else ()
        if self.settings.rate is not None:
            private = tuple(n for n in private if n not in ("times", "apart", "bands"))
        phones = {**asdict(self.phones), "kinds": list(self.phones.kinds)}
        model = {
            "name": self.name,
            "network": self.settings.model,
            "release": self.release,
            "public_start": self.public_start,
            "shape": list(self.shape),
            "classes": list(self.classes),
            "bounds": [list(self.low), list(self.high)],
            "seed": said["seed"],
            "keep_versions": self.keep_versions,
        }
        sections: dict[str, Any] = {
            "model": model,
            "rounds": {n: said[n] for n in OF_ROUNDS} | {"secure_sum": self.secure_sum},
            "work": {n: said[n] for n in OF_WORK} | {"least_records": self.least_records},
            "privacy": {n: said[n] for n in private} | {"population": self.population},
            "phones": phones | {"systems": list(self.phones.systems)},
            "evaluation": {"records": self.evaluated},
        }
        plain = {name: _without_none(part) for name, part in sections.items()}
        return plain | {"sensing": [item.model_dump(exclude={"v"}) for item in self.sensing]}

    @cached_property
    def text(self) -> str:
        """As canonical JSON."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def rule(self) -> Rule:
        """How updates become versions."""
        return self.settings.made_rule()

    @cached_property
    def privacy(self) -> UserPrivacy | None:
        """How they are hidden, for the whole target; None: not at all."""
        return _calibrated(self.settings)

    def require_runnable(self) -> None:
        """Refuse what the coordinator would refuse; calibrates the noise, which takes seconds."""
        rule, gathering = self.rule, self.rule.gathering(1)
        rounds = self.settings.rounds
        require_allowed(rule, gathering, self.privacy, secure_sum=self.secure_sum, rounds=rounds)

    @property
    def longest_summed(self) -> float:
        """The norm to which a phone shortens its update before it goes into a secure sum."""
        longest = self.phones.longest if self.settings.epsilon is None else self.settings.clip
        assert longest is not None
        return longest

    def work(self) -> Work:
        """What a phone does, as it is told."""
        work = self.settings.work()
        return Work(
            epochs=work.epochs,
            batch=work.batch,
            learning_rate=work.learning_rate,
            optimizer="adam" if work.optimizer == "adam" else "sgd",
            proximal=self.rule.proximal,
            least_records=self.least_records,
            own_per_class=work.own_per_class,
            pool_per_class=work.pool_per_class,
        )

    def offer(self, version: int) -> Offer:
        """What a phone needs to know of the model."""
        assert self.settings.model is not None
        return Offer(
            model=self.name,
            version=version,
            network=self.settings.model,
            shape=list(self.shape),
            classes=list(self.classes),
            work=self.work(),
            sensing=list(self.sensing),
            tries=self.evaluated,
        )

    def require_successor(self, new: "ModelPlan") -> None:
        """Refuse a revision that changes what is fixed for a model's life."""
        old, other = _fixed(self), _fixed(new)
        changed = sorted(n for n in {*old, *other} if old.get(n) != other.get(n))
        if changed:
            raise InputError(
                f"the plan of '{self.name}' cannot change in this",
                got=", ".join(changed),
                expected=", ".join(f"{name} = {old.get(name)}" for name in changed),
                fix="give the model another name, and a budget of its own",
            )

    def _require_summable(self) -> None:
        """A cohort that hides its members, and updates whose sum cannot overflow."""
        if not isinstance(self.rule.pacing, Cohort):
            raise InputError(
                f"secure sums with '{self.rule.name}'",
                got="devices that choose themselves",
                expected="a cohort",
                fix="fedavg, fedprox or fedadam",
            )
        size = self.rule.pacing.size
        if size is None or not LEAST_THRESHOLD <= size <= MOST_CLIENTS:
            raise InputError(
                "bad cohort for secure sums",
                got="a rate" if size is None else size,
                expected=f"[rounds] cohort: {LEAST_THRESHOLD} to {MOST_CLIENTS} devices",
            )
        if self.settings.epsilon is None and self.phones.longest is None:
            raise InputError(
                "secure sums without a longest update",
                expected="[phones] longest: phones shorten their updates to this norm",
            )

    def _require_private(self) -> None:
        """Whatever would make one device's records, or its coming, decide on another's updates."""
        if self.phones.longest is not None:
            raise InputError(
                "a longest update under privacy",
                got=self.phones.longest,
                fix="leave out longest: updates are clipped; to refuse one tells of its records",
            )
        if self.phones.quota is not None and self.rule.pacing.by_clock:
            raise InputError(
                "a quota where devices are to be added or removed unnoticed",
                got=self.phones.quota,
                expected="no device that is denied because another one came",
                fix="leave out quota",
            )
        if self.evaluated:
            raise InputError(
                "federated evaluation of a private model",
                got=f"records = {self.evaluated}",
                expected="none: what devices report of their records is not accounted",
                fix="leave out [evaluation]; try the versions on public records",
            )
        if self.release is not None and not self.public_start:
            raise InputError(
                "a private model that starts from a release",
                got="no statement that it is public",
                fix='public_start = "trained on records that volunteers published"',
            )


@lru_cache(maxsize=64)
def _calibrated(settings: FederationSettings) -> UserPrivacy | None:
    return None if settings.epsilon is None else settings.privacy(epsilon=settings.epsilon)


def _phones(said: dict[str, Any]) -> PhonePolicy:
    require_known("phones", said, [f.name for f in fields(PhonePolicy)])
    for name in {"kinds", "systems"} & set(said):
        said[name] = texts_from(f"phones.{name}", said[name])
    return PhonePolicy(**said)


def _without_none(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


def _fixed(plan: ModelPlan) -> dict[str, Any]:
    """What no revision changes; under privacy also all that the noise was calibrated for."""
    said = plan.to_json()
    fixed: dict[str, Any] = {
        f"model.{n}": v for n, v in said["model"].items() if n != "keep_versions"
    }
    fixed |= {f"privacy.{name}": value for name, value in said["privacy"].items()}
    fixed |= {"rounds.rule": plan.settings.rule, "rounds.secure_sum": plan.secure_sum}
    if plan.settings.epsilon is not None:
        names = ("rounds", "quorum", "buffer", "stale", "cohort", "rate", "patient")
        fixed |= {f"rounds.{name}": said["rounds"].get(name) for name in names}
        fixed |= {f"work.{name}": said["work"].get(name) for name in ("pool", "public_pool")}
    return fixed


__all__ = ["ModelPlan", "PhonePolicy"]
