"""How many updates a second a federation's server takes: over HTTP, durable, added up.

    python benchmarks/federation_server.py --updates 10000
    python benchmarks/federation_server.py --updates 1000 2000 4000 8000 --tls

Starts `privet federate server` as a process of its own, with one model of HAR-Wild's size and one
long round, registers as many devices as there are updates (not timed), and lets a second process
upload: each device asks for a ticket, puts its update (float32, 242 kB), and commits. A commit is
answered once the update is on disk, in the journal, and in the sum. All three are timed.

Of every run: updates a second; seconds of a cycle; processor seconds of server and of the load; and
what the server's memory was as the updates came. Beside it, in the same run, the limits of the
machine: how quick such updates are written and made durable one by one, hashed, and added up.

Writes benchmarks/results/federation_server.json, and its picture: seconds and memory by updates.
"""

import asyncio
import base64
import hashlib
import json
import os
import platform
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from privet.federation.server.updates import packed
from privet.federation.wire import AskToken, Register
from privet.reports.drawing import panels

RESULTS = Path(__file__).parent / "results" / "federation_server.json"
MODEL = "har-wild"
PLAN = f"""
[model]
name = "{MODEL}"
network = "har-wild-64"
shape = [3, 100]
classes = ["walking", "sitting", "car", "cycling", "running"]
[rounds]
rule = "flsys"
rounds = 10
seconds = 86400.0
"""


class Line:
    """One kept connection; just enough of HTTP/1.1, so that the load costs little itself."""

    def __init__(self, url: str, certificate: str | None) -> None:
        self.url, self.context = urlsplit(url), None
        if certificate is not None:
            self.context = ssl.create_default_context(cafile=certificate)

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection(
            self.url.hostname, self.url.port, ssl=self.context, limit=1 << 20
        )

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, token: str | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.url.netloc}\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
        self.writer.write(head.encode())
        self.writer.write(body)
        await self.writer.drain()
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        length = next((int(x[15:]) for x in lines if x.lower().startswith("content-length:")), 0)
        return int(lines[0].split()[1]), await self.reader.readexactly(length)


async def registered(line: Line, app_key: str) -> tuple[str, str]:
    """A new device's name and token."""
    key = Ed25519PrivateKey.generate()
    public = base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
    common = {"nonce": secrets.token_urlsafe(16), "sent": time.time(), "signature": ""}
    enters = Register(
        app_key=app_key, public_key=public.decode(), phone="made-up", system="none", **common
    )
    device = (await told(line, "/v1/devices", signed(enters, key)))["device"]
    common["nonce"] = secrets.token_urlsafe(16)
    asks = AskToken(device=device, **common)
    return device, (await told(line, "/v1/tokens", signed(asks, key)))["token"]


def signed(message: Register | AskToken, key: Ed25519PrivateKey) -> bytes:
    """With the device's signature."""
    signature = base64.b64encode(key.sign(message.signed_text())).decode()
    return message.model_copy(update={"signature": signature}).model_dump_json().encode()


async def told(line: Line, path: str, body: bytes, token: str | None = None) -> dict:
    """The answer to a message; anything but 200 ends the run."""
    status, answer = await line.ask("POST", path, body, token=token)
    if status != 200:
        raise SystemExit(f"{path}: {status} {answer!r}")
    return json.loads(answer)


async def uploaded(line: Line, token: str, update: bytes, digest: str) -> float:
    """One cycle: ready, put, commit; its seconds."""
    began = time.perf_counter()
    ready = {"phone": "made-up", "system": "none", "sent": time.time()}
    ready["nonce"] = secrets.token_urlsafe(16)
    given = await told(line, f"/v1/models/{MODEL}/ready", json.dumps(ready).encode(), token)
    status, answer = await line.ask("PUT", given["put_url"], update)
    if status != 204:
        raise SystemExit(f"put: {status} {answer!r}")
    commit = json.dumps({"sha256": digest}).encode()
    outcome = await told(line, f"/v1/tickets/{given['ticket']}/commit", commit, token)
    if not outcome["accepted"]:
        raise SystemExit(f"refused: {outcome}")
    return time.perf_counter() - began


async def load(asked: Namespace) -> None:
    """The second process: all devices register, then, at a word on stdin, all upload."""
    lines = [Line(asked.url, asked.certificate) for _ in range(asked.connections)]
    await asyncio.gather(*(line.open() for line in lines))
    waiting = iter(range(asked.load))
    tokens: list[str] = []

    async def enter(line: Line) -> None:
        while len(tokens) < asked.load:
            tokens.append((await registered(line, asked.app_key))[1])

    await asyncio.gather(*map(enter, lines))
    print("registered", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    draw = np.random.default_rng(0)
    updates = [packed(draw.normal(0, 1e-3, asked.size).astype("<f4")) for _ in range(8)]
    digests = [hashlib.sha256(update).hexdigest() for update in updates]
    seconds: list[float] = []
    marks: list[tuple[int, float]] = []
    began, busy = time.perf_counter(), time.process_time()

    async def work(line: Line) -> None:
        for number in waiting:
            which = number % len(updates)
            seconds.append(await uploaded(line, tokens[number], updates[which], digests[which]))
            if len(seconds) % max(1, asked.load // 10) == 0:
                marks.append((len(seconds), time.perf_counter() - began))

    await asyncio.gather(*map(work, lines))
    took, busy = time.perf_counter() - began, time.process_time() - busy
    ordered = sorted(seconds)
    found = {
        "seconds": took,
        "updates_a_second": asked.load / took,
        "cycle_median": statistics.median(ordered),
        "cycle_p95": ordered[int(0.95 * len(ordered))],
        "processor_of_the_load": busy,
        "course": marks,
    }
    print(json.dumps(found), flush=True)


def measured(asked: Namespace, updates: int, folder: Path) -> dict:
    """One run with a fresh server."""
    home, privet = folder / "fleet", [sys.executable, "-m", "privet"]
    command = [*privet, "federate", "server", str(home), "--port", "0"]
    command += ["--device-rate", "0", "--address-rate", "0"]
    if asked.tls:
        command.append("--tls-self-signed")
    if asked.database:
        command += ["--database", asked.database]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while "privet federate status" not in server.stdout.readline():
            pass
        where = json.loads((home / "running.json").read_text())
        (folder / "plan.toml").write_text(PLAN)
        told_of = [*privet, "federate", "plan", "add", str(home), str(folder / "plan.toml")]
        subprocess.run(told_of, check=True, stdout=subprocess.DEVNULL)
        add = [*privet, "federate", "app", "add", str(home), "bench", "--models", MODEL]
        answer = subprocess.run(add, check=True, stdout=subprocess.PIPE, text=True).stdout
        size = asked.size or size_of_model()
        loader = [sys.executable, __file__, "--load", str(updates), "--url", where["url"]]
        loader += ["--app-key", answer.strip(), "--size", str(size)]
        loader += ["--connections", str(asked.connections)]
        if where["certificate"]:
            loader += ["--certificate", where["certificate"]]
        return run_beside(server.pid, loader) | {"updates": updates, "weights": size}
    finally:
        server.terminate()
        server.wait()


def run_beside(server: int, loader: list[str]) -> dict:
    """The load's figures, and the server's memory and processor while it uploads."""
    load = subprocess.Popen(loader, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert load.stdout.readline().strip() == "registered"
    memory, busy = [(0.0, resident(server))], processor(server)
    load.stdin.write("go\n")
    load.stdin.flush()
    began = time.perf_counter()
    while load.poll() is None:
        time.sleep(0.5)
        memory.append((time.perf_counter() - began, resident(server)))
    found = json.loads(load.stdout.read().strip().splitlines()[-1])
    return found | {
        "processor_of_the_server": processor(server) - busy,
        "memory_mib": memory[:: max(1, len(memory) // 40)],
        "memory_most_mib": max(mib for _, mib in memory),
    }


def size_of_model() -> int:
    """Numbers in an update."""
    from privet.federation.flat import flat
    from privet.models import create

    return flat(create("har-wild-64", (3, 100), 5)).numel()


def resident(process: int) -> float:
    """Its memory in MiB, files that are mapped left out."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("RssAnon")).split()[1]) / 1024


def processor(process: int) -> float:
    """Its processor seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def limits(size: int, folder: Path) -> dict[str, float]:
    """Updates a second of this machine for each part by itself, one after another."""
    update, total = np.zeros(size, dtype="<f4"), np.zeros(size)
    content = packed(update)

    def written(number: int) -> None:
        with (folder / f"update-{number % 64}").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def added(_: int) -> None:
        np.add(total, update, out=total)

    parts = {"written and synced": written, "added": added}
    parts["hashed"] = lambda _: hashlib.sha256(content).digest()
    found = {}
    for name, part in parts.items():
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < 1.0:
            part(count)
            count += 1
        found[name] = count / (time.perf_counter() - began)
    return found


def pictured(runs: list[dict]) -> bytes:
    """Seconds and memory as the updates of each run came."""
    with panels(1, 2, 3.4, 2.8) as sheet:
        (time_taken, memory), *_ = sheet.axes
        for run in runs:
            name = f"{run['updates']:,}{', TLS' if run['tls'] else ''}, {run['database']}"
            counts, seconds = zip((0, 0.0), *run["course"], strict=True)
            time_taken.plot(counts, seconds, label=name)
            then, held = zip(*run["memory_mib"], strict=True)
            memory.plot(np.interp(then, seconds, counts), held)
        time_taken.set(xlabel="updates", ylabel="seconds")
        memory.set(xlabel="updates", ylabel="MiB of the server", ylim=(0, None))
        time_taken.legend(frameon=False)
    return sheet.svg


def main() -> None:
    """All runs, or the load of one."""
    asked = arguments()
    if asked.load:
        asyncio.run(load(asked))
        return
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {"runs": []}
    for updates in asked.updates:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            os.environ["PRIVET_HOME"] = str(Path(folder) / "home")
            about = {
                "command": "python benchmarks/federation_server.py " + " ".join(sys.argv[1:]),
                "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
                "load_average_before": list(os.getloadavg()),
                "python": platform.python_version(),
                "tls": asked.tls,
                "database": "postgresql" if asked.database else "sqlite",
                "connections": asked.connections,
            }
            row = about | measured(asked, updates, Path(folder))
            row["limits_a_second"] = limits(row["weights"], Path(folder))
        record["runs"].append(row)
        asked.out.write_text(json.dumps(record, indent=1) + "\n")
        asked.out.with_suffix(".svg").write_bytes(pictured(record["runs"]))
        print({k: v for k, v in row.items() if k not in ("course", "memory_mib")}, flush=True)


def arguments() -> Namespace:
    """What was asked for."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, nargs="+", default=[10_000])
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--database", help="postgresql://..., empty")
    parser.add_argument("--folder", type=Path, help="where files are made; default: the system's")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--size", type=int, help="numbers of an update; default: the model's")
    parser.add_argument("--load", type=int, default=0, help="used by the script itself")
    parser.add_argument("--url", help="used by the script itself")
    parser.add_argument("--app-key", help="used by the script itself")
    parser.add_argument("--certificate", help="used by the script itself")
    return parser.parse_args()


if __name__ == "__main__":
    main()
