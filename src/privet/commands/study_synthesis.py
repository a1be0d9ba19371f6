"""`privet study synthesis`: synthetic health records by IGAMT, its baselines and its ablations."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from privet.commands.bench import writable
from privet.commands.screen import DataDir, Json
from privet.commands.study_screen import bar, one_of, repeated_by, tell, whole
from privet.commands.subjects import device_named, listed, numbers


def synthesis(
    *,
    data: str = "simulator",
    out_folder: Annotated[Path, Parameter(name="--out")],
    contenders: str | None = None,
    epsilons: str = "1.5",
    delta: float = 1e-5,
    seeds: str = "0,1,2",
    records: int | None = None,
    data_seed: int | None = None,
    holdout: float = 0.2,
    stays: int | None = None,
    classes_of: str | None = None,
    settings: Path | None = None,
    assignments: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    epsilon: float | None = None,
    data_dir: DataDir = None,
    device: str = "cpu",
    workers: int = 1,
    json: Json = False,
) -> None:
    """Synthetic health records: IGAMT, its baselines and ablations, soundly and as published.

    A cell is one fit: a contender, an epsilon, a seed. It learns from the training
    patients, as many stays are drawn from it, and these are compared with held-out
    patients: the papers' tables and figures, beside what they published, and seven
    measures that were named beforehand, by which igamt is judged against every
    sound contender. Beside each stands its claimed, proved and audited epsilon.

    Stopped? Repeat the command: finished cells are skipped, a killed fit is resumed.
    More seeds, contenders or budgets may be added in the same way. A contender that
    fails is reported, and the others go on.

    On named public records only; charged to OUT/ledger.db, not to your ledger.

    Example: privet study synthesis --records 300 --contenders autoregressive:none
    --seeds 0 --set all.epochs=2 --out runs/records

    Example: privet study synthesis --contenders all,all:none --epsilons 0.5,1.5,4
    --device cuda --workers 8 --out runs/igamt

    Parameters
    ----------
    data
        simulator, physionet2012, mimic-iv-ed-demo or eicu-demo.
    out_folder
        Of results.json, table.md, figures.csv, index.html, plots, and of the cells.
    contenders
        Some of autoregressive, vae, gan, vaegan, aae, daae, dgat, dgatt, dgamt, edgamt, igamt,
        igamt-no-mask, igamt-no-time, igamt-no-mixed; NAME:paper as published, NAME:none without
        privacy; all, all:paper, all:none. Default: these three. The reference always takes part.
    epsilons
        Budgets of those that have one.
    delta
        Of the budgets.
    seeds
        Of the first weights; two and more allow for intervals.
    records
        Patients of the simulator to learn from; default 14024, as in the papers.
    data_seed
        Of the simulator; settings may be chosen on other records than those that are shown.
    holdout
        Share of the patients that nobody learns from.
    stays
        To draw from each release; default: as many as there are training stays.
    classes_of
        Column whose classes are learned from synthetic rows; default: diastolic blood pressure.
    settings
        A .toml file with a table for each contender: [all], [igamt], ["vae:none"], and for one
        budget alone ["igamt@1.5"].
    assignments
        CONTENDER.OPTION=VALUE, over what the file says; repeat it for more: --set all.epochs=10.
        --set all.canaries=1000 audits those that can be.
    epsilon
        That of the contest, the claims and the grids; default: 1.5, or the nearest.
    data_dir
        Where the files of a named source are.
    device
        cpu, cuda, ...
    workers
        Processes that fit and measure cells at the same time; they share the device.
    json
        Print the results as JSON, nothing else.
    """
    command = repeated_by(synthesis, locals())
    from privet.studies.robust_private import public, study, working
    from privet.studies.robust_private.choices import choices_for
    from privet.studies.robust_private.tables import privacy_table
    from privet.studies.robust_private.training import School
    from privet.studies.robust_private.writing import leaked
    from privet.studies.synthesis import writing
    from privet.studies.synthesis.cells import Terms, all_cells
    from privet.studies.synthesis.contenders import chosen
    from privet.studies.synthesis.fidelity import USUAL_EPSILON
    from privet.studies.synthesis.known import SETTINGS
    from privet.studies.synthesis.measuring import Laboratory
    from privet.studies.synthesis.sources import studied
    from privet.studies.synthesis.tables import contest_table, missing_table, seven_table

    budgets, where = numbers(epsilons, "epsilons"), device_named(device)
    shown = one_of("epsilon", epsilon, budgets, USUAL_EPSILON)
    field = chosen(None if contenders is None else listed(contenders))
    source = studied(
        data, data_dir, records=records, data_seed=data_seed, holdout=holdout, label=classes_of
    )
    coded, choices = source.dataset, choices_for(data, settings, assignments, SETTINGS)
    terms = Terms(
        data=coded, records=source.facts, choices=choices, epsilons=budgets, delta=delta,
        seeds=whole(seeds), device=device,
    )  # fmt: skip
    planned = all_cells(field.taking_part, terms)
    laboratory = Laboratory(studied=source, device=where, stays=stays)
    public.require_no_budget(coded)
    folder = writable(out_folder)
    with public.ledger_in(folder) as ledger, bar(len(planned), quiet=json) as watch:
        yardstick = laboratory.yardstick(folder)
        whole_study = study.Study(
            folder=folder,
            school=School(data=coded, ledger=ledger, reference=dict(source.reference)),
            laboratory=laboratory,
            watch=watch,
            goes_on=True,
        )
        done = working.run_cells(whole_study, planned, workers=workers)
        told = {
            "command": command,
            "data": data,
            "delta": delta,
            "seeds": whole(seeds),
            "together": leaked(folder, ledger, coded.name),
        }
    results = writing.results_of(
        done, laboratory=laboratory, yardstick=yardstick, epsilon=shown, left_out=field.left_out,
        told=told,
    )  # fmt: skip
    writing.write_results(folder, results)
    tables = [
        seven_table(results, brief=True),
        contest_table(results["contest"]),
        privacy_table(results["rows"]),
        missing_table(results),
    ]
    tell(results, folder, [table for table in tables if table.rows], as_json=json)
