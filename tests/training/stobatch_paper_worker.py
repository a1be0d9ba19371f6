"""What each of two processes does for `test_stobatch_paper_ranks.py`; started by torchrun.

    torchrun --nproc-per-node 2 stobatch_paper_worker.py FOLDER

What each scenario returns is saved as FOLDER/rank0.pt, rank1.pt.
"""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from test_stobatch_paper import QUICK, images

from privet.engine.ranks import Ranks
from privet.errors import PrivetError
from privet.training.published import stobatch
from privet.training.published.stobatch_settings import DpalSettings, StobatchSettings

STEPS = 6
SCENARIOS = {
    "trainers": {"trainers": 2},
    "three of them": {"trainers": 3},
    "shards": {"trainers": 1, "shards": 4},
}


def home():
    return Path(os.environ["PRIVET_HOME"])


def settings(name, **changes):
    return StobatchSettings(**(QUICK | SCENARIOS[name] | {"epochs": 8.0} | changes))


def curve(name, ranks):
    """Costs of some steps, and the state after them."""
    data = images()
    trainer = stobatch.build(data, settings(name).filled_for(data), ranks)
    costs = []
    for _ in range(STEPS):
        trainer.step()
        costs.append(trainer.losses.clone())
    return torch.stack(costs), dict(trainer.model.state_dict())


def raised(action):
    try:
        action()
    except PrivetError as error:
        return type(error).__name__, str(error)
    return "none", ""


def released(name, **options):
    """A whole run with noise that nobody seeded: the lead's is everybody's."""
    release = stobatch.run_stobatch(images(), settings(name, noise_seed=None), **options)
    return release.trust["provenance"]["run"], dict(release.model.state_dict())


def resumed():
    def full(trainer):
        if trainer.next_step == 3:
            raise OSError("disk full")

    out, kept = home() / "broken", settings("trainers", noise_seed=None, checkpoint_every=2)
    error = "none"
    try:
        stobatch.run_stobatch(images(), kept, out=out, watch=full)
    except (OSError, PrivetError) as found:
        error = type(found).__name__
    release = stobatch.resume_stobatch(out, images())
    return error, dict(release.model.state_dict())


def main(folder):
    with Ranks.joined() as ranks:
        results = {"curves": {name: curve(name, ranks) for name in SCENARIOS}}
    alone = settings("shards", shards=1)
    results |= {
        "release": released("trainers", out=home() / "run"),
        "resumed": resumed(),
        "too few parts": raised(lambda: stobatch.run_stobatch(images(), alone)),
        "dpal": raised(lambda: stobatch.run_dpal(images(), DpalSettings(**QUICK))),
        "other records": raised(
            lambda: stobatch.run_stobatch(images(seed=ranks.rank), settings("trainers"))
        ),
    }
    torch.save(results, Path(folder) / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
