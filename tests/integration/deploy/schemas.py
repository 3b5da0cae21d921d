"""Makes kubeconform's schemas, strict ones, of the modules that deploy/helm/tools.txt names: ``python -m tests.integration.deploy.schemas FOLDER``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.promql import ROOT

API = "io.k8s.apimachinery.pkg"


def strict(schema: Any) -> Any:
    """Return a schema that refuses fields it does not name, and takes a number where Kubernetes does."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    made = {name: strict(one) for name, one in schema.items()}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = made["$ref"].rpartition("/")[2] + ".json"
    if isinstance(made.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in made:
        made.setdefault("additionalProperties", False)
    return made


def main(folder: Path) -> None:
    """Write a file for each kind, kind-group-version.json, and for each definition that these name."""
    found: dict[tuple[str, ...], Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for line in (ROOT / "deploy" / "helm" / "tools.txt").read_text("utf-8").splitlines():
        module, _, path = line.partition(" ")
        if not path:
            continue
        asked = ["go", "mod", "download", "-json", module]
        done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, cwd=folder)
        read = yaml.load((Path(json.loads(done.stdout)["Dir"]) / path).read_bytes(), yaml.CSafeLoader)
        for name, one in strict(read.get("definitions", {})).items():
            found[name,] = {"type": ["string", "number"]} if name == f"{API}.api.resource.Quantity" else one
            for kind in one.get("x-kubernetes-group-version-kind", ()):
                found[kind["kind"], kind["group"], kind["version"]] = {"$ref": f"{name}.json"}
        for version in read.get("spec", {}).get("versions", ()):
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"$ref": f"{API}.apis.meta.v1.ObjectMeta.json"}
            found[read["spec"]["names"]["kind"], read["spec"]["group"], version["name"]] = schema
    for (kind, *place), schema in found.items():
        name = "-".join(filter(None, (kind, *(part.partition(".")[0] for part in place))))
        (folder / f"{name.lower() if place else name}.json").write_text(json.dumps(schema), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
