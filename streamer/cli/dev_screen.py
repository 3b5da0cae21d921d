"""The live view of `streamer dev`: what happens now, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from streamer.cli.console import percent

if TYPE_CHECKING:
    from streamer.cli.dev.look import Line, Look
    from streamer.telemetry.live_numbers import GateNumbers, ShownInterval

_SCALE = 24
"""Characters of the picture of a risk against its budget."""

_VERDICTS = {-1: ("BROKEN", "bold red"), 0: ("not known yet", "yellow"), 1: ("kept", "green")}


def draw(look: Look) -> Group:
    """Return the whole picture."""
    parts: list[RenderableType] = [_addresses(look)]
    if look.console:
        parts.append(Text.assemble(("console ", "dim"), look.console, overflow="fold"))
    parts += [Text(), _throughput(look)]
    parts += [Text(trouble, style="bold red") for trouble in look.troubles]
    parts.append(Text())
    for gate in look.numbers.gates:
        parts += _gate(gate, look.now)
    if not look.numbers.gates:
        parts.append(Text("There is no gate yet; create one: streamer gate create NAME", style="dim"))
    parts += [Text(), *_lines("Policies", look.policies, "none yet"), Text()]
    parts += _lines("Alarms", look.alarms, "none")
    if look.request:
        parts += [
            Text(),
            Text("Ask by HTTP, in another terminal, in this directory", style="dim"),
            Text(look.request),
        ]
    parts += [Text(), Text("Press Ctrl-C to stop.", style="dim")]
    return Group(*parts)


def _addresses(look: Look) -> Text:
    line = Text()
    for position, (name, value) in enumerate(look.addresses):
        if position:
            line.append("  ")
        line.append(f"{name} ", style="dim")
        line.append(value)
    return line


def _throughput(look: Look) -> Text:
    numbers = look.numbers
    line = Text()

    def field(value: str, unit: str, style: str = "bold") -> None:
        if line:
            line.append("   ")
        line.append(value, style=style)
        line.append(f" {unit}", style="dim")

    rate = numbers.batches_per_second
    field("-" if rate is None else f"{rate:.1f}", "batches/s")
    latency = numbers.latency_seconds
    field("-" if latency is None else f"{latency * 1000:.0f} ms", "to the action")
    field(str(numbers.lag), "waiting")
    field(str(numbers.outbox), "to publish")
    field(str(numbers.dead_letters), "dead letters", "bold yellow" if numbers.dead_letters else "bold")
    for part in numbers.away:
        field(part, "does not answer", "bold red")
    return line


def _gate(gate: GateNumbers, now: datetime) -> list[Text]:
    style = {"closed": "bold yellow", "cut": "bold green", "open": "bold cyan", "full": "bold green"}.get(
        gate.state, "bold red"
    )
    head = Text()
    head.append(gate.gate, style="bold")
    head.append("  ")
    head.append(gate.state if gate.threshold is None else f"ships above {gate.threshold:.4g}", style=style)
    since = ""
    if gate.activated_at is not None:
        since = f" for {_ago(now, datetime.fromtimestamp(gate.activated_at, UTC))}"
    head.append(f" (policy {gate.version}{since})", style="dim")
    served = "" if gate.served_ratio is None else f", {percent(gate.served_ratio, 0)} served"
    head.append(f"  {gate.batches} batches{served}")
    if gate.labels_pending is not None:
        head.append(f"  {gate.labels_pending} to label")
    lines = [head, _exposure(gate)]
    if gate.selective is not None:
        said = "" if gate.verdict is None else f"; verdict: {_VERDICTS[gate.verdict][0]}"
        lines.append(Text(f"  among what shipped  {_bounds(gate.selective)}{said}", style="dim"))
    if gate.alarms:
        lines.append(Text(f"  ALARM: {', '.join(gate.alarms)}", style="bold red"))
    return lines


def _exposure(gate: GateNumbers) -> Text:
    risk = gate.exposure
    if risk is None:
        return Text(f"  exposure risk not known yet; budget {percent(gate.alpha)}", style="dim")
    text = Text("  exposure ")
    text.append_text(bar(risk, gate.alpha))
    style = "yellow" if gate.verdict is None else _VERDICTS[gate.verdict][1]
    text.append(f" {_bounds(risk)}", style=style)
    text.append(f", budget {percent(gate.alpha)}", style="dim")
    return text


def bar(risk: ShownInterval, alpha: float) -> Text:
    """Draw an interval and its estimate on a scale from 0 to twice the budget, the budget in the middle."""

    def place(value: float) -> int:
        return min(_SCALE, max(0, round(value / (2 * alpha) * _SCALE)))

    cells = ["·"] * (_SCALE + 1)
    for position in range(place(risk.lower), place(risk.upper) + 1):
        cells[position] = "━"
    cells[place(risk.estimate)] = "●"
    text = Text("".join(cells))
    budget = _SCALE // 2
    if cells[budget] == "●":
        text.stylize("bold reverse", budget, budget + 1)
    else:
        text.plain = text.plain[:budget] + ("┿" if cells[budget] == "━" else "│") + text.plain[budget + 1 :]
        text.stylize("bold", budget, budget + 1)
    return text


def _bounds(risk: ShownInterval) -> str:
    return f"{percent(risk.estimate)} ({percent(risk.lower)} to {percent(risk.upper)})"


def _lines(title: str, lines: Sequence[Line], none: str) -> list[Text]:
    if not lines:
        return [Text(f"{title}: {none}", style="dim")]
    found = [Text(title, style="bold")]
    for line in lines[:5]:
        text = Text(f"  {line.at.astimezone():%H:%M:%S} ", style="dim", no_wrap=True, overflow="ellipsis")
        text.append(f"{line.gate} ", style="bold")
        text.append(line.text, style="default")
        found.append(text)
    return found


def _ago(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
