"""StoBatch-LDP: every record is randomised once, by itself, and any training may follow.

StoBatch (Phan et al., 2020) adds one draw of noise to all records and trains for as long as it
likes, with adversarial partners, which proves nothing. Here the noise is fresh for each record and
as large as the record's own norm asks for, and labels are randomised, too. What is left of the
records then is private as it stands. So epsilon grows neither with epochs nor with partners.

| symbol | here               | meaning                                                            |
|--------|--------------------|--------------------------------------------------------------------|
| N      | `nominal_size`     | declared size, which the data must not exceed                      |
| phi(x) | `features_of`      | inputs in [0, 1]; images averaged over P x P cells and channels    |
| P, d'  | `pool`             | cells a side; numbers of phi(x): P^2, or all inputs of a table     |
| c      | `record_norm`      | L1 norm to which phi(x) is shortened                               |
| e_y    | `label_share`      | share of epsilon for the labels                                    |
| b, p   | `RecordRandomiser` | Laplace scale c / (epsilon - e_y); how often a label is redrawn    |
| x~, y~ | `randomised`       | N pairs, null records among them, in a secret order                |
| f      | head               | the network that learns                                            |
| m      | `models.local`     | the mean of u given v, which the released f is shown               |

    (x~_i, y~_i) for i = 1..N, once (`privacy.local`)
    u_i = x~_i / 256: x~ has 256 levels, of which the highest stands for 4 c / d' and all above
    for each epoch, each batch of the pairs (u, y~):
        u' = partners of u against f, if asked for (`training.adversarial`), sizes on the scale of u
        f <- optimiser(f, gradient of the mean loss)
    release f(m(v)) for v = phi(x) d' / (4 c), shortened

Guarantee: (epsilon, 0)-DP under add/remove neighbours, about twice that under replace-one; the
proof is in `privacy.local`. phi, P and c do not depend on the records; everything behind x~ and y~
is post-processing and never sees a record. The data are taken to have at most N records, each a
unit of its own; more are refused, and so are units of several records.

The ledger is charged before a record is touched. The keys are never written down. The pairs are, as
soon as they are drawn; a killed run goes on with them. One that was killed before they were written
draws them anew: nobody has seen the first ones.

Deviations from the published method: all of its privacy. From the specification's variant: a null
record is zero, not absent, so that add/remove can be stated; pixels are in [0, 1], not [-1, 1]; the
noise is whole-number Laplace noise, so that nothing is rounded; and x~ is cut off, which keeps most
of what the noise leaves of a record and little of its own tails. Noise of the scale b at prediction
would be matched to training, yet no certificate of noise in phi's space is computed: shortening is
not linear (`certification.hidden`). Certificates by noise at the input hold as for any classifier.
"""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import dp_accounting as dp
import numpy as np
import torch
from numpy.typing import NDArray

from privet.data.dataset import Dataset, Split
from privet.engine.adversary import require_adversary
from privet.engine.arguments import require_fitting, require_views
from privet.engine.averaging import WeightAverage
from privet.engine.examples import UNIT, Examples, made_up_batch
from privet.engine.handover import private_figures
from privet.engine.plain import PlainTrainer
from privet.engine.prepare import left_for_training
from privet.engine.ranks import Ranks
from privet.errors import CheckFailed, InputError
from privet.files import write_atomically, write_json
from privet.guarantee import check_target
from privet.ledger import Ledger
from privet.models.fronted import Fronted
from privet.models.local import pooled, seen_shape, usual_norm, usual_pool
from privet.privacy.accounting import DpEvent
from privet.privacy.local import LEVELS, RecordRandomiser, require_places
from privet.privacy.precision import find_precision
from privet.privacy.randomness import Randomness
from privet.privacy.units import cross_entropy
from privet.release import Release
from privet.training.books import Books
from privet.training.dpsgd import model_and_optimizer, require_device, set_as_begun
from privet.training.local_card import stated
from privet.training.plain import PlainSettings
from privet.training.run_folder import RunFolder
from privet.training.unprotected import Watcher, restore, save, take_steps

HEAD: Final = "linear"
AT_ONCE: Final = 4096  # records


@dataclass(frozen=True, kw_only=True)
class LocalSettings(PlainSettings):
    """The settings of plain training, which follows, and those of the randomised records.

    Attributes:
        epsilon: target, add/remove neighbours.
        delta: zero: the guarantee is of pure privacy.
        pool: cells a side to which images are averaged; 0: none; default: at most 8.
        record_norm: L1 norm to which a record is shortened; default: an eighth of its numbers.
        label_share: of epsilon, for the labels.
        model: the network behind; default: linear.
        noise_seed: for tests only: known noise, hence no epsilon.
    """

    epsilon: float
    delta: float = 0.0
    pool: int | None = None
    record_norm: float | None = None
    label_share: float = 0.25
    noise_seed: int | None = None

    method: ClassVar[str] = "stobatch-ldp"
    usual_epsilon: ClassVar[float] = 20.0  # at 3, what is left of the records teaches nothing
    _positive: ClassVar[tuple[str, ...]] = (*PlainSettings._positive, "record_norm", "label_share")
    _shares: ClassVar[tuple[str, ...]] = (*PlainSettings._shares, "label_share")

    def _check_together(self) -> None:
        super()._check_together()
        # Of pure privacy, only the first counts.
        check_target(self.epsilon, delta=0.5, usual=self.usual_epsilon)
        if self.delta != 0.0:
            raise InputError(
                "randomised records are purely private: there is no delta",
                got=self.delta,
                fix="leave --delta out",
            )
        if self.attacker is not None:
            raise InputError(
                "a network that may have seen the records cannot follow their randomisation",
                got=f"attacker '{self.attacker}'",
                fix="--adversarial madry",
            )
        if self.pool is not None and self.pool < 0:
            raise InputError("bad pool", got=self.pool, expected="0, or cells a side")

    def filled_for(self, data: Dataset) -> Self:
        """With the map of the records, by their public shape, and the network that has it."""
        pool = usual_pool(data.shape) if self.pool is None else self.pool
        front = f"local-{pool}-"
        head = (self.model or HEAD).removeprefix(front)
        return replace(
            super().filled_for(data),
            pool=pool,
            record_norm=self.record_norm or usual_norm(data.shape, pool),
            model=front + head,
        )

    def randomiser_for(self, data: Dataset) -> RecordRandomiser:
        """Of filled settings: for the target, less what learning public facts has cost."""
        assert self.pool is not None
        assert self.record_norm is not None
        return RecordRandomiser.calibrate(
            epsilon=left_for_training(self.epsilon, data),
            label_share=self.label_share,
            norm=self.record_norm,
            dimensions=int(np.prod(seen_shape(data.shape, self.pool))),
            classes=len(data.classes),
        )

    def network(self, data: Dataset) -> Fronted:
        """The head behind its front, which knows the norm and the noise."""
        whole = super().network(data)
        assert isinstance(whole, Fronted)
        randomiser = self.randomiser_for(data)
        whole.front.get_buffer("norm").fill_(randomiser.norm)
        whole.front.get_buffer("noise").fill_(randomiser.spread / LEVELS)
        return whole


def run(
    data: Dataset,
    settings: LocalSettings,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: Watcher | None = None,
    reference: dict[str, Any] | None = None,
) -> Release:
    """Randomise the records, train on what is left of them, and save the release to `out`.

    `reference` says how to load the data again when a killed run is resumed.
    """
    settings = settings.filled_for(data)
    _require_alone()
    if out is not None:
        RunFolder(Path(out)).require_free()
    require_randomisable(data)
    event = _event(settings, data)
    _trainer(data, settings, _nobodys(data, settings))  # what may be refused, before it is paid
    record = {
        "method": settings.method,
        "analysis": "sound",
        "settings": asdict(settings),
        "data": reference,
        "threads": torch.get_num_threads(),
    }
    books = Books.begin(record, data, out=out, ledger=ledger)
    try:
        name = "" if books.folder is None else f" {books.folder.folder.name}"
        books.ledger.reserve(
            data.name,
            label=f"{settings.method}{name}",
            step_event=event,
            steps=1,
            run_id=books.run_id,
        )
    except BaseException:
        books.discard()
        raise
    with contextlib.nullcontext() if books.folder is None else books.folder.locked():
        return _finish(data, settings, books, watch)


def resume(
    out: str | Path, data: Dataset, *, ledger: Ledger | None = None, watch: Watcher | None = None
) -> Release:
    """Go on with a killed run, on the randomised records that it has drawn."""
    _require_alone()
    with contextlib.ExitStack() as held:
        books, record = Books.reopen(out, ledger=ledger, held=held)
        release = books.saved_release()
        if release is not None:
            return release
        set_as_begun(record, data, books.ledger)
        settings = LocalSettings(**record["settings"])
        entered, event = books.ledger.run(books.run_id), _event(settings, data)
        if (entered.dataset, entered.step_event, entered.planned) != (data.name, event, 1):
            raise CheckFailed(f"run {books.run_id} is not in the ledger as what it is")
        return _finish(data, settings, books, watch)


def _finish(data: Dataset, settings: LocalSettings, books: Books, watch: Watcher | None) -> Release:
    """The one charge, the one look at the records, and then as many steps as you like."""
    books.ledger.charge(books.run_id, 0)
    trainer = _trainer(data, settings, _randomised_once(data, settings, books.folder))
    if books.folder is not None and books.folder.checkpoint.exists():
        restore(trainer, books.folder.checkpoint)
    save(trainer, books.folder)
    take_steps(trainer, settings, books.folder, watch, Ranks())
    release = stated(
        data,
        trainer,
        method=settings.method,
        randomiser=settings.randomiser_for(data),
        settings=settings,
        books=books,
        secret=settings.noise_seed is None,
    )
    if books.folder is not None:
        write_json(books.folder.figures, private_figures(release, data), private=True)
        release.save(books.folder.folder)
    # Only now: killed before this line, the run can still be resumed.
    books.ledger.settle(books.run_id)
    if books.folder is not None:
        books.folder.forget_keys()
    return release


def _randomised_once(data: Dataset, settings: LocalSettings, folder: RunFolder | None) -> Split:
    """The pairs that the run has drawn before, or new ones, written down before they are used."""
    kept = None if folder is None else folder.internal / "randomised.pt"
    if kept is not None and kept.exists():
        return _read(kept)
    seed = settings.noise_seed
    randomness = Randomness.fresh() if seed is None else Randomness.seeded(seed)
    pairs = randomised(data, settings, randomness)
    if kept is not None:
        buffer = io.BytesIO()
        torch.save({"x": torch.from_numpy(pairs.x), "y": torch.from_numpy(pairs.y)}, buffer)
        write_atomically(kept, buffer.getvalue(), private=True)
    return pairs


def randomised(data: Dataset, settings: LocalSettings, randomness: Randomness) -> Split:
    """All N pairs (u, y~) for filled settings, in the form that the head is given."""
    assert settings.pool is not None
    randomiser = settings.randomiser_for(data)
    require_randomisable(data)
    noisy, y = randomiser.randomised(
        features_of(data, settings.pool),
        data.train.y,
        places=data.nominal_size,
        stream=randomness.noise,
    )
    u = noisy.astype(np.float32) / np.float32(LEVELS)
    return Split(x=u.reshape(len(y), *seen_shape(data.shape, settings.pool)), y=y)


def features_of(data: Dataset, pool: int) -> NDArray[np.float64]:
    """Of each record phi, a row of d' numbers in [0, 1]."""
    parts = []
    for start in range(0, len(data.train), AT_ONCE):
        x = data.bounds.clamp_and_scale(data.train.x[start : start + AT_ONCE])
        parts.append(pooled(torch.from_numpy(x).double(), pool).flatten(1).numpy())
    return np.concatenate(parts)


def require_randomisable(data: Dataset) -> None:
    """Refuse what the proof does not cover: several records of a unit, more than are declared."""
    if data.train.units is not None:
        raise InputError(
            "units of several records",
            got=f"a column that says whose each record is ({data.unit})",
            expected="one record of each unit: the noise hides one record",
            fix="privet train dpsgd, which bounds what a unit brings; or one record of each",
        )
    require_places(len(data.train), data.nominal_size)


def _trainer(data: Dataset, settings: LocalSettings, pairs: Split) -> PlainTrainer:
    """Learns from the pairs alone; of the data, only public facts are asked for."""
    device = require_device(settings.device)
    whole, optimizer = model_and_optimizer(data, settings, device)
    assert isinstance(whole, Fronted)
    x, y = made_up_batch(data, device)
    require_fitting(whole, cross_entropy, data, (x, y))
    probe, augmentation, adversary = (whole.front(x), y), settings.augmentation, settings.adversary
    if augmentation is not None:
        require_views(augmentation, probe[0])
    if adversary is not None:
        require_adversary(adversary, whole.head, probe)
    return PlainTrainer(
        model=whole.head,
        whole=whole,
        optimizer=optimizer,
        examples=Examples.of(pairs, UNIT, device),
        plan=settings.course_for(data),
        stream=Randomness.seeded(settings.init_seed).sampling,
        precision=find_precision(settings.precision, device),
        average=WeightAverage(whole.head, settings.ema) if settings.ema else None,
        augmentation=augmentation,
        adversary=adversary,
    )


def _nobodys(data: Dataset, settings: LocalSettings) -> Split:
    """A pair that has the form of the others and nothing of the records."""
    assert settings.pool is not None
    x = np.zeros((1, *seen_shape(data.shape, settings.pool)), dtype=np.float32)
    return Split(x=x, y=np.zeros(1, dtype=np.int64))


def _event(settings: LocalSettings, data: Dataset) -> DpEvent:
    """For the ledger: with known noise, an access without privacy."""
    if settings.noise_seed is not None:
        return dp.NonPrivateDpEvent()
    return settings.randomiser_for(data).event


def _read(path: Path) -> Split:
    try:
        kept: Mapping[str, Any] = torch.load(path, weights_only=True)
        return Split(x=kept["x"].numpy(), y=kept["y"].numpy())
    except Exception as error:  # torch raises many kinds for a broken file
        raise InputError("corrupt randomised records", got=f"{path}: {error}") from None


def _require_alone() -> None:
    with Ranks.joined() as ranks:
        if ranks.size > 1:
            raise InputError(
                "stobatch-ldp runs in one process", got=ranks.size, fix="leave torchrun out"
            )
