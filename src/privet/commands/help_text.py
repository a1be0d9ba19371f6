"""How `--help` is laid out: a docstring's lines flow with the terminal's width.

Docstrings are broken at the width of the source. Shown as they stand, every line that is too long
for a column would be broken a second time, after a word or two.
"""

from typing import Any

from cyclopts.help import DefaultFormatter, InlineText
from rich.text import Text


class Flowing(DefaultFormatter):
    """The usual panels, with single line breaks taken as spaces; an empty line still parts."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """One panel: arguments, options or commands."""
        for entry in panel.entries:
            _flow(entry.description)
        super().__call__(console, options, panel)

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """What stands above the panels."""
        _flow(description)
        super().render_description(console, options, description)


def _flow(said: Any) -> None:
    """In place: it is made anew for every call of --help."""
    if isinstance(said, InlineText) and isinstance(said.primary_renderable, Text):
        paragraphs = said.primary_renderable.plain.split("\n\n")
        said.primary_renderable = Text("\n\n".join(" ".join(part.split()) for part in paragraphs))
