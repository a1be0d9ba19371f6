"""`privet bench`: what privacy costs in time and memory, beside plain training and peers."""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from privet.commands.screen import DataDir, Json, err, out, print_json
from privet.errors import InputError

bench_app = App(
    name="bench", help="Measure what privacy costs, beside plain training and beside peers."
)

MODELS: Final = "cnn,cnn-large,wrn-16-4,transformer,lstm"
BATCHES: Final = "256,1024,4096,8192"
ATTACKS: Final = "fgsm,ifgsm,mim,pgd,apgd-ce,apgd-dlr,cw,deepfool,square"
PEERS: Final = "plain-best,opacus-hooks,opacus-ghost,vmap"


@bench_app.command
def dpsgd(
    *,
    models: str = MODELS,
    batches: str = BATCHES,
    peers: str = PEERS,
    growth: Annotated[bool, Parameter(negative="")] = False,
    rounds: int = 10,
    device: str = "cpu",
    threads: int | None = None,
    precision: str = "float32",
    compile: Annotated[bool, Parameter(negative="")] = False,
    cell_seconds: float = 60.0,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Time one private training step against plain SGD, Opacus and torch.func.

    All contestants run in this process and take turns, so that whatever slows
    the machine down hits all alike. Before any is timed, the sum that it gives
    to the optimiser is compared with autograd, example by example. Privet's must
    agree, or nothing is timed (exit code 1). A peer that is not installed, fails,
    is wrong or takes too long leaves a cell with the reason.

    In the table, `ms` is the median over the rounds, `x plain` the price of
    privacy, `Opacus / it` how many times faster than the faster Opacus mode.
    Leave the machine alone while it runs. Inputs are made up: no data, no ledger.

    Example: privet bench dpsgd --models cnn --batches 256,1024

    Example: privet bench dpsgd --growth --batches 64,128,256,512

    Parameters
    ----------
    models
        Among cnn, cnn-large, wrn-16-4, transformer, lstm; separated by commas.
    batches
        Examples in a step; Privet samples, so for it the expected number.
    peers
        Among plain-best, opacus-hooks, opacus-ghost, vmap; plain and privet always run.
    growth
        Instead: plain and privet alone, as the batch (cnn, as given by --batches), the parameters
        (cnn-large) and the length of sequences (transformer, lstm, at the smallest batch) grow.
    rounds
        Timed steps of each contestant, after the warm-up.
    device
        cpu or cuda.
    threads
        Of PyTorch on the CPU; default: as PyTorch chooses.
    precision
        For everybody: float32 (without TF32), tf32 (on CUDA), or bf16. Sums are compared in full.
    compile
        Let Privet compile its step, too; minutes for a large model. Plain SGD may, on CUDA.
    cell_seconds
        Most seconds for one contestant on one model and batch; longer ones are skipped.
    out_folder
        Where the JSON and the plot go; default: the current folder.
    json
        Print the record as JSON, nothing else.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its memory profiler is talkative
    from privet.studies.private_step import contestants, machine, results, workloads
    from privet.studies.private_step.growth import sweeps
    from privet.studies.private_step.study import Record, Study
    from privet.studies.private_step.timing import Rules

    sizes, rules = _whole_numbers(batches), Rules(rounds=rounds, cell_seconds=cell_seconds)
    _require_models(models, growth=growth)
    chosen = [workloads.find_workload(name) for name in _listed(models)]
    names = contestants.with_peers(_listed(peers))
    where = machine.find_device(device)
    folder = writable(out_folder or Path())
    given = ["--batches", batches, "--rounds", str(rounds), "--device", device]
    given += ["--cell-seconds", f"{cell_seconds:g}", "--precision", precision]
    given += ([] if threads is None else ["--threads", str(threads)]) + ["--compile"] * compile
    given += ["--growth"] if growth else ["--models", models, "--peers", peers]
    ladders = sweeps(sizes, where) if growth else []
    groups = sum(len(ladder.tasks) for ladder in ladders) or len(chosen) * len(sizes)
    with (
        machine.set_up(where, threads, precision),
        progress_bar(groups * (rounds + 1) + (0 if growth else len(chosen)), quiet=json) as watch,
    ):
        record = Record(
            path=folder / f"{_name(models, growth=growth)}_{device}{_coarse(precision)}.json",
            content={
                "what": "time and memory of one private training step",
                "command": shlex.join(["privet", "bench", "dpsgd", *given]),
                "precision": precision,
                **machine.describe(where),
                "memory": machine.MEMORY[device],
            },
        )
        study = Study(
            device=where,
            precision=precision,
            compiling=compile,
            rules=rules,
            record=record,
            watch=watch,
        )
        if growth:
            table = results.growth_table(study.growth(ladders))
        else:
            table = results.step_table(*study.steps(chosen, sizes, names))
    if json:
        print_json(record.content)
        return
    out.print(table)
    out.print(f"\nkept in {record.path} and {record.plot}", highlight=False, soft_wrap=True)


@bench_app.command
def attacks(
    *,
    peers_python: Path | None = None,
    attacks: str = ATTACKS,
    data: str = "digits",
    data_dir: DataDir = None,
    examples: int = 500,
    rounds: int = 3,
    batch: int = 250,
    device: str = "cpu",
    threads: int | None = None,
    cell_seconds: float = 120.0,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Compare attacks with those of torchattacks, Foolbox and ART: strength and speed.

    A small network is trained here, without privacy. Every attack runs on the same
    images with the same size, steps and queries: Privet's in this process, the
    peers' in the Python that --peers-python names, in turns. One judge looks at all
    inputs: inside ball and box, then right or wrong. Without --peers-python only
    Privet runs.

    An input of Privet's outside of ball or box ends the run (exit code 1). A peer
    that is not installed, lacks the attack, fails or takes too long leaves a cell
    with the reason. Leave the machine alone while it runs.

    Example: privet bench attacks --attacks fgsm,pgd --examples 200

    Example: privet bench attacks --peers-python peers/bin/python --data mnist

    Parameters
    ----------
    peers_python
        The program of an environment with torchattacks, foolbox, adversarial-robustness-toolbox.
    attacks
        Among fgsm, ifgsm, mim, pgd, apgd-ce, apgd-dlr, cw, deepfool, square; separated by commas.
    data
        digits or mnist.
    data_dir
        Where the files of mnist are.
    examples
        How many test images, evenly spread.
    rounds
        Timed runs of each; medians are reported.
    batch
        Images at a time, for everybody.
    device
        cpu or cuda.
    threads
        Of PyTorch on the CPU, for everybody; default: as PyTorch chooses.
    cell_seconds
        Most seconds for one run of a peer; longer ones are stopped.
    out_folder
        Where the JSON and the plot go; default: the current folder.
    json
        Print the record as JSON, nothing else.
    """
    import torch

    from privet.data import load
    from privet.studies.attack_parity import results
    from privet.studies.attack_parity.contests import contests
    from privet.studies.attack_parity.network import trained
    from privet.studies.attack_parity.peers import peers
    from privet.studies.attack_parity.study import OURS, Study
    from privet.studies.private_step import machine
    from privet.studies.private_step.study import Record

    chosen, where = contests(data, _listed(attacks)), machine.find_device(device)
    for what, count in (("examples", examples), ("rounds", rounds), ("batch", batch)):
        if count < 1:
            raise InputError(f"bad number of {what}", got=count, expected="1 or more")
    dataset = load(data, data_dir)
    folder = writable(out_folder or Path())
    given = f"--data {data} --examples {examples} --rounds {rounds} --batch {batch}"
    given += f" --device {device} --cell-seconds {cell_seconds:g} --attacks {attacks}"
    given += "" if threads is None else f" --threads {threads}"
    with machine.set_up(where, threads, "float32"):
        subject = trained(dataset, examples, where)
        record = Record(
            path=folder / f"attacks_{data}_{device}.json",
            content={
                "what": "strength and speed of attacks, beside torchattacks, Foolbox and ART",
                "command": f"privet bench attacks {given}"
                + (" --peers-python PYTHON" if peers_python else ""),
                **machine.describe(where),
                "network": {"layers": subject.layers, "clean_accuracy": subject.clean},
                "examples": len(subject.x),
            },
        )
        with (
            peers(peers_python, subject, torch.get_num_threads()) as found,
            progress_bar(len(chosen) * rounds, quiet=json) as watch,
        ):
            study = Study(
                subject=subject,
                peers=found,
                rounds=rounds,
                batch=batch,
                cell_seconds=cell_seconds,
                record=record,
                watch=watch,
            )
            rows = study.run(chosen)
    if json:
        print_json(record.content)
        return
    out.print(results.parity_table(rows, OURS))
    for note in (
        *results.lost(rows),
        *(() if peers_python else ("only Privet ran: peers need --peers-python",)),
    ):
        err.print(f"privet: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    out.print(f"\nkept in {record.path} and {record.plot}", highlight=False, soft_wrap=True)


@bench_app.command
def audits(
    *,
    share: float = 1.0,
    seed: int = 0,
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    json: Json = False,
) -> None:
    """Measure what audits find: on a known mechanism, on sound ones, on all broken ones.

    First the power of each estimator on the exact Gaussian mechanism, whose epsilon
    is known. Then false alarms: bounds at 95 % above the truth, in 200 trials. Then
    every sound and broken subject of `privet audit mutants`, once with the score that
    knows the flaw and once with scores that are learned. Minutes on one core; it
    needs no data.

    Example: privet bench audits --share 0.05

    Parameters
    ----------
    share
        Of all runs, canaries, seeds and trials: less for a quick look, which shows less.
    seed
        Of everything.
    out_folder
        Where the JSON goes; default: the current folder.
    json
        Print the record as JSON, nothing else.
    """
    import torch

    from privet.studies.audit_power.results import tables
    from privet.studies.audit_power.study import Study
    from privet.studies.private_step.machine import describe
    from privet.studies.private_step.study import Record

    parts = Study(share=share, seed=seed).parts
    record = Record(
        path=writable(out_folder or Path()) / "audit_power.json",
        content={
            "what": "power and false alarms of audits; sound and broken subjects, told and learned",
            "command": f"privet bench audits --share {share:g} --seed {seed}",
            **describe(torch.device("cpu")),
        },
    )
    with progress_bar(parts, quiet=json) as watch:
        study = Study(share=share, seed=seed, watch=watch)
        record.keep({"power": study.power()})
        record.keep({"false_alarms": study.false_alarms()})
        record.keep({"subjects": study.subjects()})
    if json:
        print_json(record.content)
        return
    out.print(tables(record.content))
    out.print(f"\nkept in {record.path}", highlight=False, soft_wrap=True)


def _name(models: str, *, growth: bool) -> str:
    """Of the record; a run with some of the models does not overwrite one with others."""
    if growth:
        return "dpsgd_growth"
    return "dpsgd_step" if models == MODELS else "_".join(["dpsgd_step", *_listed(models)])


def _require_models(models: str, *, growth: bool) -> None:
    if growth and models != MODELS:
        raise InputError(
            "growth has models of its own", got=f"--models {models}", fix="leave --models out"
        )
    if not _listed(models):
        raise InputError("no model", got=f"'{models}'", expected=f"some of {MODELS}")


def writable(folder: Path) -> Path:
    """A folder to write to, made if need be; refused before any work is done if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (FileExistsError, NotADirectoryError, FileNotFoundError):
        raise InputError(
            "results cannot be kept there", got=folder, expected="a folder", fix="another --out"
        ) from None


def _coarse(precision: str) -> str:
    return "" if precision == "float32" else f"_{precision}"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _whole_numbers(text: str) -> list[int]:
    parts = _listed(text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(
            "bad batches",
            got=f"'{text}'",
            expected="whole numbers of at least 1, separated by commas: 256,1024",
        )
    return [int(part) for part in parts]


@contextlib.contextmanager
def progress_bar(total: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """On stderr: what runs now, and how much is left."""
    if quiet:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda what: progress.update(task, advance=1, description=what)
