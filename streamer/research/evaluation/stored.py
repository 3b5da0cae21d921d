"""Data sets from the record: what workers scored and people or programs labelled, in the place of a file."""

from dataclasses import replace
from datetime import datetime

from streamer.clouds.cloud import NOT_KEPT, Cloud, CloudResponse, judged_cloud
from streamer.clouds.stored_answers import AnswerStore, StoredBatch
from streamer.clouds.unlabelled import Unlabelled
from streamer.errors import UsageError
from streamer.gates.settings import GateSettings
from streamer.research.evaluation.data_sets import DataSet, data_set
from streamer.scoring.registry import GRAM


def stored_data_set(
    store: AnswerStore,
    gate: str,
    *,
    settings: GateSettings,
    older_than: datetime,
    unlabelled: Unlabelled = "worst",
) -> DataSet:
    """Read what a gate decided and what is known of it.

    The scores are those that decided, as they were stored; labels of responses that the audit did not draw play no
    part, as in a calibration.

    Raises
    ------
    UsageError
        If there are fewer than two audited batches, none of them has a severity, or one is missing and none may be.
    """
    source = f"gate {gate}"
    batches = store.audited(gate, settings=settings, older_than=older_than)
    if len(batches) < 2:
        raise UsageError(
            f"{source} has {len(batches)} audited batch{'es' if len(batches) != 1 else ''} to evaluate; its audit probability is "
            f"{settings.audit_probability:g}: publish more, or raise it, and label what `streamer label queue` shows"
        )
    clouds = [judged_cloud(_cloud(batch, settings.severity_kind), settings.form) for batch in batches]
    made = data_set(gate, source, clouds, unlabelled=unlabelled)
    scores = {batch.batch_id: tuple(one.score for one in batch.responses) for batch in batches}
    made = made.with_scores(
        GRAM,
        [
            None if all(score is None for score in found) else found
            for found in (scores[cloud.batch_id] for cloud in made.clouds)
        ],
    )
    notes = list(made.notes)
    if len({batch.probability for batch in batches}) > 1:
        notes.append(
            "The audit probability changed between these batches; here each counts the same, so that times with a higher "
            "probability count more."
        )
    if settings.scorer != "gram":
        what = "those that came with the events" if settings.of_event else f"of the scorer {settings.scorer}"
        notes.append(f"The scores are {what}, not Gram energies.")
    return replace(
        made,
        form=settings.form,
        encoder=settings.encoder if settings.scorer == "gram" else None,
        notes=tuple(notes),
    )


def _cloud(batch: StoredBatch, kind: str) -> Cloud:
    return Cloud(
        question_id=batch.batch_id,
        question=NOT_KEPT if batch.prompt is None else batch.prompt,
        references=batch.references,
        responses=tuple(
            CloudResponse(
                id=one.id,
                text=one.text if one.text is not None else "" if one.blank else NOT_KEPT,
                severity=one.severity,
                kind=kind,
            )
            for one in batch.responses
        ),
    )
