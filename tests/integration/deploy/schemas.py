"""Makes kubeconform's schemas, strict ones, of the modules that deploy/helm/tools.txt names: ``python -m tests.integration.deploy.schemas FOLDER``."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.promql import ROOT

FILE, API = "definitions.json", "io.k8s.apimachinery.pkg"


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
        made["$ref"] = FILE + made["$ref"]
    if isinstance(made.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in made:
        made.setdefault("additionalProperties", False)
    return made


def main(folder: Path) -> None:
    """Write a file for each kind, kind-group-version.json, and the definitions that these name."""
    found: list[Any] = []
    folder.mkdir(parents=True, exist_ok=True)
    for line in (ROOT / "deploy" / "helm" / "tools.txt").read_text("utf-8").splitlines():
        module, _, path = line.partition(" ")
        if not path:
            continue
        asked = ["go", "mod", "download", "-json", module]
        done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, cwd=folder)
        read = yaml.load((Path(json.loads(done.stdout)["Dir"]) / path).read_bytes(), yaml.CSafeLoader)
        if all_of_them := strict(read.get("definitions")):
            all_of_them[f"{API}.api.resource.Quantity"] = {"type": ["string", "number"]}
            (folder / FILE).write_text(json.dumps({"definitions": all_of_them}), "utf-8")
            found += [
                (kind["group"], kind["kind"], kind["version"], {"$ref": f"{FILE}#/definitions/{name}"})
                for name, one in all_of_them.items()
                for kind in one.get("x-kubernetes-group-version-kind", ())
            ]
            continue
        for version in read["spec"]["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"$ref": f"{FILE}#/definitions/{API}.apis.meta.v1.ObjectMeta"}
            found.append((read["spec"]["group"], read["spec"]["names"]["kind"], version["name"], schema))
    for group, kind, number, schema in found:
        name = "-".join(filter(None, (kind, group.partition(".")[0], number))).lower()
        (folder / f"{name}.json").write_text(json.dumps(schema), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
