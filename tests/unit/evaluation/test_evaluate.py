"""One evaluation from files to a folder: what is written, what is kept, what is refused, and what is not done twice."""

import csv
import io
import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

import streamer
from streamer.cli import main
from streamer.clouds.compared_methods import METHODS_COMPARED
from streamer.clouds.halves import seeded_splits
from streamer.clouds.spreads import Spread, excess
from streamer.errors import UsageError
from streamer.labels.answer_forms import answer_batch
from streamer.research import evaluation
from streamer.research.evaluation import evaluate, run, steps
from streamer.research.evaluation.findings import findings, headline
from streamer.research.evaluation.page import outcomes_chart, render_page
from streamer.research.evaluation.results import Options
from streamer.research.evaluation.run import check_options
from streamer.research.evaluation.tables import all_tables, over_budget_table, promised_rows
from streamer.scoring.registry import SCORER_NAMES
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import SignalList, choice_scores
from streamer.web.plot import BOTTOM, HEIGHT, TOP
from streamer_research.studies.shares import shares
from tests import programs
from tests.unit.evaluation.made_up import rows, write

ASKED = {"alphas": (0.1, 0.3), "splits": 4}


@pytest.fixture(scope="module")
def clouds(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("clouds") / "made-up.jsonl.gz", rows(judged=True))


@pytest.fixture(scope="module")
def done(clouds, tmp_path_factory):
    """An evaluation with everything, and where it was written."""
    folder = tmp_path_factory.mktemp("done")
    found = evaluate(
        clouds, out=folder / "out", cache=folder / "cache", scorers="all", external=["luck"], **ASKED
    )
    return found, folder


def refuse(*_args, **_kwargs):
    raise LookupError("computed or drawn again")


def test_every_mode_calibrator_and_score_has_its_rows(done):
    (result,) = done[0].data_sets
    assert result.name == "made-up"
    assert (result.questions, result.responses, result.calibrating) == (40, 160, 20)
    assert result.scorers == (*SCORER_NAMES, "judge", "luck")
    for unit in ("best", "response"):
        modes = [(row.mode, row.alpha) for row in result.modes(unit)]
        assert modes == [
            (mode, alpha) for mode in ("G-Eval-Naive", "G-Eval-CRC", "Gram-CRC") for alpha in (0.1, 0.3)
        ]
        names = [row.method for row in result.calibrators(unit, 0.3)]
        assert names == [
            method.name
            for method in METHODS_COMPARED
            if (unit == "best" or not method.of_signals) and (unit == "response" or not method.response_only)
        ]
        assert {row.scorer for row in result.ranking if row.unit == unit} == set(result.scorers)
        for row in result.gates:
            assert 0 <= row.exposure.mean <= row.ship_rate.mean <= 1
            assert row.exposure.splits == 4
        gram = [row for row in result.compared if row.scorer == "gram"]
        assert all(row.more.mean == 0 == row.more.sd for row in gram)
    wanted = [scheme for scheme in ("mean", "crc", "bb", "rbwa") for _ in ASKED["alphas"]]
    assert [row.method for row in result.stability] == wanted


def refitted(data, split, alpha) -> tuple[float, float]:
    """What `full` serves and exposes, each new prompt by a fit of its own."""
    rows = np.array([[1.0, *one.row] for one in data.chosen["best"]])
    best = [int(np.argmax(one.scores)) for one in data.chosen["best"]]
    bad = np.array([cloud.severities[place] for cloud, place in zip(data.clouds, best, strict=True)])
    labelled, ships = list(split.first), []
    for place in split.second.tolist():
        x = rows[[*labelled, place]]
        targets = 1 - 2 * np.array([*bad[labelled], 1.0])
        w = np.linalg.solve(x.T @ x + np.diag([1e-6, *[100.0] * (x.shape[1] - 1)]), x.T @ targets)
        count = 1 + sum((x[:-1] @ w >= x[-1] @ w - 1e-9) & (bad[labelled] == 1))
        ships.append(count <= int(round(alpha * 100) * (len(labelled) + 1) / 100))
    return float(np.mean(ships)), float((np.array(ships) * bad[split.second]).mean())


def test_unit_batch_is_measured_where_it_is_asked_for(tmp_path):
    path = write(tmp_path / "c.jsonl", rows(84))
    found = evaluate(path, out=tmp_path / "out", cache=tmp_path / "cache", units=["batch"], **ASKED)
    (result,) = found.data_sets
    rates = {one.method: one.ship_rate.mean for one in result.calibrators("batch", 0.3)}
    assert 0 < rates["full"] < 1
    assert 0 < rates["mean"] < 1
    assert headline(found, result)
    assert "unit batch" in render_page(found)


def test_what_comes_with_answers_is_a_signal(tmp_path):
    made = rows(20, judged=True)
    for cloud in made:
        for number, response in enumerate(cloud["responses"]):
            if number:
                response["logprob"] = -number / 4
        cloud["responses"][1]["meta"].pop("judge_score")
    read = evaluation.read_data_set(write(tmp_path / "c.jsonl", made))
    (data,) = steps.scored_data_sets([read], Options(), cache=None)
    listed = SignalList(given=("logprob", "judge"))
    assert "Method full reads what came with the answers too: logprob, judge." in data.notes
    for cloud, one in zip(data.clouds, data.chosen["best"], strict=True):
        blank = [not text.strip() for text in cloud.texts]
        marks = [response.meta.get("judge_score") for response in cloud.responses]
        measured = Measured(
            answer_batch(cloud.texts, [r.embedding for r in cloud.responses], blank), cloud.question
        )
        wanted = listed.of_measured(
            measured,
            {
                "logprob": [None, *(-number / 4 for number in range(1, 4))],
                "judge": [None if mark is None else 100 * mark for mark in marks],
            },
        )
        assert one.row.tolist() == wanted[np.argmax(choice_scores(measured))].tolist()


def test_other_values_of_a_signal_are_not_answered_from_what_was_kept(tmp_path):
    made = rows(20)
    keys = set()
    for value in (0.2, 0.3, 0.3):
        for response in made[0]["responses"]:
            response["signals"] = {"doubt": value}
        options = Options(signals=(("doubt", 0.0, 1.0),))
        read = evaluation.read_data_set(write(tmp_path / "c.jsonl", made))
        keys.add(run.results_key(steps.scored_data_sets([read], options, cache=None), options))
    assert len(keys) == 2


def test_method_full_stands_beside_the_cut_of_gram_energy(tmp_path):
    made, rng = rows(100, seed=3), np.random.default_rng(5)
    for cloud in made:
        for number, response in enumerate(cloud["responses"]):
            response["embedding"] = rng.normal(size=6).tolist()  # agreement says nothing
            response["signals"] = {"doubt": 2 * response["label"] + number / 10}
    path = write(tmp_path / "made-up.jsonl", made)
    asked = {"splits": 3, "alphas": (0.1, 0.2), "units": ("best",), "cache": tmp_path / "kept"}
    found = evaluate(path, out=tmp_path / "out", signals=(("doubt", 0.0, 3.0),), **asked)
    (result,) = found.data_sets
    (data,) = steps.scored_data_sets(
        [evaluation.read_data_set(path)], Options(signals=(("doubt", 0.0, 3.0),))
    )
    splits = seeded_splits(data.clouds, range(3))
    for alpha in (0.1, 0.2):
        row = result.default_row("best", alpha)
        assert row.method == "full"
        by_refit = np.mean([refitted(data, split, alpha) for split in splits], axis=0)
        assert [row.ship_rate.mean, row.exposure.mean] == pytest.approx(by_refit)
        assert result.cut_row("best", alpha).method == "mean"
        assert row.ship_rate.mean > result.cut_row("best", alpha).ship_rate.mean, "doubt says what is wrong"
    one = headline(found, result)
    served = result.cut_row("best", 0.1).ship_rate.mean
    assert f"a cut of Gram energy alone would serve {100 * served:.0f} %" in one.ships
    assert "clear difference" in one.ships
    assert f", a cut of Gram energy {100 * served:.0f} %; the error rate" in one.sentence
    page = (tmp_path / "out" / "report.html").read_text()
    assert "every label fits and calibrates one score of all signals (method full)" in page
    assert "--signal doubt=0..3" in page
    (table,) = all_tables(found)["scorer"]
    assert [cells[1] for cells in table.rows] == ["Gram energy", "all signals, method full"]
    without = evaluate(path, **asked).data_sets[0]
    assert without.default_row("best", 0.1).ship_rate.mean < result.default_row("best", 0.1).ship_rate.mean
    with pytest.raises(
        UsageError, match=r"prompt 'q\d+': the signal doubt of answer \d is .*, outside its range of 0 to 1"
    ):
        evaluate(path, signals=(("doubt", 0.0, 1.0),), **asked)


def test_below_forty_labels_the_score_that_chooses_is_cut_as_the_gate_does(tmp_path):
    path = write(tmp_path / "made-up.jsonl", rows(79))
    (result,) = evaluate(path, units=("best",), cache=None).data_sets
    at = streamer.Gate(alpha=0.1).fit(path).report().at
    assert 0 < at.ship_rate.mean == pytest.approx(result.default_row("best", 0.1).ship_rate.mean)


def test_the_folder_has_all_that_is_promised(done, clouds):
    found, folder = done
    out = folder / "out"
    listing = {path.name for path in out.iterdir()}
    assert msgspec.json.decode((out / "results.json").read_bytes(), type=evaluation.Evaluation) == found
    page = (out / "report.html").read_text()
    assert not re.search(r"<script|\bsrc=|url\(|@import", page), "the page loads something"
    linked = set(re.findall(r'href="([^"#]+)"', page))
    assert linked == listing - {"report.html"}, "every file beside the page is named there, and nothing else"
    drawn = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(drawn) == 3
    for svg in drawn:
        assert ElementTree.fromstring(svg).get("role") == "img"
        assert "nan" not in svg.lower()
    for words in (
        "What would ship?",
        "How it was measured",
        "What this does not tell you",
        "G-Eval-CRC",
        "made-up",
    ):
        assert words in page
    tables = (out / "tables.md").read_text()
    for table in itertools.chain(*all_tables(found).values()):
        assert f"## {table.title}" in tables
        assert all(len(row) == len(table.columns) for row in table.rows), table.title


def test_the_figure_of_shares_accounts_for_every_prompt(done):
    found, _ = done
    (result,) = found.data_sets
    axis = shares(found).axes[0]
    wrong, right, held = ([bar.get_width() for bar in bars] for bars in axis.containers)
    assert np.add(wrong, np.add(right, held)) == pytest.approx(100)
    rows = {alpha: result.default_row("best", alpha) for alpha in (0.1, 0.3)}
    assert wrong == pytest.approx(
        [100 * result.mean_severity["best"], 100 * rows[0.3].exposure.mean, 100 * rows[0.1].exposure.mean]
    )
    assert held == pytest.approx(
        [0, 100 * (1 - rows[0.3].ship_rate.mean), 100 * (1 - rows[0.1].ship_rate.mean)]
    )
    assert [label.get_text() for label in axis.get_yticklabels()] == ["no gate", "budget 30 %", "budget 10 %"]


def test_the_pictures_data_are_those_of_all_questions(done, clouds):
    (result,) = done[0].data_sets
    for unit in ("best", "response"):
        (drawn,) = [row.picture for row in result.ranking if row.unit == unit and row.picture is not None]
        answers = 40 if unit == "best" else 160
        assert sum(drawn.fine) + sum(drawn.wrong) == answers
        assert drawn.thresholds[0] == 0
        assert drawn.ship_rate[0] <= 1
        assert drawn.ship_rate[-1] == 0 == drawn.exposure[-1]
        assert drawn.selective[-1] is None
        assert list(drawn.ship_rate) == sorted(drawn.ship_rate, reverse=True)
        for ships, harm, wrong in zip(drawn.ship_rate, drawn.exposure, drawn.selective, strict=True):
            assert harm == pytest.approx(0 if wrong is None else ships * wrong)


def test_the_bars_of_the_page_account_for_every_prompt(done):
    (result,) = done[0].data_sets
    svg = ElementTree.fromstring(outcomes_chart(result, "best", done[0].options.alphas))
    heights = {}
    for bar in svg.iter("{http://www.w3.org/2000/svg}rect"):
        heights.setdefault(bar.get("x"), {})[bar.get("class")] = float(bar.get("height"))
    whole = HEIGHT - TOP - BOTTOM
    no_gate, *gates = heights.values()
    assert no_gate["wrong"] == pytest.approx(whole * result.mean_severity["best"], abs=0.1)
    for bars, alpha in zip(gates, (0.3, 0.1), strict=True):
        row = result.default_row("best", alpha)
        assert bars.get("wrong", 0) == pytest.approx(whole * row.exposure.mean, abs=0.1)
        assert bars["held"] == pytest.approx(whole * (1 - row.ship_rate.mean), abs=0.1)
        assert sum(bars.values()) == pytest.approx(whole, abs=0.3)


def test_a_page_of_results_that_were_kept_without_pictures_has_those_there_are(done):
    (result,) = done[0].data_sets
    older = replace(result, ranking=tuple(replace(row, picture=None) for row in result.ranking))
    assert render_page(replace(done[0], data_sets=(older,))).count("<svg") == 1


def test_a_score_that_works_the_wrong_way_is_said_in_the_first_sentence(done):
    (result,) = done[0].data_sets
    assert headline(done[0], result).sentence.startswith("At a budget of ")
    shipped = result.default_row("best", 0.1).shipped_severity.mean
    without = dict.fromkeys(result.mean_severity, shipped - 0.03)
    for error, said in (
        (0.01, "The score works the wrong way for prompts: what ships is worse"),
        (0.02, "At a budget"),
    ):
        gates = tuple(
            replace(row, shipped_severity=replace(row.shipped_severity, error=error)) for row in result.gates
        )
        found = headline(done[0], replace(result, mean_severity=without, gates=gates))
        assert found.sentence.startswith(said)


@pytest.mark.parametrize(
    ("low", "value", "high", "said"),
    [
        (0.6, 0.7, 0.8, "Yes: By Gram energy a fine answer scores above a bad one"),
        (0.45, 0.51, 0.57, "No better than chance"),
        (0.2, 0.3, 0.4, "No, it points the wrong way"),
        (None, None, None, "Cannot be said"),
    ],
)
def test_the_first_screen_says_whether_the_score_is_any_good(done, low, value, high, said):
    (result,) = done[0].data_sets
    ranking = [
        replace(row, auroc=replace(row.auroc, low=low, value=value, high=high))
        if row.scorer == "gram"
        else row
        for row in result.ranking
    ]
    found = headline(done[0], replace(result, ranking=ranking))
    assert said in f"{found.good}: {found.score}"
    wrong_way = said.startswith("No, it")
    assert found.sentence.startswith("The score works the wrong way for prompts") == wrong_way


def columns_on_the_page(head):
    """The names in the first cells of the table with this head on docs/evaluation.md, in order."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "evaluation.md").read_text()
    table = page[page.index(f"| `{head}` |") :].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_papers_csv_files_have_the_columns_of_the_page(done, clouds):
    out = done[1] / "out"
    answers = list(csv.DictReader(io.StringIO((out / "responses.csv").read_text())))
    assert list(answers[0]) == [
        *columns_on_the_page("responses.csv")[:-1],
        *(f"score_{name}" for name in (*SCORER_NAMES[1:], "luck")),
    ]
    assert len(answers) == 160
    source = {row["question_id"]: row for row in rows(judged=True)}
    for row in answers:
        response = source[row["question_id"]]["responses"][int(row["position"])]
        assert float(row["severity"]) == response["label"]
        assert float(row["judge_score"]) == response["meta"]["judge_score"]
        assert (row["blank"] == "1") == (not response["text"].strip())
        assert 0 <= float(row["gram_energy"]) <= float(row["gram_energy_raw"] if row["blank"] == "0" else 1)
    (parameters,) = csv.DictReader(io.StringIO((out / "parameters.csv").read_text()))
    assert list(parameters) == columns_on_the_page("parameters.csv")
    assert parameters["models"] == "made-up"
    assert parameters["sha256"] == done[0].data_sets[0].digest


def test_questions_that_are_copies_of_one_another_are_told_of(tmp_path):
    made = rows(12)
    for row in made[:3]:
        row["question"] = "the same?"
    found = evaluate(write(tmp_path / "c.jsonl", made), alphas=[0.3], splits=2, cache=None)
    assert found.data_sets[0].notes[0].startswith("2 of 12 questions are word for word those of others")


def test_a_budget_that_is_broken_alike_in_every_split_is_told_of(tmp_path):
    """Two splits with equal exposures above the budget have no standard error to count in."""
    found = evaluate(write(tmp_path / "c.jsonl", rows(12)), alphas=[0.3], splits=2, cache=None)
    (result,) = found.data_sets
    alike = Spread(mean=0.4, sd=0.0, se=0.0, error=0.0, splits=2)
    gates = [replace(row, promised=alike, excess=excess(alike, row.alpha)) for row in result.gates]
    broken = replace(found, data_sets=(replace(result, gates=tuple(gates)),))
    assert "the same in every split" in findings(broken)[0]
    assert {row[-1] for row in over_budget_table(broken).rows} == {"the same in every split"}


def test_all_scorers_are_those_of_installed_packages_too(monkeypatch):
    monkeypatch.setattr(run, "entry_points", lambda: {"theirs": None})
    every = check_options(Options(scorers=("all",)))
    assert every.scorers == (*SCORER_NAMES, "theirs")
    assert run.packages_of(every) == ("theirs",)
    assert check_options(Options(scorers=("theirs",))).scorers == ("gram", "theirs")
    assert check_options(Options(scorers=("gram",))).scorers == ("gram",)


def test_the_order_of_the_file_and_the_number_of_processes_change_nothing(tmp_path):
    made = rows(24)
    asked = {"alphas": [0.3], "splits": 3, "scorers": "all", "cache": None}
    plain = evaluate(write(tmp_path / "a.jsonl", made), **asked)
    (tmp_path / "b").mkdir()
    other = evaluate(write(tmp_path / "b" / "a.jsonl", made[::-1]), **asked)
    side_by_side = evaluate(tmp_path / "a.jsonl", processes=2, **asked)
    for found in (other, side_by_side):
        assert found.data_sets[0].gates == plain.data_sets[0].gates
        assert found.data_sets[0].ranking == plain.data_sets[0].ranking
        assert found.data_sets[0].compared == plain.data_sets[0].compared
        assert found.data_sets[0].stability == plain.data_sets[0].stability
    assert side_by_side.key == plain.key


def test_calibration_never_sees_what_is_measured(clouds):
    data = evaluation.read_data_set(clouds)
    for split in seeded_splits(data.clouds, range(20)):
        assert not set(split.first) & set(split.second.tolist())
        assert len(split.first) + len(split.second) == 40
        assert len(split.first) == 20


def test_a_fixed_threshold_ships_what_equals_it(tmp_path):
    made = rows(10, judged=True)
    for row in made:
        for response in row["responses"]:
            response["meta"]["judge_score"] = 0.9
            response["text"] = "something"
    found = evaluate(write(tmp_path / "c.jsonl", made), alphas=[0.05, 0.1], splits=2, cache=None)
    rates = {
        row.alpha: row.ship_rate.mean
        for row in found.data_sets[0].modes("response")
        if row.mode == "G-Eval-Naive"
    }
    assert rates == {0.05: 0.0, 0.1: 1.0}, "0.9 >= 0.9 ships, as in the paper"


def test_answers_without_a_score_of_their_own_are_held(tmp_path):
    made = rows(12, judged=True)
    for row in made:
        for response in row["responses"]:
            response["label"] = 0
            response["text"] = "something"
        row["responses"][0]["meta"].pop("judge_score")
    found = evaluate(
        write(tmp_path / "c.jsonl", made), alphas=[0.3], splits=2, units=["response"], cache=None
    )
    (result,) = found.data_sets
    (judge,) = [row for row in result.gates if row.mode == "G-Eval-CRC"]
    assert judge.opened == 1, "nothing is ever wrong, so the gate is open"
    assert judge.ship_rate.mean == 0.75
    assert any("12 responses have no judge_score" in note for note in result.notes)


def test_units_without_labels_are_left_out_and_told_of(tmp_path):
    made = rows(12)
    for row in made:
        best = 0
        for i, response in enumerate(row["responses"]):
            response["text"] = f"{i}"
            response["embedding"] = [1.0, 0.01 * i, 0.0]
            if i != best:
                response["label"] = None
    for row in made:
        row["responses"][1]["label"] = 0.0
    found = evaluate(write(tmp_path / "c.jsonl", made), alphas=[0.3], splits=2, cache=None)
    (result,) = found.data_sets
    assert result.unlabelled == 24
    assert any("24 of 48 answers have no severity" in note for note in result.notes)
    for row in made:
        row["responses"][1]["label"] = None
        row["responses"][2]["label"] = 0.0
        row["responses"][0]["label"] = None
    with pytest.raises(UsageError, match="too few severities for any unit"):
        evaluate(write(tmp_path / "d.jsonl", made), alphas=[0.3], splits=2, cache=None)


GOOD = {"text": "a", "label": 0, "embedding": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["{}"], r"has the columns .none.; none is recognised as the answers"),
        (["{}", "not json"], r"line 2: not JSON"),
        ([None, "not json"], r"line 2: not JSON"),
        ([None, '{"label": NaN}'], r"line 2: NaN or Infinity .* write null"),
        ([None, {"responses": []}], r"line 2: .*question and responses"),
        ([{"responses": [GOOD]}] * 2, r"one answer only to each prompt .2 in all"),
        ([None, {"responses": [GOOD, GOOD | {"label": 2}]}], r"line 2: .*label in \[0, 1\]"),
        ([None, {"responses": [GOOD, GOOD | {"embedding": [1.0, 2.0, 3.0]}]}], r"line 2: .*different dimensions"),
        ([None, {"responses": [GOOD, GOOD | {"embedding": None}]}], r"line 2: .*different dimensions"),
        ([None, {"responses": [GOOD, GOOD | {"embedding": [0.0, 0.0]}]}], r"line 2: .*response 1 is zero"),
        ([None, {"responses": [GOOD | {"embedding": [1.0, 0.0, 0.0]}] * 2}], r"mixed: dimension 2 .*dimension 3"),
        ([None], r"holds 1 question"),
        ([None, {"responses": [GOOD | {"label": None}] * 2}, {"responses": [GOOD] * 2, "question_id": 1}], None),
        ([None, {"responses": [GOOD | {"meta": {"judge_score": 1.5}}] * 2}], r"question '7': the score judge_score .*1.5"),
        ([None, {"responses": [GOOD | {"meta": {"label_kind": "human"}}] * 2}], r"several kinds"),
    ],
)  # fmt: skip
def test_bad_input_names_the_file_and_the_place(tmp_path, lines, told):
    path = tmp_path / "clouds.jsonl"
    written = []
    for number, line in enumerate(lines):
        if line is None:
            line = {"question_id": "first", "question": "?", "responses": [GOOD] * 2}
        elif isinstance(line, dict):
            line = {"question_id": 6 + number, "question": "?"} | line
        written.append(line if isinstance(line, str) else json.dumps(line))
    path.write_text("\n".join(written) + "\n")
    if told is None:
        assert evaluate(path, alphas=[0.3], splits=2, cache=None).data_sets[0].unlabelled == 2
        return
    with pytest.raises(UsageError, match=told) as refused:
        evaluate(path, alphas=[0.3], splits=2, cache=None)
    assert "clouds.jsonl" in str(refused.value) or "mixed" in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"alphas": [0]}, "between 0 and 1"),
        ({"alphas": []}, "at least one budget"),
        ({"splits": 1}, "a spread needs two"),
        ({"units": ["all"]}, "best, response, batch"),
        ({"scorers": ["gram", "magic"]}, "no scorer magic"),
        ({"external": ["gram"]}, "name of a scorer"),
        ({"external": ["nowhere"]}, "no response has a field 'nowhere'"),
        ({"seed": -1}, "0 or more"),
    ],
)
def test_options_that_mean_nothing_are_refused(clouds, asked, told):
    with pytest.raises(UsageError, match=told):
        evaluate(clouds, cache=None, **asked)


def test_the_command_prints_what_it_found_and_where(clouds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", str(clouds), "--alpha", "0.3", "--splits", "2", "--unit", "best", "--processes", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert re.search(r"made-up: At a budget of 30 % the gate serves \d+ % of prompts", out), out
    assert "G-Eval-Naive" in Path("evaluation/tables.md").read_text()
    assert Path("evaluation/report.html").is_file()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data_sets"][0]["name"] == "made-up"
    assert main(["evaluate"]) == 2
    assert "--from-store" in capsys.readouterr().err
    assert main(["evaluate", str(clouds), "--unit", "all"]) == 2
    assert "must be one of best, response, batch, claim, not 'all'" in capsys.readouterr().err
    assert main(["evaluate", "nowhere.jsonl"]) == 2
    assert "cannot read" in capsys.readouterr().err
    Path("file").write_text("")
    monkeypatch.setattr(steps, "evaluate_data_sets", refuse)
    for option in ("--out", "--cache"):
        assert main([*words, option, "file"]) == 2, "before anything is computed"
        assert "cannot write to file" in capsys.readouterr().err


def test_budgets_are_judged_by_question_where_questions_have_different_numbers_of_answers(tmp_path):
    """Large questions are the bad ones: per answer every calibration by groups is over budget, as it may be."""
    rng = np.random.default_rng(3)
    clouds = [
        {
            "question_id": f"q{q}",
            "question": f"question {q}?",
            "responses": [
                {
                    "text": f"answer {i} to {q}",
                    "label": 0.6 if q % 2 and rng.random() < 0.5 else 0.0,
                    "meta": {"label_kind": "human"},
                    "embedding": [1.0, *(0.3 * rng.random(2)).tolist()],
                }
                for i in range(12 if q % 2 else 3)
            ],
        }
        for q in range(80)
    ]
    path = write(tmp_path / "uneven.jsonl", clouds)
    found = evaluate(path, alphas=(0.1,), units=("response",), splits=10, cache=None)
    gates = {row.method: row for _, row in promised_rows(found) if row.mode is None}
    assert gates.keys().isdisjoint({"hb", "betting", "clt", "selective", "fixed"})
    mean = gates["mean"]
    assert mean.exposure.mean > 0.13
    assert mean.promised.mean < 0.11
    assert all(row.excess is None or row.excess < 4 for row in gates.values())
    assert gates["pooled"].promised == gates["pooled"].exposure


def test_questions_of_one_size_have_one_exposure(tmp_path):
    found = evaluate(write(tmp_path / "even.jsonl", rows(20)), alphas=(0.1,), splits=3, cache=None)
    assert all(row.promised == row.exposure for row in found.data_sets[0].gates if row.scorer == "gram")


SCRIPT = """
import os
from streamer.research.evaluation.run import side_processes
assert side_processes(1).submit(os.getpid).result() != os.getpid()
os.kill(os.getpid(), 9)
"""


def test_they_end_when_their_owner_is_killed():
    # They share its standard output, whose end comes with the last of them: else this waits in vain.
    programs.run(sys.executable, "-c", SCRIPT, status=-9)
