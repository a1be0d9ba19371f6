from rich.console import Console

from privet.studies.attack_parity.results import lost, parity_plot, parity_table, with_ratios


def row(contestant, accuracy, seconds, attack="pgd", **more):
    return {
        "attack": attack, "norm": "linf", "size": 0.1, "contestant": contestant,
        "robust_accuracy": accuracy, "median_s": seconds,
        "median_cpu_s": None if seconds is None else 2 + seconds, "mean_norm": None, "outside": 0,
        "images_per_s": None if seconds is None else 100 / seconds, "why": "", **more,
    }  # fmt: skip


ROWS = [
    row("privet", 0.300, 2.0),
    row("torchattacks", 0.285, 3.0),
    row("foolbox", 0.295, 6.0),
    row("art", None, None, why="skipped: art is not installed"),
    row("privet", 0.5, 4.0, "fgsm"),
    row("torchattacks", 0.7, 1.0, "fgsm", outside=4),
]


def test_ratios_are_to_the_fastest_peer_of_the_same_contest():
    told = with_ratios(ROWS, "privet")
    assert [r["times_faster_than_fastest_peer"] for r in told] == [1.5, 1.0, 0.5, None, 0.25, 1.0]
    strong = [r["times_faster_than_fastest_as_strong"] for r in told]
    assert strong == [1.5, 1.0, 0.5, None, None, None]  # a faster one that is weaker is no match
    assert [r["times_less_cpu_than_least"] for r in told[:4]] == [5 / 4, 1.0, 5 / 8, None]
    above = [r["privet_above_by"] for r in told]
    assert above[0] == 0
    assert abs(above[1] - 0.015) < 1e-12
    assert above[3] is None
    assert abs(above[5] + 0.2) < 1e-12


def test_only_what_is_stronger_by_more_than_a_point_counts_as_lost():
    assert lost(with_ratios(ROWS, "privet")) == [
        "torchattacks's pgd (linf) is stronger by 1.5 points"
    ]
    exactly = [row("privet", 0.31, 1.0), row("art", 0.30, 1.0)]
    assert lost(with_ratios(exactly, "privet")) == []


def test_without_peers_there_are_no_ratios():
    (told,) = with_ratios([row("privet", 0.3, 2.0)], "privet")
    assert told["times_faster_than_fastest_peer"] is None
    assert lost([told]) == []
    assert parity_plot([told], "privet").startswith(b"<?xml")


def test_the_table_has_figures_and_reasons(capsys):
    console = Console(width=120)
    with console.capture() as capture:
        console.print(parity_table(with_ratios(ROWS, "privet"), "privet"))
    said = capture.get()
    assert "pgd, linf 0.1" in said
    assert "28.5 %" in said
    assert "skipped: art is not installed" in said
    assert "4 inputs outside of ball or box" in said


def test_the_plot_has_a_mark_for_each_peer_that_ran():
    svg = parity_plot(with_ratios(ROWS, "privet"), "privet").decode()
    assert "torchattacks" in svg
    assert "foolbox" in svg
    assert ">art<" not in svg
    assert svg.count("pgd linf") == 2
