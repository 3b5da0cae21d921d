"""Sites of `streamer serve` that end with their test."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamer.scoring.signals.signal_list import signal_list
from tests.faults.endpoint import Site
from tests.integration.serving.model_server import ENCODER, GATES, Model, Plain, agreeing


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


@pytest.fixture(scope="module")
def _plain(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite_file: Path) -> Iterator[Plain]:
    folder = tmp_path_factory.mktemp("chat")
    shutil.copy(migrated_sqlite_file, folder / "audit.db")
    site = Site(f"sqlite:///{folder / 'audit.db'}", folder)
    with Model() as model, closing(site):
        for gate in GATES:
            own: dict[str, Any] = {
                "mode": "shadow" if gate.startswith("shadow") else "enforce",
                "segment_by": "upstream" if gate == "segmented" else None,
            }
            of = {"scorer": "gram", "encoder": ENCODER}
            if gate == "tools-desk":
                own |= {"hold_action": "escalate", "desk_deadline_seconds": 600.0}
            if gate == "likely":
                listed = signal_list(["logprob", "token_entropy", "most_token_entropy"])
                of |= {"scorer": "choice", "signals": listed.text}
            if gate == "one-call":
                listed = signal_list(["logprob", "least_logprob", "token_entropy"])
                of = {"scorer": "likelihood", "encoder": "none", "signals": listed.text}
            if judged := {"fields": "json", "calls": "call"}.get(gate):
                listed = signal_list([judged])
                of |= {"scorer": "choice", "signals": listed.text, "judged": judged}
            site.gate(gate, **of, **own)
        yield Plain(site, model, model.serve(site, gates=GATES))
        site.check()


@pytest.fixture
def plain(_plain: Plain) -> Plain:
    _plain.model.reply = agreeing
    _plain.model.requests.clear()
    return _plain
