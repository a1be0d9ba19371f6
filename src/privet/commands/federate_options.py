"""What may be chosen about a federation, on the command line."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class PopulationOptions:
    """Who takes part.

    Attributes
    ----------
    clients
        To how many made-up clients the records are dealt out; default: the users of the data are
        the clients.
    skew
        Alpha of Dirichlet for the labels of each made-up client; 0.1: hardly more than one class
        each; default: no skew.
    lacking
        Classes that each made-up client has no record of; default 0.
    pool
        Records of each class that every client gets a copy of, given by volunteers who are no
        clients; default 0.
    public_pool
        That these are public, in your words; a private run with a pool needs it.
    traces
        When phones can train: always (default), phones (drawn: nights on the charger), or a file
        of `privet federate traces`.
    dropout
        Share of clients that begin and are never heard of again; default 0.
    """

    clients: int | None = None
    skew: float | None = None
    lacking: int | None = None
    pool: int | None = None
    public_pool: str | None = None
    traces: str | None = None
    dropout: float | None = None


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """What a client does.

    Attributes
    ----------
    model
        See `privet models`; default by the shape of the examples.
    local_epochs
        Passes over its records in a round; default 5.
    batch
        Records in one of its steps; default 64.
    client_rate
        Its learning rate; default 0.05.
    optimizer
        sgd (default) or adam; without a past in every round.
    sample
        Use 50 to 100 records of each class in a round and 15 to 30 of the pool, as FLSys does.
    """

    model: str | None = None
    local_epochs: int | None = None
    batch: int | None = None
    client_rate: float | None = None
    optimizer: str | None = None
    sample: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """How updates become a model; single rules know only some of these.

    Attributes
    ----------
    rounds
        How many; default 50.
    seconds
        How long a round lasts at most, by the virtual clock; default: the rule's.
    cohort
        How many clients the server asks for; default 64.
    rate
        Or: the chance of every client to be asked, by a secret coin. Only this is accounted as
        sampling.
    patient
        The server waits for the end of the round, whoever has answered.
    buffer
        Updates of a step of fedbuff; default 10.
    stale
        By how many versions an update of fedbuff may be behind.
    quorum
        Fewest updates of a step; fewer are kept for the next round.
    server_rate
        Of the server's step; default 1, fedadam 0.01.
    proximal
        Mu of fedprox.
    trim
        Share that trimmed-mean cuts off at each end.
    attackers
        How many krum expects.
    """

    rounds: int | None = None
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


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """What a client is protected by, with --epsilon.

    Attributes
    ----------
    clip
        Norm to which an update is shortened; default 1.
    times
        Most steps that a client may be in; default: all of them. Without sampling by the server,
        fewer steps need less noise.
    apart
        Fewest steps from one of a client to its next; default 1.
    bands
        Of noise that is correlated over so many steps, at most --apart; default 1: independent.
    divisor
        What the private sum is divided by, whoever came; default: the clients that a step expects.
    """

    clip: float | None = None
    times: int | None = None
    apart: int | None = None
    bands: int | None = None
    divisor: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How it is computed.

    Attributes
    ----------
    engine
        one-by-one, together (clients stacked), or auto (default: what is faster here).
    init_seed
        Of first weights, clients, phones and what they draw; public; default 0.
    device
        cpu (default), cuda, ...
    precision
        Of what clients compute: float32 (default), or tf32 on a CUDA device.
    looks
        After how many of the rounds the model is tried on the test records; default 20.
    checkpoint_every
        Rounds between checkpoints; default: every 20 seconds.
    noise_seed
        For tests only: known noise, so no epsilon is stated.
    """

    engine: str | None = None
    init_seed: int | None = None
    device: str | None = None
    precision: str | None = None
    looks: int | None = None
    checkpoint_every: int | None = None
    noise_seed: int | None = None


Population = Annotated[PopulationOptions, Parameter(name="*", group="Who takes part")]
Work = Annotated[WorkOptions, Parameter(name="*", group="What a client does")]
Rounds = Annotated[RoundOptions, Parameter(name="*", group="How updates become a model")]
Privacy = Annotated[PrivacyOptions, Parameter(name="*", group="Privacy for the client")]
Run = Annotated[RunOptions, Parameter(name="*", group="How it is computed")]
