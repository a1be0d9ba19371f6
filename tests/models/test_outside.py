"""Networks of other packages, which may be absent or broken."""

import sys

import pytest
import torch

from privet.errors import FaultyEnvironment, InputError
from privet.models.outside import PACKAGES, outside_network


@pytest.mark.parametrize("package", PACKAGES)
def test_an_absent_package_is_named_with_the_command_that_installs_it(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FaultyEnvironment, match=f"pip install {package}"):
        outside_network(package, "resnet18", (3, 32, 32), 10)


def test_a_package_that_was_made_for_another_torch_is_told_in_one_line(monkeypatch, tmp_path):
    broken = "raise RuntimeError('operator torchvision::nms does not exist')"
    (tmp_path / "torchvision.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    with pytest.raises(FaultyEnvironment, match="does not work: got operator torchvision::nms"):
        outside_network("torchvision", "resnet18", (3, 32, 32), 10)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_network_of_theirs(package):
    pytest.importorskip(package, reason=f"{package} is no part of the project")
    network = outside_network(package, "resnet18", (3, 32, 32), 7).eval()
    with torch.no_grad():
        assert network(torch.rand(2, 3, 32, 32)).shape == (2, 7)
    with pytest.raises(InputError, match=f"{package} has no such image classifier: got 'resnet1'"):
        outside_network(package, "resnet1", (3, 32, 32), 7)


def test_networks_of_timm_take_any_number_of_channels():
    pytest.importorskip("timm", reason="timm is no part of the project")
    with torch.no_grad():
        scores = outside_network("timm", "resnet18", (1, 32, 32), 7).eval()(
            torch.rand(2, 1, 32, 32)
        )
    assert scores.shape == (2, 7)
