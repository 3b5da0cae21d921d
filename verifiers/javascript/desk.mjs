// What became of batches that waited for a person: section "The desk" of docs/audit-format.md.

import { canonical } from "./json.mjs";
import { hmac, uuid5 } from "./hashes.mjs";
import { micros, sixDigits } from "./moments.mjs";
import { judgedText } from "./rules.mjs";

export const deskId = (batch) => uuid5(NAMESPACE, canonical(batch));
export const textMac = (salt, text) => hmac(Buffer.from(salt, "hex"), canonical([text]));

const NAMESPACE = "5b1f1f649d0f4f0e8d556a4f1b7d3f0c";

export function checkDesk(governance, decisions, report) {
  const seen = new Set();
  for (const entry of governance.desk) {
    const { row, raw, content, place, index } = entry;
    const fault = (detail) => report.fault("desk", place, detail);
    const batch = [row.gate, row.batch_id, row.attempt];
    const key = canonical(batch);
    report.count("outcomes at the desk");
    if (seen.has(key)) fault("it is the second outcome of its batch");
    seen.add(key);
    if (row.id !== deskId(batch)) fault("its id does not follow from gate, batch and attempt");
    const inTime = micros(row.at) <= micros(row.until);
    if (inTime !== (row.reason === "person")) {
      fault(inTime ? "nobody was waited for until its deadline" : "its deadline had passed");
    }
    if (entry.missing !== undefined) report.fault("seal", place, "the text that was released is gone, and was not erased");
    if (content !== null && textMac(content.salt, raw.content.text) !== row.text_mac) {
      report.fault("seal", place, "the text that was released was changed");
    }
    const decision = decisions.byBatch.get(key);
    if (decision === undefined) fault("no decision about its batch is on record");
    else checkDecision(entry, decision, { row, content, index, place, fault }, governance, decisions, report);
  }
  checkDeadlines(governance, decisions, seen, report);
}

/** Until when a decision waits for a person; null: for nobody. */
function waitsUntil({ facts }, governance) {
  const seconds = governance.policy(facts.batch[0], facts.policy)?.settings.desk_deadline_seconds ?? null;
  const waits = facts.outcome === "escalate" || (facts.outcome === "mixed" && facts.unit === "claim");
  if (!waits || facts.mode !== "enforce" || seconds === null) return null;
  return deskDeadline(facts.decided_at, seconds);
}

/** Until when a batch waits, in microseconds. */
export const deskDeadline = (decidedAt, seconds) => micros(decidedAt) + BigInt(Math.round(seconds * 1e6));

function checkDecision(entry, decision, { row, content, index, place, fault }, governance, decisions, report) {
  const { facts } = decision;
  const until = waitsUntil(decision, governance);
  if (until === null) {
    fault("the batch never waited for a person");
    return;
  }
  if (micros(row.until) !== until) fault("its deadline is not that of the batch");
  if (facts.control !== undefined && facts.control[0] > index) {
    report.fault("order", place, "it stands in the control log before its batch was decided");
  }
  if (row.action !== "released") return;
  const { judged } = governance.policy(facts.batch[0], facts.policy)?.settings ?? { judged: "whole@1" };
  const back = row.claims === null ? null : JSON.parse(row.claims);
  const ofClaims = back !== null || (facts.unit === "claim" && facts.responses.some((one) => one[1] !== null));
  if (ofClaims && !(back?.length && back.every((id) => facts.responses.some((one) => one[0] === id && one[3] !== "ship")))) {
    fault("what was put back are not held claims of its answer");
    return;
  }
  // Of claims the text is not put together again here.
  const position = ofClaims ? 0 : facts.responses.findIndex((one) => one[0] === row.response_id);
  if (position < 0) fault(`the batch has no answer ${row.response_id}`);
  else if (content === null) {
    if (entry.erased_at) decisions.erased.push({ place, decidedAt: facts.decided_at });
    else if (entry.missing === undefined) decisions.missing(row.gate, place);
  } else if (decision.texts && !ofClaims && !judged.startsWith("call@") && (judgedText(decision.texts[position], { judged }) === content.text) === row.edited) {
    fault(row.edited ? "it says that a person edited it" : "the answer is not the one it says");
  }
}

/** Deadlines of all decisions; batches whose deadline has passed without an outcome are told. */
function checkDeadlines(governance, decisions, seen, report) {
  let latest = 0n;
  const late = [];
  for (const { facts } of decisions.byBatch.values()) {
    const decided = micros(facts.decided_at);
    if (decided > latest) latest = decided;
  }
  for (const [key, decision] of decisions.byBatch) {
    const until = waitsUntil(decision, governance);
    if (decision.deskUntil !== undefined && (until === null || sixDigits(decision.deskUntil) === null || micros(sixDigits(decision.deskUntil)) !== until)) {
      report.fault("desk", decision.place, "its action says another deadline at the desk than its gate has");
    }
    if (!seen.has(key) && until !== null && until < latest) late.push(key);
  }
  if (late.length > 0) report.note("desk", `${late.length} batches have no outcome though their deadline at the desk has passed`);
}
