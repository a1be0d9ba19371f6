"""What each of two processes does for `test_ranks.py`; started by torchrun, once for all tests.

    torchrun --nproc-per-node 2 ranks_worker.py FOLDER

Every scenario is a function of the ranks; what it returns is saved as FOLDER/rank0.pt, rank1.pt.
"""

import contextlib
import io
import os
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

import privet
from privet import cli
from privet.data.dataset import Bounds, Dataset, Split
from privet.engine.account import KeptByLead, RunAccount
from privet.engine.examples import Examples
from privet.engine.plan import Plan
from privet.engine.prepare import Extras, assemble
from privet.engine.ranks import Ranks
from privet.engine.trainer import PrivateTrainer
from privet.errors import BudgetExceeded, PrivetError
from privet.ledger import Ledger
from privet.privacy.clipping import cross_entropy
from privet.privacy.randomness import Randomness
from privet.training.dpsgd import resume
from privet.training.run_folder import RunFolder
from privet.training.settings import Settings

PLAN = {
    "steps": 4,
    "sampling_rate": 1.0,
    "clip_norm": 0.5,
    "noise_multiplier": 1e-9,
    "normaliser": 20.0,
    "delta": 1e-5,
}
EPOCHS = 20  # on digits
SHARE = 2500  # units on each rank, where samples are looked at
DRAWN_STEPS = 8
SAMPLED = {
    "poisson": {"sampling_rate": 0.3},
    "cyclic-poisson": {"sampling_rate": 0.2, "cycle": 3},
    "fixed-batches": {"sampling_rate": 0.25, "cycle": 4},
    "shuffled": {"sampling_rate": 0.25, "cycle": 4},
}


def home():
    return Path(os.environ["PRIVET_HOME"])


def made_up(n=31, features=5, users=None, shuffled_by=0):
    rng = np.random.default_rng(0 if users is None else 1)  # nobody is in both
    x = rng.uniform(0, 1, (n, features)).astype(np.float32)
    y = np.arange(n) % 2
    order = np.random.default_rng(shuffled_by).permutation(n) if shuffled_by else np.arange(n)
    units = None if users is None else np.sort(np.arange(n) % users)
    return Dataset(
        name="made-up" if users is None else "made-up users",
        train=Split(x=x[order], y=y[order], units=units),
        test=Split(x=x, y=y),
        bounds=Bounds(low=(0.0,), high=(1.0,)),
        classes=("no", "yes"),
        nominal_size=n,
        licence="none",
        source="made up",
        unit="example" if users is None else "user",
        test_is_public=True,
    )


def made_trainer(ranks, data, *, kind=PrivateTrainer, loss=cross_entropy, account=None, **plan):
    """A trainer of a small network on this rank's share; known keys."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(data.shape[0], 8), nn.Tanh(), nn.Linear(8, 2))
    trainer = assemble(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        data,
        Plan(**(PLAN | {"unit": data.unit} | plan)),
        loss=loss,
        randomness=ranks.with_sampling_of_lead(Randomness.seeded(7 + ranks.rank)),
        open_account=lambda: account or KeptByLead(),
        extras=Extras(contribution=4),
        ranks=ranks,
    )
    trainer.__class__ = kind
    return trainer


def updates(trainer):
    """All steps; the updates as they reached the optimiser: steps x parameters."""
    seen = []
    for batch in trainer.batches():
        trainer.step(batch)
        seen.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).clone())
    return torch.stack(seen)


def nothing_to_learn(outputs, _):
    return 0.0 * outputs.sum(1)


# --- planted bugs ----------------------------------------------------------------------------


class NoiseOnEveryRank(PrivateTrainer):
    """Each rank hides its own part, as code for one process does when it is run on several."""

    def _clipped_sum(self, batch):
        part, stream = super()._clipped_sum(batch), self.randomness.noise
        return self.plan.noise.add_to(part, step=batch.step, stream=stream)

    def _with_noise(self, total, step):
        return total


class DividesByTheRanks(PrivateTrainer):
    """Averages over the ranks, as data-parallel training without privacy does."""

    def _with_noise(self, total, step):
        return super()._with_noise(total, step) / self.ranks.size


class AveragesNoisyParts(NoiseOnEveryRank):
    def _with_noise(self, total, step):
        return total / self.ranks.size


class OneKeyOnAllRanks(PrivateTrainer):
    @property
    def _sampling(self):
        return self.randomness.sampling


KINDS = {
    kind.__name__: kind
    for kind in (PrivateTrainer, NoiseOnEveryRank, DividesByTheRanks, AveragesNoisyParts)
}


# --- scenarios -------------------------------------------------------------------------------


def same_updates(ranks):
    return {
        "examples": updates(made_trainer(ranks, made_up())),
        "users": updates(made_trainer(ranks, made_up(users=9))),
        "one user": updates(made_trainer(ranks, made_up(n=4, users=1))),
    }


def pure_noise(ranks, kind):
    wide = made_up(features=100)
    changes = {"steps": 40, "noise_multiplier": 1.3, "sampling_rate": 0.5}
    return updates(
        made_trainer(ranks, wide, kind=KINDS[kind], loss=nothing_to_learn, **changes)
    ).double()


def samples(ranks, sampler, kind=PrivateTrainer):
    """Who was in which step: steps x units of this rank."""
    plan = SAMPLED[sampler] | {"sampler_name": sampler, "steps": DRAWN_STEPS}
    trainer = made_trainer(ranks, made_up(n=2 * SHARE), kind=kind, **plan)
    joined = torch.zeros(DRAWN_STEPS, SHARE)
    for step in range(DRAWN_STEPS):
        joined[step, trainer._draw(step).indices] = 1.0
    return joined


def keys(ranks):
    mine = Randomness.fresh(5)
    agreed = ranks.with_sampling_of_lead(mine)
    names = {
        "own noise": mine.noise,
        "noise": agreed.noise,
        "sampling": agreed.sampling,
        "stream": ranks.own(agreed.sampling),
    }
    return {name: stream.key.hex() for name, stream in names.items()}


def correlated(ranks):
    bands = {"bands": (0.8, 0.6), "sampler_name": "cyclic-poisson", "cycle": 3}
    trainer = made_trainer(ranks, made_up(), sampling_rate=0.2, noise_multiplier=1.0, **bands)
    return updates(trainer), len(trainer.noise_history.draws)


def raised(action):
    """The kind and words of the error of an action."""
    try:
        action()
    except PrivetError as error:
        return type(error).__name__, str(error)
    except (ValueError, MemoryError, OSError) as error:
        return type(error).__name__, str(error)
    return "none", ""


def faults(ranks):
    def on(rank, error):
        with ranks.agreed():
            if ranks.rank == rank:
                raise error

    return {
        "lead": raised(lambda: on(0, BudgetExceeded("too much", got=3, fix="less"))),
        "other": raised(lambda: on(1, BudgetExceeded("too much"))),
        "other's bug": raised(lambda: on(1, ValueError("oops"))),
        "nobody": raised(lambda: on(2, ValueError("oops"))),
        "told": ranks.told({"a": (1, 2.5, None), "w": torch.arange(3)} if ranks.leads else None),
    }


def redone_differently(ranks):
    """A journal that has another output for the first step."""
    data, account = made_up(), None
    if ranks.leads:
        journal = home() / "steps.log"
        ledger = Ledger(home() / "other.db")
        ledger.register("made-up", unit="example", snapshot="s", rows=[b"0" * 16])
        journal.write_text("0 aa\n")
        account = RunAccount.open(
            ledger, "made-up", Plan(**PLAN), label="t", private=False, journal=journal
        )
    trainer = made_trainer(ranks, data, account=account)
    trainer.repeating = True
    error = raised(lambda: updates(trainer))
    return error, account.redone_steps if account else 0


def trained(data, **options):
    """`privet.train` as in a user's script; the plan is given, since calibrating takes seconds."""
    plan = Plan(**PLAN | {"sampling_rate": 0.5, "noise_multiplier": 2.0, "unit": data.unit})
    with mock.patch.object(Settings, "plan_for", return_value=plan):
        return privet.train("dpsgd", data, epsilon=3.0, model="linear", **options)


def seen(release):
    weights = [p.detach() for p in release.model.parameters()]
    return release.trust["provenance"]["run"], release.privacy.epsilon, weights


def resumed(ranks):
    """A run that broke at its second step, and one that broke when its release was saved."""

    def full(trainer):
        if trainer.next_step == 2:
            raise OSError("disk full")

    def folder_in_use(folder):
        raise OSError("in use")

    data, found = made_up(users=9), []
    for name, watch in (("broken", full), ("saved", None)):
        with mock.patch.object(RunFolder, "forget_keys", folder_in_use):
            error = raised(partial(trained, data, out=home() / name, watch=watch))
        found.append((error, seen(resume(home() / name, data))))
    return found


def other_order(ranks):
    """A script that shuffles its records differently in each process."""
    data = made_up(n=40, shuffled_by=1 + ranks.rank)
    return raised(lambda: trained(data, out=home() / "other order"))


def one_fails(ranks):
    """A process that cannot hold its share, when the lead has reserved the run already."""

    full = MemoryError("full") if ranks.rank == 1 else None
    with mock.patch.object(Examples, "of", side_effect=full, wraps=Examples.of):
        return raised(lambda: trained(made_up(n=40), out=home() / "one fails"))


def diverged(ranks):
    def nudge(trainer):
        with torch.no_grad():
            next(trainer.model.parameters()).add_(1e-6)
        trainer.untouched.note()  # as if the hardware had done it

    return raised(lambda: trained(made_up(n=40), watch=nudge))


def typed(*arguments):
    """The command line in this process: exit code, and what it printed."""
    written, code = (io.StringIO(), io.StringIO()), None
    with contextlib.redirect_stdout(written[0]), contextlib.redirect_stderr(written[1]):
        try:
            cli.main([*map(str, arguments)])
        except SystemExit as done:
            code = done.code
    return code, *(stream.getvalue() for stream in written)


def commands(ranks):
    """The same command twice: the second time its folder is taken."""
    options = ["--data", "digits", "--epsilon", 3, "--model", "linear", "--epochs", EPOCHS]
    train = ["train", "dpsgd", *options, "--out", home() / "typed", "--json"]
    return typed(*train), typed(*train)


def alone(ranks):
    """An error that only one process has, outside of what is agreed upon; then another try."""

    def work():
        with Ranks.joined():
            if ranks.rank == 1:
                raise ValueError("oops")
            ranks.total(torch.zeros(3))

    return raised(work), raised(work)


def main(folder):
    with Ranks.joined() as ranks:
        results = {
            "same updates": same_updates(ranks),
            "noise": {kind: pure_noise(ranks, kind) for kind in KINDS},
            "samples": {name: samples(ranks, name) for name in SAMPLED},
            "samples, one key": {name: samples(ranks, name, OneKeyOnAllRanks) for name in SAMPLED},
            "keys": keys(ranks),
            "correlated": correlated(ranks),
            "faults": faults(ranks),
            "redone": redone_differently(ranks),
        }
    # From here on as in a user's script: each call joins and leaves by itself.
    results |= {
        "release": seen(trained(made_up(n=40))),
        "release of few": seen(trained(made_up(n=4, users=1), contribution=2)),
        "resumed": resumed(ranks),
        "diverged": diverged(ranks),
        "other order": other_order(ranks),
        "one fails": one_fails(ranks),
        "commands": commands(ranks),
        "alone": alone(ranks),
    }
    torch.save(results, Path(folder) / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
