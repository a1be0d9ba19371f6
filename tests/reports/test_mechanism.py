from typing import Any

import pytest

from privet.privacy.precision import PRECISIONS
from privet.privacy.sampling import SAMPLERS
from privet.reports.mechanism import clipping_text, sampler_note, unusual


def trained(mechanism: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"mechanism": mechanism, "provenance": {"config": config}}


def test_the_defaults_need_no_words() -> None:
    plain = {"sampler": "poisson", "clipping": {"name": "flat", "numbers": {}}, "bands": []}
    for trust in (trained(plain, augment="none", views=1), trained({}), {}):
        assert sampler_note(trust) == ""
        assert list(unusual(trust)) == []


def test_every_sampler_but_the_default_says_what_it_rests_on() -> None:
    notes = {name: sampler_note(trained({"sampler": name, "cycle": 7})) for name in SAMPLERS}
    assert {name for name, note in notes.items() if not note} == {"poisson"}
    # amplified or not: as in the table of `privacy.sampling`
    unamplified = {name for name, note in notes.items() if "no amplification" in note}
    assert unamplified == {"fixed-batches", "shuffled"}
    assert "once in 7 steps" in notes["cyclic-poisson"]
    for piece in ("zero-out and replace-one", "not add/remove", "number of units is public"):
        assert piece in notes["shuffled"]


def test_what_is_not_the_default_is_named() -> None:
    trust = trained(
        {
            "clipping": {"name": "weighted", "numbers": {"0": 1.5}},
            "precision": "bf16",
            "bands": [0.7, 0.5, 0.4],
        },
        augment="shift",
        views=4,
    )
    assert list(unusual(trust)) == [
        "weighted clipping",
        "gradients in bf16",
        "noise correlated over 3 steps",
        "4 random views of each example (shift)",
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"input_noise": 0.25, "views": 2}, ["2 random views of each example (noise 0.25)"]),
        (
            {"augment": "shift", "input_noise": 0.1},
            ["a random view of each example (shift and noise 0.1)"],
        ),
        (
            {"adversarial": "madry", "adversarial_norm": "l2", "adversarial_size": 0.5},
            ["adversarial training (madry, l2 0.5)"],
        ),
        ({"hidden_noise": 0.2}, ["noise 0.2 behind the first layer"]),
        ({"attack_bound": 0.1}, ["noise behind the first layer, made for attacks of 0.1"]),
        ({"input_noise": 0.0, "hidden_noise": 0.0, "adversarial": "none"}, []),
    ],
)
def test_noise_and_adversarial_examples_are_named(config: dict[str, Any], said: list[str]) -> None:
    assert list(unusual(trained({}, **config))) == said


@pytest.mark.parametrize(
    ("clipping", "text"),
    [
        ({"name": "flat", "numbers": {}}, "flat"),
        ({"name": "per-layer", "numbers": {"0": 1.0}}, "per-layer; shares of the layers: 0 1"),
        ({"name": "weighted", "numbers": {"a": 2.0}}, "weighted; weights of the layers: a 2"),
        ("something else", "something else"),
        ({"kind": "new"}, "kind new"),
    ],
)
def test_a_geometry_in_words(clipping: Any, text: str) -> None:
    assert clipping_text({"clipping": clipping}) == text
    assert clipping_text({"clipping": clipping, "precision": "float32"}) == text


@pytest.mark.parametrize("name", [name for name in PRECISIONS if name != "float32"])
def test_clipping_says_what_a_coarse_precision_adds_to_a_norm(name: str) -> None:
    said = clipping_text({"clipping": {"name": "flat", "numbers": {}}, "precision": name})
    assert PRECISIONS[name].rounding.sums == 2.0**-8 + 2.0**-16
    share = "(2^-8 + 2^-16)"
    assert said.startswith(f"flat; {name}: against rounding, {share} of S is added to the norm")


@pytest.mark.parametrize("name", ["fp8", None, ["bf16"]])
def test_and_nothing_of_a_precision_that_is_not_known(name: Any) -> None:
    mechanism = {"clipping": {"name": "flat", "numbers": {}}, "precision": name}
    assert clipping_text(mechanism) == "flat"
