"""A few figures of fidelity that may be released: noisy, with a price.

For every temporal column f and patient p of a declared set of real records, over all rows of all
stays of the patient (the first `max_steps` of each stay):

| figure    | contribution c(p, f), a number in [0, 1]                      | averaged over        |
|-----------|---------------------------------------------------------------|----------------------|
| `missing` | share of the patient's rows without a value; 1 without rows   | all patients         |
| `never`   | 1 if the patient has no value of f at all, else 0             | all patients         |
| `mean`    | numeric columns: mean of the patient's values on the column's | patients with a      |
|           | scale, 0 if there is none. Released with `never`, which tells | value, by            |
|           | how many have one                                             | post-processing      |

Proof of the sensitivity. Let v be the vector of the sums over patients of all d contributions that
were asked for. c(p, .) is a function of the records of p and of the schema alone: the schema is
public, and no other patient's records, no count and no average enters. So adding or removing one
patient, with all stays, changes v by the vector c(p, .), whose d entries lie in [0, 1]: by at most
d in L1 and at most sqrt(d) in L2. Both are attained (a patient without rows, for `missing` and
`never`). Which figures are asked for, d and the divisor (the public nominal size) do not depend on
the records. Replacing a patient changes an entry by at most 1 as well, so the same bounds hold for
replace-one neighbours.

Laplace noise of scale d / epsilon on each sum is therefore epsilon-DP, Gaussian noise of deviation
z sqrt(d) is (1/z)-GDP, with the patient as the unit. Dividing, cutting off at [0, 1] and comparing
with synthetic records that were released anyway is post-processing.

Guarantee: this holds for the noise's secret `stream`. The event is charged to the ledger of the
declared records before anything is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import dp_accounting as dp
import numpy as np
import torch

from privet.data.identity import entered_in_ledger
from privet.data.records.coding import coded_dataset
from privet.data.records.features import Numeric
from privet.data.records.records import PatientRecords
from privet.data.records.schema import PATIENT
from privet.errors import InputError
from privet.ledger import Ledger
from privet.privacy.accounting import DpEvent
from privet.privacy.noise import GaussianNoise, LaplaceNoise
from privet.privacy.randomness import Randomness, SecretStream
from privet.synthesis.evaluation.measure import Figures, plain
from privet.synthesis.evaluation.side import Floats, Side, on_unit_scale, sums_by_group

FIGURES: Final = ("missing", "never", "mean")


@final
@dataclass(frozen=True, kw_only=True)
class ShortForm:
    """Noisy figures of real records beside exact ones of synthetic records.

    Attributes:
        figures: by name and column: `real` (noisy), `synthetic`, `error` (noisy, absolute).
        mechanism: "laplace" or "gaussian".
        noise: of each average: scale (Laplace) or standard deviation (Gaussian).
        sensitivity: of the vector of sums, L1 (Laplace) or L2 (Gaussian), one patient's.
        numbers: how many sums were released.
        patients: the public divisor.
        event: what it costs; to be charged to the ledger of the real records.
        epsilon: the pure epsilon of Laplace noise; None for Gaussian noise.
    """

    figures: dict[str, dict[str, Figures]]
    mechanism: str
    noise: float
    sensitivity: float
    numbers: int
    patients: int
    event: DpEvent
    epsilon: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and words; the event is the ledger's matter."""
        found: dict[str, Any] = plain(
            {
                "figures": self.figures,
                "mechanism": self.mechanism,
                "noise": self.noise,
                "sensitivity": self.sensitivity,
                "numbers": self.numbers,
                "patients": self.patients,
                "epsilon": self.epsilon,
                "unit": PATIENT,
                "adjacency": "add-remove",
            }
        )
        return found


def noisy_short_form(
    real: PatientRecords,
    synthetic: PatientRecords,
    *,
    ledger: Ledger,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    figures: Sequence[str] = ("missing",),
    nominal_size: int | None = None,
    stream: SecretStream | None = None,
) -> ShortForm:
    """Figures of `real` with noise, beside those of `synthetic`; charged before they are made.

    Args:
        real: the declared real records.
        synthetic: records that are released anyway.
        ledger: where it is charged, to the set that the schema of `real` names.
        epsilon: pure, for Laplace noise; or
        noise_multiplier: z, for Gaussian noise. One of both.
        figures: some of "missing", "never", "mean"; "mean" brings "never" with it.
        nominal_size: public number of patients in `real`; the schema's by default. If it is wrong,
            so are the averages, in proportion.
        stream: secret randomness; fresh from the operating system by default.
    """
    asked = _asked(figures)
    size = nominal_size if nominal_size is not None else real.schema.nominal_size
    if size < 1:
        raise InputError("bad nominal_size", got=size, expected="at least 1")
    _charge(real, ledger, _event(epsilon, noise_multiplier))
    sums = _sums(real, asked)
    stream = stream if stream is not None else Randomness.fresh().noise
    noisy, facts = _hidden(sums, epsilon, noise_multiplier, stream)
    patients = len(np.unique(synthetic.patients))
    told = (
        _named(noisy / size, asked, real),
        _named(_sums(synthetic, asked) / patients, asked, real),
    )
    facts["noise"] /= size
    return ShortForm(figures=_beside(*told), numbers=len(sums), patients=size, **facts)


def contributions(records: PatientRecords, figures: Sequence[str]) -> Floats:
    """(patients, numbers): what each patient adds to the sums, every entry in [0, 1]."""
    side = Side(records)
    patient = records.patient_of_stay
    n, owner = len(np.unique(patient)), patient[side.stay_of_row]
    rows = np.bincount(owner, minlength=n).astype(np.float64)[:, None]
    values = sums_by_group(owner, n, ~side.missing)
    columns = {
        "missing": np.where(rows > 0, 1.0 - values / np.maximum(rows, 1.0), 1.0),
        "never": (values == 0).astype(np.float64),
    }
    if "mean" in figures:
        columns["mean"] = _means(side, owner, n, values)
    table = np.concatenate([columns[name] for name in figures], axis=1)
    return np.asarray(np.clip(table, 0.0, 1.0))


def _means(
    side: Side, owner: "np.ndarray[Any, np.dtype[np.int64]]", n: int, values: Floats
) -> Floats:
    scaled = [
        np.nan_to_num(on_unit_scale(feature, side.records.values[:, place]))
        for place, feature in _numeric(side.records)
    ]
    places = [place for place, _ in _numeric(side.records)]
    total = sums_by_group(owner, n, np.stack(scaled, axis=1)) if scaled else np.zeros((n, 0))
    return np.asarray(total / np.maximum(values[:, places], 1.0))


def _numeric(records: PatientRecords) -> list[tuple[int, Numeric]]:
    temporal = enumerate(records.schema.temporal)
    return [(place, f) for place, f in temporal if isinstance(f, Numeric)]


def _sums(records: PatientRecords, figures: Sequence[str]) -> Floats:
    return np.asarray(contributions(records, figures).sum(axis=0))


def _hidden(
    sums: Floats, epsilon: float | None, multiplier: float | None, stream: SecretStream
) -> tuple[Floats, dict[str, Any]]:
    """Noisy sums, and what is to be said about the noise."""
    d, event = len(sums), _event(epsilon, multiplier)
    if epsilon is not None:
        laplace = LaplaceNoise(scale=1.0 / epsilon, sensitivity=float(d))
        noisy = laplace.add_to(sums, step=0, stream=stream)
        facts = {"mechanism": "laplace", "noise": d / epsilon, "sensitivity": float(d)}
        return noisy, facts | {"event": event, "epsilon": epsilon}
    assert multiplier is not None
    reach = float(np.sqrt(d))
    gaussian = GaussianNoise(multiplier=multiplier, sensitivity=reach)
    hidden = gaussian.add_to(torch.from_numpy(sums), step=0, stream=stream).numpy()
    facts = {"mechanism": "gaussian", "noise": multiplier * reach, "sensitivity": reach}
    return hidden, facts | {"event": event, "epsilon": None}


def _event(epsilon: float | None, multiplier: float | None) -> DpEvent:
    """What the noise costs; noise that is not stated is bad input."""
    if (epsilon is None) == (multiplier is None):
        raise InputError("noise is not stated", expected="one of epsilon and noise_multiplier")
    name, value = ("epsilon", epsilon) if epsilon is not None else ("noise_multiplier", multiplier)
    if value is None or not 0 < value < float("inf"):
        raise InputError(f"bad {name}", got=value, expected="above 0, finite")
    return dp.LaplaceDpEvent(1.0 / value) if epsilon is not None else dp.GaussianDpEvent(value)


def _charge(real: PatientRecords, ledger: Ledger, event: DpEvent) -> None:
    with entered_in_ledger(coded_dataset(real), ledger):
        run = ledger.reserve(
            real.schema.name, label="short form of fidelity", step_event=event, steps=1
        )
    ledger.charge(run, 0)
    ledger.settle(run)


def _asked(figures: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in figures if name not in FIGURES]
    if unknown or not figures:
        raise InputError(
            "bad figures",
            got=", ".join(unknown) or "none",
            expected=f"some of {', '.join(FIGURES)}",
        )
    wanted = {*figures, *(("never",) if "mean" in figures else ())}
    return tuple(name for name in FIGURES if name in wanted)


def _named(averages: Floats, figures: Sequence[str], records: PatientRecords) -> dict[str, Any]:
    """Averages by figure and column, within [0, 1]; means in the column's unit."""
    all_names = [feature.name for feature in records.schema.temporal]
    numeric = {feature.name: feature for _, feature in _numeric(records)}
    found: dict[str, dict[str, float]] = {}
    at = 0
    for figure in figures:
        names = list(numeric) if figure == "mean" else all_names
        part = np.clip(averages[at : at + len(names)], 0.0, 1.0)
        found[figure] = dict(zip(names, map(float, part), strict=True))
        at += len(names)
    for name, total in found.get("mean", {}).items():
        having = 1.0 - found["never"][name]
        share = np.array(min(1.0, total / having) if having > 0 else np.nan)
        found["mean"][name] = float(numeric[name].value_at(share))
    return found


def _beside(real: dict[str, Any], synthetic: dict[str, Any]) -> dict[str, dict[str, Figures]]:
    return {
        figure: {
            name: {"real": a, "synthetic": synthetic[figure][name]}
            | {"error": abs(a - synthetic[figure][name])}
            for name, a in columns.items()
        }
        for figure, columns in real.items()
    }
