"""Canary clients: two worlds of a federation, driven through the real coordinator.

| symbol | here                                                                                |
|--------|-------------------------------------------------------------------------------------|
| D      | other clients alone, whose updates lie at right angles to the canary's              |
| D'     | the same with the canary: at every chance it sends an update far longer than C,     |
|        | along a direction of its own                                                        |
| seen   | every published version, as noisy sums of clipped updates                           |
| C, z   | clip norm and noise multiplier; T steps, R runs                                     |

Nothing that a client can do shows more under the proof of `privacy.participation`: it is in as many
steps as its cap lets it, by the full clip norm, and the observer knows all others.

Runs stand side by side in one coordinator, whose vector has `dimensions` numbers for each of R
runs. An update that is alike in all of them has sqrt(R) times the norm; under a clip norm of
sqrt(R) C and a multiplier of z / sqrt(R) each run keeps a share of norm C, under noise of z C with
draws of its own. So clipping, adding, hiding, dividing and publishing are `UserPrivacy`'s and the
coordinator's own doing, for many runs at once. Where a server samples, each run has coins of its
own; runs with the same coins stand together.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privet.audits.mechanism import Entry, Floats, Subject
from privet.audits.mutant_settings import DELTA, EPSILON
from privet.audits.statistics import Statistic, along, sampled_shift
from privet.federation import Coordinator, Update, UserPrivacy, rule_named
from privet.federation.coordinator import Answer
from privet.federation.rule import Rule
from privet.guarantee import Adjacency
from privet.privacy.accounting import tradeoff_of
from privet.privacy.participation import Capped, Sampled
from privet.privacy.randomness import Randomness, SecretStream

SECONDS: Final = 10.0
FAR: Final = 1e3  # times the clip norm: how long updates are before they are clipped
CANARY: Final = "canary"
STEPS, TIMES, APART, RATE = 6, 3, 2, 0.5
TOSSES: Final = 3  # steps of a server that samples
BANDS: Final = (math.sqrt(0.8), -math.sqrt(0.2))

Upload = tuple[str, int]
"""Who, and by how many versions the update is behind."""
Spoil = Callable[[Coordinator], None]


@final
@dataclass(frozen=True, kw_only=True)
class Canaries:
    """One federation, as often as is asked for; called, it gives a row of T sums for each run.

    Attributes:
        privacy: of a single run.
        rule: of aggregation.
        uploads: for each step, who sends an update if the coordinator lets it.
        dimensions: numbers of a run; the canary has the first for itself, others share the second.
        zeroed: in the world without, the canary is there and sends zeros (zero-out).
        spoil: what is broken in the coordinator; for mutants.
    """

    privacy: UserPrivacy
    rule: Rule
    uploads: Sequence[Sequence[Upload]]
    dimensions: int = 2
    zeroed: bool = False
    spoil: Spoil = lambda _: None

    def __call__(self, included: bool, runs: int, seed: int) -> Floats:
        """What is published, in units of the private sum."""
        randomness = Randomness.seeded(seed)
        rows = np.empty((runs, len(self.uploads) * self.dimensions))
        for number, (asked, chosen) in enumerate(self._alike(runs, randomness.sampling)):
            stream = randomness.noise.branch(purpose="runs with the same coins", step=number)
            rows[chosen] = self._side_by_side(included, len(chosen), asked, stream)
        return rows

    def _alike(
        self, runs: int, coins: SecretStream
    ) -> Iterator[tuple[Sequence[set[str]], NDArray[np.int64]]]:
        """Who is asked in each step, and the runs in which it is so."""
        everyone = sorted({client for step in self.uploads for client, _ in step})
        participation = self.privacy.participation
        if not isinstance(participation, Sampled):
            yield [set(everyone)] * len(self.uploads), np.arange(runs)
            return
        size, count = runs * len(everyone), len(self.uploads)
        drawn = [coins.uniform(size, purpose="cohort", step=step) for step in range(count)]
        heads = np.reshape(drawn, (count, runs, -1)).transpose(1, 0, 2) < participation.rate
        heads = heads.reshape(runs, -1)
        codes = heads @ (1 << np.arange(heads.shape[1]))
        for code in np.unique(codes):
            chosen = np.flatnonzero(codes == code)
            pattern = heads[chosen[0]]
            steps = np.reshape(pattern, (count, len(everyone)))
            asked = [{c for c, on in zip(everyone, step, strict=True) if on} for step in steps]
            yield asked, chosen

    def _side_by_side(
        self, included: bool, runs: int, asked: Sequence[set[str]], stream: SecretStream
    ) -> Floats:
        wider = math.sqrt(runs)
        coordinator = Coordinator(
            torch.zeros(runs * self.dimensions, dtype=torch.float64),
            self.rule,
            rounds=len(self.uploads),
            privacy=replace(
                self.privacy,
                clip=self.privacy.clip * wider,
                multiplier=self.privacy.multiplier / wider,
            ),
            stream=stream,
        )
        self.spoil(coordinator)
        versions = [coordinator.weights]
        for step, uploads in enumerate(self.uploads):
            if self.rule.pacing.invites:
                coordinator.invite(asked[step])
            for client, behind in uploads:
                if included or self.zeroed or client != CANARY:
                    change = self._change(client, runs) * float(included or client != CANARY)
                    _send(coordinator, client, behind, change, SECONDS * step)
            coordinator.advance(SECONDS * (step + 1))
            versions.append(coordinator.weights)
        moves = torch.stack(versions).diff(dim=0) * self.privacy.divisor
        rows = moves.reshape(len(self.uploads), runs, -1).transpose(0, 1).reshape(runs, -1)
        return np.asarray(rows.numpy())

    def _change(self, client: str, runs: int) -> Tensor:
        """Alike in all runs."""
        change = torch.zeros(runs, self.dimensions, dtype=torch.float64)
        change[:, 0 if client == CANARY else 1] = FAR * self.privacy.clip
        return change.reshape(-1)


def _send(coordinator: Coordinator, client: str, behind: int, change: Tensor, now: float) -> None:
    version = coordinator.version - behind
    if coordinator.would_take(client, version) is Answer.ACCEPTED:
        coordinator.receive(Update(client=client, base_version=version, change=change), now)


def every_step(count: int = STEPS) -> list[list[Upload]]:
    """The canary and another client, whenever they may."""
    return [[("other", 0), (CANARY, 0)]] * count


def by_deadline() -> Rule:
    """Clients choose themselves; rounds end by the clock alone."""
    return rule_named("flsys", seconds=SECONDS, quorum=0)


def privacy_for(
    participation: Capped | Sampled, *, bands: tuple[float, ...] = (1.0,), divisor: float = 2.0
) -> UserPrivacy:
    """With the noise that epsilon 1 at delta 1e-5 needs."""
    return UserPrivacy.calibrated(
        epsilon=EPSILON,
        delta=DELTA,
        participation=participation,
        clip=1.0,
        divisor=divisor,
        bands=bands,
    )


def in_steps(
    steps: Sequence[int], *, bands: Sequence[float] = (1.0,), count: int = STEPS
) -> Statistic:
    """The best score where the canary is in these steps, and all else is known.

    In rows y_t = sum_j c_j x_(t-j) noise is independent; there the canary moves row t + j by c_j C.
    """
    shift, taken_back = np.zeros(count), np.zeros((count, count))
    for j, c in enumerate(bands):
        taken_back += c * np.eye(count, k=-j)
        shift += c * np.isin(np.arange(count) - j, steps)
    return along(np.stack([taken_back.T @ shift, np.zeros(count)], axis=1).reshape(-1))


def capped() -> Subject:
    """Three of six steps at most, the canary's first three; noise of each step its own."""
    return _sound(
        "federation-capped",
        Canaries(
            privacy=privacy_for(Capped(times=TIMES)), rule=by_deadline(), uploads=every_step()
        ),
        in_steps(range(TIMES)),
    )


def banded() -> Subject:
    """Every other step, under noise that the next step partly takes back."""
    privacy = privacy_for(Capped(times=TIMES, apart=APART), bands=BANDS)
    return _sound(
        "federation-banded",
        Canaries(privacy=privacy, rule=by_deadline(), uploads=every_step()),
        in_steps(range(0, STEPS, APART), bands=BANDS),
    )


def sampled() -> Subject:
    """A server that asks everybody by a secret coin, in each of three steps."""
    privacy = privacy_for(Sampled(rate=RATE, steps=TOSSES))
    rule = rule_named("fedavg", rate=RATE, patient=True, seconds=SECONDS)
    return _sound(
        "federation-sampled",
        Canaries(privacy=privacy, rule=rule, uploads=every_step(TOSSES)),
        sampled_shift((1.0, 0.0), steps=TOSSES, rate=RATE, shift=1.0, noise=privacy.multiplier),
    )


def _sound(name: str, run: Canaries, statistic: Statistic) -> Subject:
    return Subject(
        name=name,
        claim=tradeoff_of(run.privacy.event),
        delta=DELTA,
        unit="client",
        pair="another client alone, and a canary beside it that is in as many steps as it may, "
        "each time by the full clip norm along a direction of its own; all versions are seen.",
        sample=run,
        statistic=statistic,
    )


def broken(
    name: str, run: Canaries, statistic: Statistic, *, flaw: str, pair: str, runs: int
) -> Subject:
    """A federation that is wrong in one way, with the claim that the right one keeps."""
    return Subject(
        name=name,
        flaw=flaw,
        claim=tradeoff_of(run.privacy.event),
        delta=DELTA,
        adjacency=Adjacency.ZERO_OUT if run.zeroed else Adjacency.ADD_REMOVE,
        unit="client",
        pair=pair,
        sample=run,
        statistic=statistic,
        runs=runs,
    )


FEDERATED: Final[Mapping[str, Entry]] = {
    "federation-capped": Entry(
        kind="federation", summary="Clients in few of a federation's steps.", make=capped
    ),
    "federation-banded": Entry(
        kind="federation", summary="The same with steps apart, correlated noise.", make=banded
    ),
    "federation-sampled": Entry(
        kind="federation", summary="A federation whose server samples clients.", make=sampled
    ),
}
"""Those that keep their claim; `federated_mutants` has those that do not."""
