"""Cells and their settings."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from denoiser_study import planned

from privet.data import load
from privet.errors import InputError
from privet.studies.transdenoiser.contenders import CONTENDERS
from privet.studies.transdenoiser.known import SETTINGS


def by_name(cells):
    return {cell.name: cell for cell in cells}


def test_one_classifier_stands_behind_the_denoisers_of_all_seeds(tmp_path):
    cells = by_name(planned(tmp_path, ("td-start", "td-sliced"), epsilons=(1.0, 3.0), seeds=(3, 4)))
    assert list(cells) == [
        "classifier-seed0", "public-denoiser-seed3", "public-denoiser-seed4",
        *(f"{n}-epsilon{e}-seed{s}" for n in ("td-start", "td-sliced")
          for e in (1.0, 3.0) for s in (3, 4)),
    ]  # fmt: skip
    first = str(tmp_path / "cells" / "classifier-seed0" / "release")
    behind = {c.settings.classifier for c in cells.values() if c.contender.behind}
    assert behind == {first}
    assert {(c.seed, c.settings.start) for c in cells.values() if c.contender.starts} == {
        (s, str(tmp_path / "cells" / f"public-denoiser-seed{s}" / "release")) for s in (3, 4)
    }
    assert cells["td-sliced-epsilon1.0-seed3"].settings.slices == "first,last"
    assert cells["td-sliced-epsilon1.0-seed3"].settings.epsilon == 1.0


def test_who_learns_from_the_classifiers_own_records_says_so(tmp_path):
    cells = by_name(planned(tmp_path, ("td",), seeds=(0,)))
    assert cells["public-denoiser-seed0"].settings.private_classifier
    private = cells["td-epsilon3.0-seed0"].settings
    assert not private.private_classifier
    assert "digits/first" in private.public_classifier


def test_the_noise_is_the_studys(tmp_path):
    cells = by_name(planned(tmp_path, ("td", "paper-inp_0.1", "dpcert"), seeds=(0,), sigma=0.5))
    data = load("digits/second")
    assert cells["td-epsilon3.0-seed0"].settings.sigma == 0.5
    assert cells["public-denoiser-seed0"].settings.sigma == 0.5
    assert cells["dpcert-epsilon3.0-seed0"].settings.filled_for(data).input_noise == 0.5
    assert cells["paper-inp_0.1-epsilon3.0-seed0"].settings.ablation == "inp_0.1"
    assert cells["classifier-seed0"].settings.input_noise == 0


def test_targets(tmp_path):
    names = ("td", "paper", "paper-nodp", "stobatch:paper")
    cells = {
        c.contender.name: c.settings for c in planned(tmp_path, names, known=SETTINGS["digits"])
    }
    assert [(cells[n].epsilon, cells[n].delta) for n in ("td", "paper")] == [(3.0, 1e-5)] * 2
    assert cells["paper-nodp"].epsilon is None
    assert (cells["stobatch:paper"].epsilon, cells["stobatch:paper"].delta) == (3.0, 0.0)


def test_what_was_asked_does_not_depend_on_the_folder(tmp_path):
    data = load("digits/second")
    one, other = (
        planned(tmp_path / where, ("td-start",), seeds=(0,))[-1].asked(data) for where in "ab"
    )
    assert one == other
    assert one["settings"]["classifier"] == "classifier-seed0"
    assert one["settings"]["start"] == "public-denoiser-seed0"
    assert one["data"] == "digits/second"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"td": {"sigma": 0.5}}, "--sigma"),
        ({"td": {"slices": "last"}}, "td-sliced"),
        ({"td": {"epsilon": 1.0}}, "--epsilons"),
        ({"td": {"classifier": "x"}}, "classifier.model"),
        ({"td-1": {"views": 1}}, "does not take part"),
        ({"td": {"denoiser": "unet-5"}}, "no such U-Net"),
        ({"td": {"denoiser": "onet"}}, "unknown denoiser"),
        ({"classifier": {"model": "cnm"}}, "cnn"),
        ({"td": {"epochs": -1.0}}, "bad epochs"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(tmp_path, settings, said):
    with pytest.raises(InputError, match=said):
        planned(tmp_path, ("td",), settings)
    assert list(tmp_path.iterdir()) == []


def test_what_makes_a_contender_cannot_be_set(tmp_path):
    with pytest.raises(InputError, match="unknown setting of 'td-1'"):
        planned(tmp_path, ("td-1",), {"td-1": {"views": 8}})


@pytest.mark.parametrize("data", SETTINGS)
def test_known_settings_are_of_known_contenders_and_options(data):
    for key, settings in SETTINGS[data].items():
        name = key.partition("@")[0]
        if name != "all":
            assert set(settings) <= CONTENDERS[name].options, key


def test_a_cell_needs_the_classifier_and_its_start(tmp_path):
    needs = {c.name: c.needs for c in planned(tmp_path, ("td-start", "td", "dpcert"), seeds=(1,))}
    assert needs == {
        "classifier-seed0": (),
        "public-denoiser-seed1": ("classifier-seed0",),
        "td-epsilon3.0-seed1": ("classifier-seed0",),
        "td-start-epsilon3.0-seed1": ("classifier-seed0", "public-denoiser-seed1"),
        "dpcert-epsilon3.0-seed1": (),
    }
