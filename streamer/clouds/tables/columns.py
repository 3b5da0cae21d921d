"""Which column of a table is what: by the names that people use, or as the command says."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from streamer.clouds.tables.formats import FORMATS, NO_TOOL, Format, format_named
from streamer.clouds.tables.rows import Table
from streamer.clouds.tables.values import list_of_text, plain, value_at
from streamer.errors import UsageError

Role = Literal[
    "prompt_id", "prompt", "answer", "answer_id", "severity", "correct", "score", "logprob", "model", "embedding",
    "references", "kind", "claim", "witnesses",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)

CORRECT = ("correct", "is_correct", "right", "is_right", "passed")
SCORE = ("score", "confidence")

_NAMES: Mapping[Role, tuple[str, ...]] = {
    "prompt_id": ("prompt_id", "question_id", "batch_id", "query_id", "request_id", "group_id", "group", "qid", "task_id", "custom_id"),
    "prompt": (
        "prompt", "question", "query", "instruction", "input", "problem", "user_input", "user_message", "user_prompt",
    ),
    "answer": (
        "response", "output", "completion", "generation", "model_answer", "model_output", "model_response",
        "actual_output", "generated_text", "generated_answer", "llm_response", "prediction", "predicted", "answer",
        "text", "content", "message_content", "candidate", "sample",
    ),
    "answer_id": ("answer_id", "response_id", "sample_id", "generation_id", "completion_id"),
    "severity": ("severity", "label", "hallucinated", "is_hallucination"),
    "correct": CORRECT,
    "score": SCORE,
    "logprob": ("logprob", "mean_logprob", "avg_logprob", "token_logprobs", "logprobs"),
    "model": (),  # only where somebody says so: many tables have a column of that name that says something else
    "embedding": ("embedding", "vector"),
    "references": (
        "references", "reference", "gold", "ground_truth", "expected", "expected_answer", "expected_output", "gold_answer",
        "reference_answer", "correct_answer", "target", "answer", "answers",
    ),
    "kind": ("kind", "severity_kind", "label_kind"),
    "witnesses": ("witnesses",),
    "claim": ("claim",),
}  # fmt: skip
"""Recognised names; the first of a role that is there is taken. In capitals, with spaces or hyphens they are the same.

A column `answer` or `answers` beside one that says it is a model's has known good ones.
"""

_PLURALS: Mapping[Role, tuple[str, ...]] = {
    "answer": ("responses", "outputs", "completions", "generations", "answers", "samples", "candidates", "texts"),
    "severity": ("severities", "labels"),
    "correct": ("corrects",),
    "score": ("scores", "confidences"),
    "logprob": ("logprobs", "mean_logprobs", "avg_logprobs"),
    "embedding": ("embeddings", "vectors"),
    "answer_id": ("answer_ids", "response_ids", "sample_ids"),
}  # fmt: skip

_OF_A_MODEL = {
    *_NAMES["answer"][: _NAMES["answer"].index("answer")],
    *_PLURALS["answer"][: _PLURALS["answer"].index("answers")],
}

PER_ANSWER: tuple[Role, ...] = (
    "answer", "answer_id", "severity", "correct", "score", "logprob", "model", "embedding"
)  # fmt: skip
"""What each answer has one of: in a wide table several columns, or one that holds lists."""
OF_PROMPT = frozenset(ROLES) - frozenset(PER_ANSWER)
"""What each prompt has one of. Signals, which have their names as roles, are of answers."""

NO_SEVERITIES: Mapping[Role, tuple[str, ...]] = {"severity": (), "correct": ()}
"""For who does not look at severities, so that nothing of them can be wrong."""

_WIDE_IDS = ("id", "index", "row_id")
_MARK = r"(?:_?([0-9]{1,3})|_([a-z]))"
"""A number or a letter behind a plain name; without a line between, a letter would be a plural."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read, `named` by role.

    A `wide` table has a prompt with all its answers in a row: a column for each answer, or `lists`
    with an entry for each; else a row is one answer, and the numbers in `unused` columns are known
    by name (`--score-field`, `--judge-field`). `assumed` : nothing but a column's name says that it
    holds severities. `tool` : what the tool writes that wrote the table. `all_ship` : what
    would be witnesses are answers, since their column is named as that of answers.
    """

    wide: bool
    lists: bool
    named: Mapping[Role, tuple[str, ...]]
    unused: tuple[str, ...] = field(default=())
    assumed: bool = False
    tool: Format = NO_TOOL
    all_ship: bool = False

    def one(self, role: Role) -> str | None:
        """The column of a role that has only one; None if it has none."""
        found = self.named.get(role, ())
        return found[0] if found else None

    @property
    def graded_by_tool(self) -> bool:
        """Whether severities are what the tool says, and not a person beside it."""
        verdicts = {*self.named.get("severity", ()), *self.named.get("correct", ())}
        of = self.tool.columns
        return not verdicts.isdisjoint(f"{of.get('severity')} {of.get('correct')}".split())

    @property
    def unclear(self) -> tuple[str, ...]:
        """The columns of severities whose names leave open whether 1 is wrong or right."""
        severity = self.named.get("severity", ())
        unsure = self.assumed and any(
            _plain_name(one.rpartition(".")[2]).startswith("label") for one in severity
        )
        return severity if unsure else ()

    @property
    def words(self) -> str:
        """What is read from where, for people."""
        form = (
            "one prompt a row"
            if self.wide
            else "one claim a row"
            if "claim" in self.named
            else "one answer a row"
        )
        listed = ", ".join(
            f"{role} from {names[0]} to {names[-1]}"
            if len(names) > 2
            else f"{role} from {shown_columns(names)}"
            for role, names in self.named.items()
        )
        if self.all_ship:
            listed = listed.replace("witnesses from", "more answers from")
        unused = f"; without a role: {shown_columns(self.unused)}" if self.unused else ""
        return f"{form}; {listed}{unused}"


def roles_with(signals: Iterable[str]) -> tuple[Role, ...]:
    """Return all roles: the names of declared signals, whose columns come first, and those that every table may have."""
    return (*cast("tuple[Role, ...]", tuple(signals)), *ROLES)


def parse_mapping(given: Iterable[str], signals: Collection[str] = ()) -> dict[Role, tuple[str, ...]]:
    """Read ``ROLE=NAME`` as the command line gives it; a role may be there several times, and an
    empty name means none.

    Names of `signals` are roles too. Raises `UsageError` when a text is not of that form, or names
    no role.
    """
    found: dict[Role, tuple[str, ...]] = {}
    roles = roles_with(signals)
    for text in given:
        role, sign, name = text.partition("=")
        role = role.strip()
        known = next((one for one in roles if one == role), None)
        if not sign or known is None:
            near = difflib.get_close_matches(role, roles, 1)
            hint = f"; did you mean {near[0]}?" if near and sign else ""
            raise UsageError(
                f"--column must be ROLE=NAME, like answer=text, not {text!r}{hint}; the roles are {', '.join(roles)}"
            )
        found[known] = (*found.get(known, ()), *((name.strip(),) if name.strip() else ()))
    return found


def recognise(
    table: Table,
    given: Mapping[Role, tuple[str, ...]],
    *,
    signals: Collection[str] = (),
    needs_answers: bool = False,
    without: Collection[str] = (),
    written_by: str | None = None,
) -> Columns:
    """Find what is to be read.

    `given` : columns that somebody named, by role; an empty one means that the role has none. Each
    of the `signals`, declared numbers of the answers, must have its column. With `needs_answers`
    texts must be there, not only scores. What is in `without` has no role. `written_by` is the tool
    that wrote the table; None: as its columns tell.

    Raises `UsageError` when a named column is not there, or prompts or answers cannot be told
    apart; the text says what was found.
    """
    name = table.name
    header = [column for column in (*table.columns, *table.inner) if column not in without]
    for role, names in given.items():
        for one in names:
            if not table.has(one):
                near = difflib.get_close_matches(one, header, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise UsageError(
                    f"{name} has no column {one!r} for {role}{hint} (it has {shown_columns(header)})"
                )
    tool, its = _of_format(table, header, given, written_by)
    given = {**its, **given}
    assumed = "severity" not in given
    witnessed = bool(given.get("witnesses"))
    samples = frozenset(given.get("witnesses", ())).intersection(given.get("answer", ()))
    if samples:
        own = tuple(one for one in given.pop("answer") if one not in samples) or its.get("answer")
        given |= {"answer": own} if own else {}
    given = {**_in_objects(_by_plain_name(header), header, given), **given}
    holding_lists = _lists_of(table.head[0], header, given) if table.head else frozenset[str]()
    opened = {one.partition(".")[0] for names in given.values() for one in names if "." in one}
    plain = _by_plain_name([column for column in header if column not in opened])
    named: dict[Role, tuple[str, ...]] = {role: names for role, names in given.items() if names}
    taken = {one for names in named.values() for one in names}

    def search(names: Iterable[str]) -> tuple[str, ...]:
        return next(((plain[one],) for one in names if one in plain and plain[one] not in taken), ())

    wide, lists = (True, False) if witnessed else _form(plain, given, holding_lists, taken)
    if (
        lists
        and tool is not NO_TOOL
        and all(len(value_at(row, one) or ()) < 2 for row in table.head for one in named["answer"])
    ):
        wide = lists = False
    roles = roles_with(signals)
    for role in roles:
        if role in given:
            continue
        found: tuple[str, ...] = ()
        if wide and not witnessed and role not in OF_PROMPT:
            plurals = _PLURALS.get(role, () if role in _NAMES else (f"{role}s",))
            found = search((*plurals, *_names(role))) if lists else _numbered(plain, role, taken)
            if lists and not set(found) <= set(holding_lists):
                found = ()
        else:
            found = search(_names(role))
            if not found and wide and role == "prompt_id":
                found = search(_WIDE_IDS)
        if found:
            named[role] = found
            taken.update(found)
    columns = Columns(
        wide,
        lists,
        {role: named[role] for role in roles if role in named},
        tuple(column for column in header if column and column not in taken),
        assumed=assumed,
        tool=tool,
        all_ship=bool(samples),
    )
    for one in set(signals) - named.keys() - given.keys():
        raise UsageError(
            f"{name} has no column for the signal {one} (it has {shown_columns(header)}): say which with --column {one}=NAME, or "
            f"that it has none with --column {one}="
        )
    _check(columns, header, name, needs_answers=needs_answers)
    return columns


def _of_format(
    table: Table, header: Sequence[str], given: Mapping[Role, Any], written_by: str | None
) -> tuple[Format, dict[Role, tuple[str, ...]]]:
    """What wrote the table, as named or as the table tells first, and its columns of roles.

    Raises `UsageError` when the named one has nothing of the kind.
    """
    tools = FORMATS.items() if written_by is None else [(written_by, format_named(written_by))]
    name, one = next(((name, one) for name, one in tools if written_by or one.tells(table.head)), ("", None))
    if one is None:
        return NO_TOOL, {}
    there = {role: tuple(filter(table.has, names.split()))[:1] for role, names in one.columns.items()}
    if not any(there.values()):
        wanted = ", ".join(dict.fromkeys(names.split()[0] for names in one.columns.values() if names))
        raise UsageError(
            f"{table.name} has nothing that {name} writes ({wanted}); it has {shown_columns(header)}: leave --format out, or name "
            "what is what with --column ROLE=NAME"
        )
    for verdict in value_at(table.head[0], one.verdicts) or () if one.verdicts and table.head else ():
        if not there["correct"] and isinstance(value_at(table.head[0], verdict), bool):
            there["correct"] = (verdict,)
    found = {cast("Role", role): names for role, names in there.items() if names or not one.columns[role]}
    if one.samples and table.has(f"{one.samples}.1"):
        found["witnesses"] = (one.samples,)
    # What people wrote beside a tool's verdict, or named, says more.
    own = {role_of(column) for column in table.columns if (column,) not in found.values()} | given.keys()
    for role in ("severity", "correct") if own & {"severity", "correct"} else ():
        found.pop(role, None)
    return one, found


def _of_models(plain: Mapping[str, str]) -> Mapping[str, str]:
    """The columns that may have a model's answers, without known good ones."""
    beside = any(re.fullmatch(f"({'|'.join(_OF_A_MODEL)}){_MARK}?", one) for one in plain)
    good = ("answer", "answers") if beside else ()
    return {one: column for one, column in plain.items() if one not in good}


def _in_objects(
    plain: Mapping[str, str], header: Sequence[str], given: Mapping[Role, Any]
) -> dict[Role, tuple[str, ...]]:
    """The columns of roles within the first column of answers that holds objects."""
    plain, taken = _of_models(plain), {one for names in given.values() for one in names}
    header = [one for one in header if one not in taken]
    for one in () if "answer" in given else (*_PLURALS["answer"], *_NAMES["answer"], "choices"):
        of = f"{plain.get(one)}."
        inside = {_plain_name(name.removeprefix(of)): name for name in header if name.startswith(of)}
        found: dict[Role, tuple[str, ...]] = {
            role: (inside[one],) for role in PER_ANSWER for one in _names(role)[::-1] if one in inside
        }
        if "answer" in found:
            return found
    return {}


def _names(role: Role) -> tuple[str, ...]:
    return _NAMES.get(role, (role,))


def _form(
    plain: Mapping[str, str],
    given: Mapping[Role, tuple[str, ...]],
    holding_lists: Collection[str],
    taken: Collection[str],
) -> tuple[bool, bool]:
    """Whether the table is wide, and whether by lists."""
    plain = _of_models(plain)
    telling: tuple[Role, ...] = ("answer", "score", "severity", "correct")
    for role in telling:
        names = given.get(role, ())
        if len(names) > 1:
            return True, False
        if len(names) == 1:
            return (True, True) if names[0] in holding_lists else (False, False)
    for role in telling[:2]:
        listed = [plain[one] for one in (*_PLURALS[role], *_NAMES[role]) if one in plain]
        if any(one in holding_lists for one in listed):
            return True, True
        numbered, unnumbered = (
            _numbered(plain, role, taken),
            {plain.get(one) for one in _NAMES[role]} - {None},
        )
        if len(numbered) > 1 and (not unnumbered or numbered[0] in unnumbered):
            return True, False
        if unnumbered:
            return False, False
    listed = [plain[one] for names in _PLURALS.values() for one in names if one in plain]
    by_lists = any(one in holding_lists for one in listed)
    return by_lists, by_lists


def _numbered(plain: Mapping[str, str], role: Role, taken: Collection[str]) -> tuple[str, ...]:
    """The columns of a role with a number or letter behind: ``answer_1``, ``answer_2``, in the order of these."""
    for base in _names(role):
        found = {}
        for one, column in plain.items():
            match = re.fullmatch(re.escape(base) + _MARK, one)
            if match is not None and column not in taken:
                mark = match[1] or match[2]
                found[(0, int(mark)) if mark.isdigit() else (1, ord(mark))] = column
        if found:
            if base in plain and (0, 1) not in found and (0, 2) in found and plain[base] not in taken:
                found[0, 1] = plain[base]  # answer, answer2, answer3
            return tuple(found[place] for place in sorted(found))
    return ()


def _by_plain_name(header: Sequence[str]) -> dict[str, str]:
    plain: dict[str, str] = {}
    for column in header:
        plain.setdefault(_plain_name(column), column)
    return plain


def _plain_name(column: str) -> str:
    return re.sub(r"[\W_]+", "_", column.lower()).strip("_")


def _lists_of(
    row: Mapping[str, Any], header: Sequence[str], given: Mapping[Role, tuple[str, ...]]
) -> frozenset[str]:
    """Return the columns that hold a list in a row.

    A text that could be a list, as cells of CSV are, counts as one, but in a column of answers that nobody named: an answer
    may look like a list.
    """
    named = {column for names in given.values() for column in names}

    def holds_list(column: str) -> bool:
        value = plain(value_at(row, column))
        if isinstance(value, str):
            may_be = column in named or _plain_name(column) not in _NAMES["answer"]
            return may_be and value.startswith("[") and list_of_text(value) is not None
        return isinstance(value, list)

    return frozenset(filter(holds_list, {*header, *named}))


def role_of(column: str) -> Role | None:
    """Return the role that a column's name gives it; None for none."""
    return next((role for role in ROLES if _plain_name(column) in _NAMES[role]), None)


def _check(columns: Columns, header: Sequence[str], name: str, *, needs_answers: bool) -> None:
    named = columns.named
    for column in {one for names in named.values() for one in names}:
        if list(header).count(column) > 1:
            raise UsageError(f"{name} has two columns {column!r}: rename one")
    counts = {role: len(names) for role, names in named.items() if role not in OF_PROMPT}
    seen = f"{name} has the columns {shown_columns(header)}"
    if "answer" not in named and (needs_answers or not {"score", "embedding"} & named.keys()):
        scores = "" if needs_answers else ", and none holds scores or embeddings"
        raise UsageError(
            f"{seen}; none is recognised as the answers' texts{scores}: say which with --column answer=NAME, or which of "
            f"{', '.join(FORMATS)} wrote the file with --format TOOL"
        )
    if columns.lists and columns.tool is FORMATS["lm-eval"]:
        raise UsageError(
            f"{name}: {named['answer'][0]} holds lists, as of tasks that compare given choices, and no "
            "texts: take a task that generates text, or name its column: --column answer=NAME"
        )
    if not columns.wide and not {"prompt", "prompt_id"} & named.keys():
        raise UsageError(
            f"{seen}; none is recognised as the prompt, which says which answers belong together: say which with "
            "--column prompt=NAME or --column prompt_id=NAME"
        )
    if "claim" in named and (columns.wide or "answer" not in named):
        raise UsageError(
            f"{seen}; with a column of claims a row is one claim of an answer, whose text is beside "
            "it: name that with --column answer=NAME, or leave claims out with --column claim="
        )
    if "severity" in named and "correct" in named:
        raise UsageError(
            f"{name}: both {shown_columns(named['severity'])} (severity) and {shown_columns(named['correct'])} (correct) say how good an "
            "answer is; choose one: --column correct= or --column severity="
        )
    if columns.wide and not columns.lists and len(set(counts.values())) > 1:
        listed = ", ".join(
            f"{count} of {role} ({shown_columns(named[role])})" for role, count in counts.items()
        )
        raise UsageError(
            f"{name}: each answer needs a column of its own of each kind, and there are {listed}"
        )


def shown_columns(names: Sequence[str]) -> str:
    """Return names of columns for messages, not all of too many."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(name or '""' for name in names[:_SHOWN]) or "(none)") + more
