"""What `--help` looks like."""

import pytest

from privet.cli import main


@pytest.mark.parametrize("columns", [80, 110])
def test_lines_are_broken_by_the_terminal_and_not_by_the_source(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["attack", "--help"])
    said = capsys.readouterr().out
    body = [line.strip("│ ") for line in said.splitlines()]
    # As it stands in the source, this breaks after "separated", whatever the width.
    (at,) = (i for i, line in enumerate(body) if "autoattack;" in line)
    assert "autoattack; separated by commas." in " ".join(body[at : at + 2])
    assert not any(line in ("separated", "training", "is", "by commas.") for line in body)
    assert max(len(line) for line in said.splitlines()) <= columns


def test_an_empty_line_still_parts(capsys):
    with pytest.raises(SystemExit):
        main(["lifelong", "fit", "--help"])
    said = capsys.readouterr().out
    assert "write a version after each.\n\nEpsilon covers" in said
    assert "\n\nExample: privet lifelong fit agem" in said
