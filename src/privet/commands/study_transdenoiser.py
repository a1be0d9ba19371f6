"""`privet study transdenoiser`: a private denoiser in front of a fixed classifier."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from privet.commands.bench import writable
from privet.commands.screen import DataDir, Json
from privet.commands.study_screen import ascending, bar, one_of, repeated_by, tell, whole
from privet.commands.subjects import device_named, listed, numbers


def transdenoiser(
    *,
    data: str,
    out_folder: Annotated[Path, Parameter(name="--out")],
    contenders: str | None = None,
    epsilons: str = "0.5,1,2",
    delta: float = 1e-5,
    seeds: str = "0,1,2",
    sigma: float = 0.25,
    settings: Path | None = None,
    assignments: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    attacks: str = "fgsm,ifgsm,mim,pgd",
    norms: str = "0.25,0.5,1,1.5,2",
    attack_norm: float | None = None,
    epsilon: float | None = None,
    radius: float | None = None,
    steps: int = 10,
    eot: int = 20,
    examples: int | None = None,
    radii: str = "0.25,0.5,0.75",
    alpha: float = 0.001,
    n: int = 10_000,
    certify_examples: int | None = None,
    batch: int = 1000,
    precision: str = "float32",
    data_dir: DataDir = None,
    device: str = "cpu",
    workers: int = 1,
    json: Json = False,
) -> None:
    """Denoisers in front of a fixed classifier: TransDenoiser, soundly and as published.

    The classifier is trained without privacy on DATA/first, which is declared
    public; whatever is private is trained on DATA/second. All are smoothed by the
    same noise, certified and attacked on the public test images: crafted on the
    classifier alone, as in the paper, and through denoiser and noise. Every table
    has the denoiser that saw public images alone, and the gain over it.

    Stopped? Repeat the command: finished cells are skipped, a killed training is
    resumed. More seeds, contenders or budgets may be added in the same way.

    On named public data only; charged to OUT/ledger.db, not to your ledger.

    Example: privet study transdenoiser --data digits --epsilons 3 --seeds 0
    --attacks fgsm,pgd --norms 0.5,1 --examples 60 --n 500 --out runs/td

    Example: privet study transdenoiser --data mnist --device cuda --out runs/td-mnist

    Parameters
    ----------
    data
        A name from `privet data list`: digits, mnist, fashion-mnist, cifar10.
    out_folder
        Of results.json, table.md, figures.csv, index.html, plots, and of the cells.
    contenders
        Some of td-1, td, td-stability, td-labels, securesgd-prt, td-start, td-start-labels,
        td-sliced, paper, paper-nodp, paper-sepdp, paper-inp_0.1, securesgd, stobatch, dpcert,
        securesgd:paper, stobatch:paper; default: all but the last two. classifier and
        public-denoiser always take part.
    epsilons
        Budgets of the contenders that have one.
    delta
        Of the budgets.
    seeds
        Of the first weights of all but the classifier; two and more allow for tests.
    sigma
        Deviation of the noise that denoisers take away and that smooths, inputs in [0, 1].
    settings
        A .toml file with a table for each contender: [all], [td], ["td@0.5"].
    assignments
        CONTENDER.OPTION=VALUE, over what the file says; repeat it for more: --set td.epochs=10.
    attacks
        Among those of `privet attack`.
    norms
        Largest l2 norms of attacks, inputs in [0, 1].
    attack_norm
        That of tables and of plots against epsilon; default: 2, or the nearest.
    epsilon
        That of the plots against norm and radius; default: 1, or the nearest.
    radius
        l2 radius of the gains and of the tests; default: 0.25, or the nearest.
    steps
        Of ifgsm, mim and pgd.
    eot
        Draws averaged in each gradient of attacks through the noise; 20 or more.
    examples
        Test images to attack, evenly spread; default: all.
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
    data_dir
        Where the files of a named data set are.
    device
        cpu, cuda, ...
    workers
        Processes that train and measure cells at the same time; they share the device.
    json
        Print the results as JSON, nothing else.
    """
    command = repeated_by(transdenoiser, locals())
    from privet.privacy.precision import find_precision
    from privet.studies.robust_private import public, study, working
    from privet.studies.robust_private.choices import choices_for
    from privet.studies.robust_private.protocol import USUAL_EPSILON, Protocol
    from privet.studies.robust_private.tables import privacy_table
    from privet.studies.robust_private.writing import leaked
    from privet.studies.transdenoiser import writing
    from privet.studies.transdenoiser.cells import Terms, all_cells
    from privet.studies.transdenoiser.contenders import PRIVATE_HALF, chosen
    from privet.studies.transdenoiser.halves import halves_of, schools
    from privet.studies.transdenoiser.known import SETTINGS
    from privet.studies.transdenoiser.measuring import Laboratory
    from privet.studies.transdenoiser.results import USUAL_NORM, USUAL_RADIUS
    from privet.studies.transdenoiser.tables import summary

    budgets, where = numbers(epsilons, "epsilons"), device_named(device)
    find_precision(precision, where)
    protocol = Protocol(
        attacks=tuple(listed(attacks)), norm="l2", sizes=ascending(norms, "norms"), steps=steps,
        eot=eot, restarts=1, examples=examples, scale=sigma, radii=ascending(radii, "radii"),
        alpha=alpha, n=n, certified_examples=certify_examples, batch=batch,
        precision=precision,
    )  # fmt: skip
    shown = {
        "attack_norm": one_of("attack-norm", attack_norm, protocol.sizes, USUAL_NORM),
        "epsilon": one_of("epsilon", epsilon, budgets, USUAL_EPSILON),
        "radius": one_of("radius", radius, protocol.radii, USUAL_RADIUS),
    }
    taking_part = chosen(None if contenders is None else listed(contenders))
    halves = halves_of(data, data_dir)
    terms = Terms(
        folder=out_folder, data=data, choices=choices_for(data, settings, assignments, SETTINGS),
        epsilons=budgets, delta=delta, seeds=whole(seeds), sigma=sigma, device=device,
    )  # fmt: skip
    planned = all_cells(taking_part, terms, halves)
    for half in halves.values():
        public.require_no_budget(half)
    folder, private = writable(out_folder), halves[PRIVATE_HALF]
    with public.ledger_in(folder) as ledger, bar(len(planned), quiet=json) as watch:
        whole_study = study.Study(
            folder=folder,
            school=schools(halves, ledger, data_dir),
            laboratory=Laboratory(data=private, protocol=protocol, device=where),
            watch=watch,
        )
        records = working.run_cells(whole_study, planned, workers=workers)
        told = {
            "command": command,
            "data": data,
            "delta": delta,
            "seeds": whole(seeds),
            "together": leaked(folder, ledger, private.name),
        }
    results = writing.results_of(records, protocol=protocol, told=told, **shown)
    writing.write_results(folder, results)
    tables = (summary(results, brief=True), privacy_table(results["rows"]))
    tell(results, folder, tables, as_json=json)
