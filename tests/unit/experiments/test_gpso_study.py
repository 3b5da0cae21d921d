"""What of a file of clouds GPSO uses, what it counts, and the forms in which its tables come."""

import csv
import io
import json

import numpy as np
import pytest

from streamer.clouds.cloud import Cloud, CloudResponse
from streamer.errors import UsageError
from streamer_research.gpso.selection import cloud_embeddings, select
from streamer_research.gpso.study import StudyOptions, gpso_study
from streamer_research.gpso.tables import batches_csv, figures_csv, markdown, selection_lines, study_json

D = 10


def cloud(name: str, severities: list[float | None], texts: list[str] | None = None) -> Cloud:
    texts = texts or [f"{name} answer {i}" for i in range(len(severities))]
    responses = tuple(
        CloudResponse(f"r{i:02d}", text, severity, "human")
        for i, (text, severity) in enumerate(zip(texts, severities, strict=True))
    )
    return Cloud(name, f"{name}?", (), responses)


def rows_of(clouds: list[Cloud], seed: int = 0) -> list[np.ndarray]:
    """Rows about one direction where they are good, and about another where they are bad."""
    rng = np.random.default_rng(seed)
    made = []
    for each in clouds:
        rows = rng.normal(size=(len(each.responses), D)) + 1
        bad = [(severity or 0) > 0.5 for severity in each.severities]
        rows[np.arange(len(rows)), np.array(bad, dtype=int)] += 9.0
        made.append(rows)
    return made


@pytest.fixture(scope="module")
def study():
    clouds = [cloud(f"q{i}", [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]) for i in range(4)]
    return gpso_study(clouds, rows_of(clouds), StudyOptions(splits=2, folds=None))


def test_what_is_used_and_what_is_not_is_counted():
    clouds = [
        cloud("enough", [0, 0, 0, 1, 1, 1]),
        cloud("few bad", [0, 0, 0, 1, 1]),
        cloud("few good", [0, 1, 1, 1, None]),
        cloud("few of both", [0, 1], ["same", "same"]),
        cloud("blank", [0, 0, 0, 1, 1, 1], ["a", "b", " ", "c", "d", "\n"]),
    ]
    questions, used = select(clouds, rows_of(clouds), StudyOptions())
    assert [len(question.good) for question in questions] == [6, 5, 4, 2, 4]
    assert (used.questions, used.responses, used.unlabelled, used.blank) == (5, 24, 1, 2)
    assert (used.good, used.bad, used.copied) == (3 + 3 + 1 + 1 + 2, 3 + 2 + 3 + 1 + 2, 2)
    assert (used.both_classes, used.skipped) == (1, 4)
    assert (used.too_few_good, used.too_few_bad, used.too_few_both) == (1, 1, 2)
    assert (used.batches_good, used.batches_bad) == (2, 2)


def test_the_cut_is_the_largest_good_severity():
    clouds = [cloud("q", [0.0, 0.2, 0.3, 0.30001, 0.9])]
    questions, _ = select(clouds, rows_of(clouds), StudyOptions(cut=0.3))
    assert questions[0].good.tolist() == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("severities", "cut", "message"),
    [
        ([None, None], 0.5, "no response has a severity"),
        ([0.0, 0.2], 0.5, r"every response is good at the cut 0\.5: severities go from 0 to 0\.2"),
        ([0.7, 0.7], 0.5, r"every response is bad .* all severities are 0\.7"),
        ([0.7, 0.9], 0.5, r"every response is bad .* from 0\.7 to 0\.9; choose a --cut between"),
    ],
)
def test_a_file_without_two_classes_is_refused(severities, cut, message):
    clouds = [cloud("q", severities)]
    with pytest.raises(UsageError, match=message):
        gpso_study(clouds, rows_of(clouds), StudyOptions(cut=cut))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"cut": 1.0}, "cut"),
        ({"cut": -0.1}, "cut"),
        ({"cut": float("nan")}, "cut"),
        ({"pipelines": ()}, "pipelines are A, B, C and D"),
        ({"pipelines": ("A", "E")}, "not E"),
        ({"splits": 0}, "at least once"),
        ({"folds": 1}, "at least 2 folds"),
        ({"min_per_class": 1}, "at least 2 responses"),
        ({"train_share": 1.0}, "share"),
        ({"splits": 10_001}, "at most 10,000 times"),
        ({"replicates": 0}, "replicate"),
        ({"replicates": 10_001}, "at most 10,000"),
        ({"rank_cap": 0}, "rank"),
    ],
)
def test_options_that_make_no_sense_are_named(option, message):
    with pytest.raises(UsageError, match=message):
        StudyOptions(**option)


def test_every_method_gets_a_row_and_pipelines_their_diagnostics(study):
    keys = [(row.protocol, row.task, row.method) for row in study.rows]
    pipelines, rivals = [f"GPSO {key}" for key in "ABCD"], ["logistic regression", "nearest mean"]
    for protocol in ("within", "across"):
        wanted = [*pipelines, *rivals, "tightness alone"]
        assert [m for p, t, m in keys if (p, t) == (protocol, "batch")] == wanted
        assert [m for p, t, m in keys if (p, t) == (protocol, "response")] == ["GPSO B", "GPSO D", *rivals]
    for row in study.rows:
        assert (row.diagnostics is not None) == (row.task == "batch" and row.method in pipelines)
        assert set(row.against) == (set(rivals) if row.method in pipelines else set())
    for method in ("GPSO B", *rivals):
        (row,) = [r for r in study.rows if (r.protocol, r.task, r.method) == ("within", "batch", method)]
        assert row.figures.macro_accuracy.value == 1.0
        assert row.figures.judged == 4 * 2 * 2


def test_differences_are_of_the_rows_figures(study):
    rows = {(row.protocol, row.task, row.method): row for row in study.rows}
    row, rival = rows["across", "batch", "GPSO A"], rows["across", "batch", "nearest mean"]
    wanted = pytest.approx(row.figures.accuracy.value - rival.figures.accuracy.value)
    assert row.against["nearest mean"]["accuracy"].value == wanted


def test_the_same_seed_gives_the_same_study_and_the_order_of_the_file_does_not_matter(study):
    clouds = [cloud(f"q{i}", [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]) for i in range(4)]
    rows = rows_of(clouds)
    again = gpso_study(clouds, rows, StudyOptions(splits=2, folds=None))
    back = gpso_study(clouds[::-1], rows[::-1], StudyOptions(splits=2, folds=None))
    other = gpso_study(clouds, rows, StudyOptions(splits=2, folds=None, seed=1))
    assert study_json(again) == study_json(study)
    assert study_json(other)["rows"] != study_json(study)["rows"]
    for one, two in zip(study.rows, back.rows, strict=True):
        assert two.figures.macro_accuracy.value == pytest.approx(one.figures.macro_accuracy.value)


def test_json_is_json_and_holds_what_was_asked(study):
    value = json.loads(json.dumps(study_json(study), allow_nan=False))
    assert value["options"]["cut"] == 0.5
    assert value["selection"]["skipped"] == 0
    first = value["rows"][0]
    assert first["auroc"].keys() == {"value", "se", "low", "high"}
    assert first["diagnostics"]["batches"] == first["judged"] == 16
    assert first["against"]["nearest mean"]["macro_accuracy"]["value"] is not None


def test_csv_has_a_line_for_every_row_and_for_every_batch(study):
    table = list(csv.DictReader(io.StringIO(figures_csv({"f": study}))))
    assert len(table) == len(study.rows)
    assert {line["file"] for line in table} == {"f"}
    assert float(table[0]["macro_accuracy"]) == study.rows[0].figures.macro_accuracy.value
    batches = list(csv.DictReader(io.StringIO(batches_csv({"f": study}))))
    # Four pipelines: two splits of four questions, and four questions left out; a good and a bad batch each.
    assert len(batches) == 4 * (2 * 4 * 2 + 4 * 2)
    assert {line["question_id"] for line in batches} == {f"q{i}" for i in range(4)}
    wanted = [line for line in batches if (line["method"], line["protocol"]) == ("GPSO B", "within")]
    assert all(line["class"] == line["predicted"] for line in wanted)
    for line in batches:
        assert (float(line["left"]) < float(line["right"])) == (line["holds"] == "True")


def test_markdown_tables_are_whole(study):
    text = markdown({"my file": study})
    assert "## my file, cut 0.5" in text
    assert "| (B) L2, no centre | 1.000 ± 0.000 | 1.000 | 1.000 |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {10, 5}
    assert "δ_proto is a dispersion" in text


def test_nothing_to_test_within_is_said_and_the_other_protocol_goes_on():
    clouds = [cloud(f"q{i}", [0, 0, 0, 0] if i % 2 else [1, 1, 1, 1]) for i in range(6)]
    found = gpso_study(clouds, rows_of(clouds), StudyOptions())
    assert {row.protocol for row in found.rows} == {"across"}
    text = markdown({"f": found})
    assert text.count("Within questions, 5 splits, 60% to train on: nothing to judge") == 1
    assert "6 skipped (3 with too few good, 3 with too few bad" in text
    assert not gpso_study(clouds, rows_of(clouds), StudyOptions(loo=False)).rows


def test_copies_are_told_of():
    clouds = [cloud("q", [0, 0, 0, 1, 1, 1], ["a", "a", "b", "c", "c", "d"])]
    found = gpso_study(clouds, rows_of(clouds), StudyOptions())
    assert any("67% of responses have a word-for-word copy" in line for line in selection_lines(found))


def test_copies_can_be_left_out():
    texts = ["a", "a", "b", "a", "c", " ", "d", "d"]
    clouds = [cloud("q", [0, 0, 0, None, 1, 1, 1, 1], texts)]
    rows = rows_of(clouds)
    questions, used = select(clouds, rows, StudyOptions(distinct=True))
    assert (used.repeated, used.copied, used.blank, used.unlabelled) == (2, 0, 1, 1)
    assert (questions[0].rows == rows[0][[0, 2, 4, 6]]).all()
    assert questions[0].good.tolist() == [True, True, False, False]
    # An unlabelled answer is not used, so that a later copy of it is the first.
    clouds = [cloud("q", [None, 0, 1, 1], ["a", "a", "b", "c"])]
    assert select(clouds, rows_of(clouds), StudyOptions(distinct=True))[1].repeated == 0


def test_embeddings_of_the_file_are_taken_before_an_encoders():
    def embed(_texts):
        raise AssertionError("an encoder was asked")

    own = Cloud(
        "q", "?", (), tuple(CloudResponse(f"r{i}", "x", 0.0, embedding=(1.0, float(i))) for i in range(2))
    )
    assert cloud_embeddings([own], embed)[0].tolist() == [[1, 0], [1, 1]]
    with pytest.raises(UsageError, match="mixed"):
        cloud_embeddings([own, cloud("p", [0, 1])], embed)


def test_an_encoder_is_asked_once_for_all_texts():
    asked = []

    def embed(texts):
        asked.append(list(texts))
        return np.arange(2 * len(texts), dtype=np.float32).reshape(-1, 2)

    clouds = [cloud("a", [0, 1, 0]), cloud("b", [0, 1])]
    found = cloud_embeddings(clouds, embed)
    assert asked == [[*clouds[0].texts, *clouds[1].texts]]
    assert [rows.shape for rows in found] == [(3, 2), (2, 2)]
    assert found[1][0].tolist() == [6, 7]
