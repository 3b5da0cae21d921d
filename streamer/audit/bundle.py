"""`audit export`: the record as files that somebody else can verify without this package, beside it the log of heads as static
files (https://c2sp.org/tlog-tiles), and embeddings of a bundle's answers; form in docs/audit.md.
"""

import base64
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.audit import signing
from streamer.audit.story import fits
from streamer.audit.verification import UNREADABLE, Snapshot
from streamer.errors import StreamerError, Unreadable, UsageError
from streamer.scoring.answer_head import whole
from streamer.scoring.blank import is_blank
from streamer.signing.canonical_json import canonical_json
from streamer.signing.merkle import leaf_hash, root_of
from streamer_verify.bundle import Bundle
from streamer_verify.logs import Log
from streamer_verify.values import CLOCKS_APART, given_out_of, sizes_of
from streamer_verify.verifier import Verifier

T = TypeVar("T")

FORMAT = "streamer.bundle.v1"


@contextmanager
def reading(bundle: Path) -> Iterator[Bundle]:
    """Open a bundle that anybody may have made. Raises `UsageError` where it, or what is read of it, is none."""
    opened = None
    try:
        opened = Bundle(bundle)
        yield opened
    except StreamerError:
        raise
    except (*UNREADABLE, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        place = bundle if opened is None else f"{bundle}, {opened.at}"
        raise UsageError(f"cannot read the bundle {place}: {type(error).__name__}: {error}") from error


def write_bundle(
    snapshot: Snapshot,
    target: Path,
    *,
    keys: Sequence[bytes],
    made_at: str,
    gate: str | None = None,
    texts: bool = True,
    salts: bool = True,
    segment: tuple[str, Sequence[tuple[Any, ...]]] | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """Write a bundle and return its manifest.

    Every leaf of every log is in it, for a log cannot be verified with holes; what can be left out is what stands
    behind the digests. Raises `UsageError` when the target exists or cannot be written, `Unreadable` when a row has a value
    that the program never writes; nothing is left of the bundle then.

    Parameters
    ----------
    target : a folder, or a file that ends in ``.zip``; must not exist.
    keys : public keys, 32 bytes each, put beside it for convenience; nobody should trust them because they are there.
    made_at : the present moment, RFC 3339 in UTC with microseconds.
    gate : texts, published events and salt of this gate alone; None: of all.
    texts : False leaves out prompts, references, metadata and answers, and the bytes of dead letters.
    salts : False keeps the salts of audit draws secret: anyone who knows one can predict which batches will be drawn.
    segment : of the partitions' logs these ranges alone, as of the month so called; None: all.
    progress : called with how many outcomes are written.
    """
    if target.exists():
        raise UsageError(f"{target} exists; name a new folder or .zip file")
    chosen, loose = snapshot.outcomes(), snapshot.unchained()
    if segment is not None:
        chosen, loose = chain.from_iterable(map(snapshot.within, segment[1])), iter(())
    parts: dict[str, Iterable[bytes]] = {
        "control.jsonl": (canonical_json(_control(line, gate, salts, texts)) for line in snapshot.control()),
        "outcomes.jsonl": _counted(
            (canonical_json(_outcome(line, gate, texts)) for line in chosen), progress
        ),
        "heads.jsonl": snapshot.heads(),
        "checkpoints.jsonl": snapshot.checkpoints(),
        "unchained.jsonl": (canonical_json(row) for row in loose),
    }
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "made_at": made_at,
        "head": _read("the heads of the logs", snapshot.head),
        "left_out": {"other_gates_than": gate, "texts": not texts, "salts": not salts},
        "not_evidence": snapshot.not_evidence(),
        "files": {},
        **({} if segment is None else {"segment": segment[0]}),
    }
    try:
        with _writing(target) as opened:
            for name, lines in parts.items():
                manifest["files"][name] = _write(opened, name, lines)
            if keys:
                _write(opened, "public-key.pem", [signing.public_pem(keys).rstrip("\n").encode()])
            written = partial(json.dumps, manifest, indent=1, ensure_ascii=False, sort_keys=True)
            text: str = _read("the heads of the logs", written)
            _write(opened, "manifest.json", [text.encode()])
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return manifest


def _control(line: dict[str, Any], gate: str | None, salts: bool, texts: bool) -> dict[str, Any]:
    if "content" in line and not (texts and gate in (None, line["row"]["gate"])):
        return _without(line, "content")
    if "audit_salt" in line and not (salts and (gate is None or line["row"]["name"] == gate)):
        return _without(line, "audit_salt")
    return line


def _without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in names}


def _outcome(line: dict[str, Any], gate: str | None, texts: bool) -> dict[str, Any]:
    facts = line["facts"] or {}
    named = facts.get("batch") or facts.get("response")
    # A dead letter has no gate; its bytes may belong to any gate.
    others = gate is not None and (named is None or named[0] != gate or line["kind"] == "conflict")
    return _without(line, *(("content", "judged") if others or not texts else ()), *("action",) * others)


def _counted(lines: Iterable[bytes], progress: Callable[[int], None]) -> Iterator[bytes]:
    for done, line in enumerate(lines, 1):
        yield line
        if done % 100 == 0:
            progress(done)


def _write(opened: Callable[[str], IO[bytes]], name: str, lines: Iterable[bytes]) -> dict[str, Any]:
    digest, count = hashlib.sha256(), 0
    with opened(name) as file:
        for line in _readable(name, lines):
            digest.update(line)
            file.write(line)
            count += 1
    return {"sha256": digest.hexdigest(), "lines": count}


def _readable(name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Pass the lines on; say how far they went when the next one cannot be made."""
    rest = iter(lines)
    for count in itertools.count(1):
        # With its line end, so that a value that is not bytes is noticed here too.
        line = _read(
            f"line {count} of {name}", lambda: None if (one := next(rest, None)) is None else one + b"\n"
        )
        if line is None:
            return
        yield line


def _read(what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except UNREADABLE as error:
        raise Unreadable(
            f"nothing is exported, because {what} cannot be built from what is stored ({type(error).__name__}: {error}); "
            "`streamer audit verify` says which row it is"
        ) from error


@contextmanager
def _writing(target: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    """Open files of the bundle; it gets its name once everything is written, or not at all."""
    partial = target.with_name(target.name + ".partial")
    with _alone(partial) if target.suffix == ".zip" else nullcontext() as file:
        try:
            if file is None:
                partial.mkdir(parents=True)
                yield lambda name: (partial / name).open("wb")
            elif target.exists():
                raise UsageError(f"{target} was written by another process meanwhile")
            else:
                file.truncate()
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                    yield lambda name: archive.open(name, "w", force_zip64=True)
            partial.rename(target)
        except BaseException:
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink(missing_ok=True)
            raise


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that no other process writes so."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process writes {path}") from None
        yield file


WIDTH = 256
"""Hashes of a full tile."""

_LONGEST = 65_535


def write_tiles(heads: Iterable[bytes], checkpoint: bytes, target: Path) -> int:
    """Write tiles of hashes, bundles of leaves, and the checkpoint that covers them into a new folder; returns how many leaves.

    Raises `UsageError` where the folder exists or cannot be written, or a leaf is too long for a bundle.
    """
    open_tiles: dict[int, list[bytes]] = {}
    numbers: dict[int, int] = {}

    def write(level: int | str, number: int, parts: list[bytes]) -> None:
        *above, last = f"{number:,}".split(",")
        path = "/".join([*(f"x{name:0>3}" for name in above), f"{last:0>3}"])
        partial = "" if len(parts) == WIDTH else f".p/{len(parts)}"
        file = target / "tile" / str(level) / f"{path}{partial}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(parts))

    def add(level: int, node: bytes) -> None:
        tile = open_tiles.setdefault(level, [])
        tile.append(node)
        if len(tile) == WIDTH:
            write(level, numbers.setdefault(level, 0), tile)
            numbers[level] += 1
            open_tiles[level] = []
            add(level + 1, root_of(tile))

    size, leaves = int(checkpoint.split(b"\n")[1]), iter(heads)
    try:
        target.mkdir(parents=True)
        for first in range(0, size, WIDTH):
            bundle = list(itertools.islice(leaves, min(WIDTH, size - first)))
            if any(len(one) > _LONGEST for one in bundle):
                raise UsageError(
                    f"a head is longer than {_LONGEST} bytes, which no bundle of tlog-tiles holds"
                )
            write("entries", first // WIDTH, [len(one).to_bytes(2) + one for one in bundle])
            for one in bundle:
                add(0, leaf_hash(one))
        for level, tile in open_tiles.items():
            if tile:
                write(level, numbers.get(level, 0), tile)
        (target / "checkpoint").write_bytes(checkpoint)
    except FileExistsError:
        raise UsageError(f"{target} exists; name a new folder") from None
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    return size


_TEXTS_A_CALL = 256


def write_embeddings(
    bundle: Bundle,
    target: Path,
    *,
    encoder: str,
    embed: Callable[[Sequence[Sequence[str]]], Sequence[NDArray[np.float32]]],
    progress: Callable[[int], object] = lambda _done: None,
) -> int:
    """Write the embeddings of all answers that this encoder (``name@hash``) scored, and return how many they are.

    Each line of the new file has `encoder`, `text` (the SHA-256 of an answer) and `embedding` (base64 of little-endian float32).
    `embed` is as for `streamer.audit.rescoring.Rescorer`; `progress` is called with how many texts are done. Raises `UsageError`
    when the file exists or cannot be written.
    """
    done = 0
    try:
        with target.open("xb") as file:
            texts = _texts(bundle, encoder)
            while some := list(islice(texts, _TEXTS_A_CALL)):
                (rows,) = embed([[text for _, text in some]])
                for (digest, _), row in zip(some, rows, strict=True):
                    packed = base64.b64encode(row.astype("<f4").tobytes()).decode()
                    line = {"encoder": encoder, "text": digest, "embedding": packed}
                    file.write(canonical_json(line) + b"\n")
                done += len(some)
                progress(done)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    return done


def _texts(bundle: Bundle, encoder: str) -> Iterator[tuple[str, str]]:
    """Each answer of a batch that the encoder scored, with and without its reasoning, once, with its SHA-256; no blank ones."""
    seen: set[str] = set()
    for line in bundle.values("outcomes.jsonl"):
        facts, content = line["facts"] or {}, line.get("content")
        own = (facts.get("encoder"), facts.get("embedding_source")) == (encoder, "encoder")
        if line["kind"] != "decision" or content is None or not own:
            continue
        answers = [text for text in content["texts"] if text is not None]
        for text in (*answers, *map(whole, answers)):
            if is_blank(text):
                continue
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield digest, text


def leaves_of_segment(bundle: Bundle) -> Iterator[list[dict[str, Any]]]:
    """A segment's leaves, decisions with policy and settings; `UsageError` if one was changed.

    None is missing up to its month's last head; no file proves what came later, or who signed it.
    """

    class Sealed(Verifier):
        def fault(self, check: str, place: str, detail: str) -> None:
            if check in ("log", "form", "checkpoint"):
                raise UsageError(f"{bundle.path} was changed: {place}: {detail}")

        def mark(self, line: dict[str, Any], log: Log) -> None:
            place = line["source"][:3]
            name = f"{place[1]}[{place[2]}], leaf {line['index']}"
            if not fits(line) or line["index"] != log.size:
                self.fault("log", name, "it is not what was recorded, or one before it is missing")
            if line["recorded_at"][:7] > month:
                self.fault("log", name, f"it was recorded after {month}")
            log.append(bytes.fromhex(line["leaf"]))
            self._mark(tuple(place), log, name)

    sealed, month, head = Sealed(()), bundle.manifest["segment"], bundle.manifest["head"]
    sealed.left_out = bundle.manifest["left_out"]
    sealed.checkpoints(bundle.lines("checkpoints.jsonl"), origin="the segment", complete=True)
    sealed.log_of_heads(bundle.lines("heads.jsonl"), head["record_id"])
    sealed.control(head, bundle.values("control.jsonl", sealed.fault))
    if sealed.reached() is None:
        raise UsageError(f"{bundle.path} was changed: no checkpoint in it covers its leaves")
    least: dict[Any, int] = {}
    for one in bundle.values("heads.jsonl"):
        most = sizes_of(one)
        if f"{datetime.fromisoformat(one['at']) + CLOCKS_APART:%Y-%m}" <= month:
            least = most
    ends = (given_out_of(row["logs"]) for row in sealed.rows("give_outs").values())
    logs = {place: Log(end, whole=False) for some in ends for place, (_, end, *_) in some.items()}
    for line in bundle.values("outcomes.jsonl", sealed.fault):
        place, facts = tuple(line["source"][:3]), line["facts"]
        sealed.mark(line, logs.setdefault(place, Log()))
        found: list[Any] = [line]
        if line["kind"] == "decision":
            gate, version = facts["batch"][0], facts["policy"]
            found += [sealed.row("policies", gate, version), sealed.settings(gate, version)]
        if None in found:
            raise UsageError(f"the segment was changed: it lacks policy {version} of gate {gate}")
        yield found
    for place in (least.keys() | logs.keys()) - {()}:
        size, (low, high) = logs.get(place, Log()).size, (some.get(place, 0) for some in (least, most))
        if not low <= size <= high:
            said = f"it ends with leaf {size}, and should between {low} and {high}"
            sealed.fault("log", f"{place[1]}[{place[2]}]", said)
