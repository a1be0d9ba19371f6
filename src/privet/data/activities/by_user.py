"""Examples of users as a data set whose unit is the user.

Either users do not straddle its parts (`dataset_of`): figures on the test records are about other
people, and may be published. Or users test on what they did later (`within_users`): the figures
are about those who are protected, and stay inside.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from privet.data.dataset import Bounds, Dataset, Split
from privet.errors import InputError

USER: Final = "user"
WHOLE_RANGE: Final = Bounds(low=(-1.0,), high=(1.0,))  # of signals in units of their sensors' range


@final
@dataclass(frozen=True, kw_only=True)
class About:
    """What is public about a study.

    `users` are all who took part, `test_users` those for testing: literals, so that one user more
    or fewer in the files moves no other.
    """

    name: str
    classes: tuple[str, ...]
    bounds: Bounds
    users: tuple[int, ...]
    test_users: tuple[int, ...]
    licence: str
    source: str
    features: tuple[str, ...] = ()  # names of columns, for rows

    @property
    def train_users(self) -> tuple[int, ...]:
        """All others."""
        return tuple(user for user in self.users if user not in self.test_users)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Windows or rows `x` with labels `y` and the ids of their users."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    users: NDArray[np.int64]


def dataset_of(
    examples: Examples,
    about: About,
    *,
    name: str,
    users: Sequence[int] | None = None,
    test_users: Sequence[int] | None = None,
) -> Dataset:
    """The examples of `users` for training and of `test_users` for testing, within the bounds.

    The ledger knows a user of a study again by study and id, at whatever rate and however cut.
    """
    users = about.train_users if users is None else users
    test_users = about.test_users if test_users is None else test_users
    _require_known(examples, about)
    _require_disjoint(users, test_users, about)
    parts = (_split(examples, about, chosen) for chosen in (users, test_users))
    known = present(examples, users).tolist()
    return _stated(about, name, parts, known, nominal_size=len(users), test_is_public=True)


def within_users(train: Examples, test: Examples, about: About, *, name: str) -> Dataset:
    """Everybody's earlier examples for training, and their later ones for testing.

    The ledger knows users again as it does those of `dataset_of`.
    """
    for examples in (train, test):
        _require_known(examples, about)
    parts = (_split(examples, about, about.users) for examples in (train, test))
    known, everyone = present(train, about.users).tolist(), len(about.users)
    return _stated(about, name, parts, known, nominal_size=everyone, test_is_public=False)


def present(examples: Examples, users: Sequence[int]) -> NDArray[np.int64]:
    """Which of `users` have examples, ascending: the ids of units 0, 1, ... of their data set."""
    return np.unique(examples.users[np.isin(examples.users, users)])


def in_ranges(signal: NDArray[np.generic], ranges: Sequence[float]) -> NDArray[np.float32]:
    """Channels in units of the range of their sensors; what is beyond it is cut off."""
    scaled = np.asarray(signal, dtype=np.float64) / np.asarray(ranges)
    return np.asarray(np.clip(scaled, -1.0, 1.0), dtype=np.float32)


def _stated(
    about: About,
    name: str,
    parts: Iterable[Split],
    known: Sequence[int],
    *,
    nominal_size: int,
    test_is_public: bool,
) -> Dataset:
    train, test = parts
    return Dataset(
        name=name,
        train=train,
        test=test,
        bounds=about.bounds,
        classes=about.classes,
        nominal_size=nominal_size,
        licence=about.licence,
        source=about.source,
        unit=USER,
        test_is_public=test_is_public,
        features=about.features,
        originals=tuple(_known_as(about, user) for user in known),
    )


def _known_as(about: About, user: int) -> bytes:
    return f"{about.name}/{USER}/{user}".encode()


def _split(examples: Examples, about: About, users: Sequence[int]) -> Split:
    chosen = np.isin(examples.users, users)
    _, units = np.unique(examples.users[chosen], return_inverse=True)
    x = np.clip(examples.x[chosen], about.bounds.low, about.bounds.high).astype(np.float32)
    return Split(x=x, y=examples.y[chosen], units=units.astype(np.int64))


def _require_known(examples: Examples, about: About) -> None:
    if not np.isin(examples.users, about.users).all():
        raise InputError(
            f"the files are not those of '{about.name}': a user is none of the study's",
            expected=f"ids among {about.users[0]}..{about.users[-1]}",
            fix="name another folder with --data-dir DIR",
        )


def _require_disjoint(users: Sequence[int], test_users: Sequence[int], about: About) -> None:
    if set(users) & set(test_users):
        raise InputError(
            f"'{about.name}': a user is both for training and for testing",
            expected="users of one side each: what is published about the test is not charged",
        )
