"""Write dashboards/*.json from what stands here: `python -m deploy.grafana.generate [--check]`, from the root.

Grafana's JSON is long and repeats itself; here each panel is a title, a description, a unit and its expressions.
With --check nothing is written, and the exit status is 3 when a file is stale.
"""

import json
import sys
from pathlib import Path

from deploy.grafana.calibration import CALIBRATION
from deploy.grafana.pipeline import PIPELINE
from deploy.grafana.risk import RISK

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = (RISK, PIPELINE, CALIBRATION)


def rendered() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{dashboard.uid}.json": json.dumps(dashboard.to_json(), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


def stale() -> list[str]:
    """Return the names of files that differ from what would be written, or do not belong."""
    wanted = rendered()
    present = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main(arguments: list[str]) -> int:
    """Write the files, or check them."""
    if arguments == ["--check"]:
        names = stale()
        sys.stderr.write(
            "".join(f"{name} is stale: run python -m deploy.grafana.generate\n" for name in names)
        )
        return 3 if names else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
