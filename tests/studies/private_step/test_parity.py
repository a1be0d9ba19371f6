import sys

import pytest
import torch

from privet.errors import CheckFailed
from privet.privacy.clipping import ReferenceClipper, cross_entropy
from privet.studies.private_step import contestants, parity
from privet.studies.private_step.contestants import CONTESTANTS, Ready, Variant
from privet.studies.private_step.parity import TOLERANCE, agreement, agreements, quiet_task
from privet.studies.private_step.workloads import transformer


@pytest.fixture
def task(tiny, cpu):
    return quiet_task(tiny, cpu)


def planted(sum_of):
    """A contestant whose step uses `sum_of(rows, clip norm)`."""

    def build(task, model):
        x, y = task.first(task.batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            rows = ReferenceClipper(model, cross_entropy, 1.0).per_example_gradients(x, y)
            flat = sum_of(rows, task.clip_norm) / task.batch
            start = 0
            for p in model.parameters():
                p.grad = flat[start : start + p.numel()].reshape(p.shape)
                start += p.numel()

        return Ready(step, optimizer)

    return Variant("planted", build)


def clipped(rows, clip_norm):
    return rows * (clip_norm / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


BUGS = {
    "skips an example": lambda rows, c: clipped(rows, c)[1:].sum(0),
    "clips twice": lambda rows, c: (
        rows * (c / rows.norm(dim=1, keepdim=True)).clamp(max=1.0) ** 2
    ).sum(0),
    "forgets the mask": lambda rows, c: clipped(torch.cat([rows, rows[:1]]), c).sum(0),
    "clips the mean": lambda rows, c: len(rows) * clipped(rows.mean(0, keepdim=True), c)[0],
    "does not clip": lambda rows, c: rows.sum(0),
    "clips to another norm": lambda rows, c: clipped(rows, 1.001 * c).sum(0),
    "is not finite": lambda rows, c: clipped(rows, c).sum(0) * float("nan"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_sum_is_caught(bug, task):
    found = agreement(task, "vmap", planted(BUGS[bug]), {})
    assert found.why.startswith("wrong sum")
    assert not found.difference <= TOLERANCE


def test_a_right_sum_is_not(task):
    found = agreement(task, "vmap", planted(lambda rows, c: clipped(rows, c).sum(0)), {})
    assert found.why == ""
    assert found.difference < 1e-9
    assert found.single_difference < 1e-5


def test_every_contestant_gives_the_sum_of_single_examples(task, opacus):
    found = agreements(task, CONTESTANTS)
    assert [a.why for a in found] == [""] * len(found)
    assert {(a.contestant, a.variant) for a in found} >= {
        ("privet", "as in training"),
        ("opacus-hooks", "in pieces"),
        ("opacus-ghost", "in pieces"),
        ("vmap", "whole batch"),
        ("plain-best", "channels last"),
    }
    assert all(a.difference <= 1e-6 and a.single_difference <= 1e-5 for a in found)
    assert all(a.outputs_difference == 0.0 for a in found)


def test_opacus_own_attention_is_compared_on_its_own_outputs(cpu, opacus, monkeypatch):
    """Batch first, the outputs of Opacus 1.6 are not those of PyTorch; its sums are right."""
    monkeypatch.setitem(parity.MOST_ROWS, "cpu", 4)
    found = agreements(quiet_task(transformer(5), cpu), ["opacus-hooks"])
    assert all(a.why == "" and a.outputs_difference > 1e-3 for a in found)


def test_some_gradients_are_clipped_and_some_are_not(task):
    rows = ReferenceClipper(task.model(), cross_entropy, 1.0).per_example_gradients(
        *task.first(task.batch)
    )
    share = float((rows.norm(dim=1) > task.clip_norm).double().mean())
    assert 0.1 < share < 0.9


def test_the_check_crosses_the_engines_pieces(task):
    assert task.batch > parity.MOST_ROWS["cpu"]
    assert task.records == task.batch


def test_a_privet_that_is_wrong_is_refused(task, monkeypatch):
    right = contestants.make_clipper
    monkeypatch.setattr(
        contestants,
        "make_clipper",
        lambda model, loss, c, **more: right(model, loss, c, **more).with_clip_norm(0.9 * c),
    )
    with pytest.raises(CheckFailed, match="not autograd's") as refusal:
        agreements(task, ["privet"])
    assert refusal.value.exit_code == 1


def test_a_missing_peer_is_skipped_with_a_reason(task, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "opacus"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "opacus", None)
    found = agreements(task, ["opacus-hooks", "opacus-ghost"])
    assert {a.why for a in found} == {"skipped: opacus is not installed"}


def test_who_cannot_run_in_double_must_be_exact_in_single(task):
    def only_single(sum_of):
        inner = planted(sum_of)

        def build(task, model):
            if task.dtype == torch.float64:
                raise TypeError("no doubles here")
            return inner.build(task, model)

        return Variant("single", build)

    right = agreement(task, "vmap", only_single(lambda rows, c: clipped(rows, c).sum(0)), {})
    assert (right.why, right.difference) == ("", None)
    slightly = only_single(lambda rows, c: clipped(rows, c).sum(0) * 1.0001)
    assert agreement(task, "vmap", slightly, {}).why.startswith("wrong sum")
