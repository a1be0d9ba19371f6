"""Synthetic patient records: learn privately, draw under conditions, compare with real ones.

Simulated emergency stays play the private records. The run is far too short for good records: it
shows the way, and what the figures look like.
"""

import os
import tempfile
from pathlib import Path

import privet
from privet.data.records import joined, write_records
from privet.data.records.parts import parted
from privet.data.records.simulator import simulate

with tempfile.TemporaryDirectory() as folder:
    os.environ["PRIVET_HOME"] = folder  # a ledger of its own
    records = simulate(2000)  # or privet.data.records.load_records("stays.csv", schema="s.toml")

    # A fifth of the patients is set aside, to compare with. The guarantee is for a patient with
    # all stays; everything that is drawn from the release afterwards is covered by it.
    release = privet.synthesis.fit(
        "autoregressive", records, epsilon=1.5, delta=1e-5, holdout=0.2, model="rows-16-0", epochs=5
    )
    assert release.privacy is not None
    print(f"one {release.privacy.unit}: epsilon {release.privacy.epsilon:.3f}")

    # Any number, chunk by chunk, under conditions on static columns and outcomes.
    old = joined(privet.synthesis.sample(release, 100, where=["age>=60", "gender=F"]))
    write_records(old, Path(folder) / "old.csv")
    print((Path(folder) / "old.csv").read_text()[:200])

    # These figures are computed from real records without charge: they are not for release.
    train, held_out = parted(records, 0.2)
    synthetic = joined(privet.synthesis.sample(release, len(train)))
    found = privet.synthesis.evaluate(
        train, held_out, synthetic, measures=["marginals", "missing-rates", "timing"]
    )
    for row in found.rows:
        print(f"{row.headline.says}: {row.synthetic:.3g}, of real records {row.real:.3g}")
