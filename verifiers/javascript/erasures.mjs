// Texts are erased only where an erasure on record allows it.

import { canonical } from "./json.mjs";
import { sha256 } from "./hashes.mjs";
import { secondsBetween } from "./moments.mjs";

const SIX_MONTHS = 184; // days, the most that six months have

/** The digest of what was erased before erasures were kept. */
export const digestOf = (macs) => sha256(canonical(macs.toSorted()));

export function checkErasures(governance, decisions, report) {
  for (const { row, place } of governance.erasures) {
    if (row.before === null) continue;
    const days = secondsBetween(row.before, row.at) / 86400;
    if (days < 0 || (days < SIX_MONTHS && !row.sooner)) {
      report.fault("erasure", place, "it permits to erase what is younger than six months, and does not say so");
    }
  }
  if (governance.erasures.filter(({ row }) => row.before === null).length > 1) {
    report.fault("erasure", "control", "what was erased before erasures were kept is on record twice");
  }
  const rules = governance.erasures.map(({ row }) => row);
  const before = rules.map((row) => row.before).filter((moment) => moment !== null).sort().at(-1) ?? null;
  const first = governance.erasures.find(({ row }) => row.before === null);
  for (const { place, decidedAt, erasedAt } of decisions.erased) {
    if (before !== null && decidedAt < before) continue;
    if (first !== undefined && erasedAt <= first.row.at) continue;
    const detail = `its texts are erased, and no erasure on record allows it: it is of ${decidedAt}, and what is older than ${before ?? "nothing"} was to be erased`;
    report.fault("erasure", place, detail);
  }
  if (first === undefined) return;
  const all = decisions.erased.filter(({ erasedAt }) => erasedAt <= first.row.at).map(({ mac }) => mac);
  if (all.length !== first.row.erased || digestOf(all) !== first.row.digest) {
    report.fault("erasure", first.place, "other texts are erased than when erasures began to be kept");
  }
}
