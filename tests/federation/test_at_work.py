"""Clients at work: trained together as far as memory lets them, and nothing is kept too long."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from privet.federation import LocalWork, Material, Teacher, at_work
from privet.federation.at_work import AtWork, Job
from privet.federation.local_work import Lesson


class _Counting:
    """A client's change is the number of its own row; the engine notes who comes together."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        clients = [int(lesson.rows[0, 0]) for lesson in lessons]
        self.groups.append(clients)
        return torch.tensor(clients, dtype=torch.float32)[:, None].expand(-1, weights.numel())


def _work(clients: int) -> tuple[AtWork, _Counting]:
    material = Material(
        x=torch.zeros(clients, 1),
        y=torch.zeros(clients, dtype=torch.int64),
        clients=np.split(np.arange(clients), clients),
        pool=np.zeros(0, dtype=np.int64),
        classes=1,
    )
    engine = _Counting()
    return AtWork(engine, Teacher(material, LocalWork(epochs=1), seed=0), clients), engine


def _begin(work: AtWork, client: int, *, version: int = 0, arrives: float = 1.0) -> None:
    job = Job(client=client, version=version, turn=0, records=1, arrives=arrives)
    work.begin(job, torch.full((4,), float(version)))


def test_those_who_come_first_are_trained_if_not_all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "MOST_BYTES", 3 * 4 * at_work.BYTES)  # three changes
    work, engine = _work(8)
    for client in range(8):
        _begin(work, client, arrives=10.0 - client)
    for client in reversed(range(8)):
        done = work.change_of(work.end(client), before=np.inf)
        assert done.change.tolist() == [client] * 4
    assert engine.groups == [[5, 6, 7], [2, 3, 4], [0, 1]]


def test_who_will_be_late_is_not_trained_and_nothing_is_left_over() -> None:
    work, engine = _work(4)
    for client, version in enumerate((0, 0, 1, 0)):
        _begin(work, client, version=version, arrives=float(client))
    work.change_of(work.end(0), before=3.0)
    assert engine.groups == [[0, 1]]  # the third is of another version, the fourth too late
    for client in (1, 2, 3):
        work.forget(work.end(client))
    assert work.state() == {"jobs": [], "versions": {}, "changes": []}
    assert not work.busy.any()


def test_a_change_comes_with_its_sum_which_nobody_has_looked_at() -> None:
    work, _ = _work(3)
    for client in range(3):
        _begin(work, client)
    done = [work.change_of(work.end(client), before=np.inf) for client in range(3)]
    assert [None if one.total is None else float(one.total) for one in done] == [0.0, 4.0, 8.0]


def test_what_was_trained_is_not_trained_again_after_a_restart() -> None:
    """Nor could it be: the weights of its version are gone."""
    work, _ = _work(3)
    for client in range(3):
        _begin(work, client)
    work.change_of(work.end(0), before=np.inf)
    again, engine = _work(3)
    again.restore(work.state())
    for client in (1, 2):
        done = again.change_of(again.end(client), before=np.inf)
        assert done.change.tolist() == [client] * 4
    assert engine.groups == []
