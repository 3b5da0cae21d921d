"""What operators do to the database itself: its roles, and what it forgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from streamer.wiring.parts import now

if TYPE_CHECKING:
    from streamer.settings.settings import Settings
    from streamer.store import Pruned, Roles


def create_roles(settings: Settings) -> Roles:
    """Create the roles that are missing and grant what each may do."""
    from streamer.store import create_roles as create

    return create(settings.database.url, insecure=settings.insecure)


def prune(
    settings: Settings,
    *,
    older_than: timedelta,
    sooner_than_six_months: bool,
    by: str,
    reason: str,
    dry_run: bool,
    progress: Callable[[str, int], None] = lambda _what, _count: None,
) -> Pruned:
    """Erase texts, and delete published messages, that are older than a time."""
    from streamer.store import prune as prune_database

    return prune_database(
        settings.database.url,
        older_than=older_than,
        now=now(),
        sooner_than_six_months=sooner_than_six_months,
        by=by,
        reason=reason,
        dry_run=dry_run,
        insecure=settings.insecure,
        progress=progress,
    )
