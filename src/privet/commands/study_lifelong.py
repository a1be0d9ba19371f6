"""`privet study lifelong`: tasks one after another, by L2DP-ML, its sound versions and others."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from privet.commands.bench import writable
from privet.commands.screen import DataDir, Json
from privet.commands.study_screen import bar, one_of, repeated_by, tell, whole
from privet.commands.subjects import device_named, listed, numbers


def lifelong(
    *,
    tasks: str = "permuted-digits",
    out_folder: Annotated[Path, Parameter(name="--out")],
    contenders: str | None = None,
    n_tasks: int | None = 3,
    records: int | None = None,
    examples: int | None = None,
    epsilons: str = "3",
    delta: float = 1e-5,
    seeds: str = "0,1,2",
    settings: Path | None = None,
    assignments: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    epsilon: float | None = None,
    data_dir: DataDir = None,
    device: str = "cpu",
    workers: int = 1,
    json: Json = False,
) -> None:
    """Tasks one after another: who remembers, and what a lifetime costs.

    A cell is one stream that is learned by one contender: `privet lifelong fit`. Average
    accuracy and forgetting after every task, over seeds, beside the epsilon that is claimed
    or proved of a unit's whole lifetime, and beside what the thesis published. A seed is
    that of the permutations and of the first weights: contenders of a seed learn the same
    tasks, so they are compared in pairs (t-test, Holm).

    Stopped? Repeat the command: finished cells are skipped, a killed stream goes on where it
    was. More seeds, contenders or budgets may be added in the same way.

    On named public streams only; charged to OUT/ledger.db, not to your ledger.

    Example: privet study lifelong --out runs/tasks

    Example: privet study lifelong --tasks permuted-digits/disjoint,permuted-digits/shared
    --contenders l2dp-objective,l2dp,dpsgd-agem --epsilons 1,3 --seeds 0,1,2 --out runs/both

    Example: privet study lifelong --tasks permuted-mnist --data-dir DIR --n-tasks 20
    --records 3000 --examples 1000 --epsilons 2 --seeds 0,1,2 --out runs/mnist

    Parameters
    ----------
    tasks
        Streams of `privet lifelong streams`, separated by commas: NAME, NAME/disjoint or
        NAME/shared (the same units in every task, each charged for all of them).
    out_folder
        Of results.json, table.md, figures.csv, index.html, plots, and of the cells.
    contenders
        Some of l2dp-objective (one noisy objective for each task), l2dp (a memory behind
        coins), er, ewc, naive, dpsgd-agem (all parts added up), joint; l2dp:paper (as
        published), twin and twin-offset (the same without noise); agem, er:none, ewc:none,
        naive:none, joint:none. Default: l2dp-objective, l2dp, naive, dpsgd-agem, l2dp:paper,
        twin, agem.
    n_tasks
        How many.
    records
        Of each task; default: its share of the declared size.
    examples
        Test records of each task, evenly spread; default: all.
    epsilons
        Budgets of a lifetime; what l2dp:paper claims.
    delta
        Of the budgets; l2dp:paper claims none.
    seeds
        Of permutations and first weights; two and more allow for tests.
    settings
        A .toml file with a table for each contender: [all], [l2dp], ["l2dp:paper"], and for one
        budget alone ["l2dp@2"].
    assignments
        CONTENDER.OPTION=VALUE, over what the file says; repeat it for more: --set l2dp.epochs=5.
    epsilon
        That of the curves; default: 2, or the nearest.
    data_dir
        Where the files of a named stream are.
    device
        cpu, cuda, ...
    workers
        Processes that learn and measure cells at the same time; they share the device.
    json
        Print the results as JSON, nothing else.
    """
    command = repeated_by(lifelong, locals())
    from privet.studies.lifelong import writing
    from privet.studies.lifelong.cells import Terms, all_cells, known_settings
    from privet.studies.lifelong.contenders import chosen
    from privet.studies.lifelong.learning import School
    from privet.studies.lifelong.measuring import Laboratory
    from privet.studies.lifelong.streams import require_no_budgets, wanted
    from privet.studies.lifelong.tables import summary
    from privet.studies.robust_private import public, study, working
    from privet.studies.robust_private.choices import choices_for

    budgets, where = numbers(epsilons, "epsilons"), device_named(device)
    shown = one_of("epsilon", epsilon, budgets, 2.0)
    taking_part = chosen(None if contenders is None else listed(contenders))
    streams = wanted(
        listed(tasks), n_tasks=n_tasks, records=records, examples=examples, data_dir=data_dir
    )
    terms = Terms(
        streams=streams,
        choices={
            one.label: choices_for(one.base, settings, assignments, known_settings(one))
            for one in streams
        },
        epsilons=budgets, delta=delta, seeds=whole(seeds), device=device,
    )  # fmt: skip
    planned = all_cells(taking_part, terms)
    require_no_budgets(streams, terms.seeds[0])
    folder = writable(out_folder)
    with public.ledger_in(folder) as ledger, bar(len(planned), quiet=json) as watch:
        whole_study = study.Study(
            folder=folder,
            school=School(ledger=ledger),
            laboratory=Laboratory(device=where),
            watch=watch,
        )
        done = working.run_cells(whole_study, planned, workers=workers)
        told = {
            "command": command,
            "data": ", ".join(one.label for one in streams),
            "delta": delta,
            "seeds": whole(seeds),
            "together": writing.leaked(folder, ledger, streams),
        }
    results = writing.results_of(done, streams=streams, epsilon=shown, told=told)
    writing.write_results(folder, results)
    tell(results, folder, summary(results), as_json=json)
