"""The figures of a study of synthetic records, short: from its folder to a file that is kept.

    python benchmarks/synthesis_study.py runs/icu --note "one seed" --out benchmarks/results/X.json

What `privet study synthesis` found is copied, nothing is computed anew: the seven measures of every
contender by seed, the contest, the papers' claims, orders, and the seconds of training with the
machine. In the command, folders stand as DIR.
"""

import json
import re
from argparse import ArgumentParser
from pathlib import Path

from privet.studies.synthesis.fidelity import SEVEN


def main():
    """One folder, one file."""
    asked = arguments()
    found = json.loads((asked.folder / "results.json").read_text())
    asked.out.write_text(json.dumps(record_of(found, asked), indent=1, ensure_ascii=False) + "\n")


def record_of(found, asked):
    """What is kept of the results."""
    duels = found["contest"]["rivals"]
    cells = [name for row in found["rows"] for name in row["cells"]]
    counted = ("rival", "ahead", "won", "ties", "lost")
    return {
        "what": found["what"],
        "commands": [re.sub(r"(--(?:data-dir|out)) \S+", r"\1 DIR", found["command"])],
        "notes": asked.note,
        "data": found["data"],
        "records": found["records"],
        "stays_drawn": found["protocol"]["stays"],
        "epsilon": found["epsilon"],
        "delta": found["delta"],
        "real": {one.name: one.of(found["yardstick"])["mean"] for one in SEVEN},
        "rows": [short(row) for row in found["rows"]],
        "contest": {k: v for k, v in found["contest"].items() if k not in {"rivals", "hero"}},
        "duels": [{key: duel[key] for key in counted} for duel in duels],
        "claims": found["claims"],
        "rankings": found["rankings"],
        "training": [training(asked.folder, name) for name in cells],
    }


def short(row):
    """The seven measures of a contender, by seed."""
    figures = {one.name: one.of(row)["values"] for one in SEVEN if one.of(row) is not None}
    return {key: row[key] for key in ("name", "epsilon", "basis", "seeds")} | {"figures": figures}


def training(folder, name):
    """How a cell was fitted, in how many seconds, on what."""
    trained = json.loads((folder / "cells" / name / "cell.json").read_text())["training"]
    settings = {key: trained["settings"][key] for key in ("epochs", "batch", "model")}
    return {
        "cell": name,
        "settings": settings,
        "seconds": trained["seconds"],
        "machine": trained["machine"],
    }


def arguments():
    """What to read and where to write."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of the study")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--note", default="", help="what a reader must know")
    return parser.parse_args()


if __name__ == "__main__":
    main()
