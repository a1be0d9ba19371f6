"""A study of seconds, and records of made-up ones."""

from contextlib import closing

import torch

from privet.ledger import Ledger
from privet.studies.lifelong.cells import Terms, all_cells, known_settings
from privet.studies.lifelong.contenders import chosen
from privet.studies.lifelong.learning import School
from privet.studies.lifelong.measuring import STAGE, Laboratory
from privet.studies.lifelong.streams import wanted
from privet.studies.robust_private import study, working
from privet.studies.robust_private.choices import choices_for

QUICK = ("l2dp-objective.model=cosines-2-16", "agem.epochs=2", "l2dp.epochs=2", "l2dp.horizon=3")


def streams_of(*names, **changed):
    usual = {"n_tasks": 2, "records": 60, "examples": 50, "data_dir": None}
    return wanted(names, **(usual | changed))


def planned(
    contenders=("l2dp-objective", "agem"), streams=None, seeds=(0, 1), epsilons=(3.0,), sets=QUICK
):
    streams = streams_of("permuted-digits") if streams is None else streams
    taking_part = chosen(contenders)
    names = {one.name for one in taking_part}
    own = [text for text in sets if text.partition(".")[0] in names]
    choices = {s.label: choices_for(s.base, None, own, known_settings(s)) for s in streams}
    terms = Terms(
        streams=streams, choices=choices, epsilons=epsilons, delta=1e-5, seeds=seeds, device="cpu"
    )
    return all_cells(taking_part, terms)


def run_study(folder, cells, *, workers=1, watch=lambda *_: None):
    folder.mkdir(exist_ok=True)
    with closing(Ledger(folder / "ledger.db")) as ledger:
        whole = study.Study(
            folder=folder,
            school=School(ledger=ledger),
            laboratory=Laboratory(device=torch.device("cpu")),
            watch=watch,
        )
        return working.run_cells(whole, cells, workers=workers)


def made_up(name, curves, *, stream="permuted-mnist", epsilon=2.0, basis="proved"):
    """Records of a contender: for each seed, its accuracies on the tasks after each task."""
    said = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove", "gaps": ["a gap"]}
    privacy = {
        "claimed": said if basis == "claimed" else None,
        "proved": {"add-remove": said} if basis == "proved" else {},
        "audited": None, "contradicted": False, "withheld": [],
    }  # fmt: skip
    from privet.lifelong.metrics import score

    records = []
    for seed, accuracy in enumerate(curves):
        scores = score(accuracy)
        found = {
            "tasks": [f"{i}" for i in range(1, len(accuracy) + 1)],
            "accuracy": accuracy,
            "average_accuracy": list(scores.average_accuracy),
            "average_forgetting": list(scores.average_forgetting),
            "learning_curve_area": scores.learning_curve_area,
        }
        records.append(
            {
                "cell": f"{name}-{seed}", "name": name, "epsilon": epsilon, "seed": seed,
                "asked": {"data": stream, "settings": {}}, "privacy": privacy, STAGE: found,
                "training": {"seconds": 1.0, "machine": {"cpu": "a"}},
            }
        )  # fmt: skip
    return records
