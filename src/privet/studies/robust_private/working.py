"""The cells of a study by several processes at once.

A cell is trained as soon as those that it needs are trained, and measured after that; whoever waits
for it does not wait for its measurements. Trainings come first, in the order of the cells.

Each process opens the study's ledger for itself: reserving and charging are safe for many processes
(`ledger`). One process has a cell at a time, and the study's folder is locked by the one that began
them all. They end with it: killed trainings are resumed when the study goes on.

A cell that raises an error takes along those that need it, and nobody else; the error says which,
in the end. A process that dies (killed, out of memory) takes along all that run and wait: the pool
is broken. What was measured before is kept, and the same study goes on with the rest.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any, Final, final

import torch

from privet.errors import FaultyEnvironment, InputError, PrivetError
from privet.studies.robust_private.study import Study
from privet.studies.robust_private.training import Lesson

SECONDS: Final = 0.3  # between two looks at who is done; news of one process come no faster
PATIENCE: Final = 10.0  # seconds, with a process that was told to end

THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

TRAIN: Final = "train"
MEASURE: Final = "measure"

_own: dict[str, Any] = {}  # of a worker: its study, and where it tells of its progress


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process does at a time: one half of a cell; `needs` are other jobs."""

    kind: str
    cell: Lesson
    needs: frozenset[tuple[str, str]]

    @property
    def key(self) -> tuple[str, str]:
        """Its name."""
        return self.kind, self.cell.name


def run_cells(study: Study, cells: Sequence[Lesson], *, workers: int) -> list[dict[str, Any]]:
    """The records of all cells, as of `Study.run`, by so many processes."""
    if workers < 1:
        raise InputError("bad number of workers", got=workers, expected="at least 1")
    if workers == 1:
        return study.run(cells)
    with study.alone_with(cells):
        most = min(workers, len(cells))
        with _pool(replace(study, watch=_tell), most) as (pool, news):
            found = _all_done(_jobs(cells), pool, news, study.watch)
    return [found[cell.name] for cell in cells]


def _jobs(cells: Sequence[Lesson]) -> list[Job]:
    """Both halves of all cells, trainings first; what is no cell of this study is there already."""
    names = {cell.name for cell in cells}
    trained = [
        Job(kind=TRAIN, cell=c, needs=frozenset((TRAIN, n) for n in c.needs if n in names))
        for c in cells
    ]
    return trained + [Job(kind=MEASURE, cell=c, needs=frozenset([(TRAIN, c.name)])) for c in cells]


def _all_done(
    jobs: Sequence[Job],
    pool: ProcessPoolExecutor,
    news: Connection,
    watch: Callable[[int, str], None],
) -> dict[str, dict[str, Any]]:
    """The records by the cells' names; raises in the end if there was an error."""
    waiting, done = list(jobs), set[tuple[str, str]]()
    running: dict[Future[Any], Job] = {}
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, BaseException] = {}
    while waiting or running:
        for job in [job for job in waiting if job.needs <= done]:
            waiting.remove(job)
            try:
                running[pool.submit(_work, job.kind, job.cell)] = job
            except BrokenProcessPool as broken:  # a process died, of memory perhaps
                failed[job.cell.title] = broken
        if not running:  # the rest needs what failed
            break
        finished, _ = wait(running, timeout=SECONDS, return_when=FIRST_COMPLETED)
        for what in _heard(news):
            watch(len(found), what)
        for future in finished:
            job, error = running.pop(future), future.exception()
            if error is not None:
                failed[job.cell.title] = error
                continue
            done.add(job.key)
            if job.kind == MEASURE:
                found[job.cell.name] = future.result()
    if failed:
        raise _joined(failed, len(jobs) // 2, len(found))
    return found


def _joined(failed: Mapping[str, BaseException], cells: int, found: int) -> Exception:
    """One error for all; of the kind of the first."""
    first = next(iter(failed.values()))
    lines = [_line(title, error) for title, error in failed.items()]
    kind = type(first) if isinstance(first, PrivetError) else FaultyEnvironment
    told = kind(
        f"{cells - found} of {cells} cells are not done",
        got="; ".join(lines),
        fix="the same command goes on with them; the others are kept",
    )
    told.__cause__ = None if isinstance(first, PrivetError) else first
    return told


def _line(title: str, error: BaseException) -> str:
    """Of which cell, and what; a study's own errors begin with the cell already."""
    told = str(error) or type(error).__name__
    return told if told.startswith(f"{title}: ") else f"{title}: {told}"


@contextmanager
def _pool(study: Study, workers: int) -> Iterator[tuple[ProcessPoolExecutor, Connection]]:
    """Processes that have the study, and where they are heard; none is left when this ends."""
    context = multiprocessing.get_context("spawn")  # CUDA knows no forked process
    news, telling = context.Pipe(duplex=False)
    before = set(multiprocessing.active_children())
    threads = max(1, _cores() // workers)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=_begin,
        initargs=(study, telling, context.Lock(), threads),
    )
    try:
        with _told_to_children(threads):
            yield pool, news
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        begun = set(multiprocessing.active_children()) - before
        for child in begun:
            child.terminate()
        for child in begun:
            child.join(PATIENCE)
        raise
    finally:
        news.close()
        telling.close()


@contextmanager
def _told_to_children(threads: int) -> Iterator[None]:
    """Libraries with threads of their own read these as they load; what is set already stays."""
    new = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(new, str(threads)))
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _cores() -> int:
    """Those that this process may use, where the system tells; or all."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _heard(news: Connection) -> Iterator[str]:
    """What the workers told since."""
    while news.poll():
        yield news.recv()


def _begin(study: Study, telling: Connection, turn: Any, threads: int) -> None:
    """In a new process: what it needs, once. ^C is for the one that began it, whom it follows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    _own.update(study=study, telling=telling, turn=turn, told=0.0)
    follow_parent()


def follow_parent() -> None:
    """Have this process end when the one ends that began it, however that ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)  # killed like its parent: a killed training is resumed


def _work(kind: str, cell: Lesson) -> dict[str, Any]:
    """One job; the record of a measured cell."""
    study: Study = _own["study"]
    if kind == MEASURE:
        return study.measure(cell)
    study.train(cell)
    return {}


def _tell(_: int, what: str) -> None:
    """Seldom enough never to fill the pipe."""
    if time.monotonic() - _own["told"] < SECONDS:
        return
    _own["told"] = time.monotonic()
    with _own["turn"]:
        _own["telling"].send(what)
