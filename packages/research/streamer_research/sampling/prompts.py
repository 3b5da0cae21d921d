"""The prompts that are to be answered: read from JSON Lines or from plain text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamer.clouds.cloud import identifier
from streamer.clouds.line_files import is_publishable, numbered_lines, shown_name
from streamer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, not blank, with a unique name and acceptable answers (none blank, the first
    canonical).
    """

    question_id: str
    question: str
    references: tuple[str, ...] = ()


class _PromptLine(msgspec.Struct):
    question: str
    question_id: str | int | None = None
    references: list[str] | None = None


_decoder = msgspec.json.Decoder(_PromptLine)


def read_prompts(path: Path | str, *, limit: int | None = None) -> tuple[Prompt, ...]:
    """Read the prompts of a file, in its order.

    `path`: plain or gzip, ``-`` for standard input. Where the first line begins with ``{``, each
    line is a JSON object with ``question``, and optionally ``question_id`` and ``references``;
    other fields are passed over, so that a file of response clouds is a file of prompts. Otherwise
    each line is a prompt. A prompt without a name is called by its line: ``line-0007``. `limit`:
    take only this many, the first ones. Raises `UsageError`: the file cannot be read, or a line is
    no prompt; the text names the line.
    """
    name = shown_name(path)
    prompts: list[Prompt] = []
    first_seen: dict[str, int] = {}
    for number, prompt in _numbered(path, name):
        earlier = first_seen.setdefault(identifier(prompt.question_id), number)
        if earlier != number:
            raise UsageError(
                f"{name}, line {number}: question_id {prompt.question_id!r} was already on line {earlier}; give each "
                "prompt its own"
            )
        prompts.append(prompt)
        if len(prompts) == limit:
            break
    if not prompts:
        raise UsageError(
            f"{name} holds no prompts; write one a line, as text or as a JSON object with `question`"
        )
    return tuple(prompts)


def _numbered(path: Path | str, name: str) -> Iterator[tuple[int, Prompt]]:
    as_json: bool | None = None
    for number, line in numbered_lines(path):
        where = f"{name}, line {number}"
        if as_json is None:
            as_json = line.lstrip().startswith(b"{")
        prompt = _of_json(line, where, number) if as_json else _of_text(line, where, number)
        for text in (prompt.question, *prompt.references):
            if not is_publishable(text):
                raise UsageError(
                    f"{where}: a text holds a NUL or half a surrogate pair, which no event may carry; remove it"
                )
        yield number, prompt


def _of_json(line: bytes, where: str, number: int) -> Prompt:
    try:
        row = _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{where}: {error}; a prompt needs `question`, and may have `question_id` and `references` (a list)"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error}); write one JSON object a line, in UTF-8") from error
    if not row.question.strip():
        raise UsageError(f"{where}: the question is blank")
    references = tuple(reference.strip() for reference in row.references or () if reference.strip())
    return Prompt(
        _called(number) if row.question_id is None else str(row.question_id), row.question, references
    )


def _of_text(line: bytes, where: str, number: int) -> Prompt:
    try:
        return Prompt(_called(number), line.decode("utf-8").strip())
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text") from None


def _called(number: int) -> str:
    return f"line-{number:04d}"
