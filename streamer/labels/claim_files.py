"""Claims of a file's answers, written for people to label: as a table, or as response clouds."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamer.clouds.claims import ClaimedPrompt, check_answered, claimed_prompt
from streamer.clouds.cloud import claim_rows
from streamer.clouds.cloud_files import read_rows
from streamer.clouds.tables.answers import Reading
from streamer.errors import UsageError, why
from streamer.security.csv_cells import CsvTable

_COLUMNS = ("prompt_id", "prompt", "answer", "claim", "severity")


@dataclass(frozen=True, slots=True)
class ClaimsWritten:
    """How many prompts and claims that can be labelled were written.

    `held` are prompts without such claims, by a key of `streamer.clouds.claims.WHY_HELD`; `missing`
    those that do not have the answer that was asked for: they are not written.
    """

    prompts: int
    claims: int
    held: Mapping[str, int]
    missing: int


def write_claims(
    source: str,
    out: Path,
    answer: str,
    *,
    reading: Reading,
    report: Callable[[str], None],
) -> ClaimsWritten:
    """Cut one answer to each prompt, ``first`` or a model's, and write all answers with its claims.

    `source` : response clouds or a table; ``-`` is standard input. `out` is new: a table, ``.csv``,
    has one claim a row, the cut answer first, and the other answers with an empty claim; or it has
    clouds, ``.jsonl``. Raises `UsageError` when the source cannot be read, or `out` cannot be
    written or is there.
    """
    if out.suffix not in (".csv", ".jsonl"):
        raise UsageError(f"{out}: claims are written to a file that ends in .csv or .jsonl")
    cut, missing = [], 0
    for _, cloud, row in read_rows(source, reading, report=report):
        prompt = claimed_prompt(cloud, answer, cut=True)
        if prompt.answer is None:
            missing += 1
            continue
        if not prompt.held:
            place = cloud.responses.index(prompt.answer)
            row["responses"][place]["claims"] = claim_rows(prompt.claims)
        cut.append((prompt, row))
    check_answered((one for one, _ in cut), answer, source)
    try:
        with out.open("x", encoding="utf-8", newline="") as lines:
            if out.suffix == ".csv":
                table = CsvTable(lines)
                for cells in _rows(one for one, _ in cut):
                    table.write(cells)
            else:
                lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for _, row in cut)
    except FileExistsError:
        raise UsageError(f"{out} is there, and may be filled in: name another") from None
    except OSError as error:
        raise UsageError(f"cannot write {out}: {why(error)}") from error
    ready = [len(one.claims) for one, _ in cut if not one.held]
    held = Counter(one.held for one, _ in cut if one.held)
    return ClaimsWritten(len(ready), sum(ready), held, missing)


def _rows(prompts: Iterable[ClaimedPrompt]) -> Iterator[tuple[object, ...]]:
    yield _COLUMNS
    for one in prompts:
        cloud, first = one.cloud, one.answer
        assert first is not None
        prompt = (cloud.question_id, cloud.question)
        claims = [(claim.text.strip(), claim.severity) for claim in one.claims]
        for said in ([] if one.held else claims) or [("", None)]:
            yield *prompt, first.text, *said
        for other in cloud.samples.responses:
            if other is not first:
                yield *prompt, other.text, "", None
