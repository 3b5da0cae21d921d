"""`streamer.Gate`: tables of every library in, and the decisions of a gate in service out, to the last bit."""

import functools
import math
import pickle
import re
import warnings
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import streamer
from streamer.clouds.cloud import cloud_to_event
from streamer.clouds.cloud_files import AS_IT_IS
from streamer.errors import NotFittedError, UsageError
from streamer.events.responses import encode_responses
from streamer.frames.answers import read
from streamer.frames.gate import FewerAnswersWarning, UnlabelledWarning
from streamer.gates.declared import Unit
from streamer.gates.rule import Cut, Segments
from streamer.gates.settings import GateSettings
from streamer.recalibration.run import derive
from tests.made import a_revision, a_sampled_prompt
from tests.unit.deciding.test_decider import NOW, World, active


def answers(prompts: int = 200, *, seed: int = 1, first: int = 0, embeddings: bool = False) -> dict[str, Any]:
    """Two to five answers to each prompt; scores that say something, with ties; a blank answer now and then."""
    rng = np.random.default_rng(seed)
    table: dict[str, list[Any]] = {
        name: [] for name in ("prompt_id", "answer", "severity", "language", "score", "embedding")
    }
    for prompt in range(first, first + prompts):
        centre, hard = rng.normal(size=6), rng.beta(0.7, 1.0)
        for answer in range(rng.integers(2, 6)):
            bad = rng.random() < hard
            table["prompt_id"].append(f"p{prompt}")
            table["answer"].append(" \u200b" if rng.random() < 0.04 else f"answer {answer} to {prompt}")
            table["severity"].append(float(bad) * rng.choice([0.5, 1.0]))
            table["language"].append(["de", "en"][prompt % 2])
            table["score"].append(float(np.round(np.clip(rng.normal(0.7 - 0.3 * hard, 0.15), 0, 1), 2)))
            table["embedding"].append((centre + (0.3 + 1.5 * bad) * rng.normal(size=6)).tolist())
    del table["score" if embeddings else "embedding"]
    return table


def of_polars(name: str, *arguments: Any) -> functools.partial[Any]:
    """Make it within a test: polars starts threads, which a process that forks the tests must not have."""

    def make() -> Any:
        import polars

        return getattr(polars, name)(*arguments)

    return functools.partial(make)


KINDS = ("pandas", "polars", "pyarrow", "columns", "arrays", "records", "structured")


def frames() -> dict[str, Any]:
    columns = answers()
    frame = pd.DataFrame(columns)
    return {
        "pandas": frame, "polars": of_polars("DataFrame", columns)(), "pyarrow": pa.table(columns),
        "columns": columns, "arrays": {name: np.array(values) for name, values in columns.items()},
        "records": frame.to_dict("records"), "structured": frame.to_records(index=False),
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_library_are_decided_alike(kind: str) -> None:
    table, plain = frames()[kind], answers()
    expected = streamer.Gate(alpha=0.1).fit(plain)
    gate = streamer.Gate(alpha=0.1).fit(table)
    assert gate.threshold_ == expected.threshold_
    assert gate.threshold_.state == "cut"
    decided = gate.decide(table)
    assert decided.rows() == expected.decide(plain).rows()
    returned = decided.to_frame()
    if kind in ("pandas", "polars"):
        assert type(returned) is type(table)
    elif kind == "pyarrow":
        assert returned.num_rows == len(decided)
    else:
        assert returned == decided.rows()
    assert len(gate.report().to_frame()) >= 10


def test_rows_keep_their_order_and_their_index(tmp_path: Path) -> None:
    frame = pd.DataFrame(answers())
    gate = streamer.Gate(alpha=0.1).fit(frame)
    shuffled = frame.sample(frac=1, random_state=3)
    by_row = gate.decide(frame).to_frame().ship
    # Which of equal scores comes first in a batch decides who is best, so that only prompts without a tie must agree.
    tied = frame.groupby("prompt_id").score.transform(lambda scores: (scores == scores.max()).sum() > 1)
    again = gate.decide(shuffled).to_frame().ship
    assert again.index.equals(shuffled.index)
    assert again.loc[~tied].sort_index().equals(by_row.loc[~tied])
    shuffled["ship"] = gate.decide(shuffled).ship
    assert shuffled.ship.equals(again)
    path = tmp_path / "answers.parquet"
    frame.to_parquet(path)
    assert gate.decide(path).ship.tolist() == by_row.tolist()
    assert np.asarray(gate.decide(path)).tolist() == by_row.tolist()


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("mean", {}),
    ("age", {"rho": 0.995}),
    ("transductive", {}),
    ("selective", {"delta": 0.3}),
    ("selective-mean", {}),
    ("hb", {}),
    ("rbwa", {}),
]


def in_service(gate: streamer.Gate, table: Any, **settings: Any) -> list[list[bool]]:
    """What a worker's decider ships of each prompt under the policy that this gate found."""
    world = World()
    made = active(
        "bot",
        state=gate.threshold_.state,
        threshold=gate.threshold_.value if gate.threshold_.state == "cut" else None,
        **{"unit": gate.unit, "method": gate.settings_.method, "alpha": gate.alpha, **(gate.parameters or {})}
        | settings,
    )
    world.sql["bot"] = replace(made, policy=replace(made.policy, rule=gate.rule_, bursts=gate._bursts))
    found = read(table, AS_IT_IS, gate.kept_columns)
    events = []
    for place, cloud in enumerate(found.clouds):
        event = cloud_to_event(
            cloud, "bot", embeddings_of=settings.get("encoder", "").partition(":")[2] or None
        )
        if found.metadata:
            event = msgspec.structs.replace(event, metadata=dict(found.metadata[place]))
        events.append(encode_responses(event))
    return [[one.action == "ship" for one in decision.responses] for decision in world.decide(*events)]


@pytest.mark.parametrize("scorer", ["gram", "choice"])
def test_embeddings_are_scored_as_a_worker_scores_them(scorer: str) -> None:
    gate = streamer.Gate(alpha=0.2, unit="response", scorer=scorer).fit(answers(embeddings=True))
    new = answers(100, seed=2, first=1000, embeddings=True)
    shipped = in_service(gate, new, scorer=scorer, encoder="external:mine", embeddings="accept", dimension=6)
    assert [list(batch.shipped) for batch in gate.decide(new).batches] == shipped
    assert any(map(any, shipped))


def test_segments_have_thresholds_of_their_own_as_in_service() -> None:
    gate = streamer.Gate(alpha=0.2, segment_by="language").fit(answers())
    assert isinstance(gate.rule_, Segments)
    new = answers(100, seed=2, first=1000)
    decided = gate.decide(new)
    shipped = in_service(gate, new, scorer="external", encoder="none", segment_by="language")
    assert [list(batch.shipped) for batch in decided.batches] == shipped
    cuts = {cut.threshold for _, cut in gate.rule_.own}
    assert len(cuts) == 2
    assert set(decided.thresholds) == cuts


def test_a_prompt_of_two_segments_is_refused() -> None:
    table = answers(20)
    table["language"][1] = "fr"
    gate = streamer.Gate(alpha=0.2, segment_by="language")
    with pytest.raises(
        UsageError, match="row 1, column language: another value than at row 0 for the same prompt 'p0'"
    ):
        gate.fit(table)
    with pytest.raises(UsageError, match="another value than at row 0"):
        gate.fit(answers()).decide(table)
    table["language"] = [None, math.nan] * (len(table["score"]) // 2) + [None] * (len(table["score"]) % 2)
    gate.fit(table)  # no value at all is one value


@pytest.mark.parametrize("unit", ["best", "response", "batch"])
@pytest.mark.parametrize(("method", "parameters"), METHODS, ids=[name for name, _ in METHODS])
def test_a_gate_is_that_of_a_calibration_run_and_decides_as_one_in_service(
    unit: Unit, method: str, parameters: dict[str, Any]
) -> None:
    """On the same groups, the recalibrator's own computation comes to the same cut, rule and promise."""
    gate = streamer.Gate(alpha=0.25, unit=unit, method=method, parameters=parameters, seed=7).fit(
        answers(300)
    )
    new = answers(200, seed=2, first=1000)
    decided = gate.decide(new)
    assert [list(batch.shipped) for batch in decided.batches] == in_service(
        gate, new, scorer="external", encoder="none"
    )
    if method != "selective":  # which may stay closed
        assert decided.ship.any()
        assert not decided.ship.all()
    most = max(len(group.item_ids) for group in gate.groups_)
    sampled = [
        a_sampled_prompt(
            ("bot", group.id.removesuffix("#1")),
            zip(group.item_ids, group.scores, group.severities, strict=True),
            draws=most,
        )
        for group in gate.groups_
    ]
    settings = GateSettings(
        unit=unit, method=method, alpha=0.25, scorer="external", encoder="none", audit_draws=most,
        **parameters,
    )  # fmt: skip
    revision = a_revision(settings, gate="bot", seed=7, audit_salt=b"s")
    run = derive(revision, sampled, [], now=NOW, older_than=NOW, diagnostics=False)
    assert (run.decided, run.rule) == (gate.threshold_, gate.rule_)
    assert Cut.at(run.decided.value).state == gate.threshold_.state


def test_it_has_the_habits_of_scikit_learn() -> None:
    gate = streamer.Gate(alpha=0.1, method="hb", parameters={"delta": 0.2})
    assert repr(gate) == "Gate(alpha=0.1, method='hb', parameters={'delta': 0.2})"
    copy = clone(gate)
    assert copy.get_params() == gate.get_params()
    assert copy.set_params(alpha=0.2) is copy
    assert (copy.alpha, gate.alpha) == (0.2, 0.1)
    with pytest.raises(ValueError, match="no parameter 'alfa'; it has alpha"):
        gate.set_params(alfa=0.1)
    for ask in (lambda: gate.decide(answers(3)), gate.report):
        with pytest.raises(NotFittedError, match=r"call fit\(table\)") as caught:
            ask()
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, AttributeError)
    assert "not fitted" in gate._repr_html_()
    assert gate.fit(answers()) is gate
    assert clone(gate).get_params() == gate.get_params()
    again = pickle.loads(pickle.dumps(gate))
    assert again.decide(answers(9)).rows() == gate.decide(answers(9)).rows()


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"alpha": 1.5}, "alpha must be"),
        ({"unit": "all"}, "unit must be one of"),
        ({"method": "clt"}, "method must be one of"),
        ({"method": "full"}, "answers are scored by their embeddings"),
        ({"method": "full", "scorer": "gram"}, "scorer must be left out with method full"),
        ({"method": "full", "unit": "response"}, "method full"),
        ({"method": "full", "label_floor": 0.2}, "label_floor"),
        ({"parameters": {"delta": 2}, "method": "hb"}, "delta must be"),
        ({"parameters": {"dleta": 0.1}, "method": "hb"}, "method hb has no parameter 'dleta'; it has delta"),
        ({"parameters": {"delta": 0.1}}, "method mean has no parameter 'delta'; it has none"),
        ({"parameters": {"alpha": 0.1}}, "method mean has no parameter 'alpha'"),
        ({"scorer": "external"}, "scorer must be one of"),
        ({"unlabelled": "best"}, "unlabelled must be one of worst, drop, fail"),
        ({"seed": -1}, "seed must be"),
        ({"label_floor": 0.2, "unit": "batch"}, "label_floor goes with"),
        ({"alpha": "5%"}, "alpha must be a number, like 0.05, not '5%'"),
        ({"alpha": None}, "alpha must be a number"),
        ({"label_floor": "low"}, "label_floor must be a number, like 0.05, or absent"),
        ({"segment_by": 3}, "segment_by must be a text, or absent"),
        ({"parameters": 5}, "parameters must be a dict"),
        ({"columns": "x"}, "columns must be a dict"),
        ({"columns": {"answer": 5}}, "columns: 'answer' must be a column's name"),
        ({"columns": {"anwser": "x"}}, "columns names roles"),
        ({"columns": {"answer": "x"}}, "has no column 'x' for answer"),
    ],
)
def test_what_cannot_be_is_refused(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, UsageError, TypeError), match=says):
        streamer.Gate(**parameters).fit(answers(20))


def test_a_mistake_in_a_file_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("prompt,score,severity\na,0.5,0\n\na,0.6,7\n")
    with pytest.raises(UsageError, match="line 4, column severity: '7' is not a number"):
        streamer.Gate(alpha=0.2).fit(path)
    path.write_text("prompt,score,severity\na,0.5,0\n\na,0.6,1\nb,0.9,0\n")
    gate = streamer.Gate(alpha=0.5).fit(path)
    assert len(gate.decide(path).ship) == 3, "and decisions are in the order of the rows"


ROW = {"prompt_id": [1, 1], "score": [0.1, 0.2], "severity": [0, 1]}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([1, 2], "no names of columns"),
        (np.zeros((3, 2)), "no names of columns"),
        (5, "a gate takes a DataFrame"),
        (pd.Series([0.1], name="score"), "a Series is one column"),
        (of_polars("Series", "score", [0.1]), "a Series is one column"),
        (np.array([["a", 0.1]], dtype=object), "no names of columns"),
        ([{"score": 0.1}, 3], "no names of columns"),
        (pd.DataFrame({"prompt_id": [], "score": [], "severity": []}), "no rows"),
        ({"prompt_id": {1, 2}, "score": [0.1, 0.2]}, "'prompt_id' must be a list"),
        ({"prompt_id": [1, 2], "score": {0: 0.1, 1: 0.2}}, "'score' must be a list"),
        ({**ROW, "score": [math.nan] * 2}, r"an answer without a score \(column score\): give every answer"),
        ({**ROW, "severity": [math.nan] * 2}, "no answer has a severity.*Say which column it is"),
        ({**ROW, "severity": [0, 2]}, "row 1, column severity: '2' is not a number from 0 to 1"),
        ({**ROW, "severity": [0, 10**400]}, "is not a number from 0 to 1"),
        ({**ROW, "answer_id": ["a", "a"]}, "another score than at row 0 under the same prompt and the same answer_id 'a'"),
        ({**ROW, "score": np.zeros((2, 2))}, "'1' was there already; a row is a whole prompt"),
        (of_polars("LazyFrame", {"a": [1]}), "collect"),
        ({"a": [1], "b": [1, 2]}, "different lengths: a 1, b 2"),
        ({"a": 1}, "must be a list with a value for each row, not 1"),
        (pd.DataFrame(), "no rows"),
        (pd.DataFrame([[1, 2]], columns=["score", "score"]), "two columns 'score'"),
        ({"x": [1]}, r'say which with columns={"answer": "NAME"}'),
        ({"prompt": ["a", "a"], "answer": ["b", "c"], "severity": [0, 1]}, r"there are texts alone.*Gate\(encoder="),
        ({"prompt": ["a", "a"], "answer": ["b", "c"], "score": [0, 1]}, "no answer has a severity"),
        (
            {"prompt": ["a", "a"], "embedding": ["some text", "another"], "severity": [0, 1]},
            "a text .'some text'. where the numbers of an embedding should be",
        ),
        ({"prompt": ["a"] * 2, "score": [0, 1], "label": ["yes", "no"]}, r'columns={"correct": "label"}'),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_says_why(table: Any, says: str) -> None:
    if isinstance(table, functools.partial):
        table = table()
    with pytest.raises(UsageError, match=says) as caught:
        streamer.Gate().fit(table)
    assert "\n" not in str(caught.value)


def test_one_answer_a_prompt_is_enough() -> None:
    one = {"prompt_id": [1, 2, 3], "score": [0.9, 0.8, 0.1], "severity": [0, 0, 1]}
    assert streamer.Gate(alpha=0.3).fit(one).decide(one).ship.tolist() == [True, True, False]


def test_texts_are_encoded_by_any_function_or_object() -> None:
    table = {name: values for name, values in answers(40).items() if name != "score"}

    def encode(texts: list[str]) -> Any:
        rows = [np.frombuffer(text.encode()[:12].ljust(12), np.uint8) for text in texts]
        return np.array(rows, dtype=np.float32)

    class Model:
        def encode(self, texts: list[str]) -> Any:
            return encode(texts)

    first = streamer.Gate(alpha=0.3, encoder=encode).fit(table)
    assert (
        first.decide(table).rows()
        == streamer.Gate(alpha=0.3, encoder=Model()).fit(table).decide(table).rows()
    )
    given = table | {"embedding": encode(table["answer"]).tolist()}
    fitted = streamer.Gate(alpha=0.3).fit(given)
    assert first.threshold_ == fitted.threshold_
    for gate in (first, pickle.loads(pickle.dumps(fitted)), streamer.Gate(method="mean").fit(given)):
        with pytest.raises(UsageError, match="'p0' has embeddings of 7 numbers, not the 12"):
            gate.decide(given | {"embedding": encode(table["answer"])[:, :7].tolist()})
    with pytest.raises(UsageError, match="not finite"):
        streamer.Gate(encoder=lambda texts: encode(texts) * np.nan).fit(table)
    with pytest.warns(UserWarning, match="only zeros"):
        streamer.Gate(encoder=lambda texts: encode(texts) * 0).fit(table)
    with pytest.raises(UsageError, match="one row of numbers for each text"):
        streamer.Gate(encoder=lambda texts: [1.0]).fit(table)
    with pytest.raises(ValueError, match="encoder must be"):
        streamer.Gate(encoder=3).fit(table)


def test_unlabelled_answers() -> None:
    table = pd.DataFrame(answers())
    table.loc[table.index % 5 == 0, "severity"] = None
    missing = int(table.severity.isna().sum())
    with pytest.warns(UnlabelledWarning, match=f"{missing} of {len(table)} answers .* count as 1, the worst"):
        worst = streamer.Gate(alpha=0.2, unit="response").fit(table)
    with pytest.warns(UnlabelledWarning, match="are left out"):
        drop = streamer.Gate(alpha=0.2, unit="response", unlabelled="drop").fit(table)
    with pytest.raises(UsageError, match="unlabelled=worst counts each as 1"):
        streamer.Gate(unlabelled="fail").fit(table)
    assert drop.threshold_.value < worst.threshold_.value
    assert "count as 1" in worst.threshold_.guarantee
    filled = streamer.Gate(alpha=0.2, unit="response").fit(table.fillna({"severity": 1.0}))
    assert filled.threshold_.value == worst.threshold_.value
    kept = streamer.Gate(alpha=0.2, unit="response").fit(table.dropna(subset="severity"))
    assert kept.threshold_.value == drop.threshold_.value
    assert drop.report().everything < worst.report().everything


def test_a_column_called_label_may_mean_the_reverse() -> None:
    table = {("label" if name == "severity" else name): values for name, values in answers().items()}
    both = r'columns={"correct": "label"} if 1 means right, columns={"severity": "label"} if 1 means wrong'
    with pytest.raises(UsageError, match=both):
        streamer.Gate(alpha=0.1).fit(table)
    gate = streamer.Gate(alpha=0.1, columns={"severity": "label"}).fit(table)
    assert gate.threshold_ == streamer.Gate(alpha=0.1, scale=(1, 0)).fit(table).threshold_
    assert gate.threshold_ == streamer.Gate(alpha=0.1).fit(answers()).threshold_
    right = table | {"label": [1 - value for value in table["label"]]}
    assert streamer.Gate(alpha=0.1, columns={"correct": "label"}).fit(right).threshold_ == gate.threshold_


def test_who_decides_does_not_look_at_severities() -> None:
    gate = streamer.Gate(alpha=0.1).fit(answers())
    plain = gate.decide(answers(20))
    for name, value in (("severity", 9), ("correct", "maybe"), ("label", True)):
        table = {key: values for key, values in answers(20).items() if key != "severity"}
        table[name] = [value] * len(table["score"])
        assert gate.decide(table).rows() == plain.rows()


def test_prompts_without_a_severity_fix_the_cuts_of_methods_that_ask_for_them() -> None:
    table = pd.DataFrame(answers(400))
    table.loc[table.prompt_id.str.slice(1).astype(int) % 2 == 0, "severity"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlabelledWarning)
        gate = streamer.Gate(alpha=0.3, method="selective", unlabelled="drop").fit(table)
    without = streamer.Gate(alpha=0.3, method="selective").fit(table.dropna(subset="severity"))
    assert len(gate.groups_) <= 200
    assert gate.threshold_.guarantee != without.threshold_.guarantee


class _Balanced(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("method", ["mean", "transductive", "selective-mean"])
def test_a_notebook_shows_the_demos_charts_and_keeps_its_own_style(method: str) -> None:
    table = answers() | {"prompt_id": [f"<script>{name}" for name in answers()["prompt_id"]]}
    gate = streamer.Gate(alpha=0.3, unit="response", method=method).fit(table)
    for page in (
        gate._repr_html_(),
        gate.report(answers(50, seed=3))._repr_html_(),
        gate.decide(table)._repr_html_(),
    ):
        reader = _Balanced()
        reader.feed(re.sub(r"<path[^>]*/>|<line[^>]*/>|<rect[^>]*/>|<circle[^>]*/>", "", page))
        assert reader.open == []
        assert "<script" not in page
        style = page[page.index("<style>") + 7 : page.index("</style>")]
        for selectors in re.findall(r"([^{}]+)\{", style):
            named = [one.strip() for one in selectors.split(",") if not selectors.strip().startswith("@")]
            assert all(one.startswith(".streamer-report") for one in named)
    charts = re.findall(r"<svg.*?</svg>", gate._repr_html_())
    assert len(charts) == 0, "of the unit response a decision names no budget"
    decided = gate.decide(table)
    charts += (of_decisions := re.findall(r"<svg.*?</svg>", decided._repr_html_()))
    assert len(of_decisions) == 1
    held = int((~decided.ship).sum())
    assert f"Of {len(decided)} responses {len(decided) - held} ship and {held} are held." in of_decisions[0]
    assert ('class="cut"' in of_decisions[0]) == (len({*decided.thresholds}) == 1)
    for chart in charts:
        ElementTree.fromstring(chart)


def test_a_report_draws_every_budget_where_one_calibration_answers_for_them() -> None:
    report = streamer.Gate(alpha=0.2).fit(answers()).report()
    page = report._repr_html_()
    (chart,) = re.findall(r"<svg.*?</svg>", page)
    ElementTree.fromstring(chart)
    assert report.splits
    through = f'would have got through in most splits: <span id="count">{len(report.through)}<'
    assert through in page


def test_a_gate_that_ships_nothing_says_why() -> None:
    gate = streamer.Gate(alpha=0.01).fit(answers(20))
    assert not gate.decide(answers(20)).ship.any()
    assert "needs at least 99 labelled prompts, and there are 20" in gate.report().caveat
    size = len(answers(200)["score"])
    bad = answers(200) | {"severity": [1.0] * size, "score": [0.5] * size}
    assert "even the answers with the highest scores" in streamer.Gate(alpha=0.1).fit(bad).report().caveat
    assert "none of the prompts is served" in str(gate.report())


def test_where_the_encoder_reads_no_prompt_it_is_said_and_what_helps() -> None:
    table = {name: column for name, column in answers(30).items() if name != "score"}
    said = "does not read an answer of .* of 30 prompts, which the method mean therefore holds .* method full"
    gate = streamer.Gate(method="mean", encoder=lambda texts: np.zeros((len(texts), 4)))
    with pytest.raises(UsageError, match=said), pytest.warns(UserWarning, match="only zeros"):
        gate.fit(table)


def test_prompts_with_fewer_answers_than_calibrated_are_outside_the_promise_and_that_is_said() -> None:
    whole = pd.DataFrame(answers(embeddings=True))
    sizes = whole.groupby("prompt_id").prompt_id.transform("size")
    gate, two = streamer.Gate(alpha=0.2).fit(whole[sizes > 2]), whole[sizes == 2]
    for ask in (gate.decide, gate.report):
        with pytest.warns(FewerAnswersWarning, match=r"\(at least 3\): (\d+) of \1 prompts; the promise"):
            ask(two)


def test_what_is_selected_is_the_best_answer_of_each_prompt_that_ships() -> None:
    gate = streamer.Gate(alpha=0.2).fit(answers())
    decided = gate.decide(answers(50, seed=5))
    for batch in decided.batches:
        chosen = decided.selected[batch.batch_id]
        assert (chosen is None) == (not any(batch.shipped))
        if chosen is not None:
            assert batch.scores[int(chosen[1:])] == max(score for score in batch.scores if score is not None)
    with pytest.raises(ValueError, match="unit best"):
        _ = streamer.Gate(alpha=0.2, unit="response").fit(answers()).decide(answers(5)).selected


def test_wide_tables_give_an_entry_for_each_answer() -> None:
    long = pd.DataFrame(answers(60))
    wide = long.groupby("prompt_id", sort=False)[["answer", "score", "severity"]].agg(list).reset_index()
    wide.columns = pd.Index(["prompt_id", "answers", "scores", "severities"])
    gate = streamer.Gate(alpha=0.3).fit(wide)
    assert gate.threshold_ == streamer.Gate(alpha=0.3).fit(long).threshold_
    assert gate.decide(wide).rows() == gate.decide(long).rows()
    assert gate.decide(wide).to_frame().index.tolist() == list(range(len(long)))


def test_decimal_numbers_are_numbers(tmp_path: Path) -> None:
    plain = answers()
    exact = {
        name: [Decimal(str(value)) for value in values] if name in ("score", "severity") else values
        for name, values in plain.items()
    }
    expected = streamer.Gate(alpha=0.1).fit(plain).threshold_
    assert streamer.Gate(alpha=0.1).fit(exact).threshold_ == expected
    pq.write_table(pa.table(exact), tmp_path / "exact.parquet")
    assert streamer.Gate(alpha=0.1).fit(tmp_path / "exact.parquet").threshold_ == expected
    ids = [Decimal(10**30 + n // 2) for n in range(4)]
    table = {"prompt_id": ids, "score": [Decimal("0.5"), Decimal("NaN"), Decimal("0.25"), Decimal("0.5")]}
    with pytest.raises(UsageError, match="missing; give all answers to a prompt a score"):
        streamer.Gate(alpha=0.1).fit(plain).decide(table)
    table["score"][1] = Decimal(1)
    assert streamer.Gate(alpha=0.1).fit(plain).decide(table).prompt_ids == tuple(str(one) for one in ids)
