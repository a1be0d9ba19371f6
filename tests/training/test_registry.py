"""`train`: what it is given."""

import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from privet.errors import InputError
from privet.training.registry import FOUND, describe_methods, find_method


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("digits", r"privet\.data\.load\('digits'\)"),
        ("no such set", r"privet\.data\.load\('no such set'\)"),
        (TensorDataset(torch.zeros(3, 2), torch.zeros(3)), "type TensorDataset"),
        (None, "got None"),
    ],
)
def test_what_is_no_dataset_is_refused(data, said):
    with pytest.raises(InputError, match=said):
        privet.train("dpsgd", data, epsilon=3.0)


def test_a_model_of_ones_own_belongs_into_ones_own_loop(make_data):
    with pytest.raises(InputError, match=r"privet\.make_private"):
        privet.train("dpsgd", make_data(), epsilon=3.0, model=torch.nn.Linear(4, 2))


def test_a_path_is_no_ledger(make_data):
    with pytest.raises(InputError, match=r"privet\.Ledger\(path\)"):
        privet.train("dpsgd", make_data(), epsilon=3.0, ledger="ledger.db")


@pytest.mark.parametrize(("name", "said"), [("dpsdg", "did you mean 'dpsgd'"), (3, "got 3")])
def test_an_unknown_method_is_refused(name, said):
    with pytest.raises(InputError, match=said):
        find_method(name)


def test_a_private_method_needs_a_target(make_data):
    with pytest.raises(InputError, match=r"no privacy target.*as in --epsilon 3"):
        privet.train("dpsgd", make_data())


@pytest.mark.parametrize(
    ("method", "analysis", "option", "said"),
    [
        ("stobatch", None, "psi", "with it: stobatch --analysis paper. Fix: name such an analysis"),
        ("stobatch", "paper", "hidden_noise", "with it: stobatch --analysis sound. Fix: name such"),
        ("dpsgd", None, "xi", "stobatch --analysis sound.*dpal.*Fix: leave it out"),
        ("dpsgd", None, "ksi", "unknown setting of 'dpsgd': got ksi"),
    ],
)
def test_whose_a_setting_is_is_said(make_data, method, analysis, option, said):
    with pytest.raises(InputError, match=said):
        privet.train(method, make_data(), epsilon=3.0, analysis=analysis, **{option: 1.0})


@pytest.mark.parametrize(
    ("method", "analysis", "fix"),
    [
        ("stobatch-fm", None, "privet train stobatch, or dpsgd"),
        ("stobatch", "paper", "leave --analysis paper out, or privet train dpsgd"),
        ("dpal", "paper", "leave --analysis paper out, or privet train dpsgd"),
    ],
)
def test_what_needs_images_says_so(make_data, method, analysis, fix):
    """And does not send the user to a network that it cannot take either."""
    with pytest.raises(InputError, match="is for images") as caught:
        privet.train(method, make_data(), epsilon=3.0, analysis=analysis)
    assert str(caught.value).endswith(f"Fix: {fix}")


def test_what_a_run_finds_itself_is_not_offered(make_data):
    every = [v for method in describe_methods() for v in method.analyses.values()]
    options = set().union(*(variant.options for variant in every))
    assert {name for name in options if name.endswith(("_digest", "_data", "_spent"))} < FOUND
    assert options > FOUND
    with pytest.raises(InputError, match="expected some of") as caught:
        privet.train("dpsgd", make_data(), epsilon=3.0, ksi=1.0)
    assert "public_attacker" in str(caught.value)
    assert "attacker_data" not in str(caught.value)


@pytest.mark.parametrize(("method", "usual"), [("dpsgd", 3), ("stobatch-ldp", 20)])
def test_a_target_is_suggested_at_which_the_method_learns(make_data, method, usual):
    with pytest.raises(InputError, match=f"no privacy target.*as in --epsilon {usual};"):
        privet.train(method, make_data())
    with pytest.raises(InputError, match=f"bad epsilon: got 0.*Fix: try {usual}$"):
        privet.train(method, make_data(), epsilon=0.0)


def test_methods_say_whether_they_are_private():
    private = {m.name: m.under(None).private for m in describe_methods()}
    assert private["dpsgd"]
    assert not private["plain"]


def test_an_analysis_that_a_method_has_not_is_refused(make_data):
    with pytest.raises(InputError, match=r"no such analysis.*one of sound"):
        privet.train("dpsgd", make_data(), epsilon=3.0, analysis="paper")
