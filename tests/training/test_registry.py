"""`train`: what it is given."""

import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from privet.errors import InputError
from privet.training.registry import describe_methods, find_method


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


def test_methods_say_whether_they_are_private():
    assert {m.name: m.private for m in describe_methods()} == {"dpsgd": True, "plain": False}
