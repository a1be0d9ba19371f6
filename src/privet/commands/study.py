"""`privet study`: the papers' comparisons, each by one command."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from privet.commands.bench import writable
from privet.commands.screen import DataDir, Json
from privet.commands.study_lifelong import lifelong
from privet.commands.study_screen import ascending, bar, one_of, repeated_by, tell, whole
from privet.commands.study_synthesis import synthesis
from privet.commands.study_transdenoiser import transdenoiser
from privet.commands.subjects import device_named, listed, numbers

study_app = App(name="study", help="Repeat the papers' comparisons, on public data.")
study_app.command(transdenoiser)
study_app.command(synthesis)
study_app.command(lifelong)


@study_app.command
def robust_private(
    *,
    data: str,
    out_folder: Annotated[Path, Parameter(name="--out")],
    methods: str | None = None,
    epsilons: str = "0.2,0.5,1,2",
    delta: float = 1e-5,
    seeds: str = "0,1,2",
    settings: Path | None = None,
    assignments: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    attacks: str = "fgsm,ifgsm,mim,pgd",
    sizes: str = "0.025,0.05,0.1,0.15,0.2,0.25,0.3",
    attack_size: float | None = None,
    epsilon: float | None = None,
    steps: int | None = None,
    eot: int = 20,
    restarts: int = 5,
    examples: int | None = None,
    scale: float = 0.25,
    radii: str = "0.25,0.5,1",
    alpha: float = 0.001,
    n: int = 10_000,
    certify_examples: int | None = None,
    batch: int = 1000,
    precision: str = "float32",
    audit: Annotated[bool, Parameter(negative="")] = False,
    canaries: int | None = None,
    data_dir: DataDir = None,
    device: str = "cpu",
    workers: int = 1,
    json: Json = False,
) -> None:
    """Train all methods at several budgets; attack, certify and compare them.

    A cell is one training: a method, an epsilon, a seed. Every release is attacked
    on the public test images, certified by the same Gaussian smoothing, and shown
    with its claimed, proved and audited epsilon. Figures are means over seeds with
    their range; the best method is tested against the others (t-test).

    Stopped? Repeat the command: finished cells are skipped, a killed training is
    resumed. More seeds, methods or budgets may be added in the same way.

    On named public data only: many models of the same records leak more together
    than each. They are charged to OUT/ledger.db, not to your ledger.

    Example: privet study robust-private --data digits --methods dpsgd,stobatch,plain
    --epsilons 1,3 --seeds 0,1 --set all.epochs=5 --n 500 --out runs/study

    Example: privet study robust-private --data mnist --device cuda --out runs/mnist

    Parameters
    ----------
    data
        A name from `privet data list`.
    out_folder
        Of results.json, table.md, index.html, plots, and of the cells.
    methods
        As in `privet methods`: METHOD, or METHOD:ANALYSIS (stobatch:paper); default: all but those
        that need a classifier that is there already (transdenoiser, ain, atn, advgan).
    epsilons
        Budgets of the methods that have one.
    delta
        Of the budgets, for methods that have one.
    seeds
        Of the first weights; two and more allow for tests.
    settings
        A .toml file with a table for each method: [all], [dpsgd], ["stobatch:paper"], and for one
        budget alone ["dpsgd@0.2"].
    assignments
        METHOD.OPTION=VALUE, over what the file says; repeat it for more: --set all.epochs=10.
    attacks
        Among those of `privet attack`: autoattack is one of them.
    sizes
        Largest l-infinity norms, inputs in [0, 1]; half of what papers say of [-1, 1].
    attack_size
        That of the plot against epsilon and of the tests; default: 0.1, or the nearest.
    epsilon
        That of the plots against size and radius; default: 1, or the nearest.
    steps
        Of ifgsm, mim and pgd; default: 40.
    eot
        Draws averaged in each gradient and check where a classifier is random; 20 or more.
    restarts
        Of pgd.
    examples
        Test images to attack, evenly spread; default: all.
    scale
        Sigma of the noise that smooths, inputs in [0, 1].
    radii
        l2 radii of certified accuracies.
    alpha
        Chance that a certificate is wrong.
    n
        Votes for each image.
    certify_examples
        Test images to certify; default: as many as are attacked.
    batch
        Images in a pass.
    precision
        Of the passes that certify: float32, tf32 (CUDA only) or bf16; that is what is certified.
    audit
        Audit each release by a twin with canaries; methods that have no twin say why.
    canaries
        Of an audit; default: 5000, or as many as the network has parameters.
    data_dir
        Where the files of a named data set are.
    device
        cpu, cuda, ...
    workers
        Processes that train and measure cells at the same time; they share the device.
    json
        Print the results as JSON, nothing else.
    """
    command = repeated_by(robust_private, locals())
    from privet.privacy.precision import find_precision
    from privet.studies.robust_private import cells, choices, public, study, working, writing
    from privet.studies.robust_private.measuring import Laboratory
    from privet.studies.robust_private.protocol import USUAL_EPSILON, USUAL_SIZE, Protocol
    from privet.studies.robust_private.tables import privacy_table, summary
    from privet.studies.robust_private.training import School

    budgets, where = numbers(epsilons, "epsilons"), device_named(device)
    find_precision(precision, where)
    protocol = Protocol(
        attacks=tuple(listed(attacks)), sizes=ascending(sizes, "sizes"), steps=steps, eot=eot,
        restarts=restarts, examples=examples, scale=scale, radii=ascending(radii, "radii"),
        alpha=alpha, n=n, certified_examples=certify_examples, batch=batch,
        precision=precision,
    )  # fmt: skip
    chosen = cells.contenders(None if methods is None else listed(methods))
    shown = (
        one_of("attack-size", attack_size, protocol.sizes, USUAL_SIZE),
        one_of("epsilon", epsilon, budgets, USUAL_EPSILON),
    )
    dataset = public.public_data(data, data_dir)
    planned = cells.all_cells(
        chosen, dataset, choices.choices_for(data, settings, assignments),
        epsilons=budgets, delta=delta, seeds=whole(seeds), device=device,
    )  # fmt: skip
    public.require_no_budget(dataset)
    folder = writable(out_folder)
    with public.ledger_in(folder) as ledger, bar(len(planned), quiet=json) as watch:
        whole_study = study.Study(
            folder=folder,
            school=School(
                data=dataset,
                ledger=ledger,
                reference={"name": data, "data_dir": data_dir and str(data_dir.resolve())},
            ),
            laboratory=Laboratory(
                data=dataset, protocol=protocol, device=where, auditing=audit, canaries=canaries
            ),
            watch=watch,
        )
        records = working.run_cells(whole_study, planned, workers=workers)
        told = {
            "command": command,
            "data": dataset.name,
            "delta": delta,
            "seeds": whole(seeds),
            "together": writing.leaked(folder, ledger, dataset.name),
        }
    results = writing.results_of(
        records, protocol=protocol, attack_size=shown[0], epsilon=shown[1], told=told
    )
    writing.write_results(folder, results)
    shown_tables = (summary(results), privacy_table(results["rows"]))
    tell(results, folder, shown_tables, as_json=json)
