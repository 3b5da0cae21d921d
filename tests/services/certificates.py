"""Certificates for tests, made anew for each run: an authority of our own, and what it signs, by OpenSSL."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests import programs


def what_certificates_need() -> tuple[str, str] | None:
    """What is missing to make certificates here and how to get it; None when all is there."""
    if shutil.which("openssl") is None:
        return "no openssl", "apt-get install openssl"
    return None


@dataclass(frozen=True)
class Certificate:
    """PEM files: the certificate, its private key, and both in one file, the key first."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates that are good for two days.

    Attributes
    ----------
    certificate : the PEM file to trust.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, *_DAYS,
            "-subj", f"/CN=test {name}", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def sign(self, name: str, *, hosts: str = "") -> Certificate:
        """A certificate for ``CN=name``; `hosts` as OpenSSL writes them, ``IP:127.0.0.1,DNS:localhost``."""
        found = Certificate(*(self._folder / f"{name}.{kind}" for kind in ("pem", "key", "both.pem")))
        alternative = ["-addext", f"subjectAltName={hosts}"] if hosts else []
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", found.key, "-out", found.certificate, *_DAYS,
            "-subj", f"/CN={name}", *alternative, "-CA", self.certificate, "-CAkey", self._key,
            "-addext", "basicConstraints=critical,CA:FALSE",
        )  # fmt: skip
        found.key.chmod(0o600)
        found.both.write_text(found.key.read_text() + found.certificate.read_text())
        return found


_DAYS = ("-days", "2")
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


def _openssl(*arguments: object) -> None:
    programs.run("openssl", *arguments, stdin=subprocess.DEVNULL)
