"""What operators do to the database itself: its roles, and what it forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamer.settings import Settings
    from streamer.store import Roles


def create_roles(settings: Settings) -> Roles:
    """Create the roles that are missing and grant what each may do."""
    from streamer.store import create_roles as create

    return create(settings.database.url, insecure=settings.insecure)
