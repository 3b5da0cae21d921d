// Outcomes that are no decisions: refused messages, repeats, labels.

import { canonical } from "./json.mjs";
import { fromBase64, hmac } from "./hashes.mjs";

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
