import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from record_study import planned, source

from privet.errors import InputError


def test_cells_and_their_settings():
    cells = planned(("dgatt", "vae:none"), {"dgatt@1.0": {"batch": 7}}, epsilons=(1.0, 2.0))
    assert [cell.name for cell in cells if cell.contender.base == "dgatt"] == [
        "dgatt-epsilon1.0-seed0", "dgatt-epsilon1.0-seed1",
        "dgatt-epsilon2.0-seed0", "dgatt-epsilon2.0-seed1",
    ]  # fmt: skip
    assert [c.name for c in cells if c.contender.base == "vae"] == [
        "vae-none-seed0", "vae-none-seed1"
    ]  # fmt: skip
    by_name = {cell.name: cell.settings for cell in cells}
    one = by_name["dgatt-epsilon1.0-seed1"]
    assert (one.without, one.holdout, one.init_seed) == ("imitator,mask,mixed", 0.2, 1)
    assert (one.epsilon, one.delta, one.batch) == (1.0, 1e-5, 7)
    assert by_name["dgatt-epsilon2.0-seed1"].batch != 7


def test_records_and_device_of_a_cell():
    """Other records are another cell; another device is not."""
    cell = planned(("autoregressive",), seeds=(0,))[0]
    asked = cell.asked(source().dataset)
    assert asked["records"] == {"holdout": 0.2, "records": 120, "data_seed": 0}
    assert asked["settings"]["device"] is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"edgamt": {"without": "mask"}}, "--contenders"),
        ({"all": {"holdout": 0.1}}, "--holdout"),
        ({"all": {"epsilon": 1.0}}, "--epsilons"),
        ({"vae": {"epochs": 1}}, "does not take part"),
        ({"edgamt": {"epoch": 1}}, "did you mean 'epochs'"),
        ({"edgamt": {"epochs": -1}}, "edgamt: bad epochs"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_fitted(asked, said):
    with pytest.raises(InputError, match=said):
        planned(("edgamt",), asked)


@pytest.mark.parametrize(("epsilons", "seeds"), [((0.0,), (0,)), ((1.0, 1.0), (0,)), ((1.0,), ())])
def test_bad_budgets_and_seeds(epsilons, seeds):
    with pytest.raises(InputError, match="bad "):
        planned(("autoregressive",), epsilons=epsilons, seeds=seeds)
