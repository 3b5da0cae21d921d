"""A gate with the habits of scikit-learn: parameters at the start, `fit`, `decide`, and what was learnt with a trailing `_`.

It calibrates by the calibrators of the registry and decides by `PolicyGate`, as the recalibrator and the workers do: on the
same scores, severities and seed the threshold is the same, and so is every decision, to the last bit.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from streamer.calibration.calibrators.full import Full
from streamer.calibration.calibrators.mean import Mean
from streamer.calibration.groups import LabelledGroup
from streamer.calibration.guarantee import besides
from streamer.calibration.history import NO_HISTORY
from streamer.calibration.registry import check_parameters
from streamer.calibration.specification import Number, Sample
from streamer.calibration.threshold import Threshold
from streamer.clouds.cloud import NOT_KEPT, held_note, one_call
from streamer.clouds.halves import HalvesSplit
from streamer.clouds.measurement import DecidedBatch
from streamer.clouds.offline import ScoredCloud, calibration_groups, held_as, measured_units
from streamer.clouds.sentence import graded
from streamer.clouds.tables.answers import Reading
from streamer.clouds.tables.marks import Annotators, Marks
from streamer.clouds.unlabelled import check_unlabelled, counts, unlabelled_note
from streamer.errors import NotFittedError, UsageError
from streamer.frames.answers import Read, mapping_of, measured, read, scored, signals_of
from streamer.frames.calibrating import (
    any_budget,
    encode_of,
    fewer_note,
    history_of,
    nothing_to_calibrate,
    one_of_each_burst,
    prompts_of,
    segments_of,
    why_closed,
)
from streamer.frames.results import Decisions, Report
from streamer.frames.trial import Decide
from streamer.gates.declared import DIMENSIONS, SegmentFallback, Unit
from streamer.gates.policy import Bursts
from streamer.gates.policy_gate import PolicyGate
from streamer.gates.rule import CalibrationLosses, Cut, Indicator, Rule, Segments, ships_nothing
from streamer.gates.rule import Full as FullRule
from streamer.gates.setting import EXTERNAL_PREFIX
from streamer.gates.settings import NO_ENCODER, PARAMETERS, GateSettings
from streamer.recalibration.candidates import decide
from streamer.recalibration.sampled import burst_note, cuts_at_budget, pooled_segments
from streamer.scoring.blank import is_blank
from streamer.scoring.judged import form
from streamer.scoring.registry import CHOICE, CHOOSING, GRAM, LIKELIHOOD, SCORER_NAMES
from streamer.scoring.scorers.external import External
from streamer.scoring.signals.declared import declared_ranges

_MOST_DRAWS = 256
_OWN = External.name


class HeldWarning(UserWarning):
    """Some prompts are held whatever the threshold; the text says how many, and why."""


class FewerAnswersWarning(UserWarning):
    """Some prompts have fewer answers than any that calibrated, and the promise does not cover them; the text says how many."""


class UnlabelledWarning(UserWarning):
    """Some answers have no severity; the text says how many and what they count as."""


class AnnotatorsWarning(UserWarning):
    """Some answers have several severities; the text says how many and what became of them."""


@dataclass(kw_only=True, eq=False, repr=False)
class Gate:
    """Ships answers or holds them, so that on average at most a share `alpha` of prompts gets a wrong one.

    Tables are DataFrames of pandas or polars, pyarrow's tables, dicts of columns, lists of dicts, NumPy arrays with named
    fields, or paths of files. A row is one answer, or one prompt with lists or numbered columns of answers; columns are
    recognised by name (`prompt`, `answer`, `severity`, `correct`, `score`, `embedding`, ...: docs/own-data.md).

    Parameters
    ----------
    alpha : the budget, in [1e-9, 1): on exposure risk, or on selective risk with the methods `selective` and
        `selective-mean`.
    unit : what ships as one: `best` (at most one answer to a prompt), `response` (each on its own), `batch` (all or none).
    method : the calibrator, as for `streamer gate create`: `full`, `mean`, `selective`, `age`, `transductive`, `hb`, ... None:
        `full`, which reads all signals of an answer, where the table has texts whose embeddings are known, or embeddings of
        its own; `mean` elsewhere, for the unit `response`, and with a `scorer` or a `label_floor`.
    parameters : of the method, by name: ``{"delta": 0.05}``.
    label_floor : only answers that score above it count on their severities, and nothing below ships; None: no floor.
    segment_by : a column: prompts of the same value have a threshold of their own.
    group_by : a column, or `prompt` for the same question but for case and spaces: of prompts with the same value one calibrates, and
        by the method `full` nothing ships where one of them is labelled bad; None: each counts.
    segment_fallback : what serves a value with too few prompts: nothing ships (`closed`), or the threshold of all (`pooled`).
    scorer : how embeddings become scores: `gram` (unless another is named), ..., or `likelihood`, of
        the tokens' log-probabilities, as where each prompt has one answer with these. Scores of a
        table's own come first. The method `full` reads no one score: it chooses by `choice` or
        `likelihood`, and scores of a table's own are signals.
    encoder : what makes embeddings of texts: a name (``"all-MiniLM-L6-v2"``), an object with `encode`, or a function from a
        list of texts to an array; None: texts are not encoded.
    columns : the columns of roles that are not recognised: ``{"answer": "text", "prompt_id": None}``.
    unlabelled : answers without a severity count as 1 (`worst`), are left out (`drop`), or are refused (`fail`).
    scale : the worst and the best mark, as ``(1, 5)`` of stars; None: severities from 0 to 1.
    words : severities of words of your own: ``{"partly": 0.5}``.
    annotators : several severities of one answer become their mean (`mean`) or the worst of them (`worst`).
    trust_score : take a score in that says just what the severities say, as a mark does.
    signals : numbers of your own that each answer has, by name (a column's) with their ranges: ``{"retrieval": (0, 1)}``. The
        method `full` reads them.
    models : at most 20 names of language models, which the method `full` tells apart by the column `model`.
    format : the tool that wrote the file, such as ``"ragas"``; None: as its fields tell (docs/own-data.md).
    judged : what of an answer is judged: `whole` (without reasoning), `final`, `number`, `json`, `call`, or `raw`.
    seed : of methods that draw at random, fixed before severities are read.

    Attributes
    ----------
    threshold_ : the threshold with its guarantee; in the state `full` there is none, and all signals decide.
    rule_ : how it is read: the same for all prompts, a threshold for each (`transductive`) or by segment, or the prompts that a
        new one is compared with (`full`).
    groups_ : the prompts that it was calibrated on.
    recognised_ : which column was taken for what, in words.
    settings_ : of the gate in service that decides alike.

    Examples
    --------
    >>> from streamer import Gate
    >>> table = {"prompt_id": [1, 2, 3, 4], "score": [0.9, 0.8, 0.4, 0.3], "severity": [0, 0, 1, 0]}
    >>> gate = Gate(alpha=0.25).fit(table)
    >>> gate.threshold_.value
    0.4
    >>> gate.decide({"prompt_id": [5, 6], "score": [0.4, 0.41]}).ship.tolist()
    [False, True]
    """

    alpha: float = 0.05
    unit: Unit = "best"
    method: str | None = None
    parameters: Mapping[str, Number] | None = None
    label_floor: float | None = None
    segment_by: str | None = None
    segment_fallback: SegmentFallback = "closed"
    group_by: str | None = None
    scorer: str | None = None
    encoder: Any = None
    columns: Mapping[str, Any] | None = None
    unlabelled: str = "worst"
    scale: tuple[float, float] | None = None
    words: Mapping[str, float] | None = None
    annotators: str = "mean"
    trust_score: bool = False
    signals: Mapping[str, tuple[float, float]] | None = None
    models: Sequence[str] = ()
    format: str | None = None
    judged: str = "whole"
    seed: int = 0
    threshold_: Threshold = field(init=False)
    rule_: Rule = field(init=False)
    groups_: tuple[LabelledGroup, ...] = field(init=False)
    recognised_: str = field(init=False)
    settings_: GateSettings = field(init=False)
    _dimension: int | None = field(init=False, default=None)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in _DEFAULTS}

    def set_params(self, **parameters: Any) -> Gate:
        """Change parameters; what was learnt stays until the next `fit`. Raises `ValueError` for a name that is none."""
        for name, value in parameters.items():
            if name not in _DEFAULTS:
                raise ValueError(f"a Gate has no parameter {name!r}; it has {', '.join(_DEFAULTS)}")
            setattr(self, name, value)
        return self

    def fit(self, frame: Any, y: Any = None) -> Gate:
        """Calibrate on answers with severities. For the method `age` prompts are in order of time,
        the oldest first.

        `y` must be None: severities are a column. Raises `UsageError` when the table cannot be
        read, holds texts alone, or has no severities (the text says what to do), `ValueError` when
        a parameter is out of its range, or no guarantee is known for what was put together.
        """
        if y is not None:
            raise UsageError(
                "severities are a column of the table, called severity (or correct), and no second argument"
            )
        self._settings()  # what cannot be is refused before anything is read
        table = frame if isinstance(frame, Read) else read(frame, self._reading(), self.kept_columns)
        settings = self._settings(table)
        drop, note = self._unlabelled(
            table,
            f"no answer has a severity, so nothing can be learnt; {table.recognised}. Say which column it is: "
            'columns={"severity": NAME}, or {"correct": NAME} where 1 means right',
        )
        if table is not frame:
            if held := held_note(table.clouds, likely=self._likely(table)):
                warnings.warn(held, HeldWarning, stacklevel=2)
            for said in table.notes:
                warnings.warn(said, AnnotatorsWarning, stacklevel=2)
            if note:
                warnings.warn(note, UnlabelledWarning, stacklevel=2)
        self._dimension = None
        found, self._dimension = self._scored(table, settings)
        if self._dimension is not None and settings.signal_list is not None:
            settings = GateSettings(**settings.flat() | {"dimension": self._dimension})
        return self._learn(frame, table, found, settings, note, drop=drop)

    def _unlabelled(self, table: Read, none_labelled: str) -> tuple[bool, str]:
        """Return whether answers without a severity are left out, and what to say of them; none at all are refused."""
        missing, answers = counts(table.clouds)
        if missing == answers:
            raise UsageError(none_labelled)
        choice = check_unlabelled(self.unlabelled)
        return choice == "drop", unlabelled_note(missing, answers, choice, option="unlabelled=")

    def _learn(
        self,
        frame: Any,
        table: Read,
        found: Sequence[ScoredCloud],
        settings: GateSettings,
        note: str,
        *,
        drop: bool,
    ) -> Gate:
        groups = calibration_groups(found, self.unit, drop_unlabelled=drop)
        if not groups:
            raise UsageError(nothing_to_calibrate(found, settings))
        bursts = None
        if self.group_by is not None:
            groups, bad = one_of_each_burst(groups, table, found, self.group_by, str(self.seed).encode())
            note = f"{note} {burst_note(self.group_by)}".strip()
            bursts = Bursts(self.group_by, b"", bad) if settings.calibrator.of_signals else None
        sizes = [len(group.item_ids) for group in groups]
        largest = max(len(item.cloud.responses) for item in found) if self.unit != "best" else 1
        segments = segments_of(table, self.segment_by)
        sample = Sample(
            groups=groups,
            segments=segments,
            alpha=float(self.alpha),
            seed=self.seed,
            # Fewer severities of a prompt say less of its other answers.
            drawn=min(sizes) if drop else max(sizes),
            history=history_of(found, self.unit) if drop else NO_HISTORY,
            prompts=prompts_of(found, groups, segments, self.seed)
            if settings.calibrator.of_signals
            else None,
        )
        own = decide(GateSettings(**settings.flat() | {"audit_draws": min(_MOST_DRAWS, largest)}), sample)
        threshold = own.threshold
        if note:
            threshold = replace(threshold, guarantee=besides(threshold.guarantee, note))
        self.threshold_, self.rule_, self.settings_ = threshold, own.rule, settings
        self.groups_, self.recognised_ = tuple(groups), table.recognised
        # A cut at the highest score of all is as good as closed.
        none_above = isinstance(own.rule, Indicator) and not any(
            (group.scores > threshold.value).any() for group in groups
        )
        closed = none_above or ships_nothing(threshold.state, own.rule)
        self._why_closed = why_closed(settings, sample) if closed else ""
        losses = None
        if cuts_at_budget(settings, own.rule):
            by_segment = isinstance(own.rule, Segments)
            losses = CalibrationLosses(
                [float(group.scores[0]) for group in groups],
                [float(group.severities.mean()) for group in groups],
                segments=[segments[group.id] for group in groups] if by_segment else None,
                pooled=pooled_segments(settings, own.rule),
            )
        self._bursts = bursts
        self._gate = PolicyGate(
            unit=self.unit, cut=Cut.at(threshold.value), rule=own.rule, losses=losses, bursts=bursts
        )
        self._fitted_on = (frame, table, tuple(found), drop)
        return self

    def decide(self, frame: Any) -> Decisions:
        """Decide answers; severities, where there are some, are not looked at.

        Raises `NotFittedError` before `fit`. Raises `UsageError` when the table cannot be read, holds
        texts alone, or embeddings of another dimension than those that calibrated.
        """
        self._check_fitted("decide")
        table = read(frame, self._reading(), self.kept_columns, severities=False)
        found = self._scored(table, self.settings_)[0]
        self._warn_of_fewer(found)
        return self._decisions(frame, table, found)

    def _warn_of_fewer(self, found: Sequence[ScoredCloud]) -> None:
        compares = self.settings_.scorer != _OWN
        if compares and (said := fewer_note(found, self.groups_, self._fitted_on[2])):
            warnings.warn(said, FewerAnswersWarning, stacklevel=3)

    def fit_decide(self, frame: Any) -> Decisions:
        """Calibrate on labelled answers and decide them too, which looks a little better than it is for others."""
        return self.fit(frame)._decisions(*self._fitted_on[:3], fitted=True)

    def report(self, frame: Any = None, *, progress: Callable[[int], None] = lambda _done: None) -> Report:
        """Say what gates with these parameters ship of labelled answers that did not calibrate them.

        Without a table: of the prompts that `fit` saw. A random half of them calibrates and the other is decided, `SPLITS` times, by
        the halves of `streamer evaluate` from `seed` on, so that no label that found a threshold judges it. With a method that looks
        at the order the older half calibrates, once.

        `frame`: other labelled answers, which this gate decides as it is. Raises `NotFittedError`
        before `fit`. Raises `UsageError` when the table has no severities, or there is one prompt
        alone. `progress` is called with how many of the halves are done.
        """
        from streamer.frames.trial import BUDGETS, MOST, splits_of, tried

        self._check_fitted("report")
        fitted_frame, table, found, drop = self._fitted_on
        settings, at_any = self.settings_, any_budget(self.settings_)
        if frame is not None:
            table = read(frame, self._reading(), self.kept_columns)
            drop, note = self._unlabelled(
                table,
                "no answer of this table has a severity, so there is nothing to report; decide() needs none",
            )
            if note:
                warnings.warn(note, UnlabelledWarning, stacklevel=2)
            found = tuple(self._scored(table, settings)[0])
            self._warn_of_fewer(found)
            splits = [HalvesSplit(self.seed, (), np.arange(len(found)))]
        else:
            splits = splits_of(found, self.seed, in_order=settings.calibrator.by_order)

        def gate_of(split: HalvesSplit) -> Decide:
            gate = self if frame is not None else self._calibrated(split, MOST if at_any else self.alpha)

            def decide(place: int) -> tuple[DecidedBatch, float]:
                metadata = table.metadata[place] if table.metadata else {}
                if gate is None:
                    return found[place].decided(), 0.0
                batch, _, budgets, _ = gate._batch(found[place], metadata, fitted=False)
                known = [one for one in budgets if one == one]
                return batch, min(known, default=0.0)

            return decide

        at, wrong = tried(found, settings.unit, splits, gate_of, drop_unlabelled=drop, progress=progress)
        units = measured_units(found, settings.unit, drop_unlabelled=drop)
        listed, rule = settings.signal_list, self.rule_
        return Report(
            unit=settings.unit,
            risk=settings.calibrator.risk,
            threshold=self.threshold_,
            at=at(self.alpha),
            budgets=tuple(map(at, BUDGETS)) if at_any else (),
            everything=float(units.severities.mean()),
            prompts=len(found),
            labels=len(splits[0].first),
            splits=0 if frame is not None else len(splits),
            seed=self.seed,
            samples=Counter(len(item.cloud.samples.responses) for item in found).most_common(1)[0][0],
            in_order=settings.calibrator.by_order,
            wrong=wrong,
            weights=rule.weights(listed.columns) if isinstance(rule, FullRule) and listed is not None else {},
            why_closed=self._why_closed,
            graded=graded(one for item in found for one in item.cloud.severities),
            _frame=fitted_frame if frame is None else frame,
            _at=at if at_any else None,
        )

    def _calibrated(self, split: HalvesSplit, alpha: float) -> Gate | None:
        """Return a gate like this one that is calibrated on the first half of a split; None where nothing of it can calibrate."""
        _, table, found, drop = self._fitted_on
        first = [found[place] for place in split.first]
        part = replace(
            table,
            clouds=tuple(item.cloud for item in first),
            rows=None,
            metadata=tuple(table.metadata[place] for place in split.first) if table.metadata else (),
        )
        gate = Gate(**self.get_params() | {"seed": split.seed, "alpha": alpha})
        gate._dimension = self._dimension
        if not calibration_groups(first, self.unit, drop_unlabelled=drop):
            return None
        return gate._learn(None, part, first, replace(self.settings_, alpha=alpha), "", drop=drop)

    def __repr__(self) -> str:
        given = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if not (value is _DEFAULTS[name] or value == _DEFAULTS[name])
        ]
        return f"Gate({', '.join(given)})"

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            from html import escape

            return f"<pre>{escape(repr(self))}: not fitted</pre>"
        return self.report()._repr_html_()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    def _check_fitted(self, what: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"this gate knows no threshold yet: call fit(table) with severities before {what}()"
            )

    def _settings(self, table: Read | None = None) -> GateSettings:
        """The settings of a gate that decides alike; a table says which signals it has, and the method where none is named."""
        if self.unit == "claim":
            raise ValueError("claims are decided by streamer.ClaimGate")
        names = (*SCORER_NAMES, LIKELIHOOD)
        if self.scorer is not None and self.scorer not in names:
            raise ValueError(f"scorer must be one of {', '.join(names)}, not {self.scorer!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, not {self.seed!r}")
        if not isinstance(self.parameters or {}, Mapping):
            raise ValueError(f'parameters must be a dict, like {{"delta": 0.05}}, not {self.parameters!r}')
        given = dict(self.parameters or {})
        method = self._method(table)
        judged = form(self.judged)
        of_signals = method == Full.name
        if of_signals and self.scorer not in (None, *CHOOSING):
            raise ValueError(
                f"scorer must be left out with method {method}, which reads all signals, not {self.scorer!r}"
            )
        named = CHOICE if of_signals or judged.agrees else _OWN
        scorer = LIKELIHOOD if self._likely(table) else named
        reads: dict[str, Any] = {"scorer": scorer, "encoder": NO_ENCODER, "embeddings": "refuse"}
        if scorer == CHOICE:
            encoder = f"{EXTERNAL_PREFIX}table"
            reads |= {"encoder": encoder, "embeddings": "accept", "dimension": DIMENSIONS[0]}
        if of_signals:
            clouds = table.clouds if table else ()
            reads["signals"] = signals_of(
                clouds, declared_ranges(self.signals or {}), self.models, judged
            ).text
        settings = GateSettings(
            unit=self.unit,
            **reads,
            judged=self.judged,
            alpha=self.alpha,
            method=method,
            label_floor=self.label_floor,
            segment_by=self.segment_by,
            segment_fallback=self.segment_fallback,
            group_by=self.group_by,
            **{name: value for name, value in given.items() if name in PARAMETERS},
        )
        check_parameters(method, given)
        return settings

    def _method(self, table: Read | None) -> str:
        """The method that is named, or that which a new gate has: what the table has decides, and no severity."""
        if self.method is not None:
            return self.method
        by_signals = (
            table is not None
            and self.unit != "response"
            and self.scorer in (None, LIKELIHOOD)
            and self.label_floor is None
            and not self.parameters
            and all(
                NOT_KEPT not in cloud.texts
                and (self.encoder is not None or cloud.embedded or self._likely(table))
                for cloud in table.clouds
            )
        )
        return Full.name if by_signals else Mean.name

    def _likely(self, table: Read | None) -> bool:
        """Whether log-probabilities are the scores: that is said, or each prompt was asked once."""
        alone = table is not None and self.scorer is None and one_call(table.clouds)
        return self.scorer == LIKELIHOOD or alone

    def _reading(self) -> Reading:
        try:
            signals = declared_ranges(self.signals or {})
        except ValueError as error:
            raise UsageError(f"signals: {error}") from None
        return Reading(
            columns=mapping_of(self.columns, signals),
            marks=Marks(self.scale, self.words or {}),
            annotators=cast("Annotators", self.annotators),
            trust_score=self.trust_score,
            signals=signals,
            models=tuple(self.models),
            written_by=self.format,
        )

    @property
    def kept_columns(self) -> list[str]:
        """The columns that name segments and bursts."""
        bursts = None if self.group_by == "prompt" else self.group_by
        return [one for one in dict.fromkeys((self.segment_by, bursts)) if one is not None]

    def _scored(self, table: Read, settings: GateSettings) -> tuple[list[ScoredCloud], int | None]:
        """What these settings read of each prompt, and the dimension of embeddings, that of those that calibrated."""
        listed, encode = settings.signal_list, encode_of(self.encoder)
        if listed is None:
            named = self.scorer or (CHOICE if settings.form.agrees else GRAM)
            scorer = LIKELIHOOD if settings.scorer == LIKELIHOOD else named
            return scored(table, scorer, encode, settings.form, self._dimension)
        return measured(
            table, listed, settings.unit, encode, settings.form, settings.scores_by, self._dimension
        )

    def _decisions(
        self, frame: Any, table: Read, found: Sequence[ScoredCloud], *, fitted: bool = False
    ) -> Decisions:
        """Decide prompts; `fitted` : they are those of the calibration, and each is left out of what it is compared with."""
        unit = self.settings_.unit
        batches, cuts, budgets, reasons = [], [], [], []
        for place, item in enumerate(found):
            metadata = table.metadata[place] if table.metadata else {}
            batch, cut, needed, reason = self._batch(item, metadata, fitted=fitted)
            batches.append(batch)
            cuts.append(cut)
            reasons += [reason] * len(batch.texts)
            budgets += needed
        # The last place is that of rows without an answer: calls that failed, and what they leave alone.
        sizes = [*(len(batch.texts) for batch in batches), 1]
        scores = [np.nan if one is None else one for batch in batches for one in batch.scores]
        answers = [*(response.id for item in found for response in item.cloud.responses), ""]
        reasons.append("no_answer")
        prompts = [*(item.cloud.question_id for item in found for _ in item.cloud.responses), ""]
        ship = np.array([*(one for batch in batches for one in batch.shipped), False], dtype=np.bool_)
        order = list(range(len(scores)))
        if table.rows is not None:
            answers_of = enumerate(answer for one in table.rows for answer in one)
            place_of = {row: place for place, rows in answers_of for row in rows}
            order = [place_of.get(row, -1) for row in range(table.count)]
        return Decisions(
            unit,
            tuple(prompts[i] for i in order),
            tuple(answers[i] for i in order),
            np.array([*scores, np.nan], dtype=np.float64)[order],
            np.repeat(np.array([*cuts, np.nan], dtype=np.float64), sizes)[order],
            np.array([*budgets, np.nan], dtype=np.float64)[order],
            ship[order],
            tuple(reasons[i] for i in order),
            tuple(batches),
            frame,
            None if table.rows is None else tuple(range(table.count)),
        )

    def _batch(
        self, item: ScoredCloud, metadata: Mapping[str, Any], *, fitted: bool
    ) -> tuple[DecidedBatch, float, list[float], str]:
        """Decide one prompt as a worker does; returns its cut too, the budget that each answer needed, and the reason."""
        cloud = item.cloud
        blank = [is_blank(text) for text in cloud.texts]
        cut, budgets = self.threshold_.value, [np.nan] * len(blank)
        shipped = None
        likely = self.settings_.scorer == LIKELIHOOD
        if not (reason := held_as(item, self.settings_.unit, likely=likely)):
            assert item.scores is not None
            ruling = self._gate.decide(
                item.scores,
                blank=blank,
                segment=self._gate.segment_of(metadata),
                row=item.row,
                prompt=f"{cloud.batch_id}#1" if fitted else None,
                burst=None if self._bursts is None else self._bursts.name(cloud.question, metadata),
            )
            shipped, cut = ruling.gate.shipped, ruling.cut.value
            reason = ruling.reason
            if ruling.needed is not None:
                budgets[ruling.gate.best or 0] = ruling.needed.share
        return item.decided(shipped), cut, budgets, reason


_DEFAULTS: Mapping[str, Any] = MappingProxyType({one.name: one.default for one in fields(Gate) if one.init})
