"""The page and the terminal lines of a run: self-contained, safe against hostile texts, right in every state."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from streamer.calibration import LabelledGroup, calibrate_groups
from streamer.calibration.guarantee import budget
from streamer.cli.demo import run_summary
from streamer.clouds.measurement import DecidedBatch, measure
from streamer.clouds.sentence import percent, sentence
from streamer.gates.declared import Unit
from streamer.gates.gate import gate_batch
from streamer.report.demo_run import DemoRun, cases, excerpt, figure_rows, verdict
from streamer.report.page import render_report, write_report
from streamer.research.evaluation.words import UNITS

HOSTILE = '<script>alert(1)</script> & [bold]x[/bold] "q" \x1b[31m \u202e'
VOID = {"meta", "br", "hr", "img", "link", "input"}


def demo_run(unit: Unit = "best", alpha: float = 0.2, *, batches: int = 40, groups: int = 40) -> DemoRun:
    rng = np.random.default_rng(0)
    labelled = []
    for i in range(groups):
        scores = np.round(rng.random(1 if unit == "best" else 3), 6)
        severities = (rng.random(len(scores)) > scores).astype(float)
        labelled.append(
            LabelledGroup(f"c{i}#1", tuple(f"r{j}" for j in range(len(scores))), scores, severities)
        )
    threshold = calibrate_groups(labelled, alpha=alpha, seed=0)
    cut = threshold.value if threshold.state == "cut" else None
    decided = []
    for i in range(batches):
        row = tuple(float(s) for s in np.round(rng.random(3), 6))
        decided.append(
            DecidedBatch(
                batch_id=f"b{i}",
                prompt=f"Prompt {i} {HOSTILE}",
                texts=tuple(f"Answer {i}.{j} {HOSTILE}" for j in range(3)),
                scores=row,
                shipped=gate_batch(row, unit=unit, state=threshold.state, threshold=cut).shipped,
                severities=tuple(float(rng.random() > s) for s in row),
            )
        )
    return DemoRun(
        unit=unit, alpha=alpha, method="mean", state=threshold.state, threshold=cut,
        guarantee=threshold.guarantee, calibration=labelled, decided=decided,
        report=measure(decided, unit), origin=f"A file {HOSTILE}.", simulated=True,
        severity_kind="simulated", encoder="all-MiniLM-L6-v2@53aa5117",
        database="sqlite:///demo.db", seconds=1.5, batches_per_second=40.0,
        next_steps=(("streamer demo --alpha 0.1", "a smaller budget"),),
    )  # fmt: skip


class _Page(HTMLParser):
    """Checks nesting, and gathers what the page holds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("alpha", [0.001, 0.2, 0.95])
@pytest.mark.parametrize("batches", [0, 1, 40])
def test_the_page_is_whole_self_contained_and_without_scripts(unit: Unit, alpha: float, batches: int) -> None:
    page = render_report(demo_run(unit, alpha, batches=batches))
    parsed = _Page(page)
    names = [tag for tag, _ in parsed.tags]
    assert "script" not in names
    assert not any(
        key in {"src", "href"} or key.startswith("on") for _, attributes in parsed.tags for key in attributes
    )
    assert "url(" not in page
    assert "@import" not in page
    assert "nan" not in re.sub(r"<[^>]*>|style", "", page).lower().split()
    assert names.count("svg") == (3 if batches else 1)
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert len(root.get("aria-label") or "") > 40
        assert "nan" not in svg.lower()


def test_the_first_words_are_the_result_and_simulation_is_said() -> None:
    run = demo_run()
    page = render_report(run)
    text = re.sub(r"<[^>]*>", " ", page.split("<main>")[1]).replace("\xa0", " ")
    assert sentence(run.report, run.alpha)[1:] in text[:400]
    assert "simulated data" in page
    assert "simulated data" not in render_report(replace(run, simulated=False))
    assert HOSTILE not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    write_report(demo_run(), target)
    assert target.read_text("utf-8") == render_report(demo_run())


def test_cases_are_what_they_are_called() -> None:
    run = demo_run("response")
    for shipped in (True, False):
        for wrong in (True, False):
            found = cases(run, shipped=shipped, wrong=wrong)
            assert 0 < len(found) <= 3
            assert all(case.shipped == shipped for case in found)
            assert all((case.severity is not None and case.severity >= 0.5) == wrong for case in found)
            assert len({case.prompt for case in found}) == len(found)


@pytest.mark.parametrize("unit", UNITS)
def test_the_terminal_begins_with_the_sentence_and_prints_texts_as_they_are(unit: Unit) -> None:
    run = demo_run(unit)
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=False).print(run_summary(run))
    assert out.getvalue().splitlines()[0] == sentence(run.report, run.alpha)
    assert "[bold]x[/bold]" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_sentence_fits_the_unit_and_undefined_values() -> None:
    run = demo_run()
    report = replace(run.report, ship_rate=0.64, selective_risk=0.153, exposure_risk=0.098, shipped=64)
    assert sentence(report, 0.1) == (
        "served 64 % of prompts, error rate among shipped 15 %, exposure 9.8 % per prompt against a budget of 10 %"
    )
    assert "of responses" in sentence(replace(report, unit="response"), 0.1)
    assert "per batch" in sentence(replace(report, unit="batch"), 0.1)
    none = replace(report, shipped=0, ship_rate=0.0, selective_risk=None, exposure_risk=0.0)
    assert (
        sentence(none, 0.1)
        == "served none of the prompts, so exposure is 0 % per prompt against a budget of 10 %"
    )
    assert sentence(replace(report, ship_rate=None), 0.1).startswith("nothing was decided")


def test_a_score_that_works_the_wrong_way_is_said_first() -> None:
    report = replace(demo_run().report, ship_rate=0.2, selective_risk=0.4, exposure_risk=0.08, shipped=20)
    said = sentence(replace(report, mean_severity=0.3, upside_down=True), 0.1)
    assert said.startswith(
        "the score works the wrong way for prompts (30 % of all are wrong): served 20 % of prompts, error rate "
        "among shipped 40 %"
    )
    assert sentence(replace(report, mean_severity=0.3), 0.1).startswith("served 20 % of prompts")


@pytest.mark.parametrize(
    ("ratio", "decimals", "text"),
    [(0.64, 0, "64 %"), (0.098, 1, "9.8 %"), (0.995, 0, "99.5 %"), (0.9995, 0, "99.95 %"), (0.004, 0, "0.4 %"),
     (0.0, 1, "0 %"), (1.0, 1, "100 %"), (None, 1, "not defined"), (-0.2, 0, "-20 %")],
)  # fmt: skip
def test_percentages(ratio: float | None, decimals: int, text: str) -> None:
    assert percent(ratio, decimals) == text


def test_a_budget_is_written_exactly() -> None:
    assert [budget(alpha) for alpha in (0.1, 0.05, 0.15, 0.07, 0.125, 0.001)] == [
        "10 %", "5 %", "15 %", "7 %", "12.5 %", "0.1 %",
    ]  # fmt: skip


def test_the_verdict_says_how_sure_it_is() -> None:
    run = demo_run()

    def told(**changes: float | None) -> str:
        return verdict(replace(run, report=replace(run.report, **changes)))  # type: ignore[arg-type]

    assert "inside the budget" in told(exposure_risk=0.19, exposure_risk_se=0.02)
    assert "single runs may land a little above" in told(exposure_risk=0.21, exposure_risk_se=0.02)
    assert "more than two standard errors" in told(exposure_risk=0.3, exposure_risk_se=0.02)
    assert "one batch is too little" in told(exposure_risk=0.0, exposure_risk_se=None)
    assert "no batch" in told(exposure_risk=None, exposure_risk_se=None)
    assert "stayed closed" in verdict(demo_run(alpha=0.001))


@pytest.mark.parametrize("method", ["transductive", "hb", "betting", "age", "crc", "bb", "rbwa"])
def test_the_page_says_of_each_method_what_is_true_of_it(method: str) -> None:
    page = render_report(replace(demo_run("response"), method=method))
    assert ("draws its weights at random" in page) == (method in {"crc", "bb", "rbwa"})
    assert "The threshold is the smallest at which" not in page
    assert ("every batch a threshold of its own" in page) == (method == "transductive")
    assert ("the strictest that a batch can get" in page) == (method == "transductive")
    promised_on_average = method not in {"hb", "betting"}
    assert ("It bounds an average over calibrations" in page) == promised_on_average
    above = replace(demo_run(), method=method)
    above = replace(above, report=replace(above.report, exposure_risk=0.21, exposure_risk_se=0.02))
    assert ("bounds the average over many such runs" in verdict(above)) == promised_on_average


def test_a_gate_closed_in_spite_of_groups_enough_is_not_told_to_have_too_few() -> None:
    assert "needs at least 999 calibration groups, and there were 40" in verdict(demo_run(alpha=0.001))
    enough = replace(demo_run(), method="hb", alpha=0.05, state="closed", threshold=None)
    assert "needs at least" not in verdict(enough)
    assert "by the method hb, 40 calibration groups support no threshold" in verdict(enough)


def test_something_to_try_is_always_there() -> None:
    run = demo_run()
    assert "streamer demo --alpha 0.1" in render_report(run)
    plain = render_report(replace(run, next_steps=()))
    assert "streamer demo --alpha 0.4" in plain
    assert "--gate-unit response" in plain
    assert "--gate-unit best" in render_report(replace(demo_run("response", 0.9), next_steps=()))


def test_missing_labels_are_told() -> None:
    run = demo_run()
    assert "Without a label" not in [name for name, _, _ in figure_rows(run)]
    told = figure_rows(replace(run, report=replace(run.report, unlabelled=3)))
    assert ("Without a label", "3") in [(name, value) for name, value, _ in told]


def test_excerpts_are_one_short_line() -> None:
    assert excerpt("a\n\n b\t\x00c") == "a b c"
    assert len(excerpt("word " * 1000)) <= 240
    assert excerpt("word " * 1000).endswith("…")
