"""Severities for a file of response clouds: a second file, line by line as clouds are finished, which a second run resumes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streamer.clouds.claims import ClaimedPrompt, check_answered, claimed_prompt
from streamer.clouds.cloud import Cloud, CloudResponse, claim_rows, parse_cloud
from streamer.clouds.cloud_files import AS_IT_IS, read_rows
from streamer.clouds.line_files import append_lines, read_lines, read_whole
from streamer.clouds.tables.answers import Reading
from streamer.errors import Unavailable, UsageError, named_beside
from streamer.gates.batch_key import BatchKey
from streamer.labels.filling import Attempted, Labeller
from streamer.labels.severity import LabelTask, not_blank
from streamer.scoring.judged import WHOLE, Form

_NO_GATE = "clouds"
"""Stands where a task names its gate: the clouds of a file have none."""


@dataclass(slots=True)
class _Waiting:
    """A cloud that is being labelled; `labelled` : what of its row gets a label, by response and claim."""

    row: dict[str, Any]
    labelled: Mapping[tuple[str, str], dict[str, Any]]
    left: set[tuple[str, str]]
    failed: bool = False


class _KeptLabel(msgspec.Struct):
    key: str
    severity: Annotated[float, msgspec.Meta(ge=0, le=1)]


class CloudLabelling:
    """Takes responses of a file without a label to a labeller, and writes each cloud once complete.

    A cloud of which a response could not be labelled is not written: the next run tries that
    response again. What the others got is kept in ``out`` with ``.labels`` behind it meanwhile, for
    a label may have been paid for; that file goes when no cloud waits. Responses that have a label
    keep it. A context manager.

    A table is written as clouds. Clouds that are in `out` are not labelled again, and a line there
    that a kill cut in two is removed. `judged` is what of the answers the labeller reads. With
    `claims` the claims of this answer to each prompt, ``first`` or a model's, are labelled in place
    of responses; it is cut where it brings none. A prompt that is held is written as it is, one
    without that answer is not written, and is `missing`. `clouds` is how many were written,
    `there_before` how many `out` held already.

    Raises `UsageError` when `out` cannot be written, or holds something else.
    """

    def __init__(
        self,
        source: Path | str,
        out: Path,
        labeller: Labeller,
        *,
        judged: Form = WHOLE,
        claims: str | None = None,
        reading: Reading = AS_IT_IS,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._source = source
        self._reading = reading
        self._report = report
        self._labeller = labeller
        self._judged = judged
        self._claims = claims
        self._by = labeller.id if judged == WHOLE else f"{labeller.id} ({judged.text})"
        if claims is not None:
            self._by = f"{labeller.id} (claims of {claims})"
        self._waiting: dict[str, _Waiting] = {}
        self._kept_in = named_beside(out, ".labels")
        self._kept: dict[str, float] = {}
        self._read_whole = False
        self.clouds = self.missing = 0
        if out.suffix == ".gz":
            raise UsageError(
                f"{out}: labelled clouds are written line by line, so the name must not end in .gz"
            )
        if str(source) != "-" and out.exists() and out.samefile(source):
            raise UsageError("--out names the file that is read; give another one")
        try:
            whole = read_whole(out) if out.exists() else b""
            self._file = out.open("ab", buffering=0)
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error.strerror or error}") from error
        try:
            kept = whole[: whole.rfind(b"\n") + 1]
            self._done = {
                self._written_before(line, f"{out}, line {number}")
                for number, line in enumerate(kept.splitlines(), 1)
            }
            if len(kept) < len(whole):
                self._file.truncate(len(kept))
        except BaseException:
            self._file.close()
            raise
        self.there_before = len(self._done)
        self._kept = {one.key: one.severity for one in read_lines(self._kept_in, strict_type=_KeptLabel)}

    def tasks(self) -> Iterator[LabelTask]:
        """Yield what is to be labelled, in the file's order.

        Raises `UsageError` for a line that is no cloud, and where no prompt has the answer whose
        claims are to be labelled.
        """
        for where, cloud, row in read_rows(self._source, self._reading, report=self._report):
            if cloud.batch_id in self._done:
                continue
            if cloud.batch_id in self._waiting:
                raise UsageError(f"{where}: question_id {cloud.question_id!r} occurs twice")
            if self._claims is None:
                unlabelled = self._unlabelled(cloud, where)
                rows = zip(cloud.responses, row["responses"], strict=True)
                labelled = {(response.id, ""): written for response, written in rows}
            elif (prompt := claimed_prompt(cloud, self._claims, cut=True)).answer is None:
                self.missing += 1
                continue
            else:
                unlabelled, labelled = self._unlabelled_claims(prompt, row)
            waiting = self._waiting[cloud.batch_id] = _Waiting(row, labelled, set())
            left = []
            for task in unlabelled:
                known = self._kept.get(self._key(task))
                if known is None:
                    waiting.left.add((task.response_id, task.unit_id))
                    left.append(task)
                else:
                    self._fill_in(waiting, task, known)
            if not left:
                self._finish(cloud.batch_id, waiting)
            yield from left
        if self.missing and not (self._waiting or self._done):
            check_answered([prompt], str(self._claims), str(self._source))
        self._read_whole = True

    def keep(self, attempts: Sequence[Attempted]) -> int:
        """Take labels in, and write the clouds that they complete; returns how many labels there were."""
        labelled = 0
        append_lines(
            self._kept_in,
            [_KeptLabel(self._key(a.task), a.severity.value) for a in attempts if a.severity is not None],
        )
        for attempt in attempts:
            name = attempt.task.key.batch_id
            waiting = self._waiting[name]
            waiting.left.discard((attempt.task.response_id, attempt.task.unit_id))
            if attempt.severity is None:
                waiting.failed = True
            else:
                labelled += 1
                self._fill_in(waiting, attempt.task, attempt.severity.value)
            if not waiting.left:
                self._finish(name, waiting)
        return labelled

    def close(self) -> None:
        """Close the file, and remove the labels of clouds that waited if none does."""
        self._file.close()
        if self._read_whole and not any(waiting.left or waiting.failed for waiting in self._waiting.values()):
            self._kept_in.unlink(missing_ok=True)

    def __enter__(self) -> CloudLabelling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _written_before(self, line: bytes, where: str) -> str:
        name = parse_cloud(line, where).batch_id
        before = json.loads(line).get("labelled_by")
        if before != self._by:
            raise UsageError(
                f"{where} was not labelled by {self._by} but by {before or 'something else'}, whose severities "
                "could not be compared; give another --out"
            )
        return name

    def _unlabelled(self, cloud: Cloud, where: str) -> list[LabelTask]:
        kind = self._labeller.kind
        for response in cloud.responses:
            if response.severity is not None and response.kind != kind:
                raise UsageError(
                    f"{where}: there are labels of the kind {response.kind!r}, and {kind!r} ones beside them could not be "
                    "compared; take them out, or label a file without"
                )
        if self._labeller.needs_references and not not_blank(cloud.references):
            return []
        return [self._task(cloud, response) for response in cloud.responses if response.severity is None]

    def _unlabelled_claims(
        self, prompt: ClaimedPrompt, row: dict[str, Any]
    ) -> tuple[list[LabelTask], dict[tuple[str, str], dict[str, Any]]]:
        cloud, answer, written = prompt.cloud, prompt.answer, claim_rows(prompt.claims)
        if answer is None or prompt.held:
            return [], {}
        row["responses"][cloud.responses.index(answer)]["claims"] = written
        tasks = [
            replace(self._task(cloud, answer), unit_id=claim.id, unit=claim.text)
            for claim in prompt.claims
            if claim.severity is None
        ]
        return tasks, {(answer.id, row["id"]): row for row in written}

    def _task(self, cloud: Cloud, response: CloudResponse) -> LabelTask:
        return LabelTask(
            key=BatchKey(_NO_GATE, cloud.batch_id, 1),
            response_id=response.id,
            kind=self._labeller.kind,
            prompt=cloud.question,
            response=self._judged.ships(response.text),
            references=not_blank(cloud.references) or None,
            judged=self._judged,
        )

    def _key(self, task: LabelTask) -> str:
        content = [self._by, task.prompt, task.references, task.response]
        content += [task.unit_id, task.unit] if task.unit else []
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]

    def _fill_in(self, waiting: _Waiting, task: LabelTask, severity: float) -> None:
        labelled = waiting.labelled[task.response_id, task.unit_id]
        labelled["label"] = severity
        if task.unit:
            return
        stated = f"{self._labeller.kind} ({self._by})"
        labelled["meta"] = {**(labelled.get("meta") or {}), "label_kind": stated}

    def _finish(self, name: str, waiting: _Waiting) -> None:
        # The name stays, without the row, so that the same question later in the file is reported.
        row, waiting.row = waiting.row, {}
        if waiting.failed:
            return
        row["labelled_by"] = self._by
        rest = memoryview(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Unavailable(f"cannot write the labelled clouds: {error.strerror or error}") from error
        self.clouds += 1
