"""Low-rank adaptation: nothing at first, exact when merged, only the factors trained."""

import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import merge_lora, trainable_report, with_lora
from privet.models.lora import LoraLinear


def transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(80, 3)).eval()


def moved(model):
    """The same with trained weights changed, as training would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return model


X = torch.rand(4, 5, 16, generator=torch.Generator().manual_seed(2))


def test_it_starts_as_the_original():
    model = transformer().train()  # in evaluation, frozen attention takes another kernel
    assert torch.equal(with_lora(model, 4)(X), model(X))


def test_by_hand():
    base = nn.Linear(3, 4)
    model = moved(with_lora(base, 2, alpha=6.0))
    x = torch.rand(5, 3)
    update = 3.0 * model.up.weight @ model.down.weight  # alpha / r
    expected = x @ (base.weight + update).T + base.bias
    torch.testing.assert_close(model(x), expected)
    assert torch.linalg.matrix_rank(update) == 2


def test_merging_is_exact_and_leaves_plain_layers():
    adapted = moved(with_lora(transformer(), 4, also_train=["2"]))
    merged = merge_lora(adapted)
    assert not any(isinstance(m, LoraLinear) for m in merged.modules())
    assert set(merged.state_dict()) == set(transformer().state_dict())
    torch.testing.assert_close(merged(X), adapted(X), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(merged(X), transformer()(X), atol=1e-2)


def test_only_factors_and_what_is_named_are_trained():
    adapted = with_lora(transformer(), 4, also_train=["2"])
    factors = {f"0.linear{i}.{part}.weight" for i in (1, 2) for part in ("down", "up")}
    report = trainable_report(adapted)
    assert set(report.trained) == factors | {"2.weight", "2.bias"}
    assert report.entries[0] == 2 * 4 * (16 + 32) + 80 * 3 + 3
    assert type(adapted[2]) is nn.Linear  # trained in full, so not adapted
    assert type(adapted[0].linear1.down) is nn.Linear  # a type that fast clipping knows


def test_frozen_weights_get_no_gradient_and_factors_do():
    adapted = moved(with_lora(transformer(), 4))
    adapted(X).square().sum().backward()
    for name, p in adapted.named_parameters():
        trained = name.endswith(("down.weight", "up.weight"))
        assert (p.grad is not None) == trained, name
        if trained:
            assert p.grad.abs().sum() > 0


def test_the_original_is_untouched():
    model = transformer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moved(with_lora(model, 4, also_train=["2"]))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_evaluation_reads_the_adapted_weights():
    """TransformerEncoderLayer has a shortcut that reads `linear1.weight` without calling it."""
    adapted = moved(with_lora(transformer(), 4))
    slow = adapted.train()(X)
    with torch.no_grad():
        fast = adapted.eval()(X)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(adapted[0].linear1.weight, merge_lora(adapted)[0].linear1.weight)


def test_targets_choose_and_a_module_stands_for_what_is_in_it():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 4))

    def adapted_by(*targets):
        adapted = with_lora(model, 2, targets=targets)
        return [name for name, m in adapted.named_modules() if isinstance(m, LoraLinear)]

    assert adapted_by("0") == ["0.0", "0.1"]
    assert adapted_by("0.1") == ["0.1"]
    assert adapted_by("*.0", "1") == ["0.0", "1"]


def test_a_layer_in_two_places_stays_one():
    layer = nn.Linear(4, 4)
    adapted = with_lora(nn.Sequential(layer, nn.Tanh(), layer), 2)
    assert adapted[0] is adapted[2]
    assert trainable_report(adapted).entries[0] == 2 * (4 + 4)


def test_the_rank_is_at_most_the_smaller_side():
    adapted = with_lora(nn.Linear(8, 3), 5)
    assert adapted.down.weight.shape == (3, 8)
    assert adapted.scale == 1.0


def test_precision_is_kept():
    adapted = with_lora(nn.Linear(4, 4).double(), 2)
    assert adapted(torch.rand(2, 4).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("0.self_attn.out_proj", "MultiheadAttention reads its out_proj without calling it"),
        ("0.self_attn", "MultiheadAttention reads its out_proj without calling it"),
        ("1", r"names Flatten, expected plain nn\.Linear"),
        ("3", "fits nothing in the model: got '3'"),
    ],
)
def test_targets_that_cannot_be_adapted_are_refused(target, reason):
    with pytest.raises(InputError, match=reason):
        with_lora(transformer(), 4, targets=["2", target])


def test_other_refusals():
    with pytest.raises(InputError, match="rank 0"):
        with_lora(transformer(), 0)
    with pytest.raises(InputError, match="adapted already"):
        with_lora(with_lora(transformer(), 2), 2)
