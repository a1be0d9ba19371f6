"""Partners by a network: what they are, what they count, what must be said about the network."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet.engine.adversary import require_adversary
from privet.errors import InputError
from privet.ledger import Ledger
from privet.models import create
from privet.models.attacked import Attacked
from privet.models.perturbers import Perturber, create_perturber
from privet.release import Release
from privet.training import dpsgd
from privet.training.adversarial import Madry
from privet.training.adversarial_network import ByNetwork
from privet.training.local_records import LocalSettings
from privet.training.plain import PlainSettings
from privet.training.registry import METHODS
from privet.training.settings import Settings
from privet.verification import verify
from privet.verification.fixed_parts import check_fixed_parts

sys.path.insert(0, str(Path(__file__).parents[1]))
from made_up_images import image_data

SHAPE = (1, 8, 8)
STATEMENT = "trained on made-up public images"
QUICK = {"epsilon": 3.0, "epochs": 2, "batch": 20, "model": "linear", "adversarial_size": 0.2}


class KilledError(Exception):
    """Instead of a kill."""


def images(name, seed, n=100):
    """Upright or lying bright lines."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.int64)
    x = rng.uniform(0, 0.2, size=(n, *SHAPE)).astype(np.float32)
    at = rng.integers(1, 7, n)
    for i in range(n):
        x[(i, 0, at[i]) if y[i] else (i, 0, slice(None), at[i])] = 0.9
    return image_data(name, x, y, ("upright", "across"))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A public classifier, a network against it, and the ledger that knows both."""
    folder = tmp_path_factory.mktemp("networks")
    ledger, public = Ledger(folder / "ledger.db"), images("public", 0)
    privet.train("plain", public, model="linear", epochs=5, out=folder / "h", ledger=ledger)
    privet.train(
        "ain", public, classifier=str(folder / "h"), perturber="ain-4", bounds="0.2", epochs=2,
        out=folder / "ain", ledger=ledger,
    )  # fmt: skip
    return folder


@pytest.fixture
def ledger(house):
    return Ledger(house / "ledger.db")


def private(house, ledger, data=None, **changes):
    asked = QUICK | {"adversarial": "ain", "attacker": str(house / "ain")}
    asked |= {"public_attacker": STATEMENT} | changes
    return privet.train("dpsgd", data or images("private", 1), ledger=ledger, **asked)


def network(seed=0):
    perturber = create_perturber("ain-4", SHAPE, 2, init_seed=seed)
    return Attacked([perturber.eval()], [0.2], create("linear", SHAPE, 2), SHAPE).eval()


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def batch(n=6):
    x = torch.rand(n, *SHAPE, generator=seeded(7))
    return x, torch.arange(n) % 2


def test_every_row_is_followed_by_the_partner_that_the_network_makes_of_it():
    x, y = batch()
    made = ByNetwork(network=network(), size=0.2)(None, x, y, seeded())
    assert torch.equal(made[0::2], x)
    assert torch.equal(made[1::2], network().perturbed(x, y, 0.2, seeded()))
    assert 0 < (made[1::2] - x).abs().max() <= 0.2 + 2**-24


def test_in_the_mixture_a_partner_is_found_against_the_model_as_it_is():
    x, y = batch()
    scores = create("linear", SHAPE, 2, init_seed=5)
    also = Madry(size=0.2, steps=3)
    made = ByNetwork(network=network(), size=0.2, also=also)(scores, x, y, seeded())
    generator = seeded()
    assert torch.equal(made[1::3], network().perturbed(x, y, 0.2, generator))
    assert torch.equal(made[2::3], also(scores, x, y, generator))


@pytest.mark.parametrize(
    ("weight", "also", "shares"),
    [
        (1.0, None, (0.5, 0.5)),
        (3.0, None, (0.25, 0.75)),
        (1.0, Madry(size=0.1), (0.5, 0.25, 0.25)),
    ],
)
def test_partners_count_lambda_together(weight, also, shares):
    assert ByNetwork(network=network(), size=0.1, weight=weight, also=also).shares == shares


class Mixing(Perturber):
    """Looks at the whole batch."""

    def forward(self, x, labels, generator=None):
        return x - x.mean(0, keepdim=True)


def test_a_network_that_mixes_rows_is_refused():
    model, probe = create("linear", SHAPE, 2), batch()
    require_adversary(ByNetwork(network=network(), size=0.2), model, probe)
    mixing = Attacked([Mixing()], [0.2], create("linear", SHAPE, 2), SHAPE)
    with pytest.raises(InputError, match="the adversary mixes examples"):
        require_adversary(ByNetwork(network=mixing, size=0.2), model, probe)


@pytest.fixture(scope="module")
def trained(house):
    private(house, Ledger(house / "ledger.db"), out=house / "trained")
    return house / "trained"


def test_a_private_run_states_the_network_as_public_and_rests_on_that(trained, ledger):
    release = Release.load(trained)
    (part,) = release.trust["fixed_parts"]
    assert part["part"] == "network that attacks"
    assert part["statement"] == STATEMENT
    assert part["data"] == ["public"]
    assert release.privacy.epsilon <= 3.0
    assert any(STATEMENT in assumption for assumption in release.privacy.assumptions)
    assert verify(trained, ledger=ledger).ok


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"public": False}, "stated otherwise than was said"),
        ({"public": False}, "may have seen the records"),
        ({"statement": "found somewhere"}, "not the one that was made"),
        ({"digest": "0" * 64}, "not the one that was asked for"),
        ({"data": ["private"]}, "is called public, and was made of 'private'"),
        (None, "the network that attacks is not named"),
    ],
)
def test_a_card_that_says_otherwise_fails(trained, changed, said):
    trust = dict(Release.load(trained).trust)
    (good,) = check_fixed_parts(trained, trust)
    assert good.ok
    part = trust.pop("fixed_parts")[0]
    if changed is not None:
        trust["fixed_parts"] = [part | changed]
    (bad,) = check_fixed_parts(trained, trust)
    assert not bad.ok
    assert said in bad.detail


def test_a_network_that_these_records_had_a_part_in_is_not_public(house, ledger):
    with pytest.raises(InputError, match="the network that attacks is not public"):
        private(house, ledger, data=images("public", 0))


def test_adlm_holds_the_statement_against_the_card_too(house, ledger):
    asked = {"adversarial": "ain", "attacker": str(house / "ain"), "public_attacker": STATEMENT}
    with pytest.raises(InputError, match="the network that attacks is not public"):
        privet.train("adlm", images("public", 0), epsilon=3.0, ledger=ledger, **asked)


def test_behind_randomised_records_no_network_is_taken(house):
    with pytest.raises(InputError, match="cannot follow their randomisation"):
        LocalSettings(
            epsilon=20.0, pool=0, adversarial="ain", attacker=str(house / "ain"),
            public_attacker=STATEMENT,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        (method.name, variant)
        for method in METHODS.values()
        for variant in method.analyses.values()
        if "DP, proved" in variant.promises
    ],
)
def test_whatever_is_proved_says_where_the_network_is_from_or_takes_none(name, variant):
    asked = {"epsilon": 3.0, "adversarial": "ain", "attacker": "runs/ain"}
    if "classifier" in variant.options:
        asked |= {"classifier": "runs/h", "public_classifier": STATEMENT}
    with pytest.raises(InputError):
        variant.settings(**asked)


def test_a_private_run_needs_a_word_about_the_network(house):
    with pytest.raises(InputError, match="no word about where it is from"):
        Settings(epsilon=3.0, adversarial="ain", attacker=str(house / "ain"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"adversarial": "ain"}, "go together: got --adversarial ain, no --attacker"),
        ({"attacker": "runs/ain"}, "go together: got --adversarial none, --attacker 'runs/ain'"),
        ({"adversarial": "madry", "attacker": "runs/ain"}, "go together"),
        ({"public_attacker": "x"}, "a statement about no network"),
        ({"adversarial": "ain", "attacker": "runs/ain", "adversarial_norm": "l2"}, "one norm"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(asked, said):
    with pytest.raises(InputError, match=said) as refused:
        PlainSettings(**asked)
    assert "\n" not in str(refused.value)


def test_a_network_for_other_images_is_refused(house, ledger):
    x = np.zeros((20, 1, 9, 9), dtype=np.float32)
    larger = image_data("larger", x, np.arange(20) % 2, ("upright", "across"))
    with pytest.raises(InputError, match="attacks other inputs"):
        private(house, ledger, data=larger)


def test_a_network_that_changed_meanwhile_stops_a_resumed_run(house, ledger, tmp_path):
    def kill(trainer):
        if trainer.next_step == 3:
            raise KilledError

    shutil.copytree(house / "ain", tmp_path / "ain")
    data, run = images("private", 1), tmp_path / "run"
    asked = {"attacker": str(tmp_path / "ain"), "out": run, "checkpoint_every": 1}
    with pytest.raises(KilledError):
        private(house, ledger, data, watch=kill, **asked)
    shutil.rmtree(tmp_path / "ain")
    other = images("public", 0)
    privet.train(
        "ain", other, classifier=str(house / "h"), perturber="ain-4", bounds="0.2", epochs=1,
        init_seed=1, out=tmp_path / "ain", ledger=ledger,
    )  # fmt: skip
    with pytest.raises(InputError, match="changed since the run began"):
        dpsgd.resume(run, data, ledger=ledger)


def test_a_killed_run_ends_as_it_would_have(house, ledger, tmp_path):
    def kill(trainer):
        if trainer.next_step == 4:
            raise KilledError

    data = images("private", 1)
    whole = private(house, ledger, data, noise_seed=1, out=tmp_path / "whole")
    with pytest.raises(KilledError):
        private(
            house, ledger, data, noise_seed=1, watch=kill, out=tmp_path / "cut", checkpoint_every=3
        )
    again = dpsgd.resume(tmp_path / "cut", data, ledger=ledger)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_step_follows_the_mean_gradient_of_rows_and_partners(house, ledger, tmp_path):
    data = images("private", 1, n=40)
    privet.train(
        "ain", images("public", 0), classifier=str(house / "h"), bounds="0.2", epochs=1,
        perturber="ain-4-without-noise", out=tmp_path / "still", ledger=ledger,
    )  # fmt: skip
    release = privet.train(
        "plain", data, model="linear", epochs=1, batch=40, momentum=0.0, schedule="constant",
        learning_rate=0.5, adversarial="ain", attacker=str(tmp_path / "still"),
        adversarial_size=0.2, ledger=ledger,
    )  # fmt: skip
    expected = create("linear", SHAPE, 2)
    x, y = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
    partners = Release.load(tmp_path / "still").model.eval().perturbed(x, y, 0.2).detach()
    both = [torch.nn.functional.cross_entropy(expected(rows), y) for rows in (x, partners)]
    (sum(both) / 2).backward()
    for found, parameter in zip(release.model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(found, parameter - 0.5 * parameter.grad, atol=1e-6)
        assert not torch.allclose(found, parameter, atol=1e-4)
