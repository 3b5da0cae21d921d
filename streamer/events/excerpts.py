"""Safe, short pieces of foreign text, fit for logs, headers and databases."""

EXCERPT_CHARACTERS = 60
DETAIL_CHARACTERS = 300


def excerpt(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """Quote the start of `text`: at most `limit` of its characters, everything unprintable escaped.

    Fewer where escapes would make the quotation longer than twice that.
    """
    cut = text[:limit]
    while len(repr(cut)) > 2 * limit:
        cut = cut[: len(cut) // 2]
    return repr(cut) + ("..." if len(text) > len(cut) else "")


def one_line(text: str, limit: int = DETAIL_CHARACTERS) -> str:
    """Cut `text` to `limit` characters and escape what is unprintable (NUL, surrogates, bidi marks, line ends)."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in cut)
