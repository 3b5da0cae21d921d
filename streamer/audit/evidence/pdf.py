"""A report as a PDF file, set by Typst: no browser, no fonts of the machine, and tagged for screen readers."""

import json
from dataclasses import asdict
from importlib.resources import files

from streamer.audit.evidence.document import Document
from streamer.audit.evidence.page import bars
from streamer.errors import UsageError
from streamer.extras import needed_by


def require_pdf() -> None:
    """Raise `UsageError`, which says what to install, where the package that sets PDF files is missing."""
    with needed_by("a report as PDF", "evidence"):
        import typst  # noqa: F401


def pdf_of(document: Document) -> bytes:
    """Return the file. The texts go in as data, so that nothing in a name or a reason is taken for markup.

    Raises `UsageError` when the package that sets it is missing.
    """
    require_pdf()
    import typst

    content = asdict(document)
    for one, figure in zip(content["figures"], document.figures, strict=True):
        one["picture"] = bars(figure.counts)
    template = files("streamer.audit.evidence").joinpath("report.typ").read_bytes()
    try:
        made = typst.compile(
            template,
            sys_inputs={"report": json.dumps(content, ensure_ascii=False)},
            ignore_system_fonts=True,
            format="pdf",
            timestamp=0,
        )
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"the PDF file could not be set: {error}") from error
    if not isinstance(made, bytes):
        raise UsageError("the PDF file could not be set: the package gave something else")
    return made
