// Outcomes that are no decisions (refused messages, repeats, labels), and erased texts, which an erasure on record has to allow.

import { canonical } from "./json.mjs";
import { fromBase64, hmac } from "./hashes.mjs";
import { secondsBetween } from "./moments.mjs";

export function checkRefusals({ kind, facts, raw, content, place, erased_at: erasedAt, effective_at: effectiveAt }, decisions, report) {
  if (kind === "dead_letter" || kind === "conflict") {
    if (content) {
      const hex = (text) => (text === null ? null : fromBase64(text).toString("hex"));
      const sealed = [hex(content.key), hex(content.value), raw.content.headers, raw.content.detail];
      if (hmac(Buffer.from(content.salt, "hex"), canonical(sealed)) !== facts.content_mac) {
        report.fault("seal", place, "the bytes of the refused message, or why it was refused, were changed");
      }
    } else if (erasedAt) decisions.erased.push({ place, decidedAt: raw.recorded_at });
    else decisions.missing(null, place);
  } else if (kind === "label") {
    const [one, other] = [facts.labelled_at, facts.received_at];
    if (effectiveAt !== undefined && effectiveAt !== (one < other ? one : other)) {
      report.fault("label", place, "it takes effect at another time than the earlier of labelled and received");
    }
  }
}

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
