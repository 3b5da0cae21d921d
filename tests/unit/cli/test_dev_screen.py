"""The living view fits a terminal of 80 columns, says what matters, and never interprets what it shows."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from streamer.cli.dev.look import Line, Look
from streamer.cli.dev_screen import bar, draw
from streamer.telemetry.live_numbers import GateNumbers, LiveNumbers, ShownInterval

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def gate(**changes: object) -> GateNumbers:
    fields: dict[str, object] = {
        "gate": "support-bot", "version": 7, "state": "cut", "threshold": 0.8312, "alpha": 0.1,
        "activated_at": (NOW - timedelta(hours=2)).timestamp(), "batches": 41234, "served_ratio": 0.64,
        "verdict": 0, "exposure": ShownInterval(lower=0.08, estimate=0.093, upper=0.11),
        "selective": ShownInterval(lower=0.12, estimate=0.14, upper=0.17), "labels_pending": 12, "alarms": (),
    }  # fmt: skip
    return GateNumbers(**(fields | changes))  # type: ignore[arg-type]


def shown(*gates: GateNumbers, width: int = 80, **changes: object) -> str:
    numbers = LiveNumbers(
        batches_per_second=12.34, latency_seconds=0.05, lag=3, outbox=0, dead_letters=2,
        away=("broker",), gates=gates,
    )  # fmt: skip
    fields: dict[str, object] = {"addresses": [], "policies": [], "alarms": [], "now": NOW}
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(draw(Look(numbers=numbers, **(fields | changes))))  # type: ignore[arg-type]
    return capture.get()


def test_it_says_throughput_risk_and_budget() -> None:
    text = shown(gate())
    for part in (
        "12.3 batches/s", "50 ms to the action", "3 waiting", "2 dead letters", "broker does not answer",
        "support-bot  ships above 0.8312 (policy 7 for 2 h)  41234 batches, 64 % served", "12 to label",
        "9.3 % (8 % to 11 %), budget 10 %", "among what shipped  14 % (12 % to 17 %)", "verdict: not known yet",
    ):  # fmt: skip
        assert part in " ".join(text.split("\n")) or part in text, part


def test_the_risk_of_a_gate_stands_on_one_line_of_eighty_columns() -> None:
    lines = shown(gate()).splitlines()
    assert any("exposure" in line and "budget 10 %" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_an_alarm_and_what_is_unknown_are_said() -> None:
    text = shown(
        gate(alarms=("risk", "draws")), gate(gate="new", exposure=None, served_ratio=None, batches=0)
    )
    assert "ALARM: risk, draws" in text
    assert "exposure risk not known yet; budget 10 %" in text


def test_only_the_newest_lines_are_shown_and_markup_is_text() -> None:
    lines = [Line(at=NOW, gate="g", text=f"[red]v{n}[/red]") for n in range(9)]
    text = shown(gate(), policies=lines, alarms=lines[:1])
    assert "[red]v4[/red]" in text
    assert "v5" not in text
    assert "There is no gate yet" in shown()


@pytest.mark.parametrize(
    ("risk", "picture"),
    [
        (ShownInterval(lower=0.0, estimate=0.1, upper=0.2), "━" * 12 + "●" + "━" * 12),
        (ShownInterval(lower=0.15, estimate=0.3, upper=0.9), "·" * 12 + "│" + "·" * 5 + "━" * 6 + "●"),
        (ShownInterval(lower=0.0, estimate=0.0, upper=0.05), "●" + "━" * 6 + "·" * 5 + "│" + "·" * 12),
        (
            ShownInterval(lower=0.05, estimate=0.075, upper=0.15),
            "·" * 6 + "━" * 3 + "●" + "━" * 2 + "┿" + "━" * 6 + "·" * 6,
        ),
    ],
)
def test_the_picture_of_a_risk_has_the_budget_in_the_middle(risk: ShownInterval, picture: str) -> None:
    assert bar(risk, 0.1).plain == picture
