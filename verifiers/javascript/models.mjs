// The scorer of another package is named by a hash of what is frozen of it.

import { sha256 } from "./hashes.mjs";

export function checkModels(governance, report) {
  for (const { row } of governance.revisions.values()) {
    const [name, hash] = row.scorer.split("@");
    const model = row.model ?? null;
    const place = `gate ${row.gate} revision ${row.revision}`;
    if (hash === undefined) {
      if (model !== null) report.fault("model", place, `it has a model, and its scorer is ${name}`);
    } else if (typeof model !== "string" || hash !== sha256(model).slice(0, 16)) {
      report.fault("model", place, `its model is not that of ${row.scorer}`);
    } else {
      report.count("frozen scorers of other packages");
    }
  }
}
