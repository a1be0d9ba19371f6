"""Whatever the records are, without what they say in the private sums the release is the same."""

import copy
import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

import privet
from privet.data.records.simulator import simulate
from privet.engine.trainer import PrivateTrainer
from privet.synthesis.fitting import fit
from privet.synthesis.igamt import FamilySettings
from privet.synthesis.record_counts import Counts

SCHEMA = replace(simulate(30, seed=2).schema, max_steps=6)
MADE = {"igamt": {"settling": 64}, "vae": {"settling": 64}, "gan": {}}
# Of each run, not of its records.
OWN = ("created", "run")


def records(seed, n):
    """Other patients, more or fewer stays and rows, under the same public schema."""
    return replace(simulate(n, seed=seed), schema=SCHEMA)


def extreme(n):
    """Every stay a single row, every value at its highest."""
    made = records(3, n)
    firsts = made.offsets[:-1]
    tops = np.nanmax(made.values, axis=0)
    return replace(
        made,
        offsets=np.arange(len(made) + 1),
        times=made.times[firsts],
        values=np.broadcast_to(tops, (len(made), len(tops))).copy(),
    )


def silent(monkeypatch):
    """Records are looked at, and add nothing to the private sums; noise is drawn by a seed."""
    inner = PrivateTrainer._clipped_sum
    monkeypatch.setattr(
        PrivateTrainer, "_clipped_sum", lambda self, batch: torch.zeros_like(inner(self, batch))
    )


def released(name, made, folder):
    """Every file of the release, by name."""
    size = "transformer-16-1-4" if name == "igamt" else "gru-16-1-4"
    with closing(privet.Ledger(folder.parent / f"{folder.name}.db")) as ledger:
        fit(
            name, made, epsilon=3.0, noise_seed=7, epochs=4.0, batch=SCHEMA.nominal_size,
            free_batch=8, model=size, out=folder, ledger=ledger, **MADE[name],
        )  # fmt: skip
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "internal" not in path.parts
    }


def public(name, content):
    """Less what belongs to the run, and the digest that the ledger's secret key hides."""
    if name == "manifest.json":  # of the others
        return sorted(json.loads(content)["files"])
    if name == "report.html":  # of the card
        return None
    if name != "trust.json":
        return content
    card = json.loads(content)
    assert card["provenance"].pop("data_digest").startswith("blake2b-keyed:")
    for key in OWN:
        del card["provenance"][key]
    return card


def require_same(name, folder, ones, others):
    both = [released(name, made, folder / str(k)) for k, made in enumerate((ones, others))]
    assert both[0].keys() == both[1].keys()
    for file in both[0]:
        one, other = (public(file, files[file]) for files in both)
        assert one == other, file


@pytest.mark.parametrize("name", MADE)
def test_two_sets_of_records_whose_sums_are_silenced_give_one_release(name, tmp_path, monkeypatch):
    """Of other size, lengths and values: weights, cut points, odds, card, all but run and date."""
    silent(monkeypatch)
    require_same(name, tmp_path, records(2, 30), extreme(50))


def test_sums_that_are_heard_are_seen(tmp_path):
    """The test can fail: records do move the release."""
    with pytest.raises(AssertionError, match="weights"):
        require_same("vae", tmp_path, records(2, 30), extreme(50))


def test_histograms_without_noise_are_seen(tmp_path, monkeypatch):
    """Planted: cut points and odds by what the records have themselves."""
    inner = FamilySettings.made_of

    def leaky(self, trained, data, plan):
        trained = copy.deepcopy(trained)  # the trainer would notice
        codes = torch.from_numpy(data.train.x).float() / 255
        rows = trained.networks.reader.read(codes)
        counts = Counts(trained.networks.shape.sizes).of(rows.x, rows.m).mean(0)
        with torch.no_grad():
            trained.counts.weight.copy_(counts[None])
        return inner(self, trained, data, plan)

    silent(monkeypatch)
    monkeypatch.setattr(FamilySettings, "made_of", leaky)
    with pytest.raises(AssertionError, match="weights"):
        require_same("vae", tmp_path, records(2, 30), extreme(50))
