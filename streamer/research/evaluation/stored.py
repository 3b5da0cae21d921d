"""Data sets from the record: what workers scored and people or programs labelled, in the place of a file."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamer.clouds.cloud import judged_cloud
from streamer.clouds.offline import ScoredCloud
from streamer.clouds.stored_answers import StoredBatch
from streamer.clouds.unlabelled import Unlabelled, counts, unlabelled_note
from streamer.errors import UsageError
from streamer.gates.settings import GateSettings
from streamer.research.evaluation.data_sets import DataSet, data_set
from streamer.scoring.registry import GRAM


def stored_data_set(
    batches: Sequence[StoredBatch],
    gate: str,
    *,
    settings: GateSettings,
    unlabelled: Unlabelled = "worst",
) -> DataSet:
    """Take what a gate decided and what is known of it; see `streamer.frames.recorded`.

    Scores, and of method `full` the signals, are those that decided, as they were stored; labels of responses that the audit
    did not draw play no part, as in a calibration. Raises `UsageError` if there are fewer than two
    audited batches, none of them has a severity, or one is missing and none may be.
    """
    source = f"gate {gate}"
    if len(batches) < 2:
        raise UsageError(
            f"{source} has {len(batches)} audited batch{'es' if len(batches) != 1 else ''} to evaluate; its audit probability is "
            f"{settings.audit_probability:g}: publish more, or raise it, and label what `streamer label queue` shows"
        )
    clouds = [judged_cloud(batch.cloud(settings.severity_kind), settings.form) for batch in batches]
    made = data_set(gate, source, clouds, unlabelled=unlabelled)
    of = {batch.batch_id: batch for batch in batches}
    scores = [of[cloud.batch_id].scores for cloud in made.clouds]
    rows = [of[cloud.batch_id].signals for cloud in made.clouds]
    whole = settings.form.agrees is None
    measured = [
        ScoredCloud(cloud, found, None if row is None else np.frombuffer(row, "<f4"))
        for cloud, found, row in zip(made.clouds, scores, rows, strict=True)
    ]
    made = made.with_scores(GRAM, [one.cut_alone.scores if whole else one.scores for one in measured])
    if any(rows) and all(row or found is None for row, found in zip(rows, scores, strict=True)):
        made = replace(made, chosen={settings.unit: tuple(measured)})
    missing = unlabelled_note(*counts(clouds), unlabelled)
    notes = [one for one in made.notes if one != missing]
    if missing:
        notes.append(
            f"Only drawn answers are labelled ({sum(one.waits for one in batches)} wait): others that a score or "
            f"unit ships {'count as wrong' if unlabelled == 'worst' else 'are left out'}."
        )
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
