"""The tables that the schema declares, views for people and Grafana, and guards that keep the record append-only.

Until 0.1.0 is released this is the only migration. Who changes a table gives it the next number: see docs/development.md.
"""

import secrets
from collections.abc import Iterable, Iterator

from alembic import op

from streamer.store.db.schema import metadata, views
from streamer.store.db.schema.types import MONTH, MONTHLY, kept_of

revision = "0109"
down_revision = None
branch_labels = None
depends_on = None
serves = "0109"
"""The oldest revision whose programs work on this one: what they know is still there, and they may leave out what is new."""

FIRST = 2000 * 12 * MONTH
"""Numbers of batches up to here belong to no month."""

NAMES = {
    "sqlite": "SELECT one.value FROM json_each(g.labellers) AS one",
    "postgresql": "SELECT json_array_elements_text(g.labellers::json)",
}
# No SQL can check a signature: of a gate that demands them the views know no label.
READ = "NOT g.signed_labels AND (g.labellers IS NULL OR l.labeller IN ({names}))"
# Calibration reads first attempts; of a later one that was held the loss is 0, whatever its severity.
ASKED = "(g.label_floor IS NULL OR r.score > g.label_floor) AND (b.attempt = 1 OR r.action = 'ship')"

LABEL_QUEUE = """
CREATE VIEW v_label_queue AS
SELECT b.gate, b.batch_id, b.attempt, r.response_id, g.severity_kind AS kind, d.decided_at, b.prompt, r.text,
       b."references", d.sampling_probability
FROM decisions d
JOIN batches b ON b.id = d.batch
JOIN responses r ON r.batch = d.batch AND r.drawn
JOIN gate_revisions g ON g.gate = d.gate
    AND g.revision = (SELECT max(newest.revision) FROM gate_revisions newest WHERE newest.gate = d.gate)
WHERE d.sampled AND b.erased_at IS NULL AND {asked} AND NOT EXISTS (
    SELECT 1 FROM label_revisions l
    WHERE l.gate = b.gate AND l.batch_id = b.batch_id AND l.attempt = b.attempt
      AND l.response_id = r.response_id AND l.kind = g.severity_kind AND {read}
)
"""

# Each batch of the audit sample stands for 1 / probability of them; one with a drawn response still without a
# severity is pending and not in the means. What a prompt loses by claims is no mean: v_risk_intervals has it.
RISK = """
CREATE VIEW v_risk AS
SELECT gate, policy_version, unit, severity_kind,
       sum(CASE WHEN missing = 0 THEN 1 ELSE 0 END) AS labelled_batches,
       sum(CASE WHEN missing > 0 THEN 1 ELSE 0 END) AS pending_batches,
       sum(CASE WHEN missing = 0 THEN shipped / probability END)
           / sum(CASE WHEN missing = 0 THEN 1 / probability END) AS served_ratio,
       sum(CASE WHEN missing = 0 THEN harm / probability END)
           / sum(CASE WHEN missing = 0 THEN 1 / probability END) AS exposure_risk,
       sum(CASE WHEN missing = 0 THEN harm / probability END)
           / nullif(sum(CASE WHEN missing = 0 THEN shipped / probability END), 0) AS selective_risk
FROM (
    SELECT d.gate, d.policy_version, d.unit, g.severity_kind, d.batch, d.sampling_probability AS probability,
           avg(CASE WHEN r.action = 'ship' THEN 1.0 ELSE 0.0 END) AS shipped,
           avg(CASE WHEN r.action = 'ship' THEN s.severity ELSE 0.0 END) AS harm,
           sum(CASE WHEN s.severity IS NULL AND {asked} THEN 1 ELSE 0 END) AS missing
    FROM decisions d
    JOIN batches b ON b.id = d.batch
    JOIN responses r ON r.batch = d.batch AND r.drawn
    JOIN policies p ON p.gate = d.gate AND p.version = d.policy_version
    JOIN gate_revisions g ON g.gate = p.gate AND g.revision = p.gate_revision
    LEFT JOIN v_severities s ON s.gate = b.gate AND s.batch_id = b.batch_id AND s.attempt = b.attempt
        AND s.response_id = r.response_id AND s.kind = g.severity_kind
    WHERE d.sampled AND d.unit <> 'claim'
    GROUP BY d.gate, d.policy_version, d.unit, g.severity_kind, d.batch, d.sampling_probability
) AS judged
GROUP BY gate, policy_version, unit, severity_kind
"""

RISK_INTERVALS = """
CREATE VIEW v_risk_intervals AS
SELECT s.gate, s.number AS sequence, s.began_at, s.read_at, s.period_days, s.ended, s.unit, s.severity_kind,
       s.budget, s.delta, s.decisions, s.labelled, s.overdue,
       s.exposure_lower, s.exposure, s.exposure_upper, s.selective_lower, s.selective, s.selective_upper,
       CASE WHEN s.exposure_lower > s.budget THEN 'broken'
            WHEN s.exposure_upper < s.budget THEN 'kept'
            ELSE 'not known yet' END AS budget_is,
       g.read_through, g.late,
       (SELECT count(*) FROM monitor_alarms a
        WHERE a.gate = s.gate AND a.raised_at IS NOT NULL AND a.ended IS NULL) AS alarms_raised
FROM monitor_sequences s
JOIN monitor_gates g ON g.gate = s.gate
"""


def upgrade() -> None:
    """Create everything, and draw the record's identity."""
    op.execute("ALTER TABLE schema_version ADD COLUMN serves VARCHAR(32)")
    context = op.get_context()
    sqlite = context.dialect.name == "sqlite"
    for table in metadata.sorted_tables:
        context.impl.create_table(table)
        if not sqlite and table.dialect_options["postgresql"]["partition_by"] == MONTHLY:
            op.execute(
                f"CREATE TABLE {table.name}_before PARTITION OF {table.name} FOR VALUES FROM (MINVALUE) TO ({FIRST})"
            )
    read = READ.format(names=NAMES[context.dialect.name])
    for name, query in (("v_decisions", views.DECISIONS), ("v_severities", views.severities(read))):
        text = query.compile(dialect=context.dialect, compile_kwargs={"literal_binds": True})
        op.execute(f"CREATE VIEW {name} AS {text}")
    for view in (LABEL_QUEUE, RISK, RISK_INTERVALS):
        op.execute(view.format(read=read, asked=f"({ASKED})"))
    if not sqlite:
        op.execute(
            "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME"
            " USING ERRCODE = 'integrity_constraint_violation'; END $$"
        )
    for name, guarded, event, condition in _guards():
        when = f" WHEN ({condition})" if condition else ""
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {event} ON {guarded}"
            + (
                f"{when} BEGIN SELECT RAISE(ABORT, '{guarded} is append-only'); END"
                if sqlite
                else f" FOR EACH ROW{when} EXECUTE FUNCTION refuse_change()"
            )
        )
    record_id = secrets.token_bytes(32)
    identity = f"X'{record_id.hex()}'" if sqlite else f"'\\x{record_id.hex()}'"
    nothing = "X''" if sqlite else "''"
    op.execute(
        "INSERT INTO control_head (id, record_id, log_size, log_edge)"  # noqa: S608  # our own bytes
        f" VALUES (1, {identity}, 0, {nothing})"
    )
    op.execute(f"INSERT INTO signed_head (id, size, published, note) VALUES (1, 0, 0, {nothing})")  # noqa: S608


def _guards() -> Iterator[tuple[str, str, str, str]]:
    """Name, table, event and condition of each: the event is refused, if a condition is given only where it holds."""
    for name, table in sorted(metadata.tables.items()):
        own = kept_of(table)
        if own.erased:
            free = (*own.erased, *(own.changes or ()))
            yield (
                f"append_only_{name}_update",
                name,
                _update_of(column.name for column in table.columns if column.name not in free),
                "",
            )
            again = "OLD.erased_at IS NOT NULL OR NEW.erased_at IS NULL"
            yield (
                f"erase_only_{name}_update",
                name,
                _update_of(own.erased),
                again if "erased_at" in own.erased else f"NEW.{own.erased[0]} IS NOT NULL",
            )
        elif own.until is not None:
            yield f"history_{name}_update", name, "UPDATE", f"OLD.{own.until} IS NOT NULL"
        elif not own.moves_on:
            yield f"append_only_{name}_update", name, "UPDATE", ""
        if not own.moves_on and not own.prunable:
            yield f"append_only_{name}_delete", name, "DELETE", ""
    yield "published_only_outbox_delete", "outbox", "DELETE", "OLD.published_at IS NULL"


def _update_of(columns: Iterable[str]) -> str:
    return "UPDATE OF " + ", ".join(f'"{one}"' for one in columns)
