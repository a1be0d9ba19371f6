"""What operator and server say to one another; extra fields are refused here, too."""

from typing import Annotated, Final, final

from pydantic import Field

from privet.federation.wire import Count, Message, Name

LONGEST_PLAN: Final = 32_768
OVER_BUDGET: Final = "over-budget"  # a plan that the ledger's cap does not allow


@final
class AddApp(Message):
    """A new app, and the models that it has."""

    name: Name
    models: Annotated[list[Name], Field(max_length=100)]


@final
class AppAdded(Message):
    """Its key, shown once; None: the app was there, and has these models, too, from now on."""

    name: Name
    key: str | None


@final
class AddPlan(Message):
    """A plan, as TOML."""

    toml: Annotated[str, Field(max_length=LONGEST_PLAN)]


@final
class PlanAdded(Message):
    """What became of it."""

    model: Name
    new: bool


@final
class RollBack(Message):
    """To which version."""

    to: Count


@final
class Block(Message):
    """Whether the device stays outside."""

    blocked: bool = True
