"""An upgrade without stopping: the schema moves under old workers, new ones join, old ones leave; nothing is lost.

The version after this one is this one's source with one more migration, in a folder of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamer
from streamer.errors import UsageError
from streamer.store import schema_state
from tests.faults.site import wait_until
from tests.faults.traffic import Traffic

if TYPE_CHECKING:
    from tests.faults.matrix import Matrix
    from tests.faults.site import Site

MIGRATION = '''"""What the next version adds: a column with a default, and one that may be empty."""

from alembic import op

revision = "9999"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE decisions ADD COLUMN reviewed BOOLEAN NOT NULL DEFAULT false")
    op.execute("ALTER TABLE progress ADD COLUMN remark TEXT")

'''


@pytest.fixture
def next_version(tmp_path: Path, site: Site) -> dict[str, str]:
    """Settings with which a process runs the next version."""
    package = Path(streamer.__file__).parent
    folder = tmp_path / "next"
    shutil.copytree(package, folder / "streamer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        package.parent / "migrations", folder / "migrations", ignore=shutil.ignore_patterns("__pycache__")
    )
    head = schema_state(site.settings.database.url).head
    (folder / "migrations" / "versions" / "r9999_next.py").write_text(MIGRATION.format(head=head))
    for file, column, added in (
        ("decisions.py", '    sa.Column("segment", sa.Text),\n', '"reviewed", sa.Boolean, nullable=False, server_default=sa.false()'),
        ("log.py", '    sa.Column("topic_id", ', '"remark", sa.Text'),
    ):  # fmt: skip
        table = folder / "streamer" / "store" / "db" / "schema" / file
        text = table.read_text()
        assert text.count(column) == 1
        table.write_text(text.replace(column, f"    sa.Column({added}),\n{column}"))
    return {"PYTHONPATH": str(folder)}


def upgrade(site: Site, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamer", "db", "upgrade"],
        cwd=site.directory,
        env=os.environ | site.environment | settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.long
def test_old_and_new_workers_side_by_side(site: Site, next_version: dict[str, str], matrix: Matrix) -> None:
    old = site.start_worker()
    with Traffic(site, seed=8, rate=60) as traffic:
        wait_until(lambda: site.recorded() > 50, "the old version decides")
        done = upgrade(site, next_version)
        assert done.returncode == 0, done.stderr
        with pytest.raises(UsageError, match="at revision 9999, which a newer version made"):
            schema_state(site.settings.database.url)

        alone = site.recorded()
        wait_until(lambda: site.recorded() > alone + 50, "the old version goes on over the newer schema")
        new = site.start_worker(program=("-m", "streamer"), **next_version)
        new.wait_until_ready()
        together = site.recorded()
        wait_until(lambda: site.recorded() > together + 100, "both decide")
        assert not old.ended, old.log_tail()

        assert old.terminate(240) == 0
        left = site.recorded()
        wait_until(lambda: site.recorded() > left + 50, "the new version goes on by itself")
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", progress=site.recorded
    )
    matrix.add("6 upgraded under old and new workers", site.check())

    refused = site.command("worker", status=2)
    assert "which a newer version made; upgrade streamer" in refused.stderr
    assert new.terminate(240) == 0
