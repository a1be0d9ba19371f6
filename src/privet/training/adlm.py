"""AdLM with a proof: more noise on the weights of less relevant inputs (after Phan et al., 2017).

The published method noises inputs by one draw that all records share, and proves nothing
(`--analysis paper` trains so, and lists the gaps). What is kept here is the idea, to spend the
noise where it hurts least: relevance is released privately and paid for, and the gradient of the
first layer is clipped and noised in the coordinates that it gives.

| symbol   | here                | meaning                                                     |
|----------|---------------------|-------------------------------------------------------------|
| d        |                     | inputs of the network                                       |
| n        | `nominal_size`      | declared number of units                                    |
| F        | `fixed_network`     | a network with public random weights, the same for all data |
| R^l(x_i) | `models.relevance`  | relevance of each input for score l of F                    |
| v_i      | `shares_of`         | sum_l |R^l(x_i)|, over its L1 norm                          |
| e_1      | `relevance_epsilon` | `relevance_share` of the target                             |
| R~_j     | `Relevance.values`  | (sum_i v_ij + Lap(1/e_1)) / n                               |
| beta_j   | `Relevance.beta`    | d R~_j / sum R~, floored; they add up to d                  |
| s_j      | `Relevance.weights` | beta_j^power, scaled so that the squares add up to d        |
| S        | geometry `by-input` | s_j on the first layer's weights of input j, else 1         |
| C, sigma | the plan's          | clip norm, noise multiplier                                 |

    R~ once, charged by itself
    in each step t, for a Poisson sample of rate q:
        g_i = gradient of the cross entropy of record i
        u   = sum of S g_i, each shortened to C, + N(0, sigma^2 C^2)
        theta <- optimiser(theta, S^-1 u / (q n))

Guarantee: (epsilon, delta)-DP under add/remove neighbours, by basic composition of two plans.
1. A unit's v (of several records, their mean) has L1 norm at most 1 and depends on its records and
   on F alone. So the sum of the v_i has L1 sensitivity 1, and with Lap(1/e_1) on every coordinate
   it is (e_1, 0)-DP; the noise is in whole steps of a grid, so that no low bit tells a sum. What is
   lost to rounding when sums are formed in blocks (2e-8 was seen) is less than what the noise is
   rounded up by. Dividing by the declared n, flooring and S are post-processing.
2. Given R~, S is a public diagonal. S g_i shortened to C has norm at most C, so u is the Gaussian
   mechanism with multiplier sigma on a Poisson sample, and S^-1 and the optimiser are
   post-processing (`privacy.geometry`, `privacy.elliptical`). All steps together are accounted by
   their privacy loss distribution, for the target less e_1.
Basic composition stands that the second plan's coordinates were chosen after the first: the card's
`events` list both.

The relevance is charged before it exists, and kept in the run's record: a resumed run does not draw
it again. A run that was killed before its first step draws it anew, and pays for it again.

Deviations from the paper. F is not trained on the records: changing one would move all relevances.
Relevances are divided by their own L1 norm, whose sensitivity does not grow with d, instead of
brought to [0, 1]. Nothing is added to inputs, and the loss is the cross entropy, not its Taylor
polynomial. The first layer must be `nn.Linear`: a convolution has the same weights for all inputs.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.data.dataset import Bounds, Dataset, LearnedFact, Split
from privet.data.learning import charge
from privet.engine.account import Unpaid
from privet.engine.arguments import shown
from privet.engine.checkpoint import save_checkpoint
from privet.engine.plan import Plan
from privet.engine.prepare import Extras
from privet.engine.ranks import Ranks
from privet.errors import InputError
from privet.files import read_json, write_json
from privet.ledger import Ledger
from privet.models.relevance import relevance
from privet.privacy.geometry import BY_INPUT, Geometry
from privet.privacy.noise import LaplaceNoise
from privet.privacy.randomness import Randomness
from privet.release import Release
from privet.training import dpsgd
from privet.training.books import Books
from privet.training.run_folder import RunFolder
from privet.training.settings import Settings

FACT: Final = "relevance"
MODEL: Final = "mlp"
FLOOR: Final = 0.1  # of beta: bounds how much more noise an input gets
WIDTH: Final = 256  # of the fixed network
AT_ONCE: Final = 1024  # records
MARGIN: Final = 1e-9  # far above what rounding adds to a row's L1 norm in double precision


@final
@dataclass(frozen=True, kw_only=True)
class Relevance:
    """R~: one number for each input, released privately; may be below 0, as noise is."""

    values: tuple[float, ...]

    @property
    def beta(self) -> NDArray[np.float64]:
        """Shares of the inputs, at least about `FLOOR`, adding up to d."""
        known = np.maximum(np.asarray(self.values), 0.0)
        mean = known.mean()
        even = np.ones_like(known) if mean == 0 else known / mean
        floored = np.maximum(even, FLOOR)
        return np.asarray(floored / floored.mean())

    def weights(self, power: float) -> tuple[float, ...]:
        """s_j; power 0 makes all of them 1, which is DP-SGD."""
        s = self.beta**power
        return tuple((s * math.sqrt(len(s) / np.square(s).sum())).tolist())


@dataclass(frozen=True, kw_only=True)
class AdlmSettings(Settings):
    """The settings of DP-SGD, and those of the relevance.

    Attributes:
        clipping: by the inputs' relevance; there is no other way here.
        relevance_share: of epsilon, for the release of the relevance.
        relevance_power: how much weights follow relevance: 0 not at all, 0.5 like its root. More
            relevance is more noise on all other inputs.
        relevance: what was released; learned by the run, never given.
    """

    clipping: str = BY_INPUT
    relevance_share: float = 0.1
    relevance_power: float = 0.25
    relevance: Relevance | None = None

    method: ClassVar[str] = "adlm"
    _small_models: ClassVar[tuple[str, ...]] = (MODEL, "linear")  # first layers by input
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Settings._choices,
        "clipping": (BY_INPUT,),
    }
    _shares: ClassVar[tuple[str, ...]] = (*Settings._shares, "relevance_share", "relevance_power")

    def __post_init__(self) -> None:
        given: object = self.relevance
        if isinstance(given, dict):  # from a record
            given = Relevance(values=tuple(given["values"]))
            object.__setattr__(self, "relevance", given)
        if not isinstance(given, Relevance | None):
            raise _given(given)
        super().__post_init__()

    def _check_together(self) -> None:
        super()._check_together()
        if self.relevance_share == 0:
            raise InputError(
                "bad relevance_share",
                got=0,
                expected="0 < relevance_share < 1",
                fix="without relevance this is `privet train dpsgd`",
            )

    def filled_for(self, data: Dataset) -> Self:
        """With a network whose first layer has weights for each input."""
        return replace(super().filled_for(data), model=self.model or MODEL)

    @property
    def relevance_epsilon(self) -> float:
        """e_1."""
        return self.relevance_share * self.epsilon

    def paid_by(self, data: Dataset) -> Dataset:
        """The data with what it costs to learn their relevance among the facts that were paid."""
        fact = LearnedFact(name=FACT, epsilon=self.relevance_epsilon)
        return replace(data, learned=(*data.learned, fact))

    def extras(self) -> Extras:
        """With the relevance for geometry."""
        assert self.relevance is not None, "learned before a trainer is made"
        weights = self.relevance.weights(self.relevance_power)
        return replace(super().extras(), geometry=Geometry.by_input(weights))


def run(
    data: Dataset,
    settings: AdlmSettings,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    watch: dpsgd.Watcher | None = None,
    reference: dict[str, Any] | None = None,
) -> Release:
    """Learn the relevance, train, and save the release to `out` if given.

    Both plans are reserved before a record is touched; see `training.dpsgd.run`.
    """
    _require_alone()
    if settings.relevance is not None:
        raise _given(settings.relevance)
    settings = settings.filled_for(data)
    if out is not None:
        RunFolder(Path(out)).require_free()
    settings.require_public(data, ledger)
    paid = settings.paid_by(data)
    plan, randomness = settings.plan_for(paid), dpsgd.fresh_randomness(settings)
    _rehearse(paid, settings, plan)
    books = Books.begin(dpsgd.record_of(settings, plan, reference), paid, out=out, ledger=ledger)
    try:
        account = books.open_account(paid, plan, method=settings.method, private=randomness.secret)
        if randomness.secret:  # with known noise, the account stands for any access
            charge(books.ledger, paid.name, paid.learned[-1:])
        settings = replace(settings, relevance=learn_relevance(data, settings, randomness))
        _note(books.folder, settings)
        trainer = dpsgd.build(paid, settings, plan, randomness=randomness, account=account)
    except BaseException:
        books.discard()
        raise
    folder = books.folder
    with contextlib.nullcontext() if folder is None else folder.locked():
        if folder is not None:
            save_checkpoint(folder.checkpoint, trainer, keep_keys=settings.keep_keys)
        return dpsgd.finish(trainer, paid, settings, folder, watch)


def resume(
    out: str | Path,
    data: Dataset,
    *,
    ledger: Ledger | None = None,
    watch: dpsgd.Watcher | None = None,
) -> Release:
    """Go on with a killed run, with the relevance that it has learned; see `dpsgd.resume`."""
    _, record = RunFolder.open(out)
    paid = AdlmSettings(**record["settings"]).paid_by(data)
    return dpsgd.resume(out, paid, ledger=ledger, watch=watch, kind=AdlmSettings)


def learn_relevance(data: Dataset, settings: AdlmSettings, randomness: Randomness) -> Relevance:
    """R~: step 1 of the proof."""
    device = dpsgd.require_device(settings.device)
    network = fixed_network(data.shape, len(data.classes)).to(device)
    noise = LaplaceNoise(scale=1.0 / settings.relevance_epsilon, sensitivity=1.0)
    stream = randomness.noise.branch(purpose=FACT, step=0)
    noisy = noise.add_to(summed_shares(network, data.train, data.bounds), step=0, stream=stream)
    return Relevance(values=tuple((noisy / data.nominal_size).tolist()))


def summed_shares(network: nn.Module, records: Split, bounds: Bounds) -> NDArray[np.float64]:
    """The sum over units of the mean over their records of v."""
    device = next(network.parameters()).device
    counts = np.bincount(records.unit_of_record)
    total = np.zeros(math.prod(records.x.shape[1:]))
    for start in range(0, len(records), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        x = torch.from_numpy(bounds.clamp_and_scale(records.x[rows])).to(device)
        part = 1.0 / counts[records.unit_of_record[rows]]
        total += part @ shares_of(network, x).cpu().numpy()
    return total


def shares_of(network: nn.Module, x: Tensor) -> Tensor:
    """v, a row for each record: of L1 norm 1, or 0 where nothing is relevant."""
    classes = network(x[:1]).shape[1]
    total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for score in range(classes):
        chosen = torch.full((len(x),), score, device=x.device)
        total += relevance(network, x, classes=chosen).abs()
    rows = total.flatten(1)
    norms = rows.sum(1, keepdim=True)
    usable = (norms > 0) & norms.isfinite()
    return torch.where(usable, rows / norms * (1.0 - MARGIN), 0.0)


def fixed_network(shape: tuple[int, ...], n_classes: int) -> nn.Sequential:
    """F: no biases, so that an input of 0 has no relevance; public random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), WIDTH, bias=False),
            nn.ReLU(),
            nn.Linear(WIDTH, n_classes, bias=False),
        )


def _rehearse(data: Dataset, settings: AdlmSettings, plan: Plan) -> None:
    """Whatever a trainer may be refused for, before anything is paid: with even relevance."""
    even = replace(settings, relevance=Relevance(values=(1.0,) * math.prod(data.shape)))
    dpsgd.build(data, even, plan, randomness=Randomness.fresh(0), account=Unpaid())


def _note(folder: RunFolder | None, settings: AdlmSettings) -> None:
    """What was learned, for `resume`; it is released in any case."""
    if folder is not None:
        record = read_json(folder.settings) | {"settings": asdict(settings)}
        write_json(folder.settings, record, private=True)


def _require_alone() -> None:
    with Ranks.joined() as ranks:
        if ranks.size > 1:
            raise InputError("adlm runs in one process", got=ranks.size, fix="leave torchrun out")


def _given(value: object) -> InputError:
    return InputError(
        "relevance is learned, and paid for",
        got=shown(value),
        fix="leave it out; --relevance-share says what it may cost",
    )
