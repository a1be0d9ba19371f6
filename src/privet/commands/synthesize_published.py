"""Settings of IGAMT and its baselines as published, on the command line."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class PublishedOptions:
    """Settings of igamt and, but for the first, of what is published only (--analysis paper, none).

    Attributes
    ----------
    without
        Parts that igamt goes without, separated by commas: imitator, mask (the critic of masks),
        time, mixed (embeddings).
    version
        Of igamt: thesis (default) or aaai.
    sigma
        Deviation of the noise, instead of --epsilon; the thesis' tables have 1.
    critic_rate
        Learning rate of the critics; default 0.0001.
    decay
        Factor of all learning rates, for each epoch; default 0.99.
    critics_every
        Critics learn in one of so many steps; default 5.
    critic_turns
        Or in so many of them; default 1.
    """

    without: str | None = None
    version: str | None = None
    sigma: float | None = None
    critic_rate: float | None = None
    decay: float | None = None
    critics_every: int | None = None
    critic_turns: int | None = None

    def given(self) -> dict[str, Any]:
        """Only what the user set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Published = Annotated[PublishedOptions, Parameter(name="*")]
