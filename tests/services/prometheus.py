"""Prometheus for tests: the real server on loopback, scraping what a test names, asked by its HTTP API."""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.ports import free_port


def what_prometheus_needs() -> tuple[str, str] | None:
    """What is missing to start Prometheus here and how to get it; None when all is there."""
    if shutil.which("prometheus") is None:
        return "no prometheus", "apt-get install prometheus"
    return None


class Prometheus:
    """One server with a folder of its own, from `start` to `remove`.

    Attributes
    ----------
    url : root of its HTTP API.
    log : the file that its log goes to.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="streamer-prometheus-"))
        self.log = self.folder / "prometheus.log"
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        targets: Mapping[str, Sequence[str]],
        *,
        rules: Sequence[Path] = (),
        every_seconds: float = 1.0,
        ready_within: float = 30.0,
    ) -> None:
        """Start and wait until it answers.

        Parameters
        ----------
        targets : ``host:port`` of what is scraped, by job.
        rules : rule files, read as they are.
        every_seconds : between two scrapes, and between two evaluations of the rules.
        """
        milliseconds = f"{round(every_seconds * 1000)}ms"
        config = {
            "global": {
                "scrape_interval": milliseconds,
                "scrape_timeout": milliseconds,
                "evaluation_interval": milliseconds,
            },
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in targets.items()
            ],
        }
        path = self.folder / "prometheus.yml"
        path.write_text(json.dumps(config), "utf-8")  # JSON is YAML
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={path}",
                    f"--storage.tsdb.path={self.folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + ready_within
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                    return
            except OSError:
                assert self._process.poll() is None, f"Prometheus ended:\n{self.log_tail()}"
                assert time.monotonic() < deadline, f"Prometheus was not ready:\n{self.log_tail()}"
                time.sleep(0.1)

    def query(self, expression: str, *, at: float | None = None) -> list[dict[str, Any]]:
        """Evaluate at a moment (Unix seconds, now when None); series as ``{"metric": labels, "value": [time, text]}``.

        Raises
        ------
        ValueError : Prometheus does not understand the expression.
        """
        parameters = {"query": expression} | ({} if at is None else {"time": repr(at)})
        found = self._ask("query", parameters)
        if found["resultType"] in ("scalar", "string"):
            return [{"metric": {}, "value": found["result"]}]
        return list(found["result"])

    def value(self, expression: str) -> float | None:
        """The value of the only series of an expression; None when there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} has {len(found)} series: {found}"
        return float(found[0]["value"][1]) if found else None

    def query_range(self, expression: str, *, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Evaluate over a span of Unix seconds; series as ``{"metric": labels, "values": [[time, text], ...]}``."""
        parameters = {"query": expression, "start": repr(start), "end": repr(end), "step": repr(step)}
        return list(self._ask("query_range", parameters)["result"])

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that are pending or firing now."""
        return list(self._ask("alerts", {})["alerts"])

    def _ask(self, what: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=240) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                told = json.load(error)
            raise ValueError(f"{parameters.get('query', what)}: {told.get('error')}") from error

    def log_tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(240)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
