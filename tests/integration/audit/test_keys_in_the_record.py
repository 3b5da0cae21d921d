"""API keys in the record: both verifiers find one that was changed, put in, or brought back by taking its revocation away."""

from pathlib import Path

import pytest

from streamer import wiring
from streamer.security.api_keys import Rate
from streamer.settings.settings import Settings
from tests.integration.audit.attacker import breaking_in
from tests.integration.audit.history import scribing
from tests.integration.audit.test_rates_in_the_record import found


@pytest.fixture
def record(migrated_database_url: str, tmp_path: Path) -> Settings:
    """Two keys, one of them revoked."""
    with scribing(tmp_path, migrated_database_url) as (settings, store, scribe):
        scribe.gate("best")
        key, _ = store.api_keys.create(
            gates=["best"], may=["decide"], by="ana", rate=Rate(50, 1), now=wiring.now()
        )
        store.api_keys.create(gates=None, may=["read"], by="ana")
        store.api_keys.revoke(key.id, by="ben", reason="laptop lost")
        scribe.checkpoint()
    return settings


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ("UPDATE api_keys SET gates = NULL WHERE gates IS NOT NULL", "it is not what was recorded"),
        (
            "UPDATE api_keys SET rate_requests = 5000 WHERE rate_requests IS NOT NULL",
            "it is not what was recorded",
        ),
        ("DELETE FROM api_key_revocations", "the row that was sealed here is gone"),
        (
            "INSERT INTO api_keys (id, digest, may, note, created_at, created_by) SELECT 'mine', salt, may, '', created_at,"
            " 'ana' FROM api_keys, (SELECT audit_salt AS salt FROM gates) gates WHERE gates IS NULL",
            "this row, or what it says of itself, belongs to no log",
        ),
    ],
    ids=["gates", "rate", "revocation", "key"],
)
def test_what_was_done_to_keys_past_the_program_is_found(
    record: Settings, tmp_path: Path, change: str, detail: str
) -> None:
    assert found(record, tmp_path) == ([], [])
    with breaking_in(record.database.url) as connection:
        connection.exec_driver_sql(change)
    for details in found(record, tmp_path):
        assert detail in details
