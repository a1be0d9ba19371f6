"""The shared look of every page: one palette, one frame, nothing loaded from anywhere."""

from functools import cache
from html import escape
from importlib import resources

from markupsafe import Markup

# role -> (light, dark). The bases differ in lightness as well as in hue and always stand beside
# their word, so nothing depends on telling colours apart.
PALETTE = {
    "paper": ("#f8f7f3", "#15181b"),
    "card": ("#ffffff", "#1d2125"),
    "ink": ("#1c2226", "#e9e7e2"),
    "muted": ("#596268", "#a6aeb3"),
    "rule": ("#dedbd2", "#363c41"),
    "accent": ("#24597d", "#86bde2"),
    "proved": ("#0a6148", "#5cc8a6"),
    "claimed": ("#85500a", "#e5ab57"),
    "audited": ("#4a4a9c", "#b3b1f2"),
    "withheld": ("#50565a", "#b5bbbf"),
    "contradicted": ("#b01c17", "#ff8f85"),
}

# Belt and braces beside escaping: even a smuggled script or address would stay dead.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def page(title: str, body_html: str) -> str:
    """Frame a page: `title` is escaped, `body_html` is trusted HTML from a template."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{stylesheet()}</style>\n</head>\n"
        f"<body>\n{body_html}\n"
        "<footer>Made by Privet. This page loads nothing from anywhere and can be kept, "
        "printed or mailed as it is.</footer>\n</body>\n</html>\n"
    )


def badge(basis: str) -> Markup:
    """The basis of a figure as a coloured word."""
    word = "CONTRADICTED" if basis == "contradicted" else basis
    return Markup('<span class="badge {}">{}</span>').format(basis, word)


@cache
def stylesheet() -> str:
    """The palette as CSS variables, followed by the rules of `look.css`."""
    light, dark = (_variables(shade) for shade in (0, 1))
    rules = resources.files("privet.reports").joinpath("look.css").read_text("utf-8")
    # "screen": a page printed from a dark screen comes out dark on white
    night = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{night}\n{rules}"


def _variables(shade: int) -> str:
    return " ".join(f"--{role}: {colours[shade]};" for role, colours in PALETTE.items())
