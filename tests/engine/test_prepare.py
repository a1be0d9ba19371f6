"""make_private: what is checked, what is reserved, what decides the plan."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from privet.data.dataset import LearnedFact, Split
from privet.engine.account import KeptByLead, RunAccount
from privet.engine.origin import Origin
from privet.engine.plan import Plan
from privet.engine.prepare import (
    Extras,
    assemble,
    compiling_pays,
    left_for_training,
    make_private,
)
from privet.engine.ranks import Ranks
from privet.engine.trainer import PrivateTrainer
from privet.errors import BudgetExceeded, InputError
from privet.ledger import Ledger
from privet.models import without_batchnorm
from privet.models.fronted import Fronted
from privet.privacy.accounting import epsilon_of
from privet.privacy.clipping import FastClipper, ReferenceClipper, cross_entropy
from privet.privacy.factorisation import Workload, optimal_coefficients
from privet.privacy.geometry import Geometry
from privet.privacy.randomness import Randomness

# Every record in every step: calibration is then exact and instant.
TARGET = {"epsilon": 8.0, "delta": 1e-3, "batch": 80, "epochs": 4}


@pytest.fixture
def fresh(tmp_path):
    opened = Ledger(tmp_path / "own.db")
    yield opened
    opened.close()


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)


def private(model, data, ledger, **changes):
    return make_private(model, sgd(model), data, ledger=ledger, **(TARGET | changes))


def test_the_whole_plan_is_reserved_within_the_target(fresh, make_data):
    trainer = private(plain(), make_data(), fresh)
    record = fresh.run(trainer.account.run_id)
    assert (record.planned, record.charged) == (4, 0)
    assert record.step_event == trainer.plan.event(1).event
    assert epsilon_of(trainer.plan.event(), 1e-3) <= 8.0
    assert trainer.randomness.secret


def test_the_plan_follows_the_declared_size_and_not_the_records(fresh, make_data, monkeypatch):
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 1.0)
    plans = [
        private(plain(), make_data(n=n, nominal_size=80, name=f"d{n}"), fresh, batch=20).plan
        for n in (60, 80, 81)
    ]
    assert plans[0] == plans[1] == plans[2]
    assert (plans[0].sampling_rate, plans[0].normaliser) == (0.25, 20.0)


def test_training_learns_what_a_line_can_tell_apart(fresh, make_data):
    data = make_data(n=400)
    model = plain()
    trainer = private(model, data, fresh, epsilon=50.0, batch=400, epochs=40)
    for batch in trainer.batches():
        trainer.step(batch)
    scores = model(torch.from_numpy(data.train.x)).argmax(1).numpy()
    assert (scores == data.train.y).mean() > 0.9


def test_the_default_ledger_is_the_one_of_the_users_home(make_data, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVET_HOME", str(tmp_path / "elsewhere"))
    model = plain()
    trainer = make_private(model, sgd(model), make_data(), **TARGET)
    assert trainer.account.ledger.path == tmp_path / "elsewhere" / "ledger.db"
    trainer.account.ledger.close()


@pytest.mark.parametrize(
    ("middle", "kind"),
    [
        (nn.Tanh(), FastClipper),
        (nn.LayerNorm(8), FastClipper),
        (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), ReferenceClipper),
    ],
)
def test_the_clipper_follows_the_model(fresh, make_data, middle, kind):
    trainer = private(nn.Sequential(nn.Linear(4, 8), middle, nn.Linear(8, 2)), make_data(), fresh)
    assert isinstance(trainer._clipper, kind)
    assert trainer._clipper.clip_norm == trainer.plan.clip_norm


def mixing():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def test_a_refused_model_leaves_nothing_reserved(fresh, make_data):
    """Else a user who mends the model would find the budget gone."""
    data = make_data()
    private(plain(), data, fresh).account.settle()
    fresh.cap(data.name, 12.0, 1e-3)
    model = mixing()
    with pytest.raises(InputError, match="without_batchnorm"):
        private(model, data, fresh)
    assert [r.committed for r in fresh.account(data.name).runs] == [0]
    private(without_batchnorm(model), data, fresh)
    with pytest.raises(BudgetExceeded):  # the cap did bind
        private(plain(), data, fresh)


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Passed(nn.Module):
    def forward(self, x):
        return x + x.roll(1, 0)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.sum(0)
        return x


@pytest.mark.parametrize(
    ("layer", "said"),
    [(Centred, "mixes the examples"), (Passed, "mixes the examples"), (Counting, "remembers")],
)
def test_a_model_that_no_list_of_layers_names_is_probed_before_a_reservation(
    fresh, make_data, layer, said
):
    """One example at a time these pass for sound; in a batch a record moves others' gradients."""
    data = make_data()
    private(plain(), data, fresh).account.settle()
    with pytest.raises(InputError, match=said):
        private(nn.Sequential(layer(), nn.Linear(4, 2)), data, fresh)
    assert len(fresh.account(data.name).runs) == 1


def mean_loss(outputs, y):
    return nn.functional.cross_entropy(outputs, y)


def test_a_refused_loss_leaves_nothing_reserved(fresh, make_data):
    data = make_data()
    with pytest.raises(InputError, match='reduction="none"'):
        private(plain(), data, fresh, loss=mean_loss)
    assert not fresh.names()  # nor entered


def test_a_refused_optimiser_leaves_nothing_reserved(fresh, make_data):
    data, model = make_data(), plain()
    foreign = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(InputError, match="not in the model"):
        make_private(model, foreign, data, ledger=fresh, **TARGET)
    assert not fresh.names()


def test_the_check_uses_no_record(fresh, make_data):
    """A model that looks at its inputs sees only made-up ones before the first step."""
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append(x.detach().clone())
            return x

    data = make_data()
    private(nn.Sequential(Watching(), nn.Linear(4, 2)), data, fresh)
    records = {row.tobytes() for row in data.train.x}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inputs of vmap cannot be read, and are the same probe
        plain_inputs = [x for x in seen if not torch._C._functorch.is_functorch_wrapped_tensor(x)]
    assert plain_inputs
    assert all(row.numpy().tobytes() not in records for x in plain_inputs for row in x)


class Jittered:
    views = 2

    def __call__(self, x, generator):
        views = x.repeat_interleave(2, dim=0)
        return views + torch.rand(views.shape, generator=generator)


def kept_views(data, ledger, seed):
    """What a trainer on a frozen front keeps of the records."""
    model = Fronted(nn.Identity(), nn.Linear(4, 2))
    plan = Plan(
        steps=2, sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0, normaliser=80, delta=1e-5
    )
    ledger.register(data.name, unit="example", snapshot="s", rows=[b"0" * 16])
    trainer = assemble(
        model,
        torch.optim.SGD(model.head.parameters(), lr=0.1),
        data,
        plan,
        loss=cross_entropy,
        randomness=Randomness.seeded(seed),
        open_account=lambda: RunAccount.open(ledger, data.name, plan, label="t", private=False),
        extras=Extras(augmentation=Jittered()),
    )
    return trainer._examples.rows(torch.arange(len(data.train)), torch.Generator()).x


def test_views_that_are_kept_follow_the_secret_key(fresh, make_data):
    """The same key repeats them, for resuming; whoever lacks it cannot."""
    data = make_data()
    one, same, other = (kept_views(data, fresh, seed) for seed in (1, 1, 2))
    assert one.shape == (160, 4)
    assert torch.equal(one, same)
    assert not torch.isclose(one, other, atol=1e-5).all(dim=1).any()


def share_of_views(data, rank, size):
    model = Fronted(nn.Identity(), nn.Linear(4, 2))
    plan = Plan(
        steps=2, sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0, normaliser=80, delta=1e-5
    )
    trainer = assemble(
        model,
        torch.optim.SGD(model.head.parameters(), lr=0.1),
        data,
        plan,
        loss=cross_entropy,
        randomness=Randomness.seeded(1),
        open_account=KeptByLead,
        extras=Extras(augmentation=Jittered()),
        ranks=Ranks(rank=rank, size=size),
    )
    units = len(trainer._examples)
    return trainer._examples.rows(torch.arange(units), torch.Generator()).x


def test_the_kept_views_of_two_ranks_are_unrelated(make_data):
    """All records are alike, so a view shows its draw; one more unit would shift them otherwise."""
    alike = Split(x=np.zeros((80, 4), dtype=np.float32), y=np.arange(80) % 2)
    one, other = (share_of_views(make_data(train=alike), rank, 2) for rank in (0, 1))
    assert one.shape == other.shape == (80, 4)
    assert not torch.isclose(one, other, atol=1e-6).any()


DRAWING = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("model", "extras", "users", "draws"),
    [
        (None, Extras(), False, False),
        (DRAWING, Extras(), False, True),
        (None, Extras(augmentation=Jittered()), False, True),
        (Fronted(nn.Identity(), nn.Linear(4, 2)), Extras(augmentation=Jittered()), False, True),
        (None, Extras(contribution=3), True, True),
    ],
    ids=["nothing", "dropout", "views", "kept views", "users"],
)
def test_a_trainer_knows_whether_torch_draws_for_it(fresh, make_data, model, extras, users, draws):
    records = make_data().train
    grouped = Split(x=records.x, y=records.y, units=np.arange(80) // 10)
    facts = {"train": grouped, "unit": "user", "nominal_size": 8} if users else {}
    model = plain() if model is None else model
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    trainer = make_private(
        model, optimizer, make_data(**facts), ledger=fresh, extras=extras,
        **(TARGET | ({"batch": 8} if users else {})),
    )  # fmt: skip
    assert trainer.draws_by_torch is draws


def test_a_trainer_knows_what_it_was_made_for(fresh, make_data):
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=2.0),))
    trainer = private(plain(), data, fresh)
    assert trainer.origin == Origin.of(data)


def test_what_learning_facts_cost_is_taken_off_the_target(make_data):
    learned = (LearnedFact(name="bounds", epsilon=0.5), LearnedFact(name="size", epsilon=0.25))
    assert left_for_training(3.0, make_data(learned=learned)) == 2.25
    assert left_for_training(3.0, make_data()) == 3.0


def test_facts_that_cost_everything_leave_nothing_to_train_with(make_data):
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=3.0),))
    with pytest.raises(InputError, match="nothing is left for training"):
        left_for_training(3.0, data)


def test_training_and_learned_facts_together_keep_the_target(fresh, make_data):
    data = make_data(learned=(LearnedFact(name="bounds", epsilon=2.0),))
    trainer = private(plain(), data, fresh)
    assert epsilon_of(trainer.plan.event(), 1e-3) + 2.0 <= 8.0


CYCLIC = {"sampler": "cyclic-poisson", "batch": 20}


@pytest.mark.parametrize(
    ("kind", "options", "momentum"),
    [
        (torch.optim.SGD, {"momentum": 0.9}, 0.9),
        (torch.optim.SGD, {}, 0.0),
        (torch.optim.Adam, {}, 0),
    ],
)
def test_a_number_of_bands_gives_the_noise_that_suits_the_optimiser(
    fresh, make_data, monkeypatch, kind, options, momentum
):
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 2.0)
    model = plain()
    optimizer = kind(model.parameters(), lr=0.1, **options)
    trainer = make_private(
        model, optimizer, make_data(), ledger=fresh, bands=4, **(TARGET | CYCLIC)
    )
    assert (trainer.plan.steps, trainer.plan.cycle) == (16, 4)
    assert trainer.plan.bands == optimal_coefficients(Workload(steps=16, momentum=momentum), 4)


def test_coefficients_are_taken_as_they_are_and_one_band_is_independent_noise(
    fresh, make_data, monkeypatch
):
    monkeypatch.setattr("privet.engine.plan.calibrate", lambda *_, **__: 2.0)
    assert private(plain(), make_data(), fresh, bands=(0.8, 0.5), **CYCLIC).plan.bands == (0.8, 0.5)
    assert private(plain(), make_data(), fresh, bands=1, **CYCLIC).plan.bands == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bands": 0}, "bad bands: got 0"),
        ({"bands": 2.0}, "bad bands: got 2.0"),
        ({"bands": 8}, "--sampler cyclic-poisson, or --bands 1"),
        ({"bands": 8, **CYCLIC}, "--batch at most 10"),
        ({"extras": {"ema": 0.9}}, "write privet.Extras"),
        ({"extras": Extras(precision="fp8")}, "'fp8', expected one of float32, tf32, bf16"),
        ({"extras": Extras(precision="tf32")}, "no TF32 here: got device cpu"),
        ({"epsilon": "3"}, "bad epsilon: got '3'"),
        ({"clip_norm": "1"}, "bad clip_norm: got '1'"),
        ({"ledger": "ledger.db"}, "privet.Ledger"),
    ],
)
def test_a_bad_argument_is_refused_before_the_data_are_entered(fresh, make_data, changes, said):
    with pytest.raises(InputError) as caught:
        private(plain(), make_data(), **({"ledger": fresh} | changes))
    assert said in str(caught.value)
    assert not fresh.names()


def test_a_user_brings_as_many_records_as_with_train(fresh, make_data):
    """At most 8 unless another number is asked for; each step clips their mean."""
    records = make_data().train
    users = Split(x=records.x, y=records.y, units=np.arange(80) // 10)
    data = make_data(train=users, unit="user", nominal_size=8)
    assert private(plain(), data, fresh, batch=8).contribution == 8
    assert private(plain(), data, fresh, batch=8, extras=Extras(contribution=3)).contribution == 3


def test_extras_that_mean_nothing_are_refused():
    with pytest.raises(InputError, match="bad contribution"):
        Extras(contribution=0)
    with pytest.raises(InputError, match=r"Geometry\(name\)"):
        Extras(geometry="per-layer")
    assert Extras(geometry=Geometry("per-layer")).geometry.name == "per-layer"
    with pytest.raises(InputError, match="bad compiled: got 'no'"):
        Extras(compiled="no")


def test_a_model_with_too_few_outputs_leaves_nothing_reserved(fresh, make_data):
    data = make_data(classes=("a", "b", "c"))
    private(nn.Linear(4, 3), data, fresh)
    with pytest.raises(InputError, match="end the model with 3 outputs"):
        private(plain(), data, fresh)
    assert len(fresh.account(data.name).runs) == 1


# --- precision and compiling -----------------------------------------------------------------


@pytest.fixture
def without_noise(monkeypatch):
    """The update is then the clipped sum itself."""
    monkeypatch.setattr(PrivateTrainer, "_with_noise", lambda self, total, step: total.double())


def first_update(trainer):
    """Of all records, as many clip norms as the sum has; and the records in the order drawn."""
    batch = next(trainer.batches())
    trainer.step(batch)
    update = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    return update * trainer.plan.normaliser, batch.indices


def by_hand(model, data, indices, clip_norm, *, half):
    """Each record's own backward pass, clipped, added up."""
    total = 0.0
    for i in indices:
        x, y = torch.from_numpy(data.train.x[i : i + 1]), torch.tensor([data.train.y[i]])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradient = torch.cat([part.flatten() for part in parts])
        total = total + gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("clip_norm", [0.1, 10.0], ids=["all clipped", "none clipped"])
def test_bf16_is_what_it_says_and_the_update_is_its_clippers_sum(fresh, make_data, clip_norm):
    data, model = make_data(), plain()
    extras = Extras(precision="bf16")
    trainer = private(model, data, fresh, clip_norm=clip_norm, extras=extras)
    assert trainer.precision == "bf16"
    everyone = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
    own = trainer._clipper.clipped_sum(*everyone)
    halved, full = (by_hand(model, data, range(80), clip_norm, half=half) for half in (True, False))
    found, indices = first_update(trainer)
    assert sorted(indices.tolist()) == list(range(80))
    assert (found - own).norm() < 1e-6 * own.norm()
    # 2^-8 is the price of a norm; half precision itself is seen against float32
    assert (found - halved).norm() < 2.0**-7 * halved.norm()
    assert (found - full).norm() > 1e-4 * full.norm()


def test_a_model_that_only_the_reference_can_clip_is_not_coarsened_in_silence(fresh, make_data):
    """It would run in float32, slowly, and the card would name another precision than asked."""
    odd = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    with pytest.raises(InputError, match=r"cannot be clipped in bf16.*Fix: use float32"):
        private(odd, make_data(), fresh, extras=Extras(precision="bf16"))
    assert not fresh.names()
    assert private(odd, make_data(), fresh).precision == "float32"


@pytest.fixture
def as_traced(monkeypatch):
    """The traced graph as it is: what `torch.compile` makes of it takes half a minute."""
    monkeypatch.setattr("privet.engine.summing.by_torch", lambda graph: graph)


def fronted():
    torch.manual_seed(0)
    return Fronted(nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))


def updated(model, data, ledger, **extras):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    trainer = make_private(model, optimizer, data, ledger=ledger, extras=Extras(**extras), **TARGET)
    return trainer, first_update(trainer)[0]


@pytest.mark.usefixtures("as_traced", "without_noise")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("model", [plain, fronted])
def test_a_compiled_step_gives_the_same_update(fresh, make_data, model, precision):
    """On what is trained: behind a front, the probe is what the front makes of it."""
    data = make_data()
    trainer, compiled = updated(model(), data, fresh, compiled=True, precision=precision)
    assert (trainer._summing.fixed is not None, trainer.note) == (True, "")
    usual, plainly = updated(model(), data, fresh, compiled=False, precision=precision)
    assert (usual._summing.fixed, usual.note) == (None, "")
    assert (compiled - plainly).norm() < 1e-6 * plainly.norm()


@pytest.mark.usefixtures("without_noise")
def test_so_does_one_that_pytorch_compiled(fresh, make_data):
    data = make_data()
    trainer, compiled = updated(plain(), data, fresh, compiled=True)
    assert (trainer._summing.fixed is not None, trainer.note) == (True, "")
    _, plainly = updated(plain(), data, fresh)
    assert (compiled - plainly).norm() < 1e-6 * plainly.norm()


@pytest.mark.usefixtures("without_noise")
def test_what_cannot_be_compiled_runs_as_it_is_and_says_why(fresh, make_data, monkeypatch):
    def fails(graph):
        raise RuntimeError("no compiler\nhere")

    monkeypatch.setattr("privet.engine.summing.by_torch", fails)
    trainer, found = updated(plain(), make_data(), fresh, compiled=True)
    assert trainer.note == "not compiled: RuntimeError: no compiler"
    assert torch.equal(found, updated(plain(), make_data(), fresh)[1])
    odd = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    trainer, _ = updated(odd, make_data(), fresh, compiled=True)
    assert trainer.note.startswith("torch.func for 0 (ParametrizedLinear)")
    assert "; not compiled: " in trainer.note
    assert trainer.note.endswith(trainer._clipper.note)


@pytest.mark.parametrize(
    ("device", "steps", "pays"),
    [("cuda", 2000, True), ("cuda", 1999, False), ("cpu", 10**6, False)],
)
def test_compiling_pays_for_long_runs_on_a_gpu(device, steps, pays):
    plan = Plan(
        steps=steps, sampling_rate=1.0, clip_norm=1.0, noise_multiplier=1.0, normaliser=80,
        delta=1e-5,
    )  # fmt: skip
    assert compiling_pays(plan, torch.device(device)) is pays


@pytest.mark.parametrize("pays", [True, False])
def test_where_it_pays_unless_the_user_says_otherwise(fresh, make_data, monkeypatch, pays):
    monkeypatch.setattr("privet.engine.prepare.compiling_pays", lambda plan, device: pays)
    for asked, decided in ((None, pays), (True, True), (False, False)):
        trainer = private(plain(), make_data(), fresh, extras=Extras(compiled=asked))
        assert trainer._summing.compiled is decided
        assert trainer._summing.probe is not None  # on a GPU a step of one size comes with it


class Scaled(nn.Module):
    """A frozen BatchNorm that counts as a fixed scale, unless the forward pass turns it on."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, affine=False, momentum=0.0)
        self.head = nn.Linear(4, 2)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def turned_on(self, x):
        return False

    def forward(self, x):
        self.norm.train(self.turned_on(x))
        found = self.norm(x)
        self.norm.eval()
        return self.head(found)


class MixingInCrowds(Scaled):
    def turned_on(self, x):
        return self.training and len(x) > 100


class MixingWithGradients(Scaled):
    def turned_on(self, x):
        return torch.is_grad_enabled()


def test_a_fixed_scale_is_trained_privately_and_released_without_the_check(fresh, make_data):
    model = Scaled()
    trainer = private(model, make_data(), fresh)
    for batch in trainer.batches():
        trainer.step(batch)
    assert trainer.next_step == 4
    assert not trainer.released_model().norm._forward_pre_hooks


def test_mixing_that_no_probe_sees_is_refused_before_anything_noisy_is_used(fresh, make_data):
    """Probes are smaller than its crowd."""
    model = MixingInCrowds()
    trainer = private(model, make_data(n=400), fresh, batch=400)
    before = model.head.weight.detach().clone()
    with pytest.raises(InputError, match="came to mix the examples"):
        trainer.step(next(trainer.batches()))
    assert trainer.next_step == 0
    assert torch.equal(model.head.weight, before)
    assert not model.norm._forward_pre_hooks


def test_mixing_with_gradients_alone_is_refused_and_leaves_nothing_reserved(fresh, make_data):
    data = make_data()
    with pytest.raises(InputError, match="came to mix the examples"):
        private(MixingWithGradients(), data, fresh)
    assert data.name not in fresh.names()


class MixingFront(Scaled):
    """As a front, which sees the records once, before the first step."""

    def forward(self, x):
        self.norm.train(len(x) > 100)
        found = self.norm(x)
        self.norm.eval()
        return found


def test_a_front_that_mixes_in_crowds_is_refused(fresh, make_data):
    data = make_data(n=400)
    front = MixingFront().requires_grad_(False)
    with pytest.raises(InputError, match="came to mix the examples"):
        private(Fronted(front, nn.Linear(4, 2)), data, fresh, batch=400)
    assert data.name not in fresh.names()


def test_a_norm_without_its_variance_is_an_input_error(fresh, make_data):
    model = Scaled()
    model.norm.running_var = None
    with pytest.raises(InputError):
        private(model, make_data(), fresh)


class ScaledAsItIs(Scaled):
    """Nothing but `train` sets the mode of its BatchNorm; new ones are in training mode."""

    def forward(self, x):
        return self.head(self.norm(x))


def test_a_scale_that_is_not_yet_fixed_is_refused(fresh, make_data):
    """A private step takes the model in the mode that it is in."""
    model, data = ScaledAsItIs(), make_data()
    with pytest.raises(InputError, match=r"call model\.train\(\) first"):
        private(model, data, fresh)
    trainer = private(model.train(), data, fresh)
    model.norm.train()  # and later on as well
    with pytest.raises(InputError, match="got training mode"):
        trainer.step(next(trainer.batches()))
    model.train()
    trainer.step(next(trainer.batches()))
    assert trainer.next_step == 1
