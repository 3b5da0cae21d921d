"""Where settings come from: environment, `.env`, TOML file and the running `streamer dev`; each knows its name."""

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from dotenv import dotenv_values
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from streamer.errors import UsageError, small_text
from streamer.failpoints import VARIABLE as FAILPOINTS_VARIABLE

DEV_SESSION_FILE = Path(".streamer/dev.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSession:
    """Addresses of a running development session: of the embedded broker, ``HOST:PORT``, and its
    log's identity, new in each session; of the database where its worker keeps the record, which
    may hold a password, hence the file's mode 0600; the roots of the HTTP endpoints of worker
    and recalibrator (None in a session without one). It is over when the process `pid`, which
    owns the broker, is gone."""

    bootstrap_servers: str
    log_id: str
    database_url: str
    metrics_url: str
    pid: int
    recalibrator_url: str | None = None


def write_dev_session(session: DevSession, path: Path = DEV_SESSION_FILE) -> None:
    """Leave the note, readable by its owner only; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{session.pid}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(session), file, indent=2)
        file.write("\n")
    draft.replace(path)


def find_dev_session(path: Path = DEV_SESSION_FILE) -> DevSession | None:
    """Read the note of a session that still runs; None when there is none, it is unreadable, or its owner is gone."""
    try:
        session = DevSession(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return session if _is_alive(session.pid) else None


def remove_dev_session(pid: int, path: Path = DEV_SESSION_FILE) -> None:
    """Remove the note if it is still the one that process `pid` left."""
    try:
        owner = json.loads(path.read_text("utf-8")).get("pid")
    except (OSError, ValueError, AttributeError):
        return
    if owner == pid:
        path.unlink(missing_ok=True)


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return isinstance(pid, int) and pid < 2**31
    return True


_Json = TypeVar("_Json", dict[str, Any], list[Any])

PREFIX = "STREAMER_"
CONFIG_VARIABLE = "STREAMER_CONFIG"
DEBUG_VARIABLE = "STREAMER_DEBUG"
DEFAULT_CONFIG_FILE = Path("streamer.toml")
DOTENV_FILE = Path(".env")

AS_WRITTEN: dict[str, Any] = {"names": "as written"}
"""Of a setting that holds named values: the names are of somebody else, and capitals and underscores in them count."""


def leaves(settings_type: type[BaseSettings]) -> Iterator[tuple[str, str, FieldInfo]]:
    """Iterate over (group, field, definition) of every setting, in the order of definition.

    The group is empty for a setting that stands by itself.
    """
    for group, definition in settings_type.model_fields.items():
        if isinstance(definition.annotation, type) and issubclass(definition.annotation, BaseModel):
            for field, leaf in definition.annotation.model_fields.items():
                yield group, field, leaf
        elif not definition.exclude:
            yield "", group, definition


def setting_name(group: str, field: str) -> str:
    """Name of a setting: ``kafka.group_id``."""
    return f"{group}.{field}" if group else field


def variable_name(group: str, field: str) -> str:
    """Name of the environment variable of a setting: ``STREAMER_KAFKA_GROUP_ID``."""
    return f"{PREFIX}{setting_name(group, field).replace('.', '_')}".upper()


def is_table(leaf: FieldInfo) -> bool:
    """Report whether a setting holds named values of the user's own choice (the client properties)."""
    return get_origin(leaf.annotation) is dict and entry_type(leaf) is None


def entry_type(leaf: FieldInfo) -> type[BaseModel] | None:
    """Return the type of one table of a setting that holds tables by name (the upstreams); None for any other."""
    entries = get_args(leaf.annotation) if get_origin(leaf.annotation) is dict else ()
    return entries[1] if entries and issubclass(entries[1], BaseModel) else None


def property_name(name: str) -> str:
    """Write a Kafka client property as Kafka does, with dots, whichever way it was given."""
    return name.lower().replace("_", ".")


def entry_name(leaf: FieldInfo, name: str) -> str:
    """Write the name of an entry of a table as it is kept: as written where others made it up, else as a property."""
    return name if leaf.json_schema_extra == AS_WRITTEN else property_name(name)


def unknown_variables(settings_type: type[BaseSettings], environment: Mapping[str, str]) -> list[str]:
    """Names that look like settings and are not, probably misspelt.

    They are reported and never an error, because container platforms invent such names (a service called
    ``streamer`` makes Kubernetes set ``STREAMER_SERVICE_HOST``).
    """
    known = {CONFIG_VARIABLE, DEBUG_VARIABLE, FAILPOINTS_VARIABLE}
    open_ended = []
    for group, field, leaf in leaves(settings_type):
        name = variable_name(group, field)
        known |= {name, f"{name}_FILE"}
        if is_table(leaf):
            open_ended.append(f"{name}_")
    return sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in known and not name.startswith(tuple(open_ended))
    )


def misspelt_variables(settings_type: type[BaseSettings]) -> list[str]:
    """Return the `unknown_variables` of this process's environment and of ``.env`` here."""
    return unknown_variables(settings_type, {**dotenv_variables(DOTENV_FILE), **os.environ})


class _Source(PydanticBaseSettingsSource):
    """A source of nested values that also reports, under ``origins``, where it found each."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("these sources answer for all fields at once")


class EnvironmentSource(_Source):
    """Settings from variables, an empty value counting as absent, and from files that variables
    name. `place` is what this source is called in messages: ``environment`` or ``.env``."""

    def __init__(self, settings_type: type[BaseSettings], variables: Mapping[str, str], place: str) -> None:
        super().__init__(settings_type)
        self._variables = variables
        self._place = place
        self._settings = {variable_name(group, field) for group, field, _ in leaves(settings_type)}

    def __call__(self) -> dict[str, Any]:
        """Collect all that the variables say. Raises `UsageError` for a file or a JSON text that cannot be read."""
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for group, field, leaf in leaves(self.settings_cls):
            name = variable_name(group, field)
            found = self._read(name)
            if is_table(leaf):
                given = _json_object(found[1], found[0]) if found else {}
                table = {entry_name(leaf, entry): value for entry, value in given.items()}
                for entry in table:
                    origins[f"{group}.{field}.{entry}"] = f"{self._place} {name}"
                for entry, text, variable in self._entries(name):
                    table[entry] = text
                    origins[f"{group}.{field}.{entry}"] = f"{self._place} {variable}"
                if table:
                    values.setdefault(group, {})[field] = table
            elif found:
                variable, text = found
                value: Any = text
                if get_origin(leaf.annotation) is tuple:  # the witnesses
                    value = _json(text, variable, list, 'array, like ["one", "another"]')
                elif entry_type(leaf) is not None:
                    value = _json_object(text, variable)
                (values.setdefault(group, {}) if group else values)[field] = value
                origins[setting_name(group, field)] = f"{self._place} {variable}"
        return {**values, "origins": origins} if values else {}

    def _read(self, name: str) -> tuple[str, str] | None:
        """Return the variable that holds the setting `name`, and its text."""
        text, file = self._variables.get(name), self._variables.get(f"{name}_FILE")
        if text and file:
            raise UsageError(f"both {name} and {name}_FILE are set ({self._place}); unset one of them")
        if text:
            return name, text
        if file:
            return f"{name}_FILE", file_text(file, f"{name}_FILE")
        return None

    def _entries(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Iterate over (entry, text, variable) of the variables ``name_ENTRY`` and ``name_ENTRY_FILE``."""
        for variable in sorted(self._variables):
            if (
                not variable.startswith(f"{name}_")
                or variable == f"{name}_FILE"
                or not self._variables[variable]
            ):
                continue
            setting = variable.removesuffix("_FILE")
            if setting in self._settings:
                continue  # a setting of its own, whose name begins alike
            found = self._read(setting)
            if found:
                yield property_name(setting.removeprefix(f"{name}_")), found[1], found[0]


class TomlSource(_Source):
    """Settings from a TOML file, one table a group. A missing file is no settings."""

    def __init__(self, settings_type: type[BaseSettings], path: Path | None) -> None:
        super().__init__(settings_type)
        self._path = path

    def __call__(self) -> dict[str, Any]:
        """Read the file. Raises `UsageError` when it is not TOML, or its layout is not tables of settings."""
        if self._path is None:
            return {}
        try:
            values = tomllib.loads(self._path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the settings file {self._path}: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"the settings file {self._path} is not TOML: {error}") from error
        except RecursionError:
            raise UsageError(f"the settings file {self._path} is nested too deeply") from None
        known: dict[str, dict[str, FieldInfo]] = {}
        for group, field, leaf in leaves(self.settings_cls):
            known.setdefault(group, {})[field] = leaf
        origins = {}
        alone = known.pop("", {})
        for group, table in values.items():
            if group in alone:
                origins[group] = str(self._path)
                continue
            if group in known and not isinstance(table, dict):
                raise UsageError(
                    f"{self._path}: {group} is a group of settings: write [{group}], and a line for each"
                )
            if group not in known:
                raise UsageError(
                    f"{self._path}: there is no settings group [{group}]; the groups are {', '.join(known)}"
                )
            for field, value in table.items():
                if field not in known[group]:
                    raise UsageError(
                        f"{self._path}: [{group}] has no setting {field!r}; it has {', '.join(known[group])}"
                    )
                if is_table(known[group][field]) and isinstance(value, dict):
                    for entry in value:
                        kept = entry_name(known[group][field], entry)
                        origins[f"{group}.{field}.{kept}"] = f"{self._path} [{group}.{field}]"
                else:
                    origins[f"{group}.{field}"] = f"{self._path} [{group}]"
        return {**values, "origins": origins} if values else {}


class DevSessionSource(_Source):
    """The addresses of the `streamer dev` that runs in this directory, while no broker is configured."""

    def __call__(self) -> dict[str, Any]:
        """Return the running session's addresses, or nothing."""
        configured = self.current_state.get("kafka") or {}
        if configured.get("bootstrap_servers"):
            return {}
        session = find_dev_session()
        if session is None:
            return {}
        where = f"running `streamer dev` ({DEV_SESSION_FILE})"
        return {
            "kafka": {"bootstrap_servers": session.bootstrap_servers, "log_id": session.log_id},
            "database": {"url": session.database_url},
            "origins": dict.fromkeys(("kafka.bootstrap_servers", "kafka.log_id", "database.url"), where),
        }


def dotenv_variables(path: Path) -> dict[str, str]:
    """Read ``.env``: its names and values, no interpolation; nothing when there is no such file.

    Raises `UsageError` when it cannot be read.
    """
    if not path.is_file():
        return {}
    try:
        found = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the file {path}: {reason}") from error
    return {name: value for name, value in found.items() if value}


def toml_path(environment: Mapping[str, str]) -> Path | None:
    """Return the settings file to read, or None. Raises `UsageError` where one was named, or is there, that is no file."""
    named = environment.get(CONFIG_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise UsageError(f"{CONFIG_VARIABLE} names {named}, which is not a file; correct it or unset it")
        return path
    path = DEFAULT_CONFIG_FILE
    if path.is_file():
        return path
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} is not a file; correct it or remove it")
    return None


def file_text(file: str, variable: str) -> str:
    """Return the text of a file that a variable names, without the end of its last line. Raises `UsageError` when it cannot be read."""
    try:
        return small_text(Path(file)).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the file {file} that {variable} names: {reason}") from error


def _json_object(text: str, variable: str) -> dict[str, Any]:
    return _json(text, variable, dict, 'object, like {"name": "value"}')


def _json(text: str, variable: str, kind: type[_Json], wanted: str) -> _Json:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise UsageError(f"{variable} must hold a JSON {wanted}")
    return value


def setting_sources(settings_type: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
    """All sources of this process and directory, the strongest first."""
    return (
        EnvironmentSource(settings_type, os.environ, "environment"),
        EnvironmentSource(settings_type, dotenv_variables(DOTENV_FILE), str(DOTENV_FILE)),
        TomlSource(settings_type, toml_path(os.environ)),
        DevSessionSource(settings_type),
    )
