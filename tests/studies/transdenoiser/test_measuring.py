"""Whom attackers know, and what is judged: on networks whose answers are known."""

import pytest
import torch
from torch import nn

from privet.models.denoised import Denoised
from privet.release import Release
from privet.studies.robust_private.protocol import Protocol, chosen_examples
from privet.studies.transdenoiser import measuring
from privet.studies.transdenoiser.measuring import Laboratory

WAY = torch.tensor([1.0, 0.0, 0.0, 0.0])  # across the border of the classifier, in length one


class Halfspace(nn.Module):
    """Class 1 where the first feature is above a half."""

    def forward(self, x):
        along = x @ WAY - 0.5
        return torch.stack([-along, along], 1)


class Mirror(nn.Module):
    def forward(self, x):
        return 1 - x


class Shift(nn.Module):
    """Away from class 0."""

    def forward(self, x):
        return x + 0.3 * WAY


@pytest.fixture
def laboratory(make_data, monkeypatch):
    """Of a denoiser before the halfspace, with hardly any noise."""

    def make(denoiser, *, sizes=(0.45,), attacks=("ifgsm",), trained=1e-6, scale=0.25, **data):
        model = Halfspace() if denoiser is None else Denoised(denoiser, Halfspace())
        config = {} if trained is None else {"sigma": trained}
        release = Release(
            model=model,
            config={"shape": [4], "classes": ["no", "yes"], "bounds": {}},
            trust={"provenance": {"config": config}},
        )
        monkeypatch.setattr(measuring.Release, "load", lambda _: release)
        protocol = Protocol(
            attacks=attacks, norm="l2", sizes=sizes, steps=10, scale=scale, radii=(0.1,), n=200
        )
        made = make_data(**data)
        return Laboratory(data=made, protocol=protocol, device=torch.device("cpu"))

    return make


def heard(_):
    pass


def test_the_paper_s_attacker_knows_the_classifier_alone(laboratory, tmp_path):
    """Behind a mirror everything is wrong, and fooling the classifier makes it right."""
    mirrored = laboratory(Mirror(), sizes=(0.8,), attacks=("fgsm", "ifgsm", "mim", "pgd"))
    found, arrays = mirrored.crafted(tmp_path, heard)
    assert found["alone"]
    assert found["clean_accuracy"] == found["quiet_accuracy"] == 0.0
    assert [one["accuracy"] for one in found["attacks"]] == [[1.0]] * 4
    assert found["robust_accuracy"] == [1.0]
    assert arrays["holds"].shape == (4, 1, 20)


def test_the_other_attacker_goes_through_the_denoiser(laboratory, tmp_path):
    """Two mirrors are none: the whole is right, and falls to who knows it."""
    found, _ = laboratory(nn.Sequential(Mirror(), Mirror()), sizes=(0.05, 0.8)).attacked(
        tmp_path, heard
    )
    assert found["clean_accuracy"] == 1.0
    assert found["robust_accuracy"] == [1.0, 0.0]
    assert found["random_classifier"]


def test_all_steps_are_taken_however_early_the_classifier_gives_in(laboratory, tmp_path):
    """The images of class 1 are 0.4 from its border and 0.7 from that of the whole."""
    lab = laboratory(Shift(), sizes=(0.6, 0.85))
    _, arrays = lab.crafted(tmp_path, heard)
    _, y = chosen_examples(lab.data, None)
    ones = arrays["holds"][0][:, (y == 1).numpy()]
    assert ones[0].all()
    assert not ones[1].any()


def test_without_a_denoiser_the_attacker_knows_the_whole(laboratory, tmp_path):
    found, _ = laboratory(None, sizes=(0.2, 0.6)).crafted(tmp_path, heard)
    assert not found["alone"]
    assert found["scale"] == 1e-6
    assert found["robust_accuracy"] == [1.0, 0.0]


def test_one_pass_has_the_noise_of_the_study_or_of_the_denoiser(laboratory, tmp_path):
    """Noise of 100 makes it a coin; certificates are of the same noise."""
    reach = Protocol(scale=0.25, n=200).reach
    for trained, scale in ((None, 100.0), (100.0, 0.25)):
        lab = laboratory(Shift(), trained=trained, scale=scale, n=2000)
        found, _ = lab.crafted(tmp_path, heard)
        assert found["scale"] == 100.0
        assert found["quiet_accuracy"] > found["clean_accuracy"]
        certified, _ = lab.certified(tmp_path, heard)
        assert certified["curve"][-1]["radius"] == pytest.approx(400 * reach)
