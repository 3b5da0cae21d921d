"""Writes the program's settings into the chart's values.schema.json, so that Helm refuses a misspelt one: ``python -m deploy.helm.generate``."""

import json
from pathlib import Path
from typing import Any

from streamer.security.visible import is_secret
from streamer.settings.settings import Settings
from streamer.settings.sources import is_table, leaves, setting_name

SCHEMA = Path(__file__).parent / "streamer" / "values.schema.json"


def schema() -> str:
    """Return the schema as it must be: what is not of the settings stays as the file has it."""
    whole, made, names = json.loads(SCHEMA.read_text("utf-8")), Settings.model_json_schema(), []
    groups = {name: one for name, one in made["properties"].items() if name != "origins"}
    for group, field, leaf in leaves(Settings):
        names.append(setting_name(group, field).replace(".", r"\.") + (r"\..+" if is_table(leaf) else ""))
        if is_secret(field) or (group, field) == ("database", "url"):
            del made["$defs"][groups[group]["$ref"].rpartition("/")[2]]["properties"][field]
    settings = {"type": "object", "additionalProperties": False, "properties": groups}
    own = {
        name: one for name, one in whole["$defs"].items() if not name.endswith(("Settings", "settingName"))
    }
    whole["$defs"] = own | _plain(made["$defs"] | {"Settings": settings})
    whole["$defs"]["settingName"] = {"pattern": f"^({'|'.join(names)})$"}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Leave out titles and defaults, which are the program's and would be said twice."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in ("title", "default")}
    return [_plain(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    SCHEMA.write_text(schema(), "utf-8")
