// A learned score is named by a hash of its model.

import { sha256 } from "./hashes.mjs";

export function checkModels(governance, report) {
  for (const { row } of governance.revisions.values()) {
    const learned = row.scorer.startsWith("learned@");
    const place = `gate ${row.gate} revision ${row.revision}`;
    if (learned && (typeof row.model !== "string" || row.scorer !== `learned@${sha256(row.model).slice(0, 16)}`)) {
      report.fault("model", place, `its model is not that of ${row.scorer}`);
    }
    if (learned) report.count("models of learned scores");
  }
}
