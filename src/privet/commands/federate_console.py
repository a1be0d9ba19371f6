"""`privet federate console`: where the server's page for its operator is, and the key to it."""

from pathlib import Path

from privet.commands.federate_server import require_packages
from privet.commands.screen import print_listing


def console(folder: Path, /) -> None:
    """Show the address of the console, and the operator's key that it asks for.

    Whoever has the key may stop models, roll them back and block devices.

    Example: privet federate console fleet

    Parameters
    ----------
    folder
        Of the server, which must be running.
    """
    require_packages()
    from privet.federation.server.operating import Operator

    operator = Operator.of(str(folder))
    print_listing([("console", f"{operator.url}/console"), ("key", operator.key)])
