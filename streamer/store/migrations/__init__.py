"""Alembic's folder: the environment and the revisions. `streamer.store.db.migrate` runs them."""
