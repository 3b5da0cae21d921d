"""PgBouncer for tests, in transaction mode: each transaction may get another session of the server."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.services.ports import free_port

if TYPE_CHECKING:
    from tests.services.postgres import PostgresServer

# Debian keeps it where a user's PATH need not look.
_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

_SETTINGS = """\
[databases]
* = host={folder} auth_user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = 500
server_idle_timeout = 5
server_login_retry = 1
query_wait_timeout = 15
log_connections = 0
log_disconnections = 0
"""


def what_pgbouncer_needs() -> tuple[str, str] | None:
    """What is missing to start PgBouncer here and how to get it; None when all is there."""
    if _PROGRAM is None:
        return "no PgBouncer", "install it (Debian: apt-get install pgbouncer)"
    return None


class PgBouncer:
    """One pooler in front of one PostgreSQL server; a database that is made there later is served too.

    Parameters
    ----------
    server : the server, which may stop and start meanwhile.
    mode : when a client gives a session back: after each ``transaction``, at the end of its own ``session``, or after each
        ``statement``.
    sessions : how many sessions of the server one database's clients share; few, so that they meet each other's.
    """

    def __init__(self, server: PostgresServer, *, mode: str = "transaction", sessions: int = 4) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="streamer-pgbouncer-")).resolve()
        self._port = free_port()
        users = self._folder / "users"
        users.write_text('"postgres" ""\n')
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(folder=server.folder, port=self._port, users=users, mode=mode, sessions=sessions)
        )
        self._log = self._folder / "log"
        # It refuses to run as root, and has to reach the server's socket.
        user = pwd.getpwuid(server.folder.stat().st_uid).pw_name if os.getuid() == 0 else None
        self._folder.chmod(0o755)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(_PROGRAM), str(settings)], stdout=log, stderr=log, user=user
            )
        atexit.register(self.remove)

    def url_of(self, database: str, user: str = "postgres") -> str:
        """SQLAlchemy URL of one database of the server, through the pooler."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{self._port}/{database}"

    def wait(self) -> None:
        """Return once it takes connections."""
        deadline = time.monotonic() + 120
        while True:
            assert self._process.poll() is None, self.log_tail()
            try:
                psycopg.connect(
                    host="127.0.0.1", port=self._port, user="postgres", dbname="postgres", connect_timeout=5
                ).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, self.log_tail()
                time.sleep(0.05)
            else:
                return

    def remove(self) -> None:
        """Stop it and delete its folder. Safe to repeat."""
        atexit.unregister(self.remove)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(240)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_tail(self, lines: int = 40) -> str:
        if not self._log.exists():
            return "(no log)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])
