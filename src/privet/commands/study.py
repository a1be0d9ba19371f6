"""`privet study`: the papers' comparisons, each by one command."""

import contextlib
import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from privet.commands.bench import writable
from privet.commands.screen import DataDir, Json, err, out, print_json
from privet.commands.subjects import device_named, listed, numbers
from privet.errors import InputError

OPTIONS: Final = {"out_folder": "--out", "assignments": "--set"}

study_app = App(name="study", help="Repeat the papers' comparisons, on public data.")


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
    audit: Annotated[bool, Parameter(negative="")] = False,
    canaries: int | None = None,
    data_dir: DataDir = None,
    device: str = "cpu",
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
        As in `privet methods`: METHOD, or METHOD:ANALYSIS (stobatch:paper); default: all.
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
    audit
        Audit each release by a twin with canaries; methods that have no twin say why.
    canaries
        Of an audit; default: 5000, or as many as the network has parameters.
    data_dir
        Where the files of a named data set are.
    device
        cpu, cuda, ...
    json
        Print the results as JSON, nothing else.
    """
    command = _command(locals())
    from privet.studies.robust_private import cells, choices, public, study, writing
    from privet.studies.robust_private.measuring import Laboratory
    from privet.studies.robust_private.protocol import Protocol
    from privet.studies.robust_private.training import School

    budgets, where = numbers(epsilons, "epsilons"), device_named(device)
    protocol = Protocol(
        attacks=tuple(listed(attacks)), sizes=_ascending(sizes, "sizes"), steps=steps, eot=eot,
        restarts=restarts, examples=examples, scale=scale, radii=_ascending(radii, "radii"),
        alpha=alpha, n=n, certified_examples=certify_examples, batch=batch,
    )  # fmt: skip
    chosen = cells.contenders(None if methods is None else listed(methods))
    shown = _shown(protocol.sizes, attack_size, budgets, epsilon)
    dataset = public.public_data(data, data_dir)
    planned = cells.all_cells(
        chosen, dataset, choices.choices_for(data, settings, assignments),
        epsilons=budgets, delta=delta, seeds=_whole(seeds), device=device,
    )  # fmt: skip
    public.require_no_budget(dataset)
    folder = writable(out_folder)
    with public.ledger_in(folder) as ledger, _bar(len(planned), quiet=json) as watch:
        records = study.Study(
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
        ).run(planned)
        told = {
            "command": command,
            "data": dataset.name,
            "delta": delta,
            "seeds": _whole(seeds),
            "together": writing.leaked(folder, ledger, dataset.name),
        }
    results = writing.results_of(
        records, protocol=protocol, attack_size=shown[0], epsilon=shown[1], told=told
    )
    writing.write_results(folder, results)
    _tell(results, folder, as_json=json)


def _command(given: Mapping[str, Any]) -> str:
    """By which the study is repeated: what is not as by default."""
    words = ["privet", "study", "robust-private"]
    for name, parameter in inspect.signature(robust_private).parameters.items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        value = given[name]
        if value == parameter.default or name == "json":
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option] if one is True else [option, str(one)]
    return shlex.join(words)


def _tell(results: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    from privet.commands.audit_telling import fail_if
    from privet.studies.robust_private.tables import privacy_table, summary

    if as_json:
        print_json(results)
    else:
        out.print(summary(results).screen())
        out.print(privacy_table(results["rows"]).screen())
        for note in dict.fromkeys(note for row in results["rows"] for note in row["warnings"]):
            err.print(
                f"privet: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True
            )
        out.print(f"\n{results['together']['note']}", highlight=False, soft_wrap=True)
        out.print(f"kept in {folder}; see {folder / 'index.html'}", highlight=False, soft_wrap=True)
    wrong = [row["name"] for row in results["rows"] if row["contradicted"]]
    fail_if(bool(wrong), f"what is stated of {', '.join(dict.fromkeys(wrong))}")


def _shown(
    sizes: tuple[float, ...], size: float | None, budgets: list[float], epsilon: float | None
) -> tuple[float, float]:
    """The one size and the one epsilon of plots."""
    from privet.studies.robust_private.protocol import USUAL_EPSILON, USUAL_SIZE, nearest

    for name, value, among in (("attack-size", size, sizes), ("epsilon", epsilon, budgets)):
        if value is not None and value not in among:
            raise InputError(
                f"--{name} is none of those that are measured",
                got=value,
                expected=f"one of {', '.join(f'{one:g}' for one in among)}",
            )
    if not budgets:
        raise InputError("no epsilons", expected="at least one", fix="--epsilons 1")
    return (
        nearest(sizes, USUAL_SIZE) if size is None else size,
        nearest(budgets, USUAL_EPSILON) if epsilon is None else epsilon,
    )


def _ascending(text: str, what: str) -> tuple[float, ...]:
    return tuple(sorted(set(numbers(text, what))))


def _whole(text: str) -> list[int]:
    parts = listed(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise InputError(
            "bad seeds", got=f"'{text}'", expected="whole numbers, separated by commas: 0,1,2"
        )
    return [int(part) for part in parts]


@contextlib.contextmanager
def _bar(cells: int, *, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """On stderr: how many cells are done, and what is being done; how to go on if it is stopped."""
    if quiet:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    progress = Progress(*columns, console=err, transient=True)
    task = progress.add_task("", total=cells)

    def watch(done: int, what: str) -> None:
        progress.start()  # with the first news: a refusal before stands alone
        progress.update(task, completed=done, description=what)

    try:
        yield watch
    except KeyboardInterrupt:
        err.print("privet: the same command goes on with the study", highlight=False)
        raise
    finally:
        if progress.live.is_started:
            progress.stop()
