"""Check a release offline: its parts must not contradict each other.

`verify` recomputes every proved epsilon from the recorded events, the events from the mechanism,
the mechanism from the settings, the assumptions from the card's own facts, the digests from the
files, and looks the run up in a ledger if there is one here. It says what failed, and what it
cannot know.
"""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privet.engine.fixed_parts import fixed_parts_of
from privet.errors import InputError
from privet.files import read_json
from privet.ledger import Ledger
from privet.privacy.events import LIFELONG
from privet.privacy.participation import FEDERATION
from privet.release import SIGNATURE, require_finished
from privet.verification.books import check_ledger, run_in
from privet.verification.federation import check_facts, check_federation
from privet.verification.files import (
    check_config,
    check_digests,
    check_report,
    check_signature,
    check_weights,
)
from privet.verification.finding import Finding, Verification
from privet.verification.fixed_parts import check_fixed_parts, own_card
from privet.verification.form import require_form
from privet.verification.lifelong import check_lifelong
from privet.verification.local import check_local, is_local
from privet.verification.measured import check_measured
from privet.verification.mechanism import check_mechanism
from privet.verification.settings import check_choice, check_settings
from privet.verification.statements import (
    check_audits,
    check_basis,
    check_epsilons,
    check_grounds,
    check_leaks,
    check_withheld,
)
from privet.verification.unprotected import check_unprotected, is_unprotected


def verify(
    folder: str | Path, *, key: str | Path | None = None, ledger: Ledger | None = None
) -> Verification:
    """Check the release in `folder`; `key` is the public key it must be signed with."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such release", got=folder, expected="a folder made by privet")
    require_finished(folder)
    trust = read_json(folder / "trust.json")
    require_form(trust)
    try:
        findings = (
            *check_digests(folder),
            *check_signature(folder, key),
            *check_weights(folder),
            *check_config(folder, trust),
            *_check_training(trust),
            *check_fixed_parts(folder, trust),
            *check_epsilons(trust),
            *check_grounds(trust),
            *check_basis(trust),
            *check_withheld(trust),
            *check_audits(trust),
            *check_leaks(trust),
            *check_measured(trust),
            *check_report(folder, trust),
            *check_ledger(trust, ledger),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError("malformed trust.json", got=repr(error), fix="restore the file") from None
    return Verification(findings=findings, unproven=_unproven(folder, trust, key, ledger))


def _check_training(trust: Mapping[str, Any]) -> Iterator[Finding]:
    if is_unprotected(trust):
        yield from check_unprotected(trust)
        if FEDERATION in trust:
            yield check_facts(trust)
    elif FEDERATION in trust:
        yield from check_federation(trust)
        yield from check_choice(trust)
    elif is_local(trust):
        yield from check_local(trust)
        yield from check_choice(trust)
    elif LIFELONG in trust:
        yield from check_lifelong(trust)
        yield from check_choice(trust)
    else:
        yield from check_mechanism(trust)
        yield from check_settings(trust)


def _unproven(
    folder: Path, trust: Mapping[str, Any], key: str | Path | None, ledger: Ledger | None
) -> tuple[str, ...]:
    signed = (folder / SIGNATURE).exists()
    statements = (
        (True, "that the training code ran as recorded: the events are its own statement"),
        (
            not is_unprotected(trust),
            "that the noise was secret and fresh, and that no other run was left out",
        ),
        (
            not signed,
            "who made it: unsigned, integrity only; whoever changed all files alike goes unnoticed",
        ),
        (signed and key is None, "that the signer is who you think: give --key"),
        (
            run_in(ledger, trust) is None,
            "that a ledger was charged: no ledger here knows this run",
        ),
        *(
            (
                part.paid is not None and own_card(part) is None,
                f"that the {part.part} cost what is stated: its own release is not here",
            )
            for part in fixed_parts_of(trust)
        ),
        (
            trust["provenance"]["privet"] != version("privet"),
            "that report.html says what trust.json says: it was written by another version",
        ),
        (
            bool(trust.get("robustness") or trust.get("attacks") or trust.get("audit")),
            "that attacks, certificates and audits were measured as recorded: repeat them",
        ),
        (not trust.get("audit"), "that attacks fail: this release was not audited"),
    )
    return tuple(text for applies, text in statements if applies)
