"""Sites of `streamer serve` that end with their test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.endpoint import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(url: str, **settings: Any) -> Site:
        sites.append(Site(url, tmp_path))
        sites[-1].gate(**settings)
        return sites[-1]

    yield make
    for one in sites:
        one.close()


@pytest.fixture
def site(new_site: Callable[..., Site], migrated_database_url: str) -> Site:
    """On SQLite and on PostgreSQL."""
    return new_site(migrated_database_url)


@pytest.fixture
def sqlite_site(new_site: Callable[..., Site], migrated_sqlite_url: str) -> Site:
    """For what no database has a part in."""
    return new_site(migrated_sqlite_url)
