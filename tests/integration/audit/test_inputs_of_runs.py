"""A calibration run that read what nobody decided or labelled is named, though every log was computed anew."""

import pytest

from tests.integration.audit.attacker import breaking_in, rebuild_control, rebuild_outcomes
from tests.integration.audit.conftest import Record

RUN = "SELECT max(id) FROM calibration_runs"
ONE = f"run = ({RUN}) AND (batch, response_id) = (SELECT batch, response_id FROM calibration_inputs WHERE run = ({RUN}) AND severity IS NOT NULL ORDER BY batch LIMIT 1)"
RESPONSE = f"(SELECT batch, response_id FROM calibration_inputs WHERE {ONE})"

ATTACKS = {
    "another score": (
        f"UPDATE calibration_inputs SET score = 0.123456 WHERE {ONE}",
        "its score is not the recorded one",
    ),
    "another severity": ("UPDATE label_revisions SET severity = 1 - severity", "labels do not give severity"),
    "labels of another kind": ("UPDATE label_revisions SET kind = 'other'", "labels do not give severity"),
    "another probability": (
        f"UPDATE calibration_inputs SET probability = 0.75 WHERE {ONE}",
        "its own audit drew it with the probability",
    ),
    "not drawn": (
        f"UPDATE responses SET drawn = (1 = 0) WHERE (batch, response_id) IN {RESPONSE}",
        "the audit draw takes",  # of many, before what runs have read
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_input_that_nothing_recorded_bears_out_is_named(record: Record, attack: str):
    statement, said = ATTACKS[attack]
    with breaking_in(record.url) as connection:
        connection.exec_driver_sql(statement)
        rebuild_outcomes(connection)
        rebuild_control(connection)
    report = record.verify()
    assert any(said in fault.detail for fault in report.faults), report.faults


def test_an_honest_record_bears_out_every_input(record: Record):
    assert record.verify().faults == ()
