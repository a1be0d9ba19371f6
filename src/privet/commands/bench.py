"""`privet bench`: what privacy costs in time and memory, beside plain training and peers."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from privet.commands.screen import Json, err, out, print_json
from privet.errors import InputError

bench_app = App(
    name="bench", help="Measure what privacy costs, beside plain training and beside peers."
)

RESULTS: Final = Path("benchmarks/results")
MODELS: Final = "cnn,cnn-large,wrn-16-4,transformer,lstm"
BATCHES: Final = "256,1024,4096,8192"
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
        Where the JSON and the plot go; default: benchmarks/results where there is one, else here.
    json
        Print the record as JSON, nothing else.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its memory profiler is talkative
    from privet.studies.private_step import contestants, machine, results, workloads
    from privet.studies.private_step.growth import sweeps
    from privet.studies.private_step.study import Record, Study
    from privet.studies.private_step.timing import Rules

    sizes, rules = _whole_numbers(batches), Rules(rounds=rounds, cell_seconds=cell_seconds)
    chosen = [workloads.find_workload(name) for name in _listed(models)]
    names = contestants.with_peers(_listed(peers))
    where = machine.find_device(device)
    folder = out_folder or (RESULTS if RESULTS.is_dir() else Path())
    given = f"--batches {batches} --rounds {rounds} --device {device}"
    given += f" --cell-seconds {cell_seconds:g}" + (
        "" if threads is None else f" --threads {threads}"
    )
    given += f" --precision {precision}" + (" --compile" if compile else "")
    given += " --growth" if growth else f" --models {models} --peers {peers}"
    ladders = sweeps(sizes, where) if growth else []
    groups = sum(len(ladder.tasks) for ladder in ladders) or len(chosen) * len(sizes)
    with (
        machine.set_up(where, threads, precision),
        _bar(groups * (rounds + 1) + (0 if growth else len(chosen)), quiet=json) as watch,
    ):
        record = Record(
            path=folder / f"{_name(models, growth=growth)}_{device}{_coarse(precision)}.json",
            content={
                "what": "time and memory of one private training step",
                "command": f"privet bench dpsgd {given}",
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


def _name(models: str, *, growth: bool) -> str:
    """Of the record; a run with some of the models does not overwrite one with others."""
    if growth:
        return "dpsgd_growth"
    return "dpsgd_step" if models == MODELS else "_".join(["dpsgd_step", *_listed(models)])


def _coarse(precision: str) -> str:
    return "" if precision == "float32" else f"_{precision}"


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _whole_numbers(text: str) -> list[int]:
    parts = _listed(text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(
            "bad batches", got=f"'{text}'", expected="whole numbers, separated by commas: 256,1024"
        )
    return [int(part) for part in parts]


@contextlib.contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """On stderr: what runs now, and how much is left."""
    if quiet:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda what: progress.update(task, advance=1, description=what)
