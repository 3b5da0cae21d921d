"""Damaged bundles, made from a good one: every member of every kind of row in turn, and every damage of bytes, by seed."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamer_verify.bundle import FILES
from streamer_verify.logs import Log
from streamer_verify.values import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.0, 1.0, 0.5, -0.5, 1.5, 2**31, 2**53, 2**63, 10**30, 1e300, 1e-300, "", "x", "cut", "closed", "\x00",
    "0" * 64, "ab", "YQ==", "YR==", "{}", "[]", "null", "NaN", '{"a":1,"a":2}', "2026-02-30T00:00:00.000000+00:00",
    "0001-01-01T00:00:00.000000+00:00", "9999-12-31T23:59:59.999999+00:00", "2026-11-20T12:00:00Z", "ü" * 300, [], {}, [[]],
    [None], ["a", "b", 1], {"a": None}, {"__proto__": 1},
)  # fmt: skip
"""What a member becomes."""

GONE, TWICE, UNKNOWN = object(), object(), object()


@dataclass
class Parts:
    """A bundle as values: the manifest, and the lines of each file."""

    manifest: dict[str, Any]
    lines: dict[str, list[Any]]
    raw: dict[tuple[str, int], Callable[[bytes], bytes]] = field(default_factory=dict)

    @classmethod
    def read(cls, bundle: Path) -> Parts:
        lines = {
            name: [json.loads(line) for line in (bundle / name).read_bytes().splitlines()] for name in FILES
        }
        return cls(json.loads((bundle / "manifest.json").read_bytes()), lines)

    def of(self, raw: dict[tuple[str, int], Callable[[bytes], bytes]]) -> Parts:
        """A copy, some of whose lines get other bytes."""
        return Parts(copy.deepcopy(self.manifest), copy.deepcopy(self.lines), raw)

    def reseal(self) -> None:
        """Compute every leaf, every root and the heads anew, as somebody would who can write the whole database."""
        record, head = self.manifest["head"]["record_id"], self.manifest["head"]
        log, roots = Log(), [Log().root()]
        for at, line in enumerate(self.lines["control.jsonl"]):
            entry = {name: line.get(name) for name in ("kind", "recorded_at", "row")} | {
                "record": record,
                "index": at,
            }
            self._seal(log, line, entry)
            roots.append(log.root())
        head["control"] = {"size": log.size, "root": log.root()}
        logs: dict[tuple[Any, ...], Log] = {}
        for line in self.lines["outcomes.jsonl"]:
            facts = line.get("facts")
            seen = facts.get("control") if isinstance(facts, dict) else None
            if (
                isinstance(seen, list)
                and len(seen) == 2
                and type(seen[0]) is int
                and 0 <= seen[0] < len(roots)
            ):
                seen[1] = roots[seen[0]]
            log = logs.setdefault(tuple(map(str, line["source"][:3])), Log())
            entry = {name: line.get(name) for name in ("kind", "source", "index", "recorded_at", "facts")}
            self._seal(log, line, entry)
        for one in head["partitions"]:
            log = logs.get((one["log_id"], one["topic"], str(one["partition"])), Log())
            one |= {"size": log.size, "root": log.root()}
        self.lines["checkpoints.jsonl"] = []

    @staticmethod
    def _seal(log: Log, line: dict[str, Any], entry: dict[str, Any]) -> None:
        try:
            leaf = hashlib.sha256(b"\x00" + canonical_json(entry))
        except (TypeError, ValueError):
            leaf = hashlib.sha256()
        log.append(leaf.digest())
        line |= {"leaf": leaf.hexdigest(), "root": log.root()}

    def write(self, folder: Path) -> None:
        """Write it, with a manifest that fits the files."""
        folder.mkdir(exist_ok=True)
        for name, values in self.lines.items():
            said = [canonical_json(value) for value in values]
            said = [self.raw.get((name, at), bytes)(one) + b"\n" for at, one in enumerate(said)]
            data = b"".join(said)
            (folder / name).write_bytes(data)
            if isinstance(self.manifest.get("files"), dict):
                self.manifest["files"][name] = {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "lines": data.count(b"\n"),
                }
        (folder / "manifest.json").write_bytes(canonical_json(self.manifest))


@dataclass(frozen=True)
class Damage:
    """One damage: of which file and line, which member (its keys), and what becomes of it; `sealed`: every log is computed anew."""

    file: str
    line: int
    path: tuple[Any, ...]
    value: Any
    sealed: bool = True

    def __str__(self) -> str:
        what = (
            "removed"
            if self.value is GONE
            else "an unknown member"
            if self.value is UNKNOWN
            else repr(self.value)[:60]
        )
        where = ".".join(map(str, self.path))
        return f"{self.file}, line {self.line + 1}, {where}: {what}{', resealed' if self.sealed else ''}"

    def of(self, good: Parts) -> Parts:
        parts = good.of({})
        at: Any = parts.manifest if self.file == "manifest.json" else parts.lines[self.file][self.line]
        *before, last = self.path
        inner: list[tuple[Any, Any]] = []
        for key in before:  # JSON in a text is opened, and closed again below
            if isinstance(at[key], str):
                inner.append((at, key))
                at[key] = json.loads(at[key])
            at = at[key]
        if self.value is GONE:
            del at[last]
        elif self.value is UNKNOWN:
            at["more"] = 1
        else:
            at[last] = copy.deepcopy(self.value)
        for holder, key in reversed(inner):
            holder[key] = json.dumps(holder[key])
        if self.sealed and self.file not in ("manifest.json", "checkpoints.jsonl"):
            parts.reseal()
        return parts


def damages(good: Parts, rng: Random) -> Iterator[Damage]:
    """Yield damages of each member of each kind of row, in an order by seed: the first of each member, then the second, ...

    By turns a member becomes what it is in another row or what is of its type, and anything at all.
    """
    members: dict[tuple[Any, ...], list[tuple[str, int, tuple[Any, ...], Any]]] = {}
    for file, values in {"manifest.json": [good.manifest], **good.lines}.items():
        for line, value in enumerate(values):
            for path, one in _members(value, ()):
                general = tuple("*" if isinstance(key, int) else key for key in path)
                members.setdefault((file, value.get("kind"), general), []).append((file, line, path, one))
    anything = [*VALUES, GONE, UNKNOWN]
    for turn in range(len(anything)):
        for key in rng.sample(list(members), len(members)):
            file, line, path, one = rng.choice(members[key])
            alike = [other[3] for other in rng.sample(members[key], min(5, len(members[key])))]
            alike += [other for other in VALUES if type(other) is type(one)]
            value = rng.choice(alike if turn % 2 == 0 else anything)
            sealed = rng.random() < 0.7 and path[0] not in ("leaf", "root")
            if (type(value), value) != (type(one), one) and (value is not GONE or isinstance(path[-1], str)):
                yield Damage(file, line, path, value, sealed)


def _members(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if (
        isinstance(value, str)
        and path
        and path[-1]
        in ("rule", "heads", "age_cut", "suffix", "history", "parameters", "labellers", "headers")
    ):
        value = json.loads(value)
    inner = (
        value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    )
    for key, one in inner:
        yield (*path, key), one
        yield from _members(one, (*path, key))


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "a key twice": lambda line: line[:-1] + b',"leaf":0}',
    "broken UTF-8": lambda line: line.replace(b'"', b'"\xff', 1),
    "white space": lambda line: line.replace(b",", b", ", 1),
    "a byte order mark": lambda line: b"\xef\xbb\xbf" + line,
    "an escape": lambda line: line[:-1] + b',"z":"\\u0061"}',
    "a lone surrogate": lambda line: line[:-1] + b',"z":"\\ud800"}',
    "not a number": lambda line: line[:-1] + b',"z":NaN}',
    "no double": lambda line: line[:-1] + b',"z":1e400}',
    "another form of a number": lambda line: line[:-1] + b',"z":1E5}',
    "a zero in front": lambda line: line[:-1] + b',"z":01}',
    "minus zero": lambda line: line[:-1] + b',"z":-0}',
    "nested deeply": lambda line: line[:-1] + b',"z":' + b"[" * 300 + b"]" * 300 + b"}",
    "nested without end": lambda line: line[:-1] + b',"z":' + b"[" * 100_000 + b"}",
    "cut off": lambda line: line[: len(line) // 2],
    "empty": lambda _: b"",
    "a list": lambda line: b"[" + line + b"]",
    "null": lambda _: b"null",
    "two values": lambda line: line + line,
    "an unknown member": lambda line: line[:-1] + b',"z":"' + b"a" * (10 << 20) + b'"}',
    "a carriage return": lambda line: line + b"\r",
}  # fmt: skip
"""Damage of a line's bytes."""
