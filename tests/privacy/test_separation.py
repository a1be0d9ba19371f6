"""Models that mix examples are refused, with the fix; those that do not are accepted."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn

from privet.errors import InputError
from privet.models import create, names, with_lora, without_batchnorm
from privet.privacy.separation import constant_layers, kept_constant, require_separate_examples

VECTORS, SIGNALS = torch.rand(4, 6), torch.rand(4, 2, 8)
IMAGES, VOLUMES = torch.rand(4, 2, 6, 6), torch.rand(4, 2, 4, 4, 4)


class BatchMean(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class BatchMeanInTraining(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True) if self.training else x


class RunningTotal(nn.Module):
    """Each example sees those before it, and no later one."""

    def forward(self, x):
        return x.cumsum(0)


class NextOne(nn.Module):
    def forward(self, x):
        return torch.cat([x[1:], x[-1:]])


class AttentionOverTheBatch(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.T, dim=1) @ x


class TimeFirstLstm(nn.Module):
    """The batch is read as a sequence: batch_first was forgotten."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 3)

    def forward(self, x):
        return self.lstm(x)[0].flatten(1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return x


class CounterInTraining(Counter):
    def forward(self, x):
        return super().forward(x) if self.training else x


class ZeroHead(nn.Module):
    """Outputs are all zero at first, so no change in an input shows in them."""

    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(6, 3)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.BatchNorm1d(6), VECTORS),
        (nn.BatchNorm1d(2), SIGNALS),
        (nn.BatchNorm2d(2), IMAGES),
        (nn.BatchNorm3d(2), VOLUMES),
        (nn.SyncBatchNorm(2), IMAGES),
        (nn.BatchNorm2d(2, affine=False), IMAGES),
        (nn.BatchNorm2d(2).eval(), IMAGES),
        (nn.LazyBatchNorm2d(), IMAGES),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_batchnorm_is_refused_by_name_with_its_replacement(layer, x):
    model = nn.Sequential(nn.Identity(), layer)
    with pytest.raises(InputError, match=r"'1' mixes.*GroupNorm.*without_batchnorm"):
        require_separate_examples(model, x)


def test_instance_norm_is_refused_only_with_running_statistics():
    with pytest.raises(InputError, match="track_running_stats=False"):
        require_separate_examples(nn.InstanceNorm2d(2, track_running_stats=True), IMAGES)
    require_separate_examples(nn.InstanceNorm2d(2), IMAGES)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (BatchMean(), VECTORS),
        (BatchMeanInTraining(), VECTORS),
        (RunningTotal(), VECTORS),
        (NextOne(), VECTORS),
        (AttentionOverTheBatch(), VECTORS),
        (TimeFirstLstm(), SIGNALS),
        (ZeroHead(BatchMean()), VECTORS),
        (nn.Sequential(BatchMean(), nn.Linear(6, 3)), 1e-4 * VECTORS),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_hidden_mixing_is_found_in_whatever_mode_the_model_comes(layer, x, training):
    with pytest.raises(InputError, match=r"mixes the examples of a batch.*Fix: remove"):
        require_separate_examples(layer.train(training), x)


@pytest.mark.parametrize("layer", [Counter(), CounterInTraining().eval()])
def test_a_buffer_that_remembers_is_refused_by_name(layer):
    with pytest.raises(InputError, match=r"buffer '0\.seen' changed"):
        require_separate_examples(nn.Sequential(layer), VECTORS)


class Diary(nn.Module):
    """Changes its weights in the forward pass, as an embedding with max_norm does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            self.weight += x.sum(0)
        return x


def test_a_parameter_that_remembers_is_refused_by_name():
    with pytest.raises(InputError, match=r"parameter '0\.weight' changed"):
        require_separate_examples(nn.Sequential(Diary()), VECTORS)


def test_a_model_must_return_one_output_for_each_example():
    with pytest.raises(InputError, match="one output for each example"):
        require_separate_examples(nn.Flatten(0), VECTORS)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()), IMAGES),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), VECTORS),
        (nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3)), VECTORS),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)), VECTORS),
        (nn.LSTM(8, 3, batch_first=True), SIGNALS),
    ],
    ids=["GroupNorm", "LayerNorm", "Dropout", "in place", "LSTM"],
)
def test_models_that_keep_examples_apart_are_accepted_and_left_as_they_were(model, x):
    if isinstance(model, nn.LSTM):
        model = nn.Sequential(model, TakeOutput())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    given = x.clone()
    random_state = torch.get_rng_state()
    model.eval()
    require_separate_examples(model, x)
    assert not any(m.training for m in model.modules())
    assert torch.equal(x, given)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


class TakeOutput(nn.Module):
    def forward(self, both):
        return both[0].flatten(1)


MIXING = {"adlm", "published", "published-lifelong", "published-noised"}  # BatchNorm, as written


# Those are for signals and for features: tests/models/test_signals.py.
OTHERS = {"bilstm", "cnn-ig", "cnn-ig-featureless", "sentiment-head"}


@pytest.mark.parametrize("name", sorted(set(names()) - MIXING - OTHERS))
def test_every_registered_network_is_accepted(name):
    model = create(name, (3, 16, 16), 4).train()
    require_separate_examples(model, torch.rand(2, 3, 16, 16))


def test_a_repaired_batchnorm_model_is_accepted():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
    with pytest.raises(InputError):
        require_separate_examples(model, IMAGES)
    require_separate_examples(without_batchnorm(model), IMAGES)


class LimitedExpert(nn.Module):
    """An expert with room for eight examples: the ninth goes without it."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        chosen = x[:, 0] > 0.2
        rank = torch.cumsum(chosen, 0)
        served = (chosen & (rank <= 8)).unsqueeze(1)
        return self.head(torch.where(served, self.expert(x), x))


def test_mixing_that_begins_only_in_a_crowd_is_refused():
    torch.manual_seed(0)
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(LimitedExpert(), torch.rand(4, 4))


# --- scores of very different sizes ------------------------------------------------------------


class Masked(nn.Module):
    """Some scores are masked, as of classes that an example cannot have."""

    def __init__(self, body, masks):
        super().__init__()
        self.body, self.masks = body, masks

    def forward(self, x):
        return self.body(x).masked_fill(self.masks(x), -1e9)


def the_last_class(x):
    return (torch.arange(6) == 5).expand_as(x)


def one_class_of_each_row(x):
    return torch.arange(6) == torch.arange(len(x)).unsqueeze(1) % 4


@pytest.mark.parametrize("masks", [the_last_class, one_class_of_each_row])
def test_a_masked_score_does_not_hide_that_the_others_mix(masks):
    """A tolerance by the largest output would be 1e4."""
    require_separate_examples(Masked(nn.Linear(6, 6), masks), VECTORS)
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(Masked(BatchMeanInTraining(), masks), VECTORS)


# --- mixing that is drawn ----------------------------------------------------------------------

COINS = {
    "torch": lambda: float(torch.rand(())),
    "python": random.random,
    "numpy": np.random.random,
}


class Mixup(nn.Module):
    """At times, every example is averaged with another one."""

    def __init__(self, p, coin):
        super().__init__()
        self.p, self.coin = p, coin

    def forward(self, x):
        if self.training and self.coin() < self.p:
            return 0.5 * x + 0.5 * x.roll(1, 0)
        return x


@pytest.mark.parametrize("coin", COINS)
def test_mixing_that_happens_at_times_is_refused(coin):
    """Also under generators that torch does not seed. At 0.4, seed 0 alone never draws it."""
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(Mixup(0.4, COINS[coin]), VECTORS)


def test_seed_zero_would_not_do():
    torch.manual_seed(0)
    assert float(torch.rand(())) >= 0.4


# --- randomness that examples share ------------------------------------------------------------


class Depth(nn.Module):
    """Stochastic depth: a branch is left out at times, for a row or for a whole pass."""

    def __init__(self, mode, p=0.3, coin=None, zero=False):
        super().__init__()
        self.branch, self.mode, self.p, self.coin = nn.Linear(6, 6), mode, p, coin
        if zero:
            nn.init.zeros_(self.branch.weight), nn.init.zeros_(self.branch.bias)

    def forward(self, x):
        if not self.training:
            return x + self.branch(x)
        if self.coin is not None:
            return x + self.branch(x) * (self.coin() >= self.p)
        shape = (len(x), 1) if self.mode == "row" else (1, 1)
        return x + self.branch(x) * torch.bernoulli(torch.full(shape, 1 - self.p))


class DroppedTable(nn.Module):
    """Dropout on learned positions: one mask for all examples, among masks of their own."""

    def __init__(self):
        super().__init__()
        self.positions, self.drop = nn.Parameter(torch.randn(2, 8)), nn.Dropout(0.2)
        self.body = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.body(x + self.drop(self.positions))


class OneCrop(nn.Module):
    """Augmentation inside the model, the same for the whole batch."""

    def forward(self, x):
        return x.roll(int(torch.randint(0, 6, ())), 1) if self.training else x


SHARED = {
    "one coin": lambda: Depth("batch"),
    "one coin at a branch of zeros": lambda: Depth("batch", zero=True),
    "one coin of python": lambda: Depth("batch", coin=COINS["python"]),
    "one coin of numpy": lambda: Depth("batch", coin=COINS["numpy"]),
    "one coin, then dropout": lambda: nn.Sequential(Depth("batch"), nn.Dropout(0.5)),
    "a faint coin, then dropout": lambda: nn.Sequential(
        Depth("batch"), nn.Linear(6, 40), nn.Dropout(0.9), nn.Linear(40, 3)
    ),
    "one coin and coins by row": lambda: nn.Sequential(Depth("batch"), Depth("row")),
    "one crop": OneCrop,
}


@pytest.mark.parametrize("name", SHARED)
def test_randomness_that_the_examples_of_a_pass_share_is_refused(name):
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"examples of a pass share.*Fix: draw it row by row"):
        require_separate_examples(SHARED[name](), VECTORS)


def test_dropout_on_a_learned_table_is_refused():
    torch.manual_seed(0)
    with pytest.raises(InputError, match=r"examples of a pass share"):
        require_separate_examples(DroppedTable(), SIGNALS)


class OwnGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x):
        return x * torch.rand(x.shape, generator=self.generator)


def test_a_generator_of_its_own_is_refused_as_that():
    with pytest.raises(InputError, match=r"generator of its own.*Fix: draw from torch's"):
        require_separate_examples(OwnGenerator(), VECTORS)


def lora_with_dropout():
    body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))
    return with_lora(body, 2)


OWN = {
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5)), VECTORS),
    "dropout of many inputs, seldom": (lambda: nn.Dropout(0.02), torch.rand(2, 4000)),
    "dropout of nearly all": (lambda: nn.Dropout(0.98), torch.rand(2, 4000)),
    "dropout of signals": (lambda: nn.Dropout1d(0.3), SIGNALS),
    "dropout of maps": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Dropout2d(0.2)), IMAGES),
    "dropout of volumes": (lambda: nn.Dropout3d(0.2), VOLUMES),
    "alpha dropout": (lambda: nn.Sequential(nn.SELU(), nn.AlphaDropout(0.2)), VECTORS),
    "LSTM with dropout between layers": (
        lambda: nn.Sequential(nn.LSTM(8, 5, 3, batch_first=True, dropout=0.4), TakeOutput()),
        SIGNALS,
    ),
    "encoder layer with dropout": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.3, batch_first=True),
        SIGNALS,
    ),
    "adapted, with dropout": (lora_with_dropout, VECTORS),
    "depth by row": (lambda: nn.Sequential(Depth("row"), Depth("row", 0.1)), VECTORS),
    "depth by row, seldom": (lambda: Depth("row", 0.01), VECTORS),
    "depth by row, then dropout": (
        lambda: nn.Sequential(Depth("row"), nn.Dropout(0.5), nn.Linear(6, 3)),
        VECTORS,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_randomness_of_every_examples_own_is_accepted(name):
    torch.manual_seed(1)
    build, x = OWN[name]
    require_separate_examples(build(), x)


class Pretrained(nn.Module):
    """A front that stays in evaluation mode, as `privet.models.Fronted` keeps it."""

    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).requires_grad_(False)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.front(x))

    def train(self, mode=True):
        super().train(mode)
        self.front.eval()
        return self


def test_a_batchnorm_that_is_always_in_evaluation_mode_is_a_fixed_scale():
    model = Pretrained()
    require_separate_examples(model, torch.rand(4, 4))
    assert model.front[1].running_mean.abs().max() == 0


def test_one_that_training_mode_reaches_is_refused_though_it_is_frozen_now():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6).requires_grad_(False), nn.Linear(6, 2))
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(model.eval(), torch.rand(4, 4))


def test_one_without_statistics_of_its_own_is_refused_even_so():
    model = Pretrained()
    model.front[1] = nn.BatchNorm1d(6, track_running_stats=False)
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(model, torch.rand(4, 4))


@pytest.mark.parametrize("lost", ["running_mean", "running_var"])
def test_one_that_lost_its_statistics_is_refused_by_name(lost):
    model = Pretrained()
    setattr(model.front[1], lost, None)
    with pytest.raises(InputError, match="mixes the examples"):
        require_separate_examples(model, torch.rand(4, 4))


def turned_on(layer):
    layer.training = True


def untracked(layer):
    layer.track_running_stats = False


def forgotten(layer):
    layer.running_var = None


@pytest.mark.parametrize("change", [turned_on, untracked, forgotten])
def test_what_is_kept_constant_is_looked_at_in_every_pass(change):
    model = Pretrained().train()
    layers = constant_layers(model)
    assert layers == {model.front[1]}
    with kept_constant(layers):
        model(torch.rand(3, 4))
        torch.func.functional_call(model, dict(model.named_parameters()), torch.rand(3, 4))
        torch.func.vmap(lambda row: model(row[None]))(torch.rand(3, 4))
        change(model.front[1])
        with pytest.raises(InputError, match="came to mix the examples"):
            model(torch.rand(3, 4))


def test_the_check_is_gone_afterwards():
    model = Pretrained().train()
    names = list(model.state_dict())
    with kept_constant(constant_layers(model)):
        assert model.front[1]._forward_pre_hooks
        assert list(model.state_dict()) == names
        pickle.loads(pickle.dumps(copy.deepcopy(model)))(torch.rand(3, 4))
    assert not model.front[1]._forward_pre_hooks
