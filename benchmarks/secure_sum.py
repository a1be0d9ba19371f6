"""What a secure sum costs a client and the server: by the size of the cohort, and of the update.

    python benchmarks/secure_sum.py

One process, one core, no network; all messages go through JSON as they would on the way. Each round
is run with nobody dropping out, and with a tenth of the cohort gone after the boxes were shared,
which is what costs the server most. Times are of the processor, medians over rounds; bytes are of
JSON. `growth` is the exponent between the two largest cohorts, or sizes: 1 is linear, 2 quadratic.
One JSON under benchmarks/results/.
"""

import json
import math
import platform
import statistics
import time
from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path

import cryptography
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privet.federation.secure_sum import SecureClient, SecureServer, Stage, Terms, codec
from privet.federation.secure_sum.server import ORDER

RESULTS = Path(__file__).parent / "results"
HAR_WILD = 60_613
STEPS = {
    Stage.KEYS: "advertise",
    Stage.SHARES: "share",
    Stage.INPUTS: "mask",
    Stage.AGREEMENT: "agree",
    Stage.UNMASKING: "unmask",
}


class Meter:
    """Seconds and bytes of one round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.bytes: dict[str, int] = defaultdict(int)

    def timed(self, what: str, work, *arguments):
        """What `work` gives, its time added to `what`."""
        started = time.process_time()
        result = work(*arguments)
        self.seconds[what] += time.process_time() - started
        return result


def one_round(keys: dict, size: int, gone: set[str]) -> dict[str, float]:
    """One sum, and what it cost the server and, on average, a client that stayed."""
    roster = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    terms = Terms.for_cohort(roster, model="m", round=1, base_version=0, size=size, longest=1.0)
    meter, rng = Meter(), np.random.default_rng(0)
    changes = {name: rng.normal(0, 0.9 / size**0.5, size) for name in keys}
    clients = {
        name: meter.timed("client", SecureClient, terms, name, key.sign)
        for name, key in keys.items()
    }
    server = SecureServer(terms)
    while server.stage in ORDER:
        stage = server.stage
        still_there = server.expected - (gone if stage is Stage.INPUTS else set())
        for name in sorted(still_there):
            answer = _answer(meter, server, clients[name], changes[name])
            meter.timed("server", server.take, answer)
        what = "server, unmasking" if stage is Stage.UNMASKING else "server"
        meter.timed(what, server.close)
    _require_right(server, changes, gone)
    n = len(keys)
    return {
        "client_seconds": meter.seconds["client"] / n,
        "server_seconds": meter.seconds["server"],
        "unmasking_seconds": meter.seconds["server, unmasking"],
        "client_sends_bytes": meter.bytes["up"] / n,
        "client_gets_bytes": meter.bytes["down"] / n,
    }


def _answer(meter: Meter, server: SecureServer, client: SecureClient, change: np.ndarray):
    name = client.advertise().sender
    question = meter.timed("server", server.for_client, name)
    step = getattr(client, STEPS[server.stage])
    if question is not None:
        meter.bytes["down"] += len(codec.to_bytes(question))
    arguments = () if question is None else (question,)
    arguments += (change,) if server.stage is Stage.INPUTS else ()
    answer = meter.timed("client", step, *arguments)
    meter.bytes["up"] += len(codec.to_bytes(answer))
    return answer


def _require_right(server: SecureServer, changes: dict, gone: set[str]) -> None:
    plain = sum(change for name, change in changes.items() if name not in gone)
    found, error = server.result, server.terms.fixed_point.error(len(changes))
    assert found.count == len(changes) - len(gone)
    assert np.abs(found.total - plain).max() < error


def measured(n: int, size: int, repeats: int, *, dropping: bool) -> dict[str, float]:
    """Medians over rounds."""
    keys = {f"d{i:04}": Ed25519PrivateKey.generate() for i in range(n)}
    gone = set(sorted(keys)[: n // 10]) if dropping else set()
    rounds = [one_round(keys, size, gone) for _ in range(repeats)]
    found = {what: statistics.median(one[what] for one in rounds) for what in rounds[0]}
    print(n, size, len(gone), {k: round(v, 4) for k, v in found.items()}, flush=True)
    return {"clients": n, "weights": size, "gone": len(gone), **found}


def growth(rows: list[dict], by: str) -> dict[str, float]:
    """The exponent between the last two rows."""
    a, b = rows[-2:]
    steps = math.log(b[by] / a[by])
    names = [name for name in a if name.endswith(("_seconds", "_bytes"))]
    return {name: round(math.log(b[name] / a[name]) / steps, 2) for name in names}


def main() -> None:
    """Both curves, with and without drop-outs."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--cohorts", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 60_613, 500_000, 1_000_000]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    repeats = arguments.repeats
    curves = {}
    for dropping in (False, True):
        by_n = [measured(n, HAR_WILD, repeats, dropping=dropping) for n in arguments.cohorts]
        by_size = [measured(20, size, repeats, dropping=dropping) for size in arguments.sizes]
        name = "a tenth gone after sharing" if dropping else "nobody gone"
        curves[name] = {
            "by cohort": by_n,
            "growth with the cohort": growth(by_n, "clients"),
            "by size": by_size,
            "growth with the size": growth(by_size, "weights"),
        }
    record = {
        "what": "time and bytes of one secure sum, all parties in one process, by JSON",
        "command": "python benchmarks/secure_sum.py",
        "curves": curves,
        "repeats": repeats,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "cryptography": cryptography.__version__,
        },
        "hardware": f"{platform.machine()}, one core, shared with other work",
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "secure_sum.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
