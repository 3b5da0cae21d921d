"""An upgrade without stopping: the schema moves under old workers, new ones join, old ones leave and return; nothing is lost.

The version after this one is this one's source with one more migration, in a folder of its own.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

import streamer
from streamer.store import schema_state
from tests import programs
from tests.faults.matrix import Matrix
from tests.faults.site import Site, wait_until
from tests.faults.traffic import Traffic

MIGRATION = '''"""What the next version adds: a column with a default, and one that may be empty."""

from alembic import op

revision = "9999"
down_revision = "{head}"
branch_labels = None
depends_on = None
serves = "{head}"


def upgrade() -> None:
    op.execute("ALTER TABLE decisions ADD COLUMN reviewed BOOLEAN NOT NULL DEFAULT false")
    op.execute("ALTER TABLE progress ADD COLUMN remark TEXT")

'''


@pytest.fixture
def newer(tmp_path: Path, site: Site) -> dict[str, str]:
    """Settings with which a process runs the next version."""
    package = Path(streamer.__file__).parent
    folder = tmp_path / "next"
    unwanted = shutil.ignore_patterns("__pycache__")
    for source in (package, package.parent / "migrations"):
        shutil.copytree(source, folder / source.name, ignore=unwanted)
    head = schema_state(site.settings.database.url).head
    (folder / "migrations" / "versions" / "r9999_next.py").write_text(MIGRATION.format(head=head))
    for file, column, added in (
        ("decisions.py", '    db.optional("segment", sa.Text, must=db.Characters(200, least=0), leaf=_IF_SAID, shown=True),\n', '"reviewed", sa.Boolean, nullable=False, server_default=sa.false(), info={"of": None, "leaf": None, "shown": False}'),
        ("log.py", '    db.optional("topic_id", ', '"remark", sa.Text'),
    ):  # fmt: skip
        table = folder / "streamer" / "store" / "db" / "schema" / file
        text = table.read_text()
        assert text.count(column) == 1
        table.write_text(text.replace(column, f"    sa.Column({added}),\n{column}"))
    return {"PYTHONPATH": str(folder)}


def upgrade(site: Site, settings: dict[str, str]) -> None:
    done = programs.run(
        *(sys.executable, "-m", "streamer", "db", "upgrade"),
        cwd=site.directory,
        env=os.environ | site.environment | settings,
    )
    assert done.stdout.endswith("to 9999.\n")


def test_forth_under_old_and_new_workers_and_back(site: Site, newer: dict[str, str], matrix: Matrix):
    """What the next version adds serves this one: it goes on, starts again, and comes back when the new one is withdrawn."""
    old = site.start_worker()
    with Traffic(site, seed=8, rate=60) as traffic:

        def decides(what: str) -> None:
            begun = site.recorded()
            wait_until(lambda: site.recorded() > begun + 50, what)

        decides("the old version")
        upgrade(site, newer)
        decides("the old version over the newer schema")
        assert "are up to date: revision 9999" in site.command("db", "upgrade").stdout
        site.command("db", "check")
        new = site.start_worker(program=("-m", "streamer"), **newer)
        new.wait_until_ready()
        decides("both")
        assert old.terminate(240) == 0
        decides("the new version by itself")
        assert new.terminate(240) == 0
        old = site.start_worker()
        decides("the old version, in place of the new one")
    wait_until(
        lambda: site.recorded() == traffic.total, "every record has an outcome", progress=site.recorded
    )
    assert old.terminate(240) == 0
    matrix.add("6 upgraded under old and new workers, and back", site.check())
