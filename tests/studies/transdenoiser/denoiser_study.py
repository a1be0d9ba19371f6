"""How the tests of this folder run studies."""

from contextlib import closing

import torch

from privet.ledger import Ledger
from privet.studies.robust_private.choices import Choices
from privet.studies.robust_private.protocol import Protocol
from privet.studies.robust_private.study import Study
from privet.studies.robust_private.working import run_cells
from privet.studies.transdenoiser.cells import Terms, all_cells
from privet.studies.transdenoiser.contenders import PRIVATE_HALF, chosen
from privet.studies.transdenoiser.halves import halves_of, schools
from privet.studies.transdenoiser.measuring import Laboratory

QUICK = {
    # Batches of all records are cheap to account.
    "all": {"denoiser": "unet-4", "model": "linear", "epochs": 2, "batch": 719},
    "classifier": {"epochs": 20, "batch": 100},
    "public-denoiser": {"epochs": 1, "batch": 180},
    "td": {"views": 2},
}
PROTOCOL = Protocol(
    attacks=("fgsm", "pgd"), norm="l2", sizes=(0.5, 1.0), steps=2, restarts=1, examples=12,
    radii=(0.1, 0.25), n=60, n0=20,
)  # fmt: skip


def terms(folder, asked=None, *, known=QUICK, epsilons=(3.0,), seeds=(0, 1), sigma=0.25):
    return Terms(
        folder=folder, data="digits", choices=Choices(asked or {}, {}, known),
        epsilons=epsilons, delta=1e-5, seeds=seeds, sigma=sigma, device="cpu",
    )  # fmt: skip


def planned(folder, names, asked=None, **changes):
    """Cells of a quick study; `asked` are settings over its own."""
    return all_cells(chosen(names), terms(folder, asked, **changes), halves_of("digits", None))


def run_study(folder, cells, protocol=PROTOCOL, watch=lambda *_: None, workers=1):
    """The records."""
    halves = halves_of("digits", None)
    with closing(Ledger(folder / "ledger.db")) as ledger:
        study = Study(
            folder=folder,
            school=schools(halves, ledger, None),
            laboratory=Laboratory(
                data=halves[PRIVATE_HALF], protocol=protocol, device=torch.device("cpu")
            ),
            watch=watch,
        )
        return run_cells(study, cells, workers=workers)
