"""Models of several phases: all are checked beforehand, and the step alone decides."""

import pytest
import torch
from torch import nn

from privet.engine.prepare import make_private
from privet.engine.summing import BatchSum
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy
from privet.privacy.phases import Phased, enter_phase, in_phase, phase_of, phases_of

TARGET = {"epsilon": 8.0, "delta": 1e-3, "batch": 80, "epochs": 4}


class Two(Phased):
    """First one layer learns, then the other."""

    def __init__(self, later=None):
        super().__init__()
        self.phases, self.phase = ("first", "then"), "first"
        self.first, self.then = nn.Linear(4, 2), nn.Linear(4, 2)
        self.later = later

    def phase_at(self, step, steps):
        return "first" if step < steps // 2 else "then"

    def forward(self, x):
        if self.phase == "first":
            return self.first(x)
        said = self.then(x)
        return said if self.later is None else self.later(self, said)


class InTurn(Two):
    """One layer, then the other, and again: a step more is another phase."""

    def phase_at(self, step, steps):
        return self.phases[step % 2]


@pytest.fixture
def private(tmp_path, make_data):
    ledger = Ledger(tmp_path / "own.db")

    def made(model):
        torch.manual_seed(0)
        return make_private(
            model, torch.optim.SGD(model.parameters(), lr=1.0), make_data(), ledger=ledger, **TARGET
        )

    yield made
    ledger.close()


def test_the_step_decides_the_phase(private):
    model = Two()
    trainer, phases = private(model), []
    hook = model.register_forward_pre_hook(lambda m, _: phases.append(m.phase))
    for batch in trainer.batches():
        before = len(phases)
        trainer.step(batch)
        assert set(phases[before:]) == {model.phase_at(batch.step, 4)}
    hook.remove()
    assert set(phases) == {"first", "then"}


def test_the_size_of_a_sample_has_no_say_in_the_phase(tmp_path, make_data):
    """Samples of even and of odd sizes, in both phases: the number of the step decides."""
    torch.manual_seed(0)
    model, ledger, seen = InTurn(), Ledger(tmp_path / "own.db"), set()
    trainer = make_private(
        model, torch.optim.SGD(model.parameters(), lr=1.0), make_data(), ledger=ledger,
        **TARGET | {"batch": 20, "epochs": 6},
    )  # fmt: skip
    for batch in trainer.batches():
        trainer.step(batch)
        assert model.phase == model.phase_at(batch.step, trainer.plan.steps)
        seen.add((model.phase, len(batch.indices) % 2))
    ledger.close()
    assert len(seen) == 4  # all but certain: 24 steps of random samples


def test_a_part_that_does_not_learn_gets_noise_alone(private):
    """Without records of its own the sum of a part is exactly zero before the noise."""
    model = Two()
    trainer, sums = private(model), []
    added = trainer._with_noise
    trainer._with_noise = lambda total, step: (sums.append(total.clone()), added(total, step))[1]
    for batch in trainer.batches():
        trainer.step(batch)
    size = sum(p.numel() for p in model.first.parameters())
    for step, total in enumerate(sums):
        first, then = total[:size].norm(), total[size:].norm()
        assert (first > 0, then > 0) == (step < 2, step >= 2)


def test_mixing_in_a_later_phase_is_refused(private):
    with pytest.raises(InputError, match="mixes the examples"):
        private(Two(lambda model, said: said - said.mean(0)))


def test_a_later_phase_that_the_fast_clipper_gets_wrong_has_the_other(private):
    def behind_its_back(model, said):
        return said + said @ model.then.weight @ model.then.weight.T

    assert isinstance(private(Two())._clipper, FastClipper)
    assert isinstance(private(Two(behind_its_back))._clipper, ReferenceClipper)


def test_a_step_of_one_size_is_made_for_each_phase(make_data):
    """A recorded step repeats its own phase: another must not be summed by it."""
    torch.manual_seed(0)
    model, x, y = Two(), torch.rand(8, 4), torch.randint(0, 2, (8,))
    clipper = FastClipper(model, cross_entropy, 1.0)
    summing = BatchSum(
        clipper=clipper,
        examples=None,
        augmentation=None,
        expected=8.0,
        probe=(x, y),
        compiled=True,
    )
    summing.examples = type("One", (), {"contribution": 1, "views": 1})()
    made = {}
    for phase in model.phases:
        with in_phase(model, phase):
            made[phase] = summing.fixed
            found, _ = made[phase].sum_unless_broken(x, y)
            assert torch.allclose(found, clipper.clipped_sum(x, y), atol=1e-6)
    assert made["first"] is not made["then"]


def test_a_model_without_phases_has_one():
    model = nn.Linear(2, 2)
    enter_phase(model, 3, 4)
    assert phases_of(model) == (phase_of(model),)
    with in_phase(model, phase_of(model)):
        assert not hasattr(model, "phase")


def test_a_phase_is_left_again():
    model = Two()
    with pytest.raises(ZeroDivisionError), in_phase(model, "then"):
        raise ZeroDivisionError
    assert model.phase == "first"
