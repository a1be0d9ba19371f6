"""Its figures are tested beside the bar of a search, in tests/tuning/test_progress.py."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from privet.engine.progress import StepBar


@pytest.fixture
def shown():
    """What a bar writes to a file while a run of three steps has this note."""

    def write(note):
        stream = io.StringIO()
        trainer = SimpleNamespace(
            plan=SimpleNamespace(steps=3, running_epsilon=lambda step: 1.0),
            note=note,
            randomness=SimpleNamespace(secret=True),
        )
        with StepBar(Console(file=stream, width=40)) as bar:
            for trainer.next_step in (1, 2, 3):
                bar.update(trainer)
        return stream.getvalue()

    return write


def test_what_was_not_compiled_is_said_once_in_one_line(shown):
    """As it is: square brackets are no markup, and a long line is not broken."""
    note = "not compiled: InductorError: [red] InvalidCxxCompiler: No working C++ compiler found"
    assert [line for line in shown(note).splitlines() if "compiled" in line] == [f"privet: {note}"]
    assert "privet:" not in shown("")
