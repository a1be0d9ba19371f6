"""What a user may choose about a federation; none of it is read off the records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from inspect import signature
from typing import Any, ClassVar, Final, Self, final, get_args, get_type_hints

from privet.data.dataset import Dataset
from privet.engine.arguments import in_words, shown
from privet.errors import InputError
from privet.federation.local_work import OPTIMIZERS, PRECISIONS, LocalWork
from privet.federation.pacing import Cohort
from privet.federation.rule import Rule
from privet.federation.rules import RULES, rule_named
from privet.federation.user_privacy import UserPrivacy
from privet.guarantee import check_target
from privet.models import default_model
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.privacy.participation import Capped, Sampled

ENGINES = AUTO, ONE_BY_ONE, TOGETHER = ("auto", "one-by-one", "together")
ALWAYS, PHONES = "always", "phones"
SPAN_OWN: Final = (50, 100)  # FLSys, Table 4.3
SPAN_POOL: Final = (15, 30)
_KINDS: Final = {float: "a number", int: "a whole number", str: "a name", bool: "True or False"}
_OF_PRIVACY: Final = (
    "epsilon",
    "delta",
    "clip",
    "times",
    "apart",
    "bands",
    "divisor",
    "noise_seed",
)

DETAILS: Final = _OF_PRIVACY[1:]  # without a target they mean nothing
_ONLY_PRIVATE: Final = ("delta", "clip", "bands", "apart")  # with defaults; without privacy unused


@final
@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """A population, what clients do, how updates become a model, and what that may tell of them.

    Attributes:
        rule: of aggregation, see `RULES`.
        rounds: how many.
        model: a name of `privet models`; default: by the shape of the examples.
        clients: to how many clients the records are dealt out; None: to the users that they have.
        skew: alpha of Dirichlet for the mix of labels of each client; None: no skew.
        lacking: classes that each client has no record of.
        local_epochs, batch, client_rate, optimizer: what a client does in a round.
        sample: use only some records of each class in a round, as FLSys does.
        pool: records of each class that all clients get from volunteers, who are no clients.
        public_pool: the statement that these are public, in words; a private run needs it.
        traces: 'always', 'phones' (drawn), or a file of stretches.
        dropout: share of clients that begin and are never heard of again.
        seconds: how long a round lasts; default: the rule's.
        cohort, rate, patient: of rules by which the server chooses: how many, or with which
            probability; whether it waits for the end of the round, whoever has answered.
        buffer, stale: of fedbuff.
        quorum: fewest updates of a step.
        server_rate: of the server's step.
        proximal, trim, attackers: of fedprox, trimmed-mean, krum.
        epsilon, delta: target for a client; None: no privacy.
        clip: norm to which an update is shortened.
        times: most steps that a client may be in; default: all.
        apart: fewest steps from one of a client to its next.
        bands: of correlated noise; at most `apart`.
        divisor: of the private sum; default: the clients that a step expects.
        engine: 'one-by-one', 'together', or 'auto': together on a GPU, and elsewhere if
            all layers are dense or steps have 4 records at most.
        init_seed: of first weights, clients, phones and what they draw; public.
        device: 'cpu', 'cuda', ...
        precision: of what clients compute: 'float32', or 'tf32' (CUDA only).
        looks: after how many of the rounds the model is tried on the test records.
        checkpoint_every: rounds between checkpoints; default: every 20 seconds.
        noise_seed: for tests only: known noise, so no epsilon is stated.
    """

    rule: str = "flsys"
    rounds: int = 50
    model: str | None = None
    clients: int | None = None
    skew: float | None = None
    lacking: int = 0
    local_epochs: int = 5
    batch: int = 64
    client_rate: float = 0.05
    optimizer: str = "sgd"
    sample: bool = False
    pool: int = 0
    public_pool: str | None = None
    traces: str = ALWAYS
    dropout: float = 0.0
    seconds: float | None = None
    cohort: int | None = None
    rate: float | None = None
    patient: bool | None = None
    buffer: int | None = None
    stale: int | None = None
    quorum: int | None = None
    server_rate: float | None = None
    proximal: float | None = None
    trim: float | None = None
    attackers: int | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    clip: float = 1.0
    times: int | None = None
    apart: int = 1
    bands: int = 1
    divisor: float | None = None
    engine: str = "auto"
    init_seed: int = 0
    device: str = "cpu"
    precision: str = "float32"
    looks: int = 20
    checkpoint_every: int | None = None
    noise_seed: int | None = None

    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rule": tuple(RULES),
        "optimizer": OPTIMIZERS,
        "engine": ENGINES,
        "precision": PRECISIONS,
    }
    _counts: ClassVar[tuple[str, ...]] = (
        *("rounds", "clients", "times", "apart", "bands", "looks", "checkpoint_every"),
    )

    def __post_init__(self) -> None:
        self._check_kinds()
        for name, known in self._choices.items():
            if getattr(self, name) not in known:
                raise InputError(
                    f"unknown {in_words(name)}",
                    got=f"'{getattr(self, name)}'",
                    expected=" | ".join(known),
                )
        for name in self._counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(
                    f"bad {in_words(name)}", got=value, expected="a whole number, at least 1"
                )
        for name in ("init_seed", "noise_seed"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"bad {in_words(name)}", got=value, expected="at least 0")
        self._check_population()
        self._check_privacy()
        if self.cohort is not None and self.rate is not None:
            raise InputError(
                "two ways to choose the clients of a round",
                got=f"cohort {self.cohort} and rate {self.rate:g}",
                fix="leave out --cohort, or --rate",
            )
        self.made_rule()
        self.work()

    def filled_for(self, data: Dataset) -> Self:
        """With every default that depends on public facts."""
        return self.filled(shape=data.shape, population=self.population(data))

    def filled(self, *, shape: tuple[int, ...], population: int) -> Self:
        """With every default that depends on the shape of an example and on how many clients."""
        filled = replace(self, model=self.model or default_model(shape))
        if filled.epsilon is None:
            return filled
        if filled.rate is None:
            times = min(filled.times or filled.rounds, -(-filled.rounds // filled.apart))
            filled = replace(filled, times=times)
        if filled.divisor is not None:
            return filled
        return replace(filled, divisor=filled._expected(population))

    def population(self, data: Dataset) -> int:
        """How many clients there are, as far as is public."""
        return self.clients or data.nominal_size

    def made_rule(self) -> Rule:
        """The rule with what was said of it.

        Under privacy, where nothing was said: no quorum, and a server that samples waits for the
        end of the round. Then no client has a say in when others are counted.
        """
        quorum, patient = self.quorum, self.patient
        if self.epsilon is not None:
            quorum = 0 if quorum is None and self.rule == "flsys" else quorum
            samples = self.rate is not None and "patient" in signature(RULES[self.rule]).parameters
            patient = True if patient is None and samples else patient
        return rule_named(
            self.rule,
            seconds=self.seconds,
            cohort=self.cohort,
            rate=self.rate,
            patient=patient,
            buffer=self.buffer,
            stale=self.stale,
            quorum=quorum,
            server_rate=self.server_rate,
            proximal=self.proximal,
            trim=self.trim,
            attackers=self.attackers,
        )

    def work(self) -> LocalWork:
        """What a client does."""
        return LocalWork(
            epochs=self.local_epochs,
            batch=self.batch,
            learning_rate=self.client_rate,
            optimizer=self.optimizer,
            own_per_class=SPAN_OWN if self.sample else None,
            pool_per_class=SPAN_POOL if self.pool else None,
            precision=self.precision,
        )

    def participation(self) -> Capped | Sampled:
        """Of filled, private settings: what is accounted."""
        if self.rate is not None:
            return Sampled(rate=self.rate, steps=self.rounds)
        assert self.times is not None
        return Capped(times=self.times, apart=self.apart)

    def privacy(self, *, epsilon: float) -> UserPrivacy:
        """Of filled settings: noise for what is left of the target."""
        assert self.divisor is not None
        return UserPrivacy.calibrated(
            epsilon=epsilon,
            delta=self.delta,
            participation=self.participation(),
            clip=self.clip,
            divisor=self.divisor,
            bands=self.coefficients(),
        )

    def coefficients(self) -> tuple[float, ...]:
        """Of correlated noise: those with the least error of weights at every round."""
        if self.bands == 1:
            return (1.0,)
        return optimal_coefficients(Workload(steps=self.rounds), self.bands)

    @property
    def reads_traces(self) -> bool:
        """Whether phones are those of a file."""
        return self.traces not in (ALWAYS, PHONES)

    def on_card(self) -> dict[str, Any]:
        """For the card: without privacy, no word of it."""
        left_out = _OF_PRIVACY if self.epsilon is None else ()
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def _expected(self, population: int) -> float:
        """Clients in a step: those that are asked, or as many as their caps leave room for."""
        if self.rate is not None:
            return max(1.0, self.rate * population)
        pacing = self.made_rule().pacing
        if isinstance(pacing, Cohort) and pacing.size is not None:
            return float(min(pacing.size, population))
        if self.rule == "fedbuff":
            return float(self.buffer or 10)
        assert self.times is not None
        return max(1.0, population * self.times / self.rounds)

    def _check_kinds(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            kinds = get_args(hint) or (hint,)
            as_number = isinstance(value, int) and float in kinds
            is_flag = isinstance(value, bool) and bool not in kinds
            if is_flag or not (as_number or isinstance(value, kinds)):
                expected = " or ".join(_KINDS.get(kind, "None") for kind in kinds)
                raise InputError(f"bad {in_words(field.name)}", got=shown(value), expected=expected)

    def _check_population(self) -> None:
        if self.clients is None and (self.skew is not None or self.lacking):
            raise InputError(
                "a skew of clients that are not dealt out",
                got="--skew or --lacking without --clients",
                fix="say how many clients the records are dealt out to: --clients 100",
            )
        if self.pool < 0:
            raise InputError("bad pool", got=self.pool, expected="records of each class, 0: none")
        if self.pool and self.epsilon is not None and not self.public_pool:
            raise InputError(
                "a pool in a private run",
                got="no statement that it is public",
                fix='--public-pool "given by volunteers who agreed to publish them"',
            )
        if self.public_pool is not None and not self.pool:
            raise InputError("a statement about no pool", fix="give --pool, or leave it out")

    def _check_privacy(self) -> None:
        if self.epsilon is None:
            asked = [n for n in ("times", "divisor", "noise_seed") if getattr(self, n) is not None]
            asked += [n for n in _ONLY_PRIVATE if getattr(self, n) != getattr(type(self), n)]
            require_no_details(asked)
            return
        check_target(self.epsilon, self.delta)
        if self.divisor is not None and not 0 < self.divisor < math.inf:
            raise InputError(
                "bad divisor",
                got=self.divisor,
                expected="a positive, finite number",
                fix="leave out --divisor: it is what a step expects then",
            )
        if self.rate is not None and (self.times is not None or self.apart > 1 or self.bands > 1):
            raise InputError(
                "caps on participation where the server samples",
                got=f"rate {self.rate:g}",
                fix="leave out --times, --apart and --bands, or --rate",
            )


def require_no_details(asked: Sequence[str]) -> None:
    """Refuse settings of privacy where there is no target."""
    if asked:
        raise InputError(
            "details of privacy without a target",
            got=", ".join(map(in_words, asked)),
            fix="give --epsilon, or leave them out",
        )
