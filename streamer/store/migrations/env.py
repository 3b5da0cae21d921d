"""What Alembic runs: it migrates on the connection, and in the transaction, that `streamer.store.db.migrate` opened."""

from __future__ import annotations

from alembic import context

from streamer.store.db.migrate import VERSION_TABLE
from streamer.store.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    compare_type=True,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
