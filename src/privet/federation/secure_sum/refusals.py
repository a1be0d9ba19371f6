"""How a sum ends that does not come about: a message refused, or the whole round given up."""

from privet.errors import CheckFailed


class Refused(CheckFailed):
    """A message that may not be taken, or not be answered; nothing has changed."""


class GivenUp(CheckFailed):
    """The round is over without a sum: too few were left, or their shares did not fit."""
