"""Templates into pages. Whatever is not marked as ours is text: escaped, and what could hide or steer is shown by number."""

import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamer.console.desk import left
from streamer.gates.policy import PROGRAM, SIGNED_IN
from streamer.recalibration.age_cut import span
from streamer.security.visible import visible
from streamer.web.plot import CHARTS, COMMON
from streamer.wording.numbers import percent, unbroken, when
from streamer.wording.policies import who as said_by
from streamer.wording.verdicts import interval_text

MOST_CHARACTERS: Final = 4_000
"""Of a prompt or an answer; what is beyond is in the record."""

STATIC: Final = {
    "/console.js": ("console.js", "text/javascript; charset=utf-8", ""),
    "/console.css": ("console.css", "text/css; charset=utf-8", COMMON + CHARTS),
    "/icon.svg": ("icon.svg", "image/svg+xml", ""),
}
"""By path: the file, its type, and what is put before it."""

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:\+00:00|Z)")
_COMMAND = re.compile(r"`([^`\n]{1,200})`")
_NUMBERED = re.compile(r"\\u([0-9a-f]{4})(?:\\u(d[c-f][0-9a-f]{2}))?")


def environment() -> Environment:
    """Return the templates of the console."""
    made = Environment(
        loader=PackageLoader("streamer.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {
        "percent": lambda share: words(percent(share)),
        "when": _when,
        "iso": lambda moment: moment.astimezone(UTC).isoformat(timespec="seconds"),
        "interval": lambda interval: words(interval_text(interval)),
        "lasting": span,
        "left": left,
        "text": text,
        "raw": lambda value: escape(value),  # for a field: what is in it comes back as it is
        "hides": hides,
        "words": words,
        "cap": lambda value: value[:1].upper() + value[1:],
        "who": who,
        "path": lambda part: quote(part, safe=""),
        "ours": Markup,  # SVG of our own charts alone
        "score": lambda score: "not scored" if score is None else f"{score:.3f}",
    }
    return made


def text(value: str | None, most: int = MOST_CHARACTERS) -> Markup:
    """Return somebody's text as HTML: characters that hide or steer as numbers, what is too long cut, with a word about it."""
    if value is None:
        return Markup('<span class="nothing">not kept</span>')
    if not value.strip():
        return Markup('<span class="nothing">blank</span>')
    cut = value if len(value) <= most else re.sub(r"\s\S{0,40}\Z", "", value[:most])
    # Within the text a backslash may be one of its own: only those that `visible` put there are marked.
    parts = [
        escape(piece) if piece == "\\" else _marked(visible(piece.replace("\r\n", "\n")))
        for piece in re.split(r"(\\)", cut)
    ]
    if len(value) > most:
        parts.append(
            Markup('<span class="cut"> … the first {most:,} of {all:,} characters</span>').format(
                most=len(cut), all=len(value)
            )
        )
    return Markup("").join(parts)


def hides(value: str | None) -> bool:
    """Whether a text has characters that hide or steer."""
    return value is not None and 'class="odd"' in text(value, len(value))


def who(name: str) -> Markup:
    """Return who did something, and how that is known."""
    if name.startswith(SIGNED_IN):
        return Markup('<bdi>{}</bdi> <span class="badge" title="at the console">signed in</span>').format(
            visible(name.removeprefix(SIGNED_IN))
        )
    if name in PROGRAM:
        return Markup("{}").format(said_by(name))
    return Markup(
        '<bdi>{}</bdi> <span class="claim" title="it was given to a command, which cannot check it">name not verified</span>'
    ).format(visible(name))


def _marked(seen: str) -> Markup:
    parts, start = [], 0
    for match in _NUMBERED.finditer(seen):
        parts += [
            escape(seen[start : match.start()]),
            Markup('<span class="odd">{}</span>').format(_code_point(match)),
        ]
        start = match.end()
    return Markup("").join([*parts, escape(seen[start:])])


def _code_point(match: re.Match[str]) -> str:
    first = int(match[1], 16)
    if match[2] is None:
        return f"U+{first:04X}"
    return f"U+{0x10000 + ((first - 0xD800) << 10) + (int(match[2], 16) - 0xDC00):X}"


def words(value: str) -> Markup:
    """Return a sentence of ours as HTML: moments as people read them, no percent sign on a line of its own, commands as such."""
    plain = unbroken(_MOMENT.sub(r"\1 \2Z", visible(value)))
    # What is split off at each command stands between the texts around it.
    parts = [
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(_COMMAND.split(plain))
    ]
    return Markup("").join(parts)


def _when(moment: datetime) -> Markup:
    return Markup('<time datetime="{}">{}</time>').format(
        moment.astimezone(UTC).isoformat(timespec="seconds"), when(moment)
    )


def _shown(value: Any) -> Any:
    return visible(value) if type(value) is str else value
