"""How the tests of this folder run studies."""

from contextlib import closing
from functools import cache

import torch

from privet.ledger import Ledger
from privet.studies.robust_private.choices import Choices
from privet.studies.robust_private.study import Study
from privet.studies.robust_private.training import School
from privet.studies.robust_private.working import run_cells
from privet.studies.synthesis.cells import Terms, all_cells
from privet.studies.synthesis.contenders import chosen
from privet.studies.synthesis.measuring import Laboratory
from privet.studies.synthesis.sources import studied

PATIENTS = 120
QUICK = {
    "all": {"epochs": 1.0, "batch": PATIENTS},  # batches of all records are cheap to account
    **{name: {"model": "rows-16-0"} for name in ("autoregressive", "autoregressive:none")},
}


@cache
def source():
    return studied("simulator", records=PATIENTS)


def planned(names, asked=None, *, epsilons=(3.0,), seeds=(0, 1)):
    """Cells of a quick study; `asked` are settings over its own."""
    terms = Terms(
        data=source().dataset, records=source().facts, choices=Choices(asked or {}, {}, QUICK),
        epsilons=epsilons, delta=1e-5, seeds=seeds, device="cpu",
    )  # fmt: skip
    return all_cells(chosen(names).taking_part, terms)


def laboratory(stays=None):
    return Laboratory(studied=source(), device=torch.device("cpu"), stays=stays)


def run_study(folder, cells, *, stays=None, watch=lambda *_: None, workers=1):
    """The records."""
    with closing(Ledger(folder / "ledger.db")) as ledger:
        study = Study(
            folder=folder,
            school=School(data=source().dataset, ledger=ledger, reference={}),
            laboratory=laboratory(stays),
            watch=watch,
            goes_on=True,
        )
        return run_cells(study, cells, workers=workers)
