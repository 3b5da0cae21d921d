"""PostgreSQL that speaks TLS alone: the distribution's own, for the wheel that other tests use is built without it."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.services.certificates import Authority
from tests.services.ports import free_port

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))

# Passwords by SCRAM, always over TLS; `carl` needs a certificate of his own beside it.
_ACCESS = """
hostssl all carl 127.0.0.1/32 scram-sha-256 clientcert=verify-full
hostssl all all  127.0.0.1/32 scram-sha-256
"""


def what_postgres_tls_needs() -> tuple[str, str] | None:
    """What is missing to start it here and how to get it; None when all is there."""
    if not _PROGRAMS:
        return "no PostgreSQL with TLS", "apt-get install postgresql"
    return None


class PostgresTls:
    """One server on 127.0.0.1 with the users `ana` and `carl`; stop it.

    Attributes
    ----------
    address : ``127.0.0.1:port``.
    passwords : by user.
    """

    def __init__(self, authority: Authority) -> None:
        self.passwords = {"ana": "ana-secret", "carl": "carl-secret"}
        self.folder = Path(tempfile.mkdtemp(prefix="streamer-pgtls-")).resolve()
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._bin = _PROGRAMS[-1].parent
        own = authority.sign("postgres", hosts="IP:127.0.0.1")
        for name, source in (("ca", authority.certificate), ("server", own.certificate), ("key", own.key)):
            shutil.copy(source, self.folder / f"{name}.pem")
        (self.folder / "key.pem").chmod(0o600)
        (self.folder / "password").write_text("admin-secret")
        # The server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, self._user)
        self._run("initdb", "-U", "admin", "-A", "scram-sha-256", "--pwfile", "password", "-D", "data")
        (self.folder / "data" / "pg_hba.conf").write_text("local all admin trust\n" + _ACCESS)
        options = {
            "listen_addresses": "127.0.0.1", "port": self._port,
            "unix_socket_directories": self.folder, "ssl": "on",
            "ssl_ca_file": self.folder / "ca.pem", "ssl_cert_file": self.folder / "server.pem",
            "ssl_key_file": self.folder / "key.pem",
        }  # fmt: skip
        with (self.folder / "data" / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in options.items())
        self._process = self._start("postgres", "-D", "data")
        deadline = time.monotonic() + 30
        while self._run("pg_isready", "-q", "-h", str(self.folder), "-p", str(self._port), check=False):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text()[-3000:])
            time.sleep(0.05)
        for user, password in self.passwords.items():
            statement = f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{password}'"
            self._run(
                "psql", "-qX", "-h", str(self.folder), "-p", str(self._port), "-U", "admin", "-d", "postgres",
                "-c", statement,
            )  # fmt: skip

    def url(
        self, user: str = "ana", password: str | None = None, host: str = "127.0.0.1", **query: str
    ) -> str:
        """SQLAlchemy URL of the server's database, as somebody, with libpq's parameters."""
        secret = self.passwords[user] if password is None else password
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql+psycopg://{user}:{secret}@{host}:{self._port}/postgres?{words}"

    def stop(self) -> None:
        """Stop for good and delete the folder."""
        self._process.send_signal(signal.SIGINT)  # fast: in order, without waiting for clients
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(240)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._bin / program, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.folder,
                user=self._user if os.geteuid() == 0 else None, start_new_session=True,
            )  # fmt: skip

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        status = self._start(program, *arguments).wait(60)
        if check and status:
            raise RuntimeError(f"{program} failed:\n{(self.folder / 'log').read_text()[-3000:]}")
        return status
