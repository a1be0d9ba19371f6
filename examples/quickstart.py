"""Train a private classifier of digits, save its release, load it again, verify it."""

import os
import tempfile
from pathlib import Path

import privet

with tempfile.TemporaryDirectory() as folder:
    # A ledger of its own, for a try. For real work leave this line out: one ledger for all runs.
    os.environ["PRIVET_HOME"] = folder

    data = privet.data.load("digits")
    release = privet.train("dpsgd", data, epsilon=3.0, delta=1e-5, epochs=10)
    for guarantee in release.guarantees:
        said = f"epsilon = {guarantee.epsilon:.3f} at delta = {guarantee.delta:g}"
        print(f"{guarantee.basis}: {said}, {guarantee.adjacency}")
    print(f"test accuracy: {release.trust['utility']['test_accuracy']:.3f}")

    release.save(Path(folder) / "digits")
    again = privet.load(Path(folder) / "digits")
    print(f"first predictions: {again.predict(data.test.x[:8]).tolist()}")

    result = privet.verify(Path(folder) / "digits")
    print(f"verified: {result.ok} ({len(result.findings)} checks)")
