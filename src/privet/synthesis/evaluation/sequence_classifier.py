"""The IGAMT paper's downstream task: the class of a vital sign, by a CNN-LSTM on the rows.

| paper                         | here                                                           |
|-------------------------------|----------------------------------------------------------------|
| label: DBP in 4 classes       | quarters of the stays' means of the column, cut as in `test`   |
| 3 convolutions, BiLSTM of 128 | the same; 64 channels of width 3; the mean over rows, one layer |
| 1,000 epochs                  | `EPOCHS`                                                       |

The paper does not say how classes are cut, nor what the network sees. It sees the gap, the values
times the mask and the mask of all temporal columns but the one in question. Quarters are harder
than equal widths, where one class has nearly all; guessing is right in one case of four.
"""

from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from privet.data.records.features import Numeric
from privet.errors import InputError
from privet.synthesis.evaluation.flattened import sequences
from privet.synthesis.evaluation.intervals import share
from privet.synthesis.evaluation.learners import macro_auroc
from privet.synthesis.evaluation.measure import Comparison, Figures, Headline, Measure, Outcome
from privet.synthesis.evaluation.side import Floats, Places, Side

CLASSES: Final = 4
EPOCHS: Final = 8
MOST: Final = 4_000  # stays that train, drawn at random
BATCH: Final = 64
CHANNELS: Final = 64
HIDDEN: Final = 128
NAME: Final = "classes-of"


class CnnLstm(nn.Module):
    """Three convolutions over the rows, a bidirectional LSTM, the mean over rows that are there.

    Numbers are first standardised by `centre` and `scale`, those of the training rows. Rows that
    are not there have no part in anything, so it does not matter how many of them are handed in.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: Tensor, scale: Tensor, classes: int = CLASSES) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        widths = (len(centre), CHANNELS, CHANNELS, CHANNELS)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(a, b, 3, padding=1) for a, b in pairwise(widths)
        )
        self.lstm = nn.LSTM(CHANNELS, HIDDEN, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * HIDDEN, classes)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """Scores of the classes, of (stays, rows, numbers) and (stays, rows), absent rows last."""
        lengths = there.sum(dim=1).long().clamp(min=1).cpu()
        most = int(lengths.max())
        x, there = x[:, :most], there[:, :most, None]
        x = (x - self.centre) / self.scale * there
        for convolution in self.convolutions:
            x = convolution(x.transpose(1, 2)).transpose(1, 2).relu() * there
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        rows, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        weights = there / there.sum(dim=1, keepdim=True).clamp(min=1)
        scores: Tensor = self.out((rows * weights).sum(dim=1))
        return scores


def measure_of(column: str, *, epochs: int = EPOCHS) -> Measure:
    """The measure for a numeric temporal column."""
    return Measure(
        name=f"{NAME}:{column}",
        says=f"Whether a network learns from synthetic rows to tell high from low {column}.",
        compare=partial(compare, column=column, epochs=epochs),
        headlines=(
            Headline(figure="percent", says=f"quarter of {column}, accuracy", best=None, unit="%"),
        ),
    )


def compare(comparison: Comparison, *, column: str, epochs: int = EPOCHS) -> Outcome:
    """Accuracy and macro AUROC on real stays of the network that the candidate trained."""
    place = _place(comparison.test, column)
    rng = comparison.rng(NAME)
    real = stay_means(comparison.test, place)
    edges = np.nanquantile(real, np.linspace(0, 1, CLASSES + 1)[1:-1]) if _some(real) else None
    if edges is None:
        return Outcome(figures={"percent": None, "why": f"no test stay has a value of {column}"})
    train = comparison.candidate.at_most(MOST, rng)
    labels = stay_means(train, place)
    if np.isfinite(labels).sum() < CLASSES:
        return Outcome(figures={"percent": 100 / CLASSES, "why": "too few training stays have it"})
    x, there, y = (part.to(comparison.device) for part in _prepared(train, place, labels, edges))
    model = _trained(x, there, y, epochs, comparison.seed)
    tested = (part.to(comparison.device) for part in _prepared(comparison.test, place, real, edges))
    return Outcome(figures=_tested(model, *tested))


def _some(values: Floats) -> bool:
    return bool(np.isfinite(values).any())


def stay_means(side: Side, place: int) -> Floats:
    """The mean of a temporal column in each stay; NaN where there is none."""
    there = np.flatnonzero(~side.missing[:, place])
    stay = side.stay_of_row[there]
    count = np.bincount(stay, minlength=len(side))
    total = np.bincount(stay, weights=side.temporal(place)[there], minlength=len(side))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


Batch = tuple[Tensor, Tensor, Tensor]


def _prepared(side: Side, place: int, means: Floats, edges: Floats) -> Batch:
    """Numbers, rows that are there, classes: of the stays that have the column at all."""
    cells = np.delete(sequences(side), 1 + place, axis=2)
    mask = np.zeros((len(side), side.schema.max_steps, len(side.schema.temporal)), np.float32)
    mask[side.stay_of_row, side.records.step_of_row] = ~side.missing
    mask = np.delete(mask, place, axis=2)
    there = np.arange(side.schema.max_steps) < side.records.lengths[:, None]
    known = np.isfinite(means)
    x = np.concatenate([cells, mask], axis=2)[known]
    y: Places = np.searchsorted(edges, means[known], side="right")
    return torch.from_numpy(x), torch.from_numpy(there[known]).float(), torch.from_numpy(y)


def _trained(x: Tensor, there: Tensor, y: Tensor, epochs: int, seed: int) -> CnnLstm:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows = x[there > 0]
        model = CnnLstm(rows.mean(dim=0).cpu(), rows.std(dim=0).clamp(min=1e-3).cpu()).to(x.device)
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(epochs):
            for batch in torch.split(torch.randperm(len(y)), min(BATCH, max(4, len(y) // 16))):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(model(x[batch], there[batch]), y[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return model.eval()


@torch.no_grad()
def _tested(model: CnnLstm, x: Tensor, there: Tensor, y: Tensor) -> Figures:
    batches = zip(torch.split(x, 512), torch.split(there, 512), strict=True)
    chances = torch.cat([model(a, b) for a, b in batches]).softmax(dim=1).double().cpu().numpy()
    truth = y.cpu().numpy()
    right = share(int((chances.argmax(axis=1) == truth).sum()), len(truth))
    area = macro_auroc(chances, np.arange(CLASSES), truth)
    return {"percent": 100 * right["share"], "accuracy": right, "auroc": area["auroc"]}


def _place(side: Side, column: str) -> int:
    names = [f.name for f in side.schema.temporal if isinstance(f, Numeric)]
    if column not in names:
        raise InputError(
            f"{NAME}: no such column",
            got=f"'{column}'",
            expected=f"a numeric temporal one: {', '.join(names) or 'there is none'}",
        )
    return [f.name for f in side.schema.temporal].index(column)
