"""Local training: isolated clients, stacked clients, and what leaks where one object serves all."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from privet.errors import InputError
from privet.federation.flat import flat, load_flat
from privet.federation.local_work import EMPTY, Lesson, LocalWork, Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.together import Together, stackable


def _material(clients: int = 5, *, pool: int = 12) -> Material:
    draw = np.random.default_rng(0)
    n = 15 * clients + pool
    x = torch.from_numpy(draw.normal(size=(n, 1, 6)).astype(np.float32))
    y = torch.from_numpy(draw.integers(0, 3, n))
    cuts = np.sort(draw.choice(np.arange(1, 15 * clients), clients - 1, replace=False))
    return Material(
        x=x,
        y=y,
        clients=np.split(np.arange(15 * clients), cuts),
        pool=np.arange(15 * clients, n),
        classes=3,
    )


def _net(*, norm: bool = False, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(6, 8),
        nn.BatchNorm1d(8) if norm else nn.Identity(),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.Linear(8, 3),
    )


def _lessons(material: Material, work: LocalWork, turn: int = 0) -> list[Lesson]:
    teacher = Teacher(material, work, seed=3)
    return [teacher.lesson(client, turn) for client in range(len(material.clients))]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_stacked_clients_learn_what_single_ones_do(optimizer: str, proximal: float) -> None:
    material = _material()
    work = LocalWork(epochs=2, batch=4, learning_rate=0.05, optimizer=optimizer)
    lessons, net = _lessons(material, work), _net()
    assert len({len(lesson.rows) for lesson in lessons}) > 1  # some stand still at the end
    weights = flat(net)
    single = OneByOne(copy.deepcopy(net), material, work, proximal=proximal)
    stacked = Together(copy.deepcopy(net), material, work, proximal=proximal, at_once=3)
    ours, theirs = single.changes(weights, lessons), stacked.changes(weights, lessons)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert float(ours.abs().min(0).values.max()) > 1e-4


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_how_many_are_stacked_does_not_matter(optimizer: str) -> None:
    """Also where a lesson is one step, of which no client has weights of its own."""
    material = _material()
    for batch in (4, 40):
        work = LocalWork(epochs=1, batch=batch, learning_rate=0.05, optimizer=optimizer)
        lessons, net = _lessons(material, work), _net()
        found = [
            Together(copy.deepcopy(net), material, work, at_once=n).changes(flat(net), lessons)
            for n in (1, 2, 5)
        ]
        for other in found[1:]:
            torch.testing.assert_close(found[0], other, atol=1e-6, rtol=1e-4)


def test_tf32_is_refused_where_there_is_none() -> None:
    work = LocalWork(precision="tf32")
    with pytest.raises(InputError, match="no TF32 here"):
        work.require_on(torch.device("cpu"))
    work.require_on(torch.device("cuda"))


@pytest.mark.parametrize("engine", [OneByOne, Together])
def test_no_engine_computes_more_coarsely_than_it_says(engine: type) -> None:
    """Whatever PyTorch is set to; cuDNN's convolutions would use TF32 by default.

    And what they compute, they compute again: a killed run repeats its lost steps.
    """
    seen: list[tuple[object, ...]] = []

    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.top = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            cudnn = torch.backends.cudnn
            precision = torch.get_float32_matmul_precision()
            seen.append((precision, cudnn.allow_tf32, cudnn.deterministic))
            scores: Tensor = self.top(x.flatten(1))
            return scores

    material, work, net = _material(), LocalWork(epochs=1), Watching()
    before = torch.get_float32_matmul_precision()
    assert not torch.backends.cudnn.deterministic
    torch.set_float32_matmul_precision("high")
    try:
        engine(net, material, work).changes(flat(net), _lessons(material, work))
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.backends.cudnn.deterministic
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {("highest", False, True)}


def test_one_client_by_hand() -> None:
    """Plain SGD on two batches, written out."""
    material = _material(2, pool=0)
    work = LocalWork(epochs=1, batch=4, learning_rate=0.1)
    net = _net()
    lesson = Lesson(rows=np.array([[0, 3, 1, EMPTY], [2, EMPTY, EMPTY, EMPTY]]), seed=0)
    by_hand = copy.deepcopy(net)
    for rows in ([0, 3, 1], [2]):
        loss = cross_entropy(by_hand(material.x[rows]), material.y[rows])
        grads = torch.autograd.grad(loss, list(by_hand.parameters()))
        with torch.no_grad():
            for p, g in zip(by_hand.parameters(), grads, strict=True):
                p -= 0.1 * g
    change = OneByOne(net, material, work).changes(flat(net), [lesson])[0]
    torch.testing.assert_close(change, flat(by_hand) - flat(net))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_company_changes_nothing(optimizer: str, *, norm: bool) -> None:
    """A alone, and A after B: the same bits, with BatchNorm, Adam and dropout in the model."""
    material = _material(3)
    work = LocalWork(epochs=2, batch=8, learning_rate=0.05, optimizer=optimizer)
    net = _net(norm=norm, dropout=0.3)
    weights, lessons = flat(net), _lessons(material, work)
    torch.manual_seed(7)
    alone = OneByOne(copy.deepcopy(net), material, work).changes(weights, lessons[:1])
    torch.manual_seed(99)
    after = OneByOne(copy.deepcopy(net), material, work).changes(weights, lessons[::-1])
    assert torch.equal(alone[0], after[-1])


class _AgainstTheMean(nn.Module):
    """Shifts every batch by its mean: what it makes of a record hangs on the others beside it."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stacked_clients_never_see_each_others_records(optimizer: str) -> None:
    """Also where a model looks at the rows of a batch together, and batches are not full."""
    material = _material(3)
    work = LocalWork(epochs=2, batch=8, learning_rate=0.05, optimizer=optimizer)
    net, lessons = nn.Sequential(_AgainstTheMean(), _net()), _lessons(material, work)
    assert any((lesson.rows == EMPTY).any() for lesson in lessons[1:])
    found = []
    for scale in (1.0, 100.0):
        material.x[material.clients[0]] *= scale
        stacked = Together(copy.deepcopy(net), material, work)
        found.append(stacked.changes(flat(net), lessons))
    assert torch.equal(found[0][1:], found[1][1:])
    assert not torch.equal(found[0][0], found[1][0])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_longer_lesson_beside_it_does_not_move_who_has_ended(optimizer: str) -> None:
    """Weights so large that one step more would be none: the change is what it was."""
    material = Material(
        x=torch.ones(5, 8),
        y=torch.tensor([0, 1, 0, 1, 0]),
        clients=[np.arange(1), np.arange(1, 5)],
        pool=np.zeros(0, dtype=np.int64),
        classes=2,
    )
    work = LocalWork(epochs=1, batch=1, learning_rate=1e38, optimizer=optimizer)
    net = nn.Linear(8, 2)
    lessons = _lessons(material, work)
    alone, beside = (
        Together(copy.deepcopy(net), material, work).changes(flat(net), some)[0]
        for some in (lessons[:1], lessons)
    )
    assert torch.isfinite(alone).all()
    assert torch.equal(alone, beside)


@pytest.mark.parametrize("kept", [True, False])
def test_statistics_of_batches_are_not_stacked_whether_kept_or_not(*, kept: bool) -> None:
    net = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=kept))
    assert not stackable(net, torch.device("cpu"))
    with pytest.raises(InputError, match="statistics of its batches"):
        Together(net, _material(), LocalWork())


class _SharedObjects:
    """The planted bug: one model object and one Adam for all clients."""

    def __init__(self, model: nn.Module, material: Material, work: LocalWork) -> None:
        self.model, self.material = model, material
        self.optimizer = torch.optim.Adam(model.parameters(), lr=work.learning_rate)

    def changes(self, weights: Tensor, lessons: Sequence[Lesson]) -> Tensor:
        changes = []
        for lesson in lessons:
            load_flat(self.model, weights)
            for rows in lesson.rows:
                chosen = torch.from_numpy(rows[rows != EMPTY])
                loss = cross_entropy(self.model(self.material.x[chosen]), self.material.y[chosen])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            changes.append(flat(self.model) - weights)
        return torch.stack(changes)


def test_shared_objects_leak_and_the_check_above_would_see_it() -> None:
    material = _material(3)
    work = LocalWork(epochs=1, batch=8, learning_rate=0.05, optimizer="adam")
    net, lessons = _net(), _lessons(material, work)
    alone = _SharedObjects(copy.deepcopy(net), material, work).changes(flat(net), lessons[:1])
    after = _SharedObjects(copy.deepcopy(net), material, work).changes(flat(net), lessons[::-1])
    assert float((alone[0] - after[-1]).abs().max()) > 1e-3


def test_statistics_of_batches_travel_with_the_weights() -> None:
    net = _net(norm=True)
    assert flat(net).numel() == sum(p.numel() for p in net.parameters()) + 2 * 8
    with pytest.raises(InputError, match="statistics of its batches"):
        Together(net, _material(), LocalWork())


def test_frozen_weights_stay_at_home() -> None:
    net = _net()
    net[1].requires_grad_(requires_grad=False)
    assert flat(net).numel() == 8 * 3 + 3


def test_lessons_use_what_flsys_says() -> None:
    """Of each class some of one's own and some of the pool's; also of classes one lacks."""
    labels = np.repeat(np.arange(3), 40)
    material = Material(
        x=torch.zeros(120, 2),
        y=torch.from_numpy(labels),
        clients=[np.arange(0, 30), np.arange(30, 60)],  # the first has class 0 alone
        pool=np.concatenate([np.arange(60, 80), np.arange(80, 120)]),  # classes 1 and 2
        classes=3,
    )
    work = LocalWork(epochs=3, batch=7, own_per_class=(5, 9), pool_per_class=(2, 4))
    teacher = Teacher(material, work, seed=1)
    for turn in range(20):
        rows = teacher.lesson(0, turn).rows
        used, counts = np.unique(rows[rows != EMPTY], return_counts=True)
        assert set(counts) == {3}  # each once in an epoch
        own, pool = used[used < 30], used[used >= 60]
        assert not set(used) & set(range(30, 60))  # never another client's
        assert 5 <= len(own) <= 9
        assert all(2 <= (labels[pool] == c).sum() <= 4 for c in (1, 2))
    assert not np.array_equal(teacher.lesson(0, 0).rows, teacher.lesson(0, 1).rows)
    again = Teacher(material, work, seed=1).lesson(0, 5)
    assert np.array_equal(again.rows, teacher.lesson(0, 5).rows)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epochs": 0}, "local epochs"),
        ({"batch": 0}, "records of a step"),
        ({"learning_rate": 0.0}, "client learning rate"),
        ({"optimizer": "lion"}, "unknown local optimiser"),
        ({"own_per_class": (5, 4)}, "records of a class"),
    ],
)
def test_bad_work_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        LocalWork(**fields)  # type: ignore[arg-type]


def test_a_pool_must_be_there() -> None:
    with pytest.raises(InputError, match="there is no pool"):
        Teacher(_material(pool=0), LocalWork(pool_per_class=(1, 2)), seed=0)


def test_a_batch_of_one_record_does_not_end_a_run_with_batch_norm() -> None:
    """A run that ended there would tell how many records a client has."""
    material, work = _material(), LocalWork(epochs=1, batch=4, learning_rate=0.1)
    engine = OneByOne(_net(norm=True), material, work)
    rows = np.array([[0, 1, 2, 3], [4, EMPTY, EMPTY, EMPTY]])
    whole, first, alone = engine.changes(
        flat(engine.model),
        [Lesson(rows=rows, seed=1), Lesson(rows=rows[:1], seed=1), Lesson(rows=rows[1:], seed=1)],
    )
    assert torch.equal(whole, first)
    assert first.abs().sum() > 0
    assert alone.abs().sum() == 0
