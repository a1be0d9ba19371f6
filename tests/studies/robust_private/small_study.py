"""How the tests of this folder run studies."""

from contextlib import closing

import torch

from privet.ledger import Ledger
from privet.studies.robust_private.cells import all_cells, contenders
from privet.studies.robust_private.choices import Choices
from privet.studies.robust_private.measuring import Laboratory
from privet.studies.robust_private.protocol import Protocol
from privet.studies.robust_private.study import Study
from privet.studies.robust_private.training import School
from privet.studies.robust_private.working import run_cells

QUICK = {"all": {"model": "linear", "epochs": 2}, "plain": {"batch": 200}}
WHOLE = {"dpsgd": {"batch": 1437}, "stobatch": {"batch": 1437, "adversarial_steps": 1}}
PROTOCOL = Protocol(
    attacks=("fgsm", "pgd"), sizes=(0.05, 0.1), steps=2, restarts=1, examples=60,
    radii=(0.1, 0.25), n=100, n0=20,
)  # fmt: skip


def planned(data, names=("plain",), settings=None, epsilons=(1.0,), seeds=(0, 1)):
    return all_cells(
        contenders(names), data, Choices(settings or {n: QUICK[n] for n in ("all", *names)}),
        epsilons=epsilons, delta=1e-5, seeds=seeds, device="cpu",
    )  # fmt: skip


def run_study(
    folder, cells, data, protocol=PROTOCOL, watch=lambda *_: None, workers=1, **laboratory
):
    """The records."""
    with closing(Ledger(folder / "ledger.db")) as ledger:
        study = Study(
            folder=folder,
            school=School(data=data, ledger=ledger, reference={"name": "digits", "data_dir": None}),
            laboratory=Laboratory(
                data=data, protocol=protocol, device=torch.device("cpu"), **laboratory
            ),
            watch=watch,
        )
        return run_cells(study, cells, workers=workers)
