"""Whole contests, with a stub in place of a peer."""

import dataclasses

import numpy as np
import pytest
import torch

from privet.attacks import fgsm
from privet.errors import CheckFailed, InputError
from privet.files import read_json
from privet.studies.attack_parity.contests import Contest
from privet.studies.attack_parity.peers import peers
from privet.studies.attack_parity.study import Study
from privet.studies.private_step.study import Record


def contest(size, attack="fgsm"):
    return Contest(attack=attack, norm="linf", size=size, budget={})


@pytest.fixture
def make_study(linear, tmp_path):
    def make(found, **changes):
        record = Record(path=tmp_path / "new" / "attacks.json", content={"command": "as given"})
        return Study(
            subject=linear, peers=found, record=record,
            **({"rounds": 2, "batch": 4, "cell_seconds": 30.0} | changes),
        )  # fmt: skip

    return make


def test_all_are_judged_by_the_same_judge_and_reasons_are_kept(linear, stubs, make_study):
    """Honest at 0.1; at 0.4 the stub goes three times as far, which earns it nothing."""
    with peers(stubs.python, linear, 1) as found:
        study = make_study(found)
        rows = study.run([contest(0.1), contest(0.4), contest(0.1, "deepfool")])
    told = read_json(study.record.path)
    assert told["cells"] == rows
    assert told["peers"] == {"torchattacks": "7.7", "torch": torch.__version__}
    assert study.record.plot.read_bytes().startswith(b"<?xml")
    by = {(r["size"], r["attack"], r["contestant"]): r for r in rows}
    honest, ours = by[0.1, "fgsm", "torchattacks"], by[0.1, "fgsm", "privet"]
    assert honest["robust_accuracy"] == ours["robust_accuracy"] == 3 / 9
    for one in (honest, ours):
        assert len(one["rounds_s"]) == len(one["rounds_cpu_s"]) == 2
        assert 0 < one["median_cpu_s"] < 5
    cheat = by[0.4, "fgsm", "torchattacks"]
    assert cheat["robust_accuracy"] == 5 / 9
    assert cheat["outside"] > 0
    assert by[0.4, "fgsm", "privet"]["robust_accuracy"] == 0
    assert by[0.1, "fgsm", "foolbox"]["why"] == "skipped: foolbox is not installed"
    assert by[0.1, "deepfool", "torchattacks"]["why"] == "skipped: it has no such attack"
    assert by[0.1, "deepfool", "privet"]["mean_norm"] == pytest.approx(
        np.mean(np.linspace(0.5, 0.7, 5) - 0.4975), rel=1e-2
    )


def test_a_peer_that_fails_dies_or_dawdles_leaves_the_reason_and_comes_back(
    linear, stubs, make_study
):
    with peers(stubs.python, linear, 1) as found:
        first = found[0]
        study = make_study([first], rounds=1)
        failed, died = study.run([contest(0.5), contest(0.6)])[1::2]
        assert failed["why"] == "failed: RuntimeError: out of luck"
        assert died["why"].startswith("failed: it ended with code 3")
        again = study.run([contest(0.1)])[1]
        assert again["robust_accuracy"] == 3 / 9
        slow = make_study([first], rounds=1, cell_seconds=0.5).run([contest(0.7)])[1]
        assert slow["why"] == "skipped: longer than 0.5 s"
        assert slow["robust_accuracy"] is None


def test_an_input_of_ours_outside_of_the_ball_ends_the_study(make_study, monkeypatch):
    """A planted bug: one step of twice the size."""
    real = fgsm.furthest
    monkeypatch.setattr(fgsm, "furthest", lambda g, x, size, norm: real(g, x, 2 * size, norm))
    with pytest.raises(CheckFailed, match="fgsm left the ball or the box"):
        make_study([]).run([contest(0.1)])


def test_rounds_begin_with_another_contestant_and_have_a_seed_of_their_own(make_study, linear):
    order = []

    @dataclasses.dataclass
    class Recorder:
        name: str
        versions = {}  # noqa: RUF012

        def ask(self, asked, seconds):
            from privet.studies.attack_parity.peers import Answer

            order.append((self.name, asked["rows"], asked["seed"]))
            return Answer(linear.x.numpy()[: asked["rows"]], 1.0)

    make_study([Recorder("torchattacks"), Recorder("art")], rounds=3).run([contest(0.1)])
    assert order[:2] == [("torchattacks", 16, 0), ("art", 16, 0)]
    assert [name for name, _, _ in order[2:]] == [
        "torchattacks", "art", "torchattacks", "art", "art", "torchattacks"
    ]  # fmt: skip
    assert {rows for _, rows, _ in order[2:]} == {9}
    assert [seed for _, _, seed in order[2:]] == [0, 0, 1, 1, 2, 2]


def test_a_python_that_is_not_there_is_refused(linear, tmp_path):
    with pytest.raises(InputError, match="no such Python"), peers(tmp_path / "no", linear, 1):
        pass
