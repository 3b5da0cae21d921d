"""Alembic's folder: the environment and the revisions. `streamer.store.migrate` runs them."""
