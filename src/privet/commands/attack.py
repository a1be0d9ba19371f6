"""`privet attack`: how a release holds against adversarial inputs."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from privet.commands.attack_networks import Wanted, with_networks
from privet.commands.recording import Record, record_attacks, require_recordable
from privet.commands.screen import DataDir, Json, err, out, print_json, step_bar
from privet.commands.subjects import (
    chosen_examples,
    data_of,
    device_named,
    listed,
    numbers,
    reference_to,
    require_own_folder,
    warn_if_changed,
)
from privet.errors import InputError

if TYPE_CHECKING:
    from privet.attacks import AttackResult
    from privet.classifiers import Classifier
    from privet.data.dataset import Dataset
    from privet.release import Release

DEFAULTS: Final = {"l1": "fgsm,pgd"}
DEFAULT: Final = "fgsm,pgd,apgd-ce,deepfool,square"
FIGURES: Final = "attack.json"


def attack(
    release: Path,
    /,
    *,
    attacks: str | None = None,
    norm: str = "linf",
    sizes: str,
    data: str | None = None,
    data_dir: DataDir = None,
    examples: int = 500,
    steps: int | None = None,
    target: str | None = None,
    epochs: float | None = None,
    eot: int = 1,
    scale: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    out_folder: Annotated[Path | None, Parameter(name="--out")] = None,
    record: Record = False,
    json: Json = False,
) -> None:
    """Attack a release with adversarial inputs: robust accuracy by attack and size.

    The worst case counts an image as held only if it held against every attack
    at this size and at all smaller ones. Warnings name signs that an attack
    failed, rather than that the classifier is robust.

    Example: privet attack runs/digits --attacks fgsm,pgd --norm linf --sizes 0.05,0.1

    Example: privet attack runs/digits --attacks ifgsm,ain --sizes 0.2,0.3 --target 8
    --out runs/attacked (trains a network that attacks, and keeps it in runs/attacked/ain)

    Parameters
    ----------
    release
        Its folder.
    attacks
        Among fgsm, ifgsm, mim, pgd, apgd-ce, apgd-dlr, cw, deepfool, square, autoattack; separated
        by commas. Networks that attack in one pass: ain, atn, advgan are trained on the training
        records (without privacy) and kept in OUT; the folder of one, as in runs/ain, is used.
        Default: fgsm,pgd,apgd-ce,deepfool,square; in l1 fgsm,pgd.
    norm
        Of perturbations: linf, l2 or l1.
    sizes
        Largest norms, for inputs scaled to [0, 1]; separated by commas.
    data
        Whose test examples to attack; default: the data set that the release names.
    data_dir
        Where the files of a named data set are.
    examples
        How many test examples, evenly spread; all of them if there are fewer.
    steps
        Of ifgsm, mim, pgd and apgd; default: 40, apgd 100.
    target
        The class to reach; examples of that class are left out, and an image holds unless it is
        taken for the target. Default: any wrong class.
    epochs
        Of networks that are trained for the attack; default: the method's own.
    eot
        Draws of a random classifier averaged in each gradient and check.
    scale
        Attack the classifier behind Gaussian noise of this deviation, inputs in [0, 1], as
        smoothing uses it; own: the noise it was trained with. Default: no noise. Give --eot 20,
        too.
    seed
        Of random starts and moves.
    device
        cpu, cuda, ...
    out_folder
        Where attack.json, attack.csv and attack.svg go; default: nowhere. An attack.json that is
        there stays as attack.json.1, or the next number.
    record
        Add the figures to the release's trust card; what stands there is kept.
    json
        Print the record as JSON, nothing else.
    """
    from privet.attacks.generated import METHODS
    from privet.attacks.registry import create
    from privet.attacks.sweep import attack as sweep
    from privet.classifiers import open_classifier
    from privet.classifiers.opening import require_not_attacking
    from privet.release import Release, require_finished

    require_own_folder(out_folder)
    names = listed(attacks if attacks is not None else DEFAULTS.get(norm, DEFAULT))
    chosen = numbers(sizes, "sizes")
    for name in names:
        if name not in METHODS:
            create(name, norm=norm, eot=eot, seed=seed)  # refuses, before anything is trained
    if epochs is not None and not set(METHODS) & set(names):
        raise InputError(
            "epochs of no network: nothing here is trained for the attack",
            got=f"--epochs {epochs:g}, --attacks {','.join(names)}",
            fix=f"leave --epochs out, or attack by one of {', '.join(METHODS)}",
        )
    require_finished(release)
    loaded = Release.load(release)
    require_not_attacking(loaded.model, loaded.trust.get("method"))  # before it is trained against
    dataset = data_of(loaded, data, data_dir, at=release)
    noise = _scale(scale, loaded)
    warn_if_changed(release)
    measured = require_recordable(release, dataset, record=record)
    x, y = chosen_examples(loaded, dataset, examples)
    aim = _target(target, dataset)
    if aim is not None:
        x, y = x[y != aim], y[y != aim]
    wanted = Wanted(
        classifier=release, norm=norm, sizes=chosen, target=target, epochs=epochs, device=device
    )
    reference = reference_to(data or dataset.name, data_dir)
    with step_bar(quiet=json) as steps_done:
        names = with_networks(names, wanted, dataset, reference, out_folder, steps_done)
    with _bar(len(names), quiet=json) as watch:
        result = sweep(
            names,
            _behind(noise, open_classifier(loaded, device=device_named(device)), seed),
            x,
            y,
            norm=norm,  # type: ignore[arg-type]  # checked there
            sizes=chosen,
            target=aim,
            steps=steps,
            eot=eot,
            seed=seed,
            watch=watch,
        )
    found = {"release": str(release), "data": dataset.name, **result.to_json()}
    if noise:
        found["input_noise"] = noise
    if target is not None:
        found["target"] = target
    if not dataset.test_is_public:
        found["private"] = "computed on private test records: not for release"
    _tell(result, found, out_folder, as_json=json)
    if record:
        record_attacks(release, found, of=measured)


def _target(name: str | None, data: "Dataset") -> int | None:
    """The place of a class among those of the data."""
    if name is None:
        return None
    if name not in data.classes:
        raise InputError(
            "no such class to reach", got=f"'{name}'", expected=f"one of {', '.join(data.classes)}"
        )
    return list(data.classes).index(name)


def _scale(asked: str | None, release: "Release") -> float:
    """The deviation that `--scale` asks for; 0 for none."""
    from privet.certification import Gaussian
    from privet.training.own_noise import own_noise

    if asked is None:
        return 0.0
    if asked != "own":
        values = [] if asked == "" else numbers(asked, "scale")
        if len(values) != 1 or not 0.0 < values[0] < math.inf:
            raise InputError(
                "bad --scale", got=f"'{asked}'", expected="a positive number, or own", fix="0.25"
            )
        return values[0]
    try:
        own = own_noise(release)
    except InputError:  # its ways out are those of a certificate
        raise InputError(
            "no noise on its inputs to attack it behind",
            got=f"--scale own of a release by '{release.trust['method']}'",
            expected="one that was trained with Gaussian noise on its inputs",
            fix="leave --scale out: the release as it is; or say the noise, as in --scale 0.25",
        ) from None
    if not isinstance(own, Gaussian):
        raise InputError(
            "noise that is not only on the input", got=type(own).__name__, fix="say --scale 0.25"
        )
    return own.scale


def _behind(scale: float, classifier: "Classifier", seed: int) -> "Classifier":
    from privet.classifiers.noisy import noisy

    return noisy(classifier, scale, seed=seed) if scale else classifier


def _tell(
    result: "AttackResult", record: dict[str, Any], folder: Path | None, *, as_json: bool
) -> None:
    if folder is not None:
        _keep(result, record, folder)
    if as_json:
        print_json(record)
        return
    out.print(_table(result))
    notes = [*result.warnings, *([record["private"]] if "private" in record else [])]
    for note in notes:
        err.print(f"privet: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if folder is not None:
        out.print(f"\nkept in {folder}", highlight=False, soft_wrap=True)


def _keep(result: "AttackResult", record: dict[str, Any], folder: Path) -> None:
    from privet.attacks.plot import accuracy_plot
    from privet.files import make_folder, write_atomically, write_json

    make_folder(folder)
    _set_aside(folder / FIGURES)
    write_json(folder / FIGURES, record)
    write_atomically(folder / "attack.csv", result.to_csv().encode())
    write_atomically(folder / "attack.svg", accuracy_plot(result))


def _set_aside(figures: Path) -> None:
    """Keep earlier figures: networks in the folder serve several runs, and none wipes out another.

    Unlike `certify`, nothing is refused: attacks have no alpha that a choice among runs spends.
    """
    if figures.exists():
        numbered = (figures.with_name(f"{figures.name}.{i}") for i in itertools.count(1))
        figures.rename(next(place for place in numbered if not place.exists()))


def _table(result: "AttackResult") -> Any:
    from rich.table import Table

    title = f"accuracy on {result.examples} examples, by size ({result.norm})"
    sizes = (f"{size:g}" for size in result.sizes)
    table = Table("attack", "none", *sizes, title=title, min_width=len(title))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, accuracies in result.rows():
        shown = [f"{100 * a:.1f} %" for a in (result.clean_accuracy, *accuracies.values())]
        table.add_row(name, *shown)
    return table


@contextlib.contextmanager
def _bar(attacks: int, *, quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """On stderr: which attack runs now, and how much is left of all."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    progress, seen = Progress(*columns, console=err, transient=True), list[str]()
    task = progress.add_task("", total=attacks)

    def watch(name: str, done: int, of: int) -> None:
        progress.start()  # only now: what is refused leaves one line and no empty bar
        if name not in seen:
            seen.append(name)
        progress.update(task, completed=len(seen) - 1 + done / of, description=name)

    try:
        yield watch
    finally:
        if seen:
            progress.stop()
