// The severity that a run has read of each response, from the labels that were there: section "Severities" of docs/audit-format.md.

import { canonical } from "./json.mjs";
import { fsum } from "./sums.mjs";

export class Labels {
  #byResponse = new Map();

  /** A label of a topic, with its place in its partition's chain. */
  addOutcome({ facts, partition, height, effective_at: effectiveAt }) {
    const { response, kind, labeller, severity, labelled_at: labelledAt, received_at: receivedAt } = facts;
    const effective = effectiveAt ?? (labelledAt < receivedAt ? labelledAt : receivedAt);
    this.#add(response, { kind, labeller, severity, effective, received: receivedAt, partition, height });
  }

  /** A label of a file, with its link in the control chain. */
  addRow({ row, height }) {
    const { gate, batch_id: batch, attempt, response_id: response } = row;
    const { kind, labeller, severity, effective_at: effective, received_at: received, id } = row;
    this.#add([gate, batch, attempt, response], { kind, labeller, severity, effective, received, partition: null, height, id });
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
    if (settings.signed_labels) {
      report.note("signed labels", "which labels a gate with signed labels has read depends on keys that are not here");
      continue;
    }
    const reached = heads(row);
    for (const input of inputs) {
      const kept = labels.of(row.gate, input).filter(
        (one) => one.kind === settings.severity_kind && (!settings.labellers || listed(settings.labellers).includes(one.labeller)),
      );
      const before = (one) => (one.partition === null ? one.height < run.height : one.received <= row.finished_at);
      const sure = (one) =>
        one.partition === null
          ? one.height < run.height && row.labels_through !== null && row.labels_through !== undefined && one.id <= row.labels_through
          : reached !== null && one.height <= (reached.get(one.partition) ?? 0);
      const given = kept.filter(sure);
      // What came while the run was reading may have been read, in the order in which it came.
      const later = kept.filter((one) => !sure(one) && before(one)).sort((a, b) => (a.received < b.received ? -1 : 1));
      const possible = [given];
      for (const one of later) possible.push([...possible.at(-1), one]);
      if (possible.some((some) => severities(some, row.severities).includes(input.severity))) continue;
      const said = input.severity === null ? "no label" : `severity ${input.severity}`;
      const detail = `${row.gate}/${input.batch_id}#${input.attempt}, response ${input.response_id}: labels do not give ${said}`;
      report.fault("calibration", place, detail);
    }
  }
}

const listed = (names) => (typeof names === "string" ? JSON.parse(names) : names);

/** What labels of one response come to: of each labeller the latest, averaged, or the highest of all. Ties may go either way. */
function severities(some, basis) {
  if (some.length === 0) return [null];
  if (basis === "highest") return [Math.max(...some.map((one) => one.severity))];
  const latest = new Map();
  for (const one of some) {
    const held = latest.get(one.labeller);
    if (held === undefined || one.effective > held[0].effective) latest.set(one.labeller, [one]);
    else if (one.effective === held[0].effective) {
      // of one chain the later one counts; of two chains nobody outside the database can tell
      latest.set(one.labeller, [...held.filter((other) => other.partition !== one.partition || other.height > one.height), one]);
    }
  }
  let all = [[]];
  for (const some of latest.values()) {
    all = all.flatMap((values) => some.map((one) => [...values, one.severity]));
    if (all.length > 64) all.length = 64;
  }
  return all.map((values) => fsum(values) / values.length);
}
