"""`streamer.Gate` by all signals: one set of counts, whoever computes it."""

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamer
from streamer.calibration.full_fit import allowed, bag_counts, fit_full
from streamer.clouds.cloud import Cloud
from streamer.clouds.compared_methods import FULL, METHODS_COMPARED
from streamer.clouds.halves import Halves, seeded_splits
from streamer.clouds.offline import bad_groups
from streamer.clouds.tables.answers import Reading
from streamer.errors import UsageError
from streamer.frames.answers import read
from streamer.gates.declared import Unit
from streamer.gates.rule import Full, Indicator
from streamer.labels.answer_forms import answer_batch
from streamer.recalibration.run import derive
from streamer.research.evaluation import Options, read_data_set, scored_data_sets
from streamer.scoring.blank import is_blank
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import SignalList, batch_row, choice_scores
from tests.made import a_revision, a_sampled_prompt
from tests.unit.frames.test_gate_on_tables import in_service

NOW = datetime(2026, 11, 28, tzinfo=UTC)
WORDS = ("red", "green", "blue", "white", "black")


def answers(
    prompts: int, *, seed: int = 1, first: int = 0, graded: bool = True, **more: Any
) -> dict[str, Any]:
    """Three or four answers to each prompt, with a number that says whether one is wrong; a blank one now and then."""
    rng = np.random.default_rng(seed)
    table: dict[str, list[Any]] = {
        name: [] for name in ("prompt_id", "prompt", "answer", "severity", "language", "embedding", "doubt")
    }
    for prompt in range(first, first + prompts):
        centre, hard = rng.normal(size=6), rng.beta(0.4, 0.3)
        for _ in range(rng.integers(3, 5)):
            bad = rng.random() < hard
            table["prompt_id"].append(f"p{prompt}")
            table["prompt"].append(f"which colour has {prompt}?")
            text = " ".join(rng.choice(WORDS, size=5 if bad else 2))
            table["answer"].append("\u200b" if rng.random() < 0.04 else text)
            table["severity"].append(float(bad) * (rng.choice([0.5, 1.0]) if graded else 1.0))
            table["language"].append(["de", "en"][prompt % 2])
            table["embedding"].append((centre + (0.3 + 1.5 * bad) * rng.normal(size=6)).tolist())
            table["doubt"].append(
                None if rng.random() < 0.1 else float(np.clip(0.3 + 0.3 * bad + rng.normal(0, 0.2), 0, 1))
            )
    return table | more


def row_of(cloud: Cloud, unit: Unit, listed: SignalList) -> np.ndarray | None:
    """What the method reads of a prompt, from the signals themselves."""
    blank = [is_blank(text) for text in cloud.texts]
    if all(blank) or (unit == "batch" and any(blank)):
        return None
    measured = Measured(
        answer_batch(cloud.texts, [one.embedding for one in cloud.responses], blank), cloud.question
    )
    rows = listed.of_measured(measured, {"doubt": [one.signals.get("doubt") for one in cloud.responses]})
    if unit == "batch":
        return batch_row(rows, blank)
    return rows[int(np.argmax(np.where(blank, -1.0, choice_scores(measured))))]


@pytest.mark.parametrize("unit", ["best", "batch"])
@pytest.mark.parametrize("signals", [None, {"doubt": (0, 1)}], ids=["texts", "and a number"])
def test_it_counts_as_the_formula_does_on_rows_measured_apart(unit: Unit, signals: Any) -> None:
    gate = streamer.Gate(alpha=0.1, unit=unit, signals=signals, seed=5).fit(answers(120))
    assert gate.settings_.method == "full"
    assert gate.settings_.dimension == 6
    assert gate.threshold_.state == "full"
    listed = SignalList(declared=(("doubt", 0.0, 1.0),) if signals else ())
    reading = Reading(signals=signals or {})
    rows = {f"{one.batch_id}#1": row_of(one, unit, listed) for one in read(answers(120), reading).clouds}
    fit = fit_full(np.stack([rows[group.id] for group in gate.groups_]), bad_groups(gate.groups_, 5))
    new, shipped = answers(150, seed=2, first=1000), 0
    decided = gate.decide(new)
    k, size, place = allowed(0.1, fit.groups), fit.groups + 1, 0
    for cloud, batch in zip(read(new, reading).clouds, decided.batches, strict=True):
        row = row_of(cloud, unit, listed)
        count = None if row is None else fit.count(row)
        said = decided.budgets[place : place + len(batch.texts)]
        place += len(batch.texts)
        assert said[~np.isnan(said)].tolist() == ([] if count is None else [count / size])
        assert any(batch.shipped) == (count is not None and count <= k)
        shipped += any(batch.shipped)
    assert 20 < shipped < 130


@pytest.mark.parametrize("unit", ["best", "batch"])
def test_a_calibration_run_and_a_gate_in_service_come_to_the_same(unit: Unit) -> None:
    gate = streamer.Gate(alpha=0.1, unit=unit, seed=5).fit(answers(120))
    assert isinstance(gate.rule_, Full)
    (prompts,) = gate.rule_.prompts or ()
    sample = [
        a_sampled_prompt(
            ("", group.id.removesuffix("#1")),
            zip(group.item_ids, group.scores, group.severities, strict=True),
            signals=row.tobytes(),
        )
        for group, row in zip(gate.groups_, prompts.rows, strict=True)
    ]
    revision = a_revision(gate.settings_, gate="", seed=5, audit_salt=b"5")
    run = derive(revision, sample, [], now=NOW, older_than=NOW, diagnostics=False)
    assert run.rule == gate.rule_
    assert repr(run.decided) == repr(gate.threshold_)
    new = answers(100, seed=2, first=1000)
    shipped = in_service(
        gate, new, scorer="choice", encoder="external:mine", embeddings="accept", dimension=6,
        signals=gate.settings_.signals,
    )  # fmt: skip
    assert [list(batch.shipped) for batch in gate.decide(new).batches] == shipped
    assert any(map(any, shipped))


@pytest.mark.parametrize("unit", ["best", "batch"])
def test_evaluate_decides_the_same_on_the_same_halves(tmp_path: Path, unit: Unit) -> None:
    path = tmp_path / "answers.jsonl"
    table = answers(140)
    table["model"] = ["small" if "red" in text else "large" for text in table["answer"]]
    rows = (dict(zip(table, one, strict=True)) for one in zip(*table.values(), strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = Reading(signals={"doubt": (0.0, 1.0)}, models=("small",))
    options = Options(signals=(("doubt", 0.0, 1.0),), models=("small",), units=(unit,))
    (data,) = scored_data_sets([read_data_set(path, reading=reading)], options, cache=None)
    halves = Halves.at(data.chosen[unit], unit, seeded_splits(data.clouds, range(3)))
    full = next(one for one in METHODS_COMPARED if one.name == FULL)
    for seed, (labels, traffic) in enumerate(zip(halves.labels, halves.traffic, strict=True)):
        served = full.run(labels, 0.1, traffic).chances
        gate = streamer.Gate(alpha=0.1, unit=unit, signals={"doubt": (0, 1)}, models=["small"], seed=seed)
        whole = gate.fit(path)
        (split,) = seeded_splits([item.cloud for item in whole._fitted_on[2]], [seed])
        calibrated = whole._calibrated(split, 0.1)
        assert len(calibrated.groups_) == len(labels.groups)
        found = calibrated.decide(path)
        by_id = {batch.batch_id: any(batch.shipped) for batch in found.batches}
        assert gate.settings_.signal_list.models == ("small",)
        names = [data.clouds[place].batch_id for place in traffic.batch]
        assert served.astype(bool).tolist() == [by_id[name] for name in names]
        assert 0 < served.sum() < len(served)


def test_what_it_was_fitted_on_is_compared_with_the_others_alone() -> None:
    gate = streamer.Gate(alpha=0.1).fit(answers(80, graded=False))
    (prompts,) = gate.rule_.prompts or ()  # type: ignore[union-attr]
    counts = bag_counts(prompts.rows, prompts.bad)
    assert gate.fit_decide(answers(80, graded=False)).ship.sum() == (counts <= allowed(0.1, 80)).sum()
    bad_and_shipped = (counts <= allowed(0.1, 79)) & prompts.bad
    assert bad_and_shipped.sum() <= allowed(0.1, 79)
    assert "budget needed" in gate.fit_decide(answers(80, graded=False))._repr_html_()
    assert "What another threshold would do" not in gate._repr_html_()


@pytest.mark.parametrize(("prompts", "state"), [(39, "cut"), (40, "full")])
def test_the_number_of_labels_alone_says_whether_the_score_is_cut(prompts: int, state: str) -> None:
    table = answers(prompts)
    texts = ["a b c" if is_blank(text) else text for text in table["answer"]]
    gate = streamer.Gate(alpha=0.1).fit(table | {"answer": texts})
    assert (gate.settings_.method, gate.threshold_.state) == ("full", state)
    assert isinstance(gate.rule_, Full if state == "full" else Indicator)
    decided = gate.decide(answers(30, seed=2, first=1000))
    best = [
        np.nanmin(one)
        for one in np.split(decided.budgets, np.cumsum([len(b.texts) for b in decided.batches])[:-1])
    ]
    assert [any(batch.shipped) for batch in decided.batches] == [bool(one <= 0.1) for one in best], (
        "p says it in both"
    )


def test_segments_count_their_own_wrong_prompts() -> None:
    gate = streamer.Gate(alpha=0.1, segment_by="language").fit(answers(160))
    assert isinstance(gate.rule_, Full)
    assert [name for name, _, _ in gate.rule_.fits[0].own] == ["de", "en"]
    new = answers(100, seed=2, first=1000)
    shipped = in_service(
        gate, new, scorer="choice", encoder="external:mine", embeddings="accept", dimension=6,
        signals=gate.settings_.signals, segment_by="language",
    )  # fmt: skip
    assert [list(batch.shipped) for batch in gate.decide(new).batches] == shipped
    assert any(map(any, shipped))


def test_the_method_follows_what_the_table_has_and_never_a_severity() -> None:
    table = answers(45, graded=False)
    texts = {name: values for name, values in table.items() if name != "embedding"}
    scored = table | {"score": [0.5] * len(table["answer"])}

    def method(frame: Any, **parameters: Any) -> str:
        return streamer.Gate(alpha=0.1, **parameters).fit(frame).settings_.method

    def encoder(some: list[str]) -> np.ndarray:
        return np.array([[len(text), 1.0] for text in some])

    assert method(table) == method(texts, encoder=encoder) == "full"
    assert method(table | {"severity": [1 - one for one in table["severity"]]}) == "full"
    assert method(scored) == "full", "a score of one's own is a signal"
    assert (
        method(table, unit="response")
        == method(table, scorer="gram")
        == method(table, label_floor=0.1)
        == "mean"
    )
    named = streamer.Gate(alpha=0.1, method="full").fit(scored)
    assert named.settings_.signal_list.given == ("score",), "and is one signal of all where that is asked for"
    with pytest.raises(UsageError, match="reads the texts of the answers"):
        method({name: values for name, values in table.items() if name != "answer"}, method="full")
    with pytest.raises(UsageError, match="give a column of embeddings, or an encoder"):
        named.decide(texts)


def test_a_number_beyond_its_range_is_refused_and_a_gate_can_be_kept() -> None:
    gate = streamer.Gate(alpha=0.1, signals={"doubt": (0, 1)}).fit(answers(60))
    new = answers(20, seed=2, first=1000)
    again = pickle.loads(pickle.dumps(gate))
    assert again.decide(new).rows() == gate.decide(new).rows()
    assert again.rule_ == gate.rule_
    new["doubt"][3] = 1.5
    with pytest.raises(UsageError, match="doubt"):
        gate.decide(new)


def test_models_are_columns_as_the_doors_of_events_make_them() -> None:
    table = answers(80)
    table["model"] = ["small" if "red" in text else "large" for text in table["answer"]]
    gate = streamer.Gate(alpha=0.1, models=["small", "large"]).fit(table)
    assert isinstance(gate.rule_, Full)
    (prompts,) = gate.rule_.prompts or ()
    listed = SignalList(models=("small", "large"))
    assert gate.settings_.signals == listed.text
    assert set(map(tuple, prompts.rows[:, -2:].tolist())) == {(1.0, 0.0), (0.0, 1.0)}
    plain = streamer.Gate(alpha=0.1).fit(table)
    assert isinstance(plain.rule_, Full)
    assert prompts.rows[:, :-2].tobytes() == (plain.rule_.prompts or ())[0].rows.tobytes(), (
        "nobody asked for models"
    )
    table["who"] = table.pop("model")
    with pytest.raises(
        UsageError, match=r'no column for the model that gave an answer: .*columns=\{"model": "NAME"\}'
    ):
        streamer.Gate(models=["small"]).fit(table)
    named = streamer.Gate(alpha=0.1, models=["small", "large"], columns={"model": "who"}).fit(table)
    assert named.rule_ == gate.rule_


@pytest.mark.parametrize("key", ["session", "prompt"])
def test_a_burst_counts_once_and_one_that_is_labelled_bad_is_held(key: str) -> None:
    table = answers(120, graded=False)
    number = [int(name[1:]) for name in table["prompt_id"]]
    table["session"] = [n // 2 for n in number]
    if key == "prompt":
        table["prompt"] = [f"Which  colour has {n // 2}?" for n in number]
    alone, gate = (streamer.Gate(alpha=0.1, group_by=one, seed=5).fit(table) for one in (None, key))
    kept = {group.id for group in gate.groups_}
    assert len(alone.groups_) > 110
    assert len(kept) == len({int(group.id[1:-2]) // 2 for group in alone.groups_}), "of each burst one"
    assert "one burst, of which one batch was drawn" in gate.threshold_.guarantee
    bad = {int(group.id[1:-2]) // 2 for group in alone.groups_ if group.severities.mean() > 0}
    new = answers(120, seed=2, first=0)
    new["session"] = [int(name[1:]) // 2 for name in new["prompt_id"]]
    if key == "prompt":
        new["prompt"] = [f"WHICH colour has {int(name[1:]) // 2}?" for name in new["prompt_id"]]
    without = streamer.Gate(alpha=0.1, group_by=key, seed=5).fit(table)
    without._bursts = without._gate._bursts = None
    held = 0
    for batch, other in zip(gate.decide(new).batches, without.decide(new).batches, strict=True):
        by_burst = int(batch.batch_id[1:]) // 2 in bad
        assert any(batch.shipped) == (any(other.shipped) and not by_burst)
        held += by_burst and any(other.shipped)
    assert held > 5
    shipped = in_service(
        gate, new, scorer="choice", encoder="external:mine", embeddings="accept", dimension=6,
        signals=gate.settings_.signals, group_by=key,
    )  # fmt: skip
    assert [list(batch.shipped) for batch in gate.decide(new).batches] == shipped
    of_themselves = gate.fit_decide(table).batches
    assert any(any(one.shipped) for one in of_themselves if int(one.batch_id[1:]) // 2 in bad), (
        "its own label holds no prompt"
    )


def test_segments_of_a_cut_say_which_budget_each_answer_needed() -> None:
    table = answers(160, graded=False)
    for fallback in ("closed", "pooled"):
        gate = streamer.Gate(
            alpha=0.3, method="mean", segment_by="language", segment_fallback=fallback, seed=5
        ).fit(table)
        decided = gate.decide(answers(60, seed=2, first=1000))
        (said,) = {int(np.isfinite(decided.budgets).sum())}
        assert said > 50
        for batch, budgets in zip(
            decided.batches,
            np.split(decided.budgets, np.cumsum([len(one.texts) for one in decided.batches])[:-1]),
            strict=True,
        ):
            known = budgets[np.isfinite(budgets)]
            assert any(batch.shipped) == bool((known <= 0.3).any()), "it ships iff its budget is within"
