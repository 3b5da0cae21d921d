"""What tracing costs a decision: code without it, tracing off, a trace that is not kept, and one that is.

    python benchmarks/tracing.py [--rounds 15] [--short]

Events bring their scores, so that deciding is as short as it gets; nothing is recorded, which costs most. The code without
tracing is the decider's own with every line about it taken out. Kept traces go by OTLP to a collector in a process of its own,
and a turn ends when all of its spans are there. Turns alternate; times are this process's processor time, of all threads, and
medians. Exit status 1 where tracing that is off costs more than `LIMIT` times the code without it.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encode import machine
from verifying import Site, event

import streamer.deciding.decider as own
from streamer import wiring
from streamer.deciding.policy_book import PolicyBook
from streamer.journal import Partition, Record
from streamer.telemetry.exporting import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.sharedctypes import Synchronized

    from streamer.events.topics import Topics
    from streamer.tracing import Tracing

LIMIT = 1.25
"""Largest ratio of tracing off to no tracing at all. It is 1 but for noise; one span for each decision would be well above it."""

GROUP = 100
SPANS = 5
"""Of a decision: process, score, gate, commit, publish."""

TRACE = "00-{:032x}-b7ad6b7169203331-{}"
VARIANTS = ("without", "off", "not kept", "kept")


class WithoutTracing(ast.NodeTransformer):
    """Takes the lines about tracing out of the decider's source."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _told(node.value) else self.generic_visit(node)

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        return node.body if _told(node.items[0].context_expr) == "scoring" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _told(node) == "context":
            return ast.Attribute(node.args[0], "headers", ast.Load())
        return node


def _told(node: ast.AST) -> str | None:
    """The method of tracing that is called, if one is."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr if ast.unparse(node.func.value) == "self._tracing" else None
    return None


def decider_without_tracing() -> types.ModuleType:
    tree = WithoutTracing().visit(ast.parse(Path(own.__file__).read_text("utf-8")))
    left = ast.unparse(tree).count("self._tracing")
    if left != 1:  # where it is set
        raise SystemExit(
            f"the decider mentions tracing in {left - 1} places that this benchmark does not know"
        )
    module = types.ModuleType("decider_without_tracing")
    sys.modules[module.__name__] = module
    exec(compile(ast.fix_missing_locations(tree), own.__file__, "exec"), module.__dict__)
    return module


def collect(address: Synchronized[int], arrived: Synchronized[int]) -> None:
    """Take spans and events, and count the spans."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    class Collector(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                told = ExportTraceServiceRequest.FromString(body)
                with arrived.get_lock():
                    arrived.value += sum(len(s.spans) for r in told.resource_spans for s in r.scope_spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    address.value = server.server_port
    server.serve_forever()


@contextmanager
def collector() -> Iterator[tuple[int, Synchronized[int]]]:
    """The port of a collector, and how many spans it has."""
    spawning = multiprocessing.get_context("spawn")
    address, arrived = spawning.Value("i", 0), spawning.Value("i", 0)
    child = spawning.Process(target=collect, args=(address, arrived), daemon=True)
    child.start()
    try:
        while not address.value:
            time.sleep(0.01)
        yield address.value, arrived
    finally:
        child.terminate()
        child.join()


class Decisions:
    """Decides groups of events that nobody has seen, and tells tracing what a worker does."""

    def __init__(self, site: Site, book: PolicyBook, topics: Topics) -> None:
        self._place = Partition("log", topics.responses, 0)
        self._number = 0
        self._given: dict[str, Any] = {
            "book": book,
            "known": lambda _keys: {},
            "encoder": None,
            "topics": topics,
            "limits": wiring.limits(site.settings),
            "clock": wiring.now,
        }

    def records(self, *, kept: bool) -> list[Record]:
        first = self._number
        self._number += GROUP
        flags = "01" if kept else "00"
        return [
            Record(
                self._place,
                number,
                b"k",
                event(number),
                (("traceparent", TRACE.format(number + 1, flags).encode()),),
                1_700_000_000_000,
            )
            for number in range(first, first + GROUP)
        ]

    def run(self, code: Any, told: Tracing | None, groups: int, *, kept: bool) -> None:
        given = self._given if told is None else self._given | {"tracing": told}
        decider = code.BatchDecider(**given)
        for records in [self.records(kept=kept) for _ in range(groups)]:
            outcomes = decider.outcomes(records)
            if told is not None:
                told.committed(outcomes, ["decision"] * len(outcomes), seconds=0.001)
                told.published([one.action for one in outcomes], seconds=0.001)
            if {type(one).__name__ for one in outcomes} != {"BatchDecision"}:
                raise SystemExit(f"not decided: {outcomes[0]}")


def _wait_for(arrived: Synchronized[int], wanted: int) -> None:
    end = time.monotonic() + 60
    while arrived.value < wanted:
        if time.monotonic() > end:
            raise SystemExit(f"{wanted - arrived.value} spans did not arrive within a minute")
        time.sleep(0.02)


def measure(rounds: int, groups: int) -> dict[str, list[float]]:
    """Microseconds a decision in each round."""
    found: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with (
        tempfile.TemporaryDirectory() as folder,
        collector() as (port, arrived),
    ):
        site = Site(f"sqlite:///{folder}/bench.db", Path(folder))
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        for queue in ("BSP", "BLRP"):
            os.environ[f"OTEL_{queue}_MAX_QUEUE_SIZE"] = str(rounds * groups * GROUP * SPANS)  # drop nothing
        with (
            wiring.open_store(site.settings) as store,
            tracing("worker", {}) as off,
            tracing("worker", os.environ) as on,
        ):
            book = PolicyBook(store.policies.active, limits=wiring.limits(site.settings))
            book.refresh()
            decisions = Decisions(site, book, wiring.topics(site.settings))
            ways = {
                "without": (decider_without_tracing(), None),
                "off": (own, off),
                "not kept": (own, on),
                "kept": (own, on),
            }
            for turn in range(rounds + 1):
                for place in range(len(VARIANTS)):
                    variant = VARIANTS[(turn + place) % len(VARIANTS)]
                    code, told = ways[variant]
                    kept = variant == "kept"
                    wanted = arrived.value + (groups * GROUP * SPANS if kept else 0)
                    began = time.process_time()
                    decisions.run(code, told, groups, kept=kept)
                    _wait_for(arrived, wanted)
                    if turn:  # the first one warms up
                        spent = time.process_time() - began
                        found[variant].append(spent / (groups * GROUP) * 1e6)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--short", action="store_true", help="a smaller form, for every change")
    given = parser.parse_args()
    found = measure(6 if given.short else given.rounds, 5 if given.short else 10)
    print(machine("cpu"))
    for variant in VARIANTS:
        each = found[variant]
        print(
            f"{variant:9} {statistics.median(each):6.0f} us a decision ({min(each):.0f} to {max(each):.0f})"
        )
    ratio = statistics.median(
        off / without for off, without in zip(found["off"], found["without"], strict=True)
    )
    print(f"off over without: {ratio:.3f} (median of the rounds; at most {LIMIT:g})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
