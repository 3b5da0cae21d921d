"""Which encoder made a vector: its name, its weights' hash, its dimension. Read from files, without torch."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamer.errors import UsageError

HASH_PREFIX = 8
ENDPOINT_PREFIX = "openai:"
"""Begins the name of a model at an OpenAI-compatible endpoint."""
_CHUNK_BYTES = 1 << 20
_UNSAFE_WEIGHTS = ("pytorch_model*.bin", "*.pt", "*.pth", "*.pkl")


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """What an encoder is, to the last weight: scores of two identities are never compared.

    Of a model at an endpoint nobody here sees the weights. Its identity is its name and dimension.

    `name`: the model's name without its revision, for example ``all-MiniLM-L6-v2``; begins with
    `ENDPOINT_PREFIX` for one at an endpoint. `revision`: where the weights came from (a package's
    version, a hub commit, or ``local``), and for an engine of its own that engine's version and
    backend; of a model at an endpoint the host. `weight_hash`: SHA-256 of the weights, 64
    lower-case hex digits; see `weight_hash`. Of a model at an endpoint that of its `id`.
    `dimension`: length of a vector, >= 1. `engine`: what runs the weights; empty for
    sentence-transformers, the reference.
    """

    name: str
    revision: str
    weight_hash: str
    dimension: int
    engine: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.weight_hash):
            raise ValueError("weight_hash must be 64 lower-case hex digits")
        if not self.name or self.dimension < 1:
            raise ValueError("an encoder has a name and a dimension of at least 1")

    @property
    def id(self) -> str:
        """``name@hash``, ``name@hash+engine`` or ``openai:name@dimension``: in a gate's settings and every action event."""
        if self.name.startswith(ENDPOINT_PREFIX):
            return f"{self.name}@{self.dimension}"
        engine = f"+{self.engine}" if self.engine else ""
        return f"{self.name}@{self.weight_hash[:HASH_PREFIX]}{engine}"


def weight_hash(folder: Path) -> str:
    """SHA-256 of a model folder's weights, 64 hex digits.

    One weight file: the hash of that file. Several (shards, a dense head): the hash of the sorted lines
    ``path<TAB>hash`` of all. A file is hashed once per process while its size and modification time stay.
    Raises `UsageError` where no safetensors weights, or weights in a format that can run code when
    it is read.
    """
    places = dict.fromkeys(place for place, _ in module_kinds(folder))
    found: list[Path] = []
    for place in places:
        safe = sorted(place.glob("*.safetensors"))
        if not safe and any(next(place.glob(pattern), None) for pattern in _UNSAFE_WEIGHTS):
            raise UsageError(
                f"{place} holds pickled weights only, which can run code when they are read; "
                "convert them to safetensors (SentenceTransformer(...).save_pretrained(folder) does)"
            )
        found += safe
    if not found:
        raise UsageError(f"{folder} holds no model.safetensors; only safetensors weights are loaded")
    files = found
    digests = {file.relative_to(folder).as_posix(): _file_hash(file) for file in files}
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{path}\t{digest}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def embedding_dimension(folder: Path) -> int:
    """Length of the vectors that the modules of a sentence-transformers folder produce.

    Raises `UsageError` where the folder's configuration does not say.
    """
    dimension = _hidden_size(read_json(folder / "config.json"))
    for module_folder, kind in module_kinds(folder)[1:]:
        config = read_json(module_folder / "config.json") if kind != "Normalize" else {}
        if kind == "Pooling":
            dimension = _pooled_size(config, dimension)
        elif kind == "Dense":
            dimension = config.get("out_features")
    truncated = read_json(folder / "config_sentence_transformers.json").get("truncate_dim")
    if isinstance(truncated, int):
        dimension = truncated if dimension is None else min(dimension, truncated)
    if not isinstance(dimension, int) or dimension < 1:
        raise UsageError(f"the configuration in {folder} does not give the dimension of its vectors")
    return dimension


def module_kinds(folder: Path) -> list[tuple[Path, str]]:
    """Return the folder and the kind (last part of the class name) of each module, in order."""
    listing = folder / "modules.json"
    if not listing.is_file():
        return [(folder, "Transformer")]
    root = folder.resolve()
    modules = []
    for entry in json.loads(listing.read_text("utf-8")):
        place = folder / str(entry["path"])
        if not place.resolve().is_relative_to(root):
            raise UsageError(f"{listing} names a module outside its own folder: {entry['path']}")
        modules.append((place, str(entry["type"]).rpartition(".")[2]))
    if not modules:
        raise UsageError(f"{listing} lists no module")
    return modules


def _hidden_size(config: dict[str, Any]) -> int | None:
    for name in ("hidden_size", "d_model", "dim", "n_embd"):
        if isinstance(config.get(name), int):
            return int(config[name])
    return None


def _pooled_size(config: dict[str, Any], dimension: int | None) -> int | None:
    one = config.get("word_embedding_dimension", config.get("embedding_dimension", dimension))
    named = config.get("pooling_mode")
    if named is None:
        modes = sum(1 for key, on in config.items() if key.startswith("pooling_mode_") and on is True)
    else:
        modes = 1 if isinstance(named, str) else len(named)
    return one * max(modes, 1) if isinstance(one, int) else None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty when there is no file, or something else in it."""
    if not path.is_file():
        return {}
    value = json.loads(path.read_text("utf-8"))
    return value if isinstance(value, dict) else {}


def _file_hash(path: Path) -> str:
    state = path.stat()
    return _hash_of_version(str(path.resolve()), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _hash_of_version(path: str, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # part of the key, so that a changed file is noticed
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
