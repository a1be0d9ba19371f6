import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from privet.studies.private_step.growth import Growth, Sweep
from privet.studies.private_step.parity import Agreement
from privet.studies.private_step.results import (
    growth_plot,
    growth_table,
    step_plot,
    step_table,
    with_ratios,
)
from privet.studies.private_step.timing import Cell


def cell(name, *milliseconds, batch=256, why="", variant=""):
    seconds = [m / 1000 for m in milliseconds]
    return Cell(
        model="cnn", batch=batch, contestant=name, seconds=seconds, why=why, variant=variant,
        peak_bytes=3 * 2**20 if seconds else None,
    )  # fmt: skip


CELLS = [
    cell("plain", 10, 12, 11),
    cell("plain-best", 5.5),
    cell("privet", 22),
    cell("opacus-hooks", 66),
    cell("opacus-ghost", 44),
    cell("vmap", why="out of memory"),
]


def shown(table, width=200):
    screen = Console(file=io.StringIO(), width=width)
    screen.print(table)
    return screen.file.getvalue()


def test_ratios_are_of_medians():
    rows = {row["contestant"]: row for row in with_ratios(CELLS)}
    assert rows["privet"]["over_plain"] == pytest.approx(2.0)
    assert rows["privet"]["over_plain_best"] == pytest.approx(4.0)
    assert rows["privet"]["times_faster_than_opacus"] == pytest.approx(2.0)  # than the faster mode
    assert rows["opacus-hooks"]["times_faster_than_opacus"] == pytest.approx(44 / 66)
    assert rows["vmap"]["over_plain"] is None


def test_every_batch_is_compared_with_its_own():
    rows = with_ratios([*CELLS, cell("plain", 100, batch=512), cell("privet", 50, batch=512)])
    assert rows[-1]["over_plain"] == pytest.approx(0.5)
    assert rows[-1]["over_plain_best"] is None
    assert rows[-1]["times_faster_than_opacus"] is None


def test_without_opacus_there_is_nothing_to_be_faster_than():
    broken = cell("opacus-ghost", 1, why="wrong sum: 1.0e+00 off")
    rows = with_ratios([cell("plain", 10), cell("privet", 20), broken])
    assert all(row["times_faster_than_opacus"] is None for row in rows)


def test_the_table_shows_times_ratios_memory_and_reasons():
    lines = shown(step_table(CELLS)).splitlines()
    assert lines[0].strip() == "cnn, batch 256"
    privet = next(line for line in lines if line.startswith("privet "))
    assert privet.split() == ["privet", "22", "22", "2", "4", "2", "3", "MB"]
    vmap = next(line for line in lines if line.startswith("vmap "))
    assert "out of memory" in vmap
    assert vmap.split()[1:7] == ["-"] * 6


def test_the_table_says_where_a_peer_runs_another_model():
    odd = Agreement(
        model="cnn", contestant="opacus-hooks", variant="whole batch", outputs_difference=0.3
    )
    lines = [
        line for line in shown(step_table(CELLS, [odd])).splitlines() if "not the same" in line
    ]
    assert len(lines) == 1
    assert "opacus-hooks" in lines[0]


def test_the_table_fits_a_narrow_terminal():
    long = cell("opacus-hooks", 12345.6, variant="whole batch")
    odd = Agreement(model="cnn", contestant="opacus-hooks", variant="", outputs_difference=0.3)
    text = shown(step_table([*CELLS, long], [odd]), width=80)
    assert "…" not in text
    assert "12346" in text


def texts(svg):
    return {
        (element.text or "").strip()
        for element in ElementTree.fromstring(svg).iter()
        if element.tag.endswith("text")
    }


def test_the_plot_names_who_was_measured_and_is_the_same_each_time():
    first = step_plot(CELLS)
    assert texts(first) >= {"cnn", "plain", "privet", "opacus-ghost", "batch", "256"}
    assert "vmap" not in texts(first)
    assert step_plot(CELLS) == first


@pytest.fixture
def growth():
    sweep = Sweep(along="batch", model="cnn", sizes=(1, 4), tasks=())
    cells = [
        (cell("plain", 10, batch=1), cell("privet", 10, batch=1)),
        (cell("plain", 40, batch=4), cell("privet", 20, batch=4)),
    ]
    return Growth(sweep=sweep, cells=tuple(cells))


def test_growth_is_shown_with_its_exponents(growth):
    lines = shown(growth_table([growth])).splitlines()
    assert lines[0].strip() == "cnn, by batch"
    privet = next(line for line in lines if line.startswith("privet, time"))
    assert privet.split()[2:4] == ["0.50", "0.50"]
    assert "1: 10 ms ... 4: 20 ms" in privet
    svg = growth_plot([growth])
    assert texts(svg) >= {"plain, exponent 1.00", "privet, exponent 0.50", "batch", "ms", "MB"}
