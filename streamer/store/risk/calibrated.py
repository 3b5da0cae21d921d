"""What a calibration run found of its own sample, for alarms that compare what ships with what would have shipped."""

from statistics import fmean

import sqlalchemy as sa

from streamer.gates.rule import Cut
from streamer.recalibration.comparison import Reading, ship_rate
from streamer.risk.rounds.store import CalibratedSample
from streamer.store.calibration.run_rows import inputs_of, with_prompts
from streamer.store.db.schema import calibration_candidates, calibration_runs, gate_revisions
from streamer.store.db.schema.joins import CANDIDATE_OF_RUN, REVISION_OF_RUN


def calibrated(connection: sa.Connection, run: int) -> CalibratedSample | None:
    """Read the share that the threshold of a run ships of its sample, and how severe the sample is, shipped or not.

    Each group counts once, as far as it was labelled. None where there is no such run or no label.
    """
    found = connection.execute(
        sa.select(
            *calibration_candidates.c["state", "threshold", "rule"],
            gate_revisions.c.unit,
            calibration_runs.c.older_than,
        )
        .join_from(calibration_runs, calibration_candidates, CANDIDATE_OF_RUN)
        .join(gate_revisions, REVISION_OF_RUN)
        .where(calibration_runs.c.id == run)
    ).one_or_none()
    if found is None:
        return None
    groups = inputs_of(connection, run)
    known = [[item.severity for item in group.items if item.severity is not None] for group in groups]
    means = [fmean(severities) for severities in known if severities]
    if not means:
        return None
    reading = Reading(
        Cut(found.state, found.threshold), with_prompts(connection, found.rule, run, found.older_than)
    )
    return CalibratedSample(ship_share=ship_rate(reading, found.unit, groups), mean_severity=fmean(means))
