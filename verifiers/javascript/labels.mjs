// The severity that a run has read of each response, from the labels that were there: section "Severities" of docs/audit-format.md.

import { Unreadable } from "./bundle.mjs";
import { readKeys, signed } from "./hashes.mjs";
import { Num, canonical, float } from "./json.mjs";
import { fsum } from "./sums.mjs";

/** Keys of labellers by their id: each block follows a line `labeller: NAME`. */
export function readLabelKeys(text) {
  const found = new Map();
  for (const block of text.replaceAll("\r\n", "\n").split(/^labeller:/m).slice(1)) {
    const [name] = block.split("\n", 1);
    for (const [id, key] of readKeys(block)) found.set(id, { labeller: name.normalize("NFKC").trim(), key });
  }
  if (found.size === 0) throw new Unreadable("there is no line `labeller: NAME` with a public key after it");
  return found;
}

/** The text under the signature of a label. */
export function labelStatement(label, record) {
  const real = (value) => (value === null || value === undefined ? null : float((value instanceof Num ? value.value : value) + 0));
  const { gate, batch_id, attempt, response_id, kind, labeller, labelled_at } = label;
  const said = { gate, batch_id, attempt, response_id, kind, labeller, labelled_at };
  if (label.severities) said.severities = Object.fromEntries(Object.entries(label.severities).map(([name, one]) => [name, real(one)]));
  return canonical({ format: 1, record, ...said, severity: real(label.severity), raw_severity: real(label.raw_severity) });
}

export const CONTROL = canonical(["control", "", 0]); // how runs name the control log

export class Labels {
  #byResponse = new Map();
  #signatures = new Map(); // label of a file: its signatures, with their leaves in the control log
  #ofFiles = new Set();

  /** `keys`: of labellers; null: which labels were signed well is not known. */
  constructor(keys = null, record = "") {
    this.keys = keys;
    this.record = record;
  }

  /** The signature of a label of a file. */
  addSignature({ row, index }) {
    this.#signatures.set(row.label, [...(this.#signatures.get(row.label) ?? []), { ...row, index }]);
  }

  /** Whether labels of topics were signed by file: which, no bundle says. */
  get signedElsewhere() {
    return [...this.#signatures.keys()].some((id) => !this.#ofFiles.has(id));
  }

  /** Whether a label had a good signature of its labeller before a leaf. */
  signed(label, before) {
    if (label.partition !== null) return this.#good(label.said, label.said);
    return (this.#signatures.get(label.id) ?? []).some((one) => one.index < before && this.#good(label.said, one));
  }

  #good(said, { signature, key_id: id }) {
    const known = this.keys?.get(id);
    return known?.labeller === said.labeller && signed(known.key, "label", labelStatement(said, this.record), signature);
  }

  /** A label of a topic, with its place in its partition's chain. */
  addOutcome({ facts, partition, index, effective_at: effectiveAt }) {
    const { response, kind, labeller, severity, labelled_at: labelledAt, received_at: receivedAt } = facts;
    const effective = effectiveAt ?? (labelledAt < receivedAt ? labelledAt : receivedAt);
    const [gate, batch_id, attempt, response_id] = response;
    const said = { gate, batch_id, attempt, response_id, ...facts };
    this.#add(response, { kind, labeller, severity, effective, received: receivedAt, partition, index, said });
  }

  /** A label of a file, with its leaf in the control log. */
  addRow({ row, index }) {
    const { gate, batch_id: batch, attempt, response_id: response } = row;
    const { kind, labeller, severity, effective_at: effective, received_at: received, id } = row;
    this.#ofFiles.add(id);
    this.#add([gate, batch, attempt, response], { kind, labeller, severity, effective, received, partition: null, index, id, said: row });
  }

  #add(response, label) {
    const key = canonical(response);
    if (!this.#byResponse.has(key)) this.#byResponse.set(key, []);
    this.#byResponse.get(key).push(label);
  }

  of(gate, { batch_id: batch, attempt, response_id: response }) {
    return this.#byResponse.get(canonical([gate, batch, attempt, response])) ?? [];
  }
}

/** Each input's severity is one that the labels which its run could read give. */
export function checkSeverities(governance, labels, heads, report) {
  for (const run of governance.runs.values()) {
    const { row, inputs, place } = run;
    const settings = governance.revisions.get(`${row.gate} ${row.gate_revision}`)?.row;
    if (settings === undefined) continue;
    if (settings.signed_labels && (labels.keys === null || labels.signedElsewhere)) {
      const why = labels.keys === null ? "the public keys of labellers were not given" : "some labels of topics were signed by file";
      report.note("signed labels", `which labels a gate with signed labels has read is not checked: ${why}`);
      continue;
    }
    const reached = heads(row);
    for (const input of inputs) {
      const read = labels.of(row.gate, input).filter(
        (one) => one.kind === settings.severity_kind && (!settings.labellers || JSON.parse(settings.labellers).includes(one.labeller)),
      );
      const seen = (one) => one.index < (reached.get(one.partition ?? CONTROL) ?? 0);
      const given = read.filter((one) => seen(one) && (!settings.signed_labels || labels.signed(one, reached.get(CONTROL) ?? 0)));
      if (severities(given, row.severities).includes(input.severity)) continue;
      const said = input.severity === null ? "no label" : `severity ${input.severity}`;
      const detail = `${row.gate}/${input.batch_id}#${input.attempt}, response ${input.response_id}: labels do not give ${said}`;
      report.fault("calibration", place, detail);
    }
  }
}

/** What labels of one response come to: of each labeller the latest, averaged, or the highest of all. Ties may go either way. */
export function severities(some, basis) {
  if (some.length === 0) return [null];
  if (basis === "highest") return [Math.max(...some.map((one) => one.severity))];
  const latest = new Map();
  for (const one of some) {
    const held = latest.get(one.labeller);
    if (held === undefined || one.effective > held[0].effective) latest.set(one.labeller, [one]);
    else if (one.effective === held[0].effective) {
      // of one log the later one counts; of two logs nobody outside the database can tell
      latest.set(one.labeller, [...held.filter((other) => other.partition !== one.partition || other.index > one.index), one]);
    }
  }
  let all = [[]];
  for (const some of latest.values()) {
    all = all.flatMap((values) => some.map((one) => [...values, one.severity]));
    if (all.length > 64) all.length = 64;
  }
  return all.map((values) => fsum(values) / values.length);
}
