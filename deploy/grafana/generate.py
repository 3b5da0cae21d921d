"""Write dashboards/*.json from what stands here: `python -m deploy.grafana.generate`.

Grafana's JSON is long and repeats itself; here each panel is a title, a description, a unit and its expressions.
"""

import json
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


if __name__ == "__main__":
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, "utf-8")
