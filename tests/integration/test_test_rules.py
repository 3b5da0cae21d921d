"""The rules that the tests themselves live under, seen from outside: one small run of pytest each."""

import os
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import programs
from tests.services.kafka import what_kafka_needs
from tests.services.requirements import missing

ROOT = Path(__file__).resolve().parents[2]


def _run(folder: Path, code: str, **environment: str) -> dict[str, str]:
    """Run the tests of `code` under this project's conftest; return the outcome of each by name."""
    module = folder / "test_sample.py"
    module.write_text(textwrap.dedent(code))
    report = folder / "report.xml"
    finished = programs.run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"),
        *("-c", ROOT / "pyproject.toml", "--rootdir", folder, f"--junitxml={report}", module),
        status=None,
        cwd=ROOT,
        env={**os.environ, "CI": "", **environment},
    )
    assert report.exists(), finished.stdout + finished.stderr
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        verdicts = [
            f"{child.tag}: {child.get('message')} {child.text}" for child in case if child.get("message")
        ]
        outcomes[case.attrib["name"]] = "\n".join(verdicts) or "passed"
    return outcomes


def test_an_error_that_nobody_announced_fails_the_test(tmp_path: Path):
    outcomes = _run(
        tmp_path,
        """
        import logging
        import pytest
        import structlog

        def test_quiet():
            logging.getLogger("part").warning("not an error")

        def test_logging():
            logging.getLogger("part").error("lost")

        def test_structlog():
            structlog.get_logger("part").error("lost", offset=4)

        def test_reconfigured():
            logging.getLogger().setLevel(logging.CRITICAL)
            structlog.configure(logger_factory=structlog.PrintLoggerFactory())

        def test_after_reconfigured():
            structlog.get_logger("part").error("lost")

        @pytest.mark.expected_errors(r"^part: lost")
        def test_announced():
            logging.getLogger("part").error("lost")

        @pytest.mark.expected_errors(r"^part: lost")
        def test_another_was_announced():
            logging.getLogger("part").error("found")

        @pytest.mark.expected_errors
        def test_any_was_announced():
            logging.getLogger("part").error("found")

        def test_looked_at(expected_errors):
            structlog.get_logger("part").error("lost", offset=4)
            assert expected_errors.lines == ["part: lost"]
            assert expected_errors.records[0].offset == 4
        """,
    )
    passing = {
        "test_quiet", "test_reconfigured", "test_announced", "test_any_was_announced",
        "test_looked_at",
    }  # fmt: skip
    failing = {"test_logging", "test_structlog", "test_after_reconfigured", "test_another_was_announced"}
    assert outcomes.keys() == passing | failing
    assert {name for name, outcome in outcomes.items() if outcome == "passed"} == passing
    assert all("logged at ERROR, unannounced" in outcomes[name] for name in failing)


def test_a_missing_service_skips_with_the_remedy_and_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    need = what_kafka_needs()
    assert need is not None
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no java: apt-get install"):
        missing(*need)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="nothing is skipped"):
        missing(*need)
