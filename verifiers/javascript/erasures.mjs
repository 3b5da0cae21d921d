// Texts are erased only where an erasure on record allows it.

import { secondsBetween } from "./moments.mjs";

const SIX_MONTHS = 184; // days, the most that six months have

export function checkErasures(governance, decisions, report) {
  for (const { row, place } of governance.erasures) {
    const days = secondsBetween(row.before, row.at) / 86400;
    if (days < 0 || (days < SIX_MONTHS && !row.sooner)) {
      report.fault("erasure", place, "it permits to erase what is younger than six months, and does not say so");
    }
  }
  const before = governance.erasures.map(({ row }) => row.before).sort().at(-1) ?? null;
  for (const { place, decidedAt } of decisions.erased) {
    if (before !== null && decidedAt < before) continue;
    const detail = `its texts are erased, and no erasure on record allows it: it is of ${decidedAt}, and what is older than ${before ?? "nothing"} was to be erased`;
    report.fault("erasure", place, detail);
  }
}
