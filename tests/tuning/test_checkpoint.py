import pytest
import torch

from privet.errors import InputError
from privet.models import create
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.tuning.checkpoint import Best, Standing

CPU = torch.device("cpu")


@pytest.fixture
def standing():
    config = {"model": "mlp", "shape": [4], "classes": ["a", "b"], "bounds": {}}
    release = Release(
        model=create("mlp", (4,), 2, init_seed=3), config=config, trust={"method": "dpsgd"}
    )
    best = Best(score=12.5, release=release)
    return Standing(randomness=Randomness.fresh(0), done=5, best=best)


def test_it_survives_the_disk(standing, tmp_path):
    standing.save(tmp_path / "state")
    read = Standing.load(tmp_path / "state", CPU)
    assert read.done == 5
    assert read.best.score == 12.5
    assert read.randomness.sampling.key == standing.randomness.sampling.key
    assert read.randomness.noise.key == standing.randomness.noise.key
    assert read.randomness.secret
    assert read.best.release.trust == {"method": "dpsgd"}
    before, after = (s.best.release.model.state_dict() for s in (standing, read))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_before_the_first_trial_there_is_no_best(tmp_path):
    Standing(randomness=Randomness.fresh(0)).save(tmp_path / "state")
    read = Standing.load(tmp_path / "state", CPU)
    assert (read.done, read.best) == (0, None)


def test_only_the_owner_may_read_it(standing, tmp_path):
    standing.save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def test_a_missing_or_broken_file_is_bad_input(standing, tmp_path):
    with pytest.raises(InputError, match="before its first trial"):
        Standing.load(tmp_path / "nothing", CPU)
    standing.save(tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="corrupt checkpoint"):
        Standing.load(tmp_path / "state", CPU)
