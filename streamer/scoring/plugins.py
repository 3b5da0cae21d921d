"""Scorers of other packages: entry points of the group `streamer.scorers`, frozen by what is installed.

A gate names such a scorer ``NAME@HASH``, by the hash of its specification, which has the distribution's name, its version and a
hash of its files. Whoever scores compares that with what is installed: other files score nothing.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.scorer import AnswerBatch, Scorer, finished

Floats = NDArray[np.float64]

GROUP = "streamer.scorers"
"""Of entry points; each names a class that is a `Scorer`."""

FORMAT = "streamer.scorer.v1"

NAME = re.compile(r"([a-z][a-z0-9-]{0,45})@[0-9a-f]{16}")
"""How a gate names one; the rest is of its specification's SHA-256."""

_KEYS = ("distribution", "entry_point", "files", "format", "name", "version")
_OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,45}")
LONGEST = 2000
_UNHASHED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""Written by whoever installs, so that the same package has others elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSpec:
    """What is frozen of a scorer.

    `name`: of its entry point, and its own. `distribution`, `version`: of the installed package
    that has it. `files`: SHA-256 of the package's files, in hexadecimal. `entry_point`:
    ``module:class``.
    """

    name: str
    distribution: str
    version: str
    files: str
    entry_point: str

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read one from its JSON. Raises `ValueError` for anything that `text` would not write."""
        try:
            values = json.loads(text) if len(text) <= LONGEST else None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a scorer's specification must be JSON: {error}") from None
        if not isinstance(values, dict) or values.get("format") != FORMAT or sorted(values) != sorted(_KEYS):
            raise ValueError(f"a scorer's specification must be an object {FORMAT} with {', '.join(_KEYS)}")
        if not all(isinstance(one, str) for one in values.values()):
            raise ValueError("everything in a scorer's specification must be text")
        del values["format"]
        made = cls(**values)
        if made.text != text or not _OWN_NAME.fullmatch(made.name):
            raise ValueError("a scorer's specification must be as it was written")
        return made

    @property
    def text(self) -> str:
        """The one text that is frozen."""
        values = {name: FORMAT if name == "format" else getattr(self, name) for name in _KEYS}
        return json.dumps(values, sort_keys=True, ensure_ascii=True, separators=(",", ":"))

    @property
    def frozen_name(self) -> str:
        """The name of a gate's scorer."""
        return f"{self.name}@{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Installed(Scorer):
    """A scorer of another package, as it was frozen; it is loaded when it first scores."""

    spec: ScorerSpec

    name: ClassVar[str] = "installed"
    title: ClassVar[str] = "a scorer of another package"
    says: ClassVar[str] = "that package says so"

    def __post_init__(self) -> None:
        """Take the specification as it is: it has no parameters of the command line."""

    def score(self, batch: AnswerBatch) -> Floats:
        """Score a batch. Raises `ValueError` where the frozen package is not installed here, or its scorer fails or misbehaves."""
        return checked_scores(loaded(self.spec), batch)


def checked_scores(scorer: Scorer, batch: AnswerBatch) -> Floats:
    """Score a batch by somebody else's code. Raises `ValueError` for whatever it raises, and for scores that are none."""
    try:
        found: Any = scorer.score(batch)
        scores = np.asarray(found, dtype=np.float64)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code that exits, and panics of Rust, are no `Exception`
        raise ValueError(f"the scorer failed: {type(error).__name__}: {error}") from error
    if scores.shape != (len(batch.texts),):
        raise ValueError(f"{len(batch.texts)} answers have scores of the shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError("a score is not in [0, 1]")
    return finished(scores, batch.blank)


def entry_points() -> dict[str, metadata.EntryPoint]:
    """Those that are installed, by name."""
    return {one.name: one for one in metadata.entry_points(group=GROUP)}


def frozen(name: str) -> ScorerSpec:
    """Return the specification of an installed scorer, as it is now.

    Raises `ValueError` when there is none of this name, it is no scorer, or its files cannot be
    hashed.
    """
    found = [one for one in metadata.entry_points(group=GROUP) if one.name == name]
    if not found:
        others = ", ".join(sorted(entry_points())) or "none"
        raise ValueError(f"no installed package has a scorer {name!r} (entry points of {GROUP}: {others})")
    if len(found) > 1:
        owners = ", ".join(sorted(one.dist.name for one in found if one.dist is not None))
        raise ValueError(f"several packages have a scorer {name!r}: {owners}; uninstall all but one")
    (point,) = found
    if not _OWN_NAME.fullmatch(name):
        raise ValueError(f"a scorer's name is 1 to 46 of a-z, 0-9 and '-', the first a letter, not {name!r}")
    if point.dist is None:
        raise ValueError(f"the scorer {name!r} belongs to no distribution")
    spec = ScorerSpec(
        name=name,
        distribution=point.dist.name,
        version=point.dist.version,
        files=_hash_of_files(point.dist, point.module),
        entry_point=point.value,
    )
    scorer_of(point.value, name)
    return spec


@lru_cache(maxsize=64)
def loaded(spec: ScorerSpec) -> Scorer:
    """Return the scorer, if what is installed is what was frozen. Raises `ValueError` where it is not."""
    present = frozen(spec.name)
    if present != spec:
        differs = ", ".join(
            f"{name} {getattr(present, name)[:12]} in place of {getattr(spec, name)[:12]}"
            for name in ("distribution", "version", "files", "entry_point")
            if getattr(present, name) != getattr(spec, name)
        )
        raise ValueError(f"the installed scorer {spec.name} is another one than was frozen: {differs}")
    return scorer_of(spec.entry_point, spec.name)


def scorer_of(entry_point: str, name: str | None = None) -> Scorer:
    """Make the scorer that ``module:class`` names. Raises `ValueError` where it is none, or `name` is another one's."""
    module, _, attribute = entry_point.partition(":")
    if not module or not attribute:
        raise ValueError(f"{entry_point!r} is no MODULE:CLASS")
    try:
        kind: Any = import_module(module)
        for part in attribute.split("."):
            kind = getattr(kind, part)
        made = kind() if isinstance(kind, type) else kind
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"{entry_point} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, Scorer):
        raise ValueError(f"{entry_point} is no streamer.scoring.scorer.Scorer")
    if made.of_event is not None or made.in_place is not None:
        raise ValueError(f"{entry_point} does not score answers by what they and their embeddings are")
    if name is not None and getattr(made, "name", None) != name:
        raise ValueError(
            f"{entry_point} names itself {getattr(made, 'name', None)!r}, its entry point {name!r}"
        )
    return made


def _hash_of_files(distribution: metadata.Distribution, module: str) -> str:
    """Hash what was installed, byte for byte, by path; bytecode and what installers write is left out."""
    files = distribution.files or ()
    digest = hashlib.sha256()
    seen = set()
    for file in sorted(files, key=str):
        path = Path(str(file))
        if path.suffix == ".pyc" or "__pycache__" in path.parts or path.name in _UNHASHED:
            continue
        if ".." in path.parts:
            continue  # scripts, whose first line names the environment
        try:
            content = Path(str(distribution.locate_file(file))).read_bytes()
        except OSError as error:
            raise ValueError(f"a file of {distribution.name} cannot be read: {error}") from None
        seen.add(path.as_posix())
        digest.update(f"{path.as_posix()}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    if not _holds(module, seen):
        raise ValueError(
            f"the module {module} is not among the files of {distribution.name} {distribution.version}, so that they cannot "
            "be frozen: install the package as a wheel, not editable"
        )
    return digest.hexdigest()


def _holds(module: str, files: Iterable[str]) -> bool:
    base = module.replace(".", "/")
    return any(
        one == f"{base}.py"
        or one == f"{base}/__init__.py"
        or (one.startswith(f"{base}.") and one.endswith((".so", ".pyd")))
        for one in files
    )
