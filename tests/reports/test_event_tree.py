from collections.abc import Callable
from typing import Any

from privet.reports.event_tree import Node, event_tree


def test_a_training_run_reads_from_outside_in(card: Callable[..., dict[str, Any]]) -> None:
    tree = event_tree(card()["events"][0]["event"])
    texts = [tree.text, tree.children[0].text, tree.children[0].children[0].text]
    assert texts == [
        "120 times",
        "on a Poisson sample: each unit independently, with probability 0.178",
        "Gaussian noise, 2.1 times the sensitivity",
    ]
    assert tree.children[0].children[0].children == ()


def test_composed_events_keep_their_order() -> None:
    parts = [{"type": "NoOp"}, {"type": "LaplaceDpEvent", "noise_multiplier": 3.0}]
    assert event_tree({"type": "ComposedDpEvent", "events": parts}) == Node(
        "all of",
        (
            Node("no access to the data", ()),
            Node("Laplace noise, 3 times the sensitivity", ()),
        ),
    )


def test_a_selection_says_that_the_number_of_runs_is_random() -> None:
    run = {"type": "Gaussian", "noise_multiplier": 2.0}
    tree = event_tree({"type": "Selection", "mean": 10.0, "shape": 1.0, "event": run})
    assert tree.text.startswith("a random number of runs (10 expected, shape 1)")
    assert [child.text for child in tree.children] == ["Gaussian noise, 2 times the sensitivity"]


def test_an_unknown_event_shows_all_its_fields() -> None:
    event = {"type": "ZCDp", "rho": 0.5, "xi": 0.0}
    assert event_tree(event) == Node("ZCDp, rho 0.5, xi 0", ())


def test_a_known_event_that_lacks_a_field_shows_what_it_has() -> None:
    assert event_tree({"type": "Gaussian", "scale": 2.0}) == Node("Gaussian, scale 2", ())
