"""How a server and its models stand, for the terminal."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Line = tuple[str, str]


def lines(told: Mapping[str, Any]) -> Iterator[Line]:
    """A server's answer to `status`."""
    since = datetime.fromtimestamp(told["started"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield "server", f"{told['server']}, since {since}"
    for app in told["apps"]:
        yield "app", f"{app['name']}: {', '.join(app['models']) or 'no model'}"
    away = told["turned_away"]
    if away:
        counts = ", ".join(f"{count} {error}" for error, count in sorted(away.items()))
        yield "turned away", counts
    for model, standing in told["models"].items():
        yield "", ""
        yield from _of_model(model, standing)


def _of_model(model: str, now: Mapping[str, Any]) -> Iterator[Line]:
    yield model, f"version {now['version']}, {now['state']}"
    yield "round", _round(now)
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(now["refused"].items()))
    yield "updates", f"{now['accepted']} accepted; refused: {refused or 'none'}"
    yield (
        "devices",
        f"{now['devices']} have it, {now['devices_that_took_part']} took part,"
        f" {now['tickets_out']} at work",
    )
    yield from _of_last_round(now["history"])
    yield from _of_reports(now["reports"])
    yield from _of_privacy(now["privacy"])


def _of_privacy(privacy: Mapping[str, Any] | None) -> Iterator[Line]:
    """What a device may have spent; nothing is stated where the noise is not secret."""
    if privacy is None:
        return
    if privacy["basis"] == "withheld":
        yield "epsilon", "withheld: the noise of this model is not secret"
        return
    spent, whole = privacy["spent_at_most"], privacy["epsilon"]
    yield (
        "epsilon",
        f"{privacy['basis']} for a {privacy['unit']}: at most {spent:.3g} of {whole:.3g},"
        f" delta {privacy['delta']:.3g}",
    )


def _round(now: Mapping[str, Any]) -> str:
    said = f"{min(now['round'], now['rounds'])} of {now['rounds']} done"
    if now["state"] != "open":
        return said
    least = f" of at least {now['least']}" if now["least"] else ""
    said += f"; {now['waiting_updates']}{least} updates for the next step"
    if now["deadline"] is not None:
        said += f", {_duration(now['deadline'] - now['now'])} left"
    return said


def _of_last_round(history: list[Mapping[str, Any]]) -> Iterator[Line]:
    if history:
        last = history[-1]
        yield (
            "last round",
            f"{last['how']}, {_count(last['updates'], 'update')}, {last['staleness']:.2g} versions"
            " old on average",
        )


def _of_reports(reports: list[Mapping[str, Any]]) -> Iterator[Line]:
    if reports:
        last = reports[-1]
        share = 100 * last["right"] / max(1, last["tried"])
        yield (
            "evaluation",
            f"version {last['version']}: {share:.1f} % right, tried by"
            f" {_count(last['devices'], 'device')}",
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
