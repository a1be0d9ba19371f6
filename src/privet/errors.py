"""Errors that speak: what went wrong, what was given, what is expected, how to fix it.

Every error of Privet carries the exit code of the command line: 1 a check failed,
2 bad input, 3 a faulty environment. Anything else that escapes is a bug of ours.
"""


class PrivetError(Exception):
    """The root of Privet's errors; one line for a person, one exit code for a script."""

    exit_code = 1

    def __init__(self, what: str, *, got: object = None, expected: str = "", fix: str = "") -> None:
        parts = [what if got is None else f"{what}: got {got}"]
        if expected:
            parts.append(f"expected {expected}")
        sentence = ", ".join(parts)
        super().__init__(f"{sentence}. Fix: {fix}" if fix else sentence)


class InputError(PrivetError):
    """What the caller gave cannot be used (exit code 2)."""

    exit_code = 2


class FaultyEnvironment(PrivetError):  # noqa: N818 - names the fault, not the exception
    """The machine lacks something: an extra, disk space, write permission (exit code 3)."""

    exit_code = 3


class CheckFailed(PrivetError):  # noqa: N818
    """A check said no: a contradicted claim, a tampered release (exit code 1)."""


class BudgetExceeded(CheckFailed):
    """A run would spend more than the cap of its data set allows (exit code 1)."""
