"""Methods that learn from a stream, by name: `fit("l2dp", stream, epsilon=2, out="runs/life")`.

    for each task of the stream, in its order:
        learn it, from the version before, into versions/NN: a release with its card
        measure the version on the test records of every task so far

Tasks that were learned are never learned again, and their versions never change. What a card
states holds for every later task under the plan (`lifetime`): adding a task invalidates nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from privet.data.dataset import Dataset, Split
from privet.engine.arguments import shown
from privet.errors import InputError, PrivetError
from privet.ledger import Ledger
from privet.lifelong import objective, plain, planning, private
from privet.lifelong.life import Life, record_in, require_free
from privet.lifelong.lifetime import Lifetime
from privet.lifelong.metrics import Scores
from privet.lifelong.published import running as published
from privet.lifelong.published.settings import PublishedSettings
from privet.lifelong.settings import (
    EPISODIC,
    OBJECTIVE,
    AloneSettings,
    ConsolidatedSettings,
    JointSettings,
    L2dpSettings,
    ObjectiveSettings,
    PlainAlone,
    PlainConsolidated,
    PlainReplay,
    PlainStreamSettings,
    ReplaySettings,
    SummedSettings,
)
from privet.lifelong.stream import Stream, Task
from privet.lifelong.tasks import load_stream
from privet.release import Release
from privet.training.registry import PAPER, SOUND
from privet.training.run_folder import RunFolder

NONE: Final = "none"
JOINT: Final = "joint"
Learn = Callable[..., Release]


@final
@dataclass(frozen=True, kw_only=True)
class Way:
    """A method under one analysis, with one kind of memory.

    Attributes:
        settings: the class of its settings.
        learn: one task.
        begun: (stream, settings) to the plan of lifetimes; None where nothing is proved.
        filled: (settings, stream) to those that hold for all tasks, also for later ones.
    """

    settings: type[Any]
    learn: Learn
    begun: Callable[[Stream, Any], Lifetime] | None = None
    filled: Callable[[Any, Stream], Any] | None = None

    @property
    def options(self) -> set[str]:
        """Names of its settings."""
        return {field.name for field in fields(self.settings)}

    @property
    def needs_target(self) -> bool:
        """Whether it cannot do without an epsilon; settings that can know themselves when."""
        return any(f.name == "epsilon" and f.default is MISSING for f in fields(self.settings))

    def settings_for(self, stream: Stream, asked: Mapping[str, Any]) -> Any:
        """What was asked for, checked."""
        made = self.settings(**asked)
        return made if self.filled is None else self.filled(made, stream)

    def lifetime(self, stream: Stream, settings: Any) -> dict[str, Any] | None:
        """The plan, for the record of the stream."""
        return None if self.begun is None else self.begun(stream, settings).to_json()


def _private(settings: type[Any]) -> Way:
    return Way(settings=settings, learn=private.learn, begun=planning.begun)


def _plain(settings: type[PlainStreamSettings], method: str) -> Way:
    return Way(settings=settings, learn=partial(plain.learn, method=method))


WAYS: Final[Mapping[tuple[str, str], Way]] = {
    ("l2dp", SOUND): _private(L2dpSettings),
    ("l2dp", PAPER): Way(
        settings=PublishedSettings, learn=published.learn, filled=PublishedSettings.for_stream
    ),
    ("dpsgd-agem", SOUND): _private(SummedSettings),
    ("er", SOUND): _private(ReplaySettings),
    ("ewc", SOUND): _private(ConsolidatedSettings),
    ("naive", SOUND): _private(AloneSettings),
    (JOINT, SOUND): _private(JointSettings),
    ("agem", NONE): _plain(PlainStreamSettings, "agem"),
    ("er", NONE): _plain(PlainReplay, "er"),
    ("ewc", NONE): _plain(PlainConsolidated, "ewc"),
    ("naive", NONE): _plain(PlainAlone, "naive"),
    (JOINT, NONE): _plain(PlainAlone, JOINT),
}
OBJECTIVES: Final = Way(settings=ObjectiveSettings, learn=objective.learn, begun=objective.begun)
SUMMARIES: Final[Mapping[str, str]] = {
    "l2dp": "private A-GEM with a memory by secret coins, or one private objective for each task",
    "dpsgd-agem": "private A-GEM, the (epsilon, delta) of all tasks and readings added up",
    "agem": "averaged gradient episodic memory (Chaudhry et al., 2019), without privacy",
    "er": "experience replay from the same memory",
    "ewc": "elastic weight consolidation: no memory, weights that mattered are held back",
    "naive": "one task after another, no memory",
    JOINT: "all tasks at once, to compare with",
}


def find_way(method: str, analysis: str | None, memory: str = EPISODIC) -> tuple[str, Way]:
    """The analysis that was meant, and how it learns; what there is not is bad input."""
    known = [a for m, a in WAYS if m == method]
    if not known:
        raise InputError(
            "unknown method", got=shown(method), expected=f"one of {', '.join(SUMMARIES)}"
        )
    analysis = known[0] if analysis is None else analysis
    if analysis not in known:
        raise InputError(
            f"'{method}' has no such analysis", got=shown(analysis), expected=", ".join(known)
        )
    if memory not in (EPISODIC, OBJECTIVE):
        raise InputError("unknown memory", got=shown(memory), expected=f"{EPISODIC}, {OBJECTIVE}")
    if memory == OBJECTIVE:
        if (method, analysis) != ("l2dp", SOUND):
            raise InputError(
                f"'{method}' has no memory of objectives",
                got=f"analysis '{analysis}'",
                fix="l2dp under the sound analysis has",
            )
        return analysis, OBJECTIVES
    return analysis, WAYS[method, analysis]


def fit(
    method: str,
    stream: Stream,
    *,
    out: str | Path,
    epsilon: float | None = None,
    delta: float | None = None,
    analysis: str | None = None,
    memory: str = EPISODIC,
    ledger: Ledger | None = None,
    watch: Callable[[Any], None] | None = None,
    **options: Any,
) -> Scores:
    """Learn all tasks of a stream, one after another, each into a version of its own.

    Args:
        method: one of `SUMMARIES`.
        stream: from `load_stream`, or your own.
        out: folder, new or empty.
        epsilon: target of a unit's whole lifetime, add/remove neighbours.
        delta: of the target; default 1e-5.
        analysis: 'sound'; 'paper': as published, the epsilon claimed; 'none': without privacy.
        memory: of `l2dp`: 'episodic' (records, read through noise) or 'objective'.
        ledger: the user's own by default.
        watch: told after every step.
        options: the method's settings.
    """
    analysis, way = find_way(method, analysis, memory)
    planning.require_declared(stream)
    stream = all_at_once(stream) if method == JOINT else stream
    settings = way.settings_for(stream, _asked(method, way, epsilon, delta, options))
    require_free(Path(out))  # before the noise is calibrated, which takes its time
    if way.learn is private.learn:
        private.require_buildable(stream, settings)
    record = {
        "method": method,
        "analysis": analysis,
        "memory": memory,
        "settings": asdict(settings),
        "lifetime": way.lifetime(stream, settings),
    }
    seed = getattr(settings, "noise_seed", None)
    life = Life.begin(out, stream, record, ledger, noise_seed=seed)
    try:
        return _learn_all(life, way, settings, watch)
    except PrivetError:
        life.withdraw()
        raise


def extend(
    out: str | Path,
    *,
    stream: Stream | None = None,
    n_tasks: int | None = None,
    ledger: Ledger | None = None,
    watch: Callable[[Any], None] | None = None,
) -> Scores:
    """Go on with a stream: a task that was killed, and those that were not learned yet.

    Args:
        out: the folder of the stream.
        stream: the same, loaded again, perhaps with more tasks; default: as it was loaded.
        n_tasks: how many tasks there are now; default: as many as then.
        ledger: default: the one that it began with.
        watch: told after every step.
    """
    record = record_in(out)
    _, way = find_way(record["method"], record["analysis"], record["memory"])
    if stream is None:
        reference = dict(record["stream"])
        reference |= {} if n_tasks is None else {"n_tasks": n_tasks}
        stream = load_stream(**reference)
    planning.require_declared(stream)
    stream = all_at_once(stream) if record["method"] == JOINT else stream
    settings = way.settings(**record["settings"])
    life = Life.reopen(out, stream, ledger)
    if len(stream) < life.learned:
        raise InputError(
            "fewer tasks than were learned",
            got=len(stream),
            expected=f"{life.learned} or more: no version is taken back",
        )
    return _learn_all(life, way, settings, watch)


def _learn_all(life: Life, way: Way, settings: Any, watch: Callable[[Any], None] | None) -> Scores:
    life.require_room()
    with RunFolder(life.folder).locked():
        return _learn_rest(life, way, settings, watch)


def _learn_rest(life: Life, way: Way, settings: Any, watch: Callable[[Any], None] | None) -> Scores:
    for number in range(1, min(life.learned, len(life.stream)) + 1):
        life.require_known(number)
    made = {}
    for number in range(life.learned + 1, len(life.stream) + 1):
        life.require_known(number)
        life.take_back(number)
        made[number] = way.learn(life, settings, number, watch)
    return life.write_scores(made)


def _asked(
    method: str, way: Way, epsilon: float | None, delta: float | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that were given, with the target; unknown ones are bad input."""
    unknown = sorted(set(options) - way.options)
    if unknown:
        raise InputError(
            f"'{method}' has no such setting here",
            got=", ".join(unknown),
            expected=_who_has(method, unknown[0]),
            fix="ask for that, or leave it out",
        )
    target = {"epsilon": epsilon, "delta": delta}
    given = {name: value for name, value in target.items() if value is not None}
    if "epsilon" not in way.options and given:
        raise InputError(
            f"'{method}' gives no privacy, and takes no target",
            got=", ".join(f"{name} {value:g}" for name, value in given.items()),
            fix="--analysis sound, where there is one; or leave it out",
        )
    if way.needs_target and epsilon is None:
        raise InputError(
            "no privacy target",
            got=f"'{method}' without epsilon",
            fix="give one, as in --epsilon 2; without privacy: --analysis none, or agem",
        )
    return {**options, **given}


def _who_has(method: str, setting: str) -> str:
    """Under what a setting may be given: by the same method, or else by others."""
    ways = {f"{name} --analysis {analysis}": way for (name, analysis), way in WAYS.items()}
    ways[f"l2dp --analysis {SOUND} --memory {OBJECTIVE}"] = OBJECTIVES
    having = [said for said, way in ways.items() if setting in way.options]
    ours = [said for said in having if said.startswith(f"{method} ")]
    return f"it with {', '.join(ours or having)}" if having else "another name"


def all_at_once(stream: Stream) -> Stream:
    """All tasks as one: what may be learned if nobody had to wait."""
    first, parts = stream.tasks[0].data, [task.data for task in stream]
    train = _joined([task.data.train for task in stream], _owners(stream))
    test = _joined([data.test for data in parts], None)
    sizes = [data.nominal_size for data in parts]
    originals = [content for data in parts for content in (data.originals or ())]
    united = Dataset(
        name=f"{stream.name}/all",
        train=train,
        test=test,
        bounds=first.bounds,
        classes=first.classes,
        nominal_size=max(sizes) if stream.shared else sum(sizes),
        licence=first.licence,
        source=first.source,
        unit=first.unit if train.units is None or first.unit != "example" else "image",
        test_is_public=all(data.test_is_public for data in parts),
        features=first.features,
        originals=tuple(originals) or None,
    )
    return Stream(
        name=stream.name,
        tasks=(Task(name="all", data=united),),
        shared=False,
        reference=stream.reference,
    )


def _owners(stream: Stream) -> list[Any] | None:
    """Whose each record is, over all tasks; None where each is its own."""
    if stream.shared:
        return [
            task.identities[task.data.train.unit_of_record]
            for task in stream
            if task.identities is not None
        ]
    if stream.tasks[0].data.train.units is None:
        return None
    starts = np.cumsum([0, *(task.data.train.n_units for task in stream)])
    return [
        start + task.data.train.unit_of_record
        for start, task in zip(starts[:-1], stream, strict=True)
    ]


def _joined(parts: list[Split], owners: list[Any] | None) -> Split:
    x = np.concatenate([part.x for part in parts])
    y = np.concatenate([part.y for part in parts])
    if owners is None:
        return Split(x=x, y=y)
    _, units = np.unique(np.concatenate(owners), return_inverse=True)
    return Split(x=x, y=y, units=units.astype(np.int64))
