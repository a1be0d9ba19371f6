"""The plan for each layer: by rule, by module, by the whole model, or refused with the fix."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.privacy.clipping import cross_entropy, describe, make_clipper

sys.path.insert(0, str(Path(__file__).parent))
from clipping_cases import ALL, Scaled


def plan_of(layer):
    return {entry.name: entry for entry in describe(nn.Sequential(nn.Identity(), layer))}["1"]


def test_a_mixed_model_is_described_layer_by_layer():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Scaled(4), nn.LSTM(4, 2, proj_size=1))
    found = {(e.name, e.kind, e.treatment, e.parameters) for e in describe(model)}
    assert found == {
        ("0", "Linear", "rule", 20),
        ("2", "Scaled", "module", 5),
        ("2.inner", "Linear", "rule", 20),
        ("3", "LSTM", "rule", 8 * 4 + 8 * 1 + 16 + 2),
    }


def test_frozen_layers_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    assert [entry.name for entry in describe(model)] == ["1"]


class MyLinear(nn.Linear):
    pass


class MyAttention(nn.MultiheadAttention):
    pass


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.Bilinear(2, 2, 2), "no rule for Bilinear"),
        (nn.EmbeddingBag(3, 2), "no rule for EmbeddingBag"),
        (MyLinear(2, 2), "no rule for MyLinear"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_a_layer_without_a_rule_is_treated_by_itself(layer, why):
    plan = plan_of(layer)
    assert (plan.treatment, plan.why) == ("module", why)


def test_what_works_without_being_called_takes_the_whole_model():
    assert plan_of(MyAttention(4, 2)).treatment == "model"
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    treatments = {entry.name: entry.treatment for entry in describe(model)}
    assert treatments["0.parametrizations.weight"] == "model"


REFUSED = {
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), "mixes", "without_batchnorm"),
    "BatchNorm without parameters": (
        lambda: nn.BatchNorm1d(2, affine=False),
        "mixes",
        "without_batchnorm",
    ),
    "InstanceNorm with memory": (
        lambda: nn.InstanceNorm1d(2, track_running_stats=True),
        "mixes",
        "track_running_stats=False",
    ),
    "lazy": (lambda: nn.LazyLinear(2), "shape is not known", "made-up batch"),
    "half": (lambda: nn.Linear(2, 2).half(), "float16", "model.float"),
    "complex": (lambda: nn.Linear(2, 2, dtype=torch.complex64), "complex64", "model.float"),
    "max_norm": (lambda: nn.Embedding(2, 2, max_norm=1.0), "max_norm", "max_norm=None"),
    "max_norm, frozen": (
        lambda: nn.Embedding(2, 2, max_norm=1.0).requires_grad_(False),
        "max_norm",
        "max_norm=None",
    ),
    "frequencies": (
        lambda: nn.Embedding(2, 2, scale_grad_by_freq=True),
        "over the batch",
        "scale_grad_by_freq=False",
    ),
    "sparse": (lambda: nn.Embedding(2, 2, sparse=True), "never sparse", "sparse=False"),
    "sparse bag": (lambda: nn.EmbeddingBag(2, 2, sparse=True), "never sparse", "sparse=False"),
}


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_with_why_and_fix(name):
    build, why, fix = REFUSED[name]
    plan = plan_of(build())
    assert plan.treatment == "refused"
    assert why in plan.why
    assert fix in plan.fix
    model = nn.Sequential(nn.Identity(), build())
    probe = torch.rand(4, 2), torch.tensor([0, 1, 1, 0])
    with pytest.raises(InputError, match=r"layer '1' cannot be trained") as error:
        make_clipper(model, cross_entropy, 1.0, probe=probe)
    assert fix in str(error.value)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
class Judged(nn.Module):
    """A linear layer before a BatchNorm."""

    def __init__(self, *, fixed, frozen):
        super().__init__()
        self.first, self.judge, self.fixed = nn.Linear(3, 2), nn.BatchNorm1d(2), fixed
        self.judge.requires_grad_(not frozen)

    def train(self, mode=True):
        super().train(mode)
        if self.fixed:
            self.judge.eval()
        return self


def test_only_a_batchnorm_that_is_frozen_and_stays_in_evaluation_is_a_constant():
    """In evaluation for now is not enough, and trainable gains have no rule."""
    assert [la.name for la in describe(Judged(fixed=True, frozen=True).train())] == ["first"]
    for fixed, frozen in ((False, True), (True, False)):
        model = Judged(fixed=fixed, frozen=frozen).eval()
        refused = [la.name for la in describe(model) if la.treatment == "refused"]
        assert refused == ["judge"]
        assert not model.judge.training


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_layers_are_refused():
    from torch.ao.nn.quantized.dynamic import Linear

    plan = plan_of(Linear(2, 2))
    assert (plan.treatment, plan.kind) == ("refused", "Linear")
    assert "quantise the release" in plan.fix


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("name", ALL)
def test_nothing_that_is_covered_is_refused(name):
    assert all(entry.treatment in ("rule", "module") for entry in describe(ALL[name].model()))
