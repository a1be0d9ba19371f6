"""The whole study: every contest, in rounds in which all take turns, kept on disk as it goes."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import torch

from privet.attacks.attack import MinimumNorm
from privet.classifiers import open_classifier
from privet.errors import CheckFailed
from privet.files import write_atomically
from privet.studies.attack_parity.contests import Contest
from privet.studies.attack_parity.judging import Verdict, judge, mean_norms
from privet.studies.attack_parity.network import Subject
from privet.studies.attack_parity.peers import Answer, Peer
from privet.studies.attack_parity.results import parity_plot, with_ratios
from privet.studies.private_step.machine import timed
from privet.studies.private_step.study import Record

OURS: Final = "privet"
WARM_UP: Final = 16  # images, before anything is timed


@final
@dataclass(kw_only=True)
class Cell:
    """One contestant in one contest."""

    contest: Contest
    contestant: str
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    mean_norm: float | None = None
    why: str = ""

    @property
    def median(self) -> float | None:
        """Seconds."""
        return statistics.median(self.seconds) if self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        median, accuracies = self.median, [one.robust_accuracy for one in self.verdicts]
        return {
            **self.contest.to_json(),
            "contestant": self.contestant,
            "robust_accuracy": statistics.fmean(accuracies) if accuracies else None,
            "mean_norm": self.mean_norm,
            "outside": sum(one.outside for one in self.verdicts) if accuracies else None,
            "median_s": median,
            "images_per_s": len(self.verdicts[0].holds) / median if median else None,
            "median_cpu_s": statistics.median(self.cpu_seconds) if self.cpu_seconds else None,
            "rounds_accuracy": accuracies,
            "rounds_s": self.seconds,
            "rounds_cpu_s": self.cpu_seconds,
            "why": self.why,
        }


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """By which rules; `watch` hears once of each contest and round."""

    subject: Subject
    peers: Sequence[Peer]
    rounds: int
    batch: int
    cell_seconds: float
    record: Record
    watch: Callable[[str], None] = lambda _: None

    def run(self, contests: Sequence[Contest]) -> list[dict[str, Any]]:
        """Every contest; the cells with their ratios."""
        cells: list[Cell] = []
        rows: list[dict[str, Any]] = []
        for contest in contests:
            cells += self._contest(contest)
            rows = with_ratios([cell.to_json() for cell in cells], OURS)
            versions = {name: v for peer in self.peers for name, v in peer.versions.items()}
            self.record.keep({"peers": versions, "cells": rows})
            write_atomically(self.record.plot, parity_plot(rows, OURS))
        return rows

    def _contest(self, contest: Contest) -> list[Cell]:
        """Warm up, then rounds; the next round begins with the next contestant."""
        ask: dict[str, Callable[[int, int], Answer]] = {
            OURS: lambda rows, seed: self._ours(contest, rows, seed),
            **{peer.name: self._question(peer, contest) for peer in self.peers},
        }
        cells = {name: Cell(contest=contest, contestant=name) for name in ask}
        for name, cell in cells.items():
            cell.why = ask[name](WARM_UP, 0).why
        for turn in range(self.rounds):
            self.watch(f"{contest.attack}, {contest.norm}")
            names = list(cells)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if not cells[name].why:
                    self._note(cells[name], ask[name](len(self.subject.x), turn))
        self._compare(cells)
        return list(cells.values())

    def _note(self, cell: Cell, answer: Answer) -> None:
        """Every round has a seed of its own: accuracies differ by the luck of random starts."""
        cell.why = answer.why
        if answer.seconds is None:
            return
        cell.seconds.append(answer.seconds)
        cell.cpu_seconds.append(answer.cpu_seconds)
        verdict = judge(self.subject, cell.contest, answer.found)
        cell.verdicts.append(verdict)
        if cell.contestant == OURS and verdict.outside:
            raise CheckFailed(
                f"{cell.contest.attack} left the ball or the box",
                got=f"{verdict.outside} inputs ({cell.contest.norm})",
                expected="none",
            )

    def _compare(self, cells: dict[str, Cell]) -> None:
        verdicts = {name: cell.verdicts[0] for name, cell in cells.items() if cell.verdicts}
        if next(iter(cells.values())).contest.minimal:
            for name, norm in mean_norms(verdicts).items():
                cells[name].mean_norm = norm

    def _ours(self, contest: Contest, rows: int, seed: int) -> Answer:
        x, y = self.subject.x[:rows], self.subject.y[:rows]
        classifier = open_classifier(self.subject.model, shape=tuple(x.shape[1:]))
        attack, found = contest.ours(seed), list[torch.Tensor]()

        def run() -> None:
            parts = (torch.split(values, self.batch) for values in (x, y))
            for images, labels in zip(*parts, strict=True):
                if isinstance(attack, MinimumNorm):
                    found.append(attack.closest(classifier, images, labels))
                else:
                    found.append(attack(classifier, images, labels, size=contest.size))

        busy = time.process_time()
        seconds = timed(run, x.device)
        return Answer(torch.cat(found), seconds, time.process_time() - busy)

    def _question(self, peer: Peer, contest: Contest) -> Callable[[int, int], Answer]:
        def ask(rows: int, seed: int) -> Answer:
            asked = {**contest.to_json(), "batch": self.batch, "rows": rows, "seed": seed}
            return peer.ask(asked, self.cell_seconds)

        return ask
