"""The schemas of a bundle say what the tables do, and what a validator of others reads in them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streamer.gates.settings import SETTINGS
from streamer.store.audit import control
from streamer.store.db.schema.types import kept_of
from streamer_verify.forms import SCHEMAS, wrong_form

PAGE = Path(__file__).parents[2] / "docs" / "audit-format.schema.json"
OF_SEALS = {"carried_scores": {"of"}, "carried_signals": {"of"}, "calibration_runs": set(control.RUN_PARTS)}
"""What a seal has beside the columns."""


@pytest.mark.parametrize("table", control.SEALED_TABLES, ids=lambda table: table.name)
def test_rows_of_the_control_log_have_the_columns_of_their_table(table: Any) -> None:
    row = SCHEMAS[f"control.{table.name}"]["properties"]["row"]
    columns = {one.name for one in table.columns if one.name not in kept_of(table).erased}
    assert set(row["properties"]) == set(row["required"]) == columns | OF_SEALS.get(table.name, set())
    for one in table.columns:
        if one.name in columns:
            said = row["properties"][one.name]
            words = said.get("enum", ())
            nullable = None in words or "null" in said.get("type", ())
            assert nullable == bool(one.nullable), f"{table.name}.{one.name}"


def test_only_settings_are_said_to_be_signed() -> None:
    schemas = json.loads(PAGE.read_text("utf-8"))["$defs"]
    row = schemas["control.gate_revisions"]["properties"]["row"]["properties"]
    assert {name for name, one in row.items() if "x-signed" in one} == SETTINGS.keys()
    assert json.dumps(schemas).count('"x-signed"') == len(SETTINGS)


LINE = {
    "index": 0, "kind": "gates", "recorded_at": "2026-11-20T12:00:00.000000+00:00", "leaf": "a" * 64, "root": "b" * 64,
    "row": {"name": "best", "seed": 2**63 - 1, "audit_salt": "c" * 64, "created_at": "2026-11-20T12:00:00.000000+00:00"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, None),
        ({"row": None}, None),
        ({"more": 1}, (".more", "is unknown")),
        ({"index": -1}, (".index", f"is not between 0 and {2**53 - 1}")),
        ({"index": True}, (".index", "is not a whole number")),
        ({"leaf": "A" * 64}, (".leaf", "is not of its form")),
        ({"row": LINE["row"] | {"seed": 2**63}}, (".row.seed", f"is not between 0 and {2**63 - 1}")),
        ({"row": {"name": "best"}}, (".row.seed", "is missing")),
        ({"kind": "none"}, (".kind", "is unknown")),
    ],
)
def test_a_validator_of_others_reads_the_schemas_alike(change: dict[str, Any], wrong: Any) -> None:
    schemas = json.loads(PAGE.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schemas)
    line = LINE | change
    assert wrong_form("control", line) == wrong
    one = schemas["$defs"].get(f"control.{line['kind']}")
    assert (one is not None and jsonschema.Draft202012Validator(one).is_valid(line)) == (wrong is None)
    # In one thing the verifiers are stricter.
    assert wrong_form("control", LINE | {"index": 1.0}) == (".index", "is not a whole number")
