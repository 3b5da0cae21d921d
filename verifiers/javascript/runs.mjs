// What calibration runs read: all drawn batches that were there, with their scores, and severities that labels can give.

import { canonical, parse, plain } from "./json.mjs";

/** Every run has read every drawn batch that was there when it began to read. */
export function checkCompleteness(governance, decisions, headsOf, report) {
  const byGate = new Map();
  for (const one of decisions.byBatch.values()) {
    const { facts, drawn } = one;
    if (drawn.length === 0 || facts.extra_draw || facts.batch[2] !== 1) continue;
    if (!byGate.has(facts.batch[0])) byGate.set(facts.batch[0], []);
    byGate.get(facts.batch[0]).push(one);
  }
  for (const run of governance.runs.values()) {
    const { row, inputs, place } = run;
    const settings = governance.revisions.get(`${row.gate} ${row.gate_revision}`)?.row;
    if (settings === undefined || !governance.gates.has(row.gate)) {
      report.fault("calibration", place, "its gate or revision is not on record");
      continue;
    }
    if (plain(parse(row.age_cut)).pending === "labelled-only") {
      report.note("runs by labels", "whether runs with labels alone left a batch out rightly is not checked");
      continue;
    }
    const byMetadata = settings.segment_by !== null || settings.group_by !== null; // erased by then, they were not known
    const heads = headsOf(row);
    const read = new Set(inputs.map((one) => canonical([row.gate, one.batch_id, one.attempt])));
    let oldest = "";
    if (settings.window !== null) {
      const known = [...read].map((key) => decisions.byBatch.get(key)?.facts.decided_at).filter(Boolean).sort();
      oldest = known[0] ?? "";
    }
    let complete = true;
    for (const { facts, partition, index, place: where, erasedAt } of byGate.get(row.gate) ?? []) {
      const concerns =
        index < (heads.get(partition) ?? 0) && facts.decided_at < row.older_than && facts.decided_at > oldest &&
        (row.newer_than === null || facts.decided_at > row.newer_than) &&
        facts.policy >= (row.since_version ?? 0) && facts.unit === settings.unit && facts.scorer === settings.scorer &&
        facts.encoder === settings.encoder && ofSameRevisions(governance, facts, settings) && facts.responses.some((one) => one[4] && one[1] !== null);
      if (!concerns || read.has(canonical(facts.batch))) continue;
      if (byMetadata && erasedAt !== null && erasedAt <= row.finished_at) continue;
      complete = false;
      const batch = `${row.gate}/${facts.batch[1]}#${facts.batch[2]}`;
      report.fault("calibration", place, `it did not read the drawn batch ${batch}, which was recorded (${where})`);
    }
    if (complete) report.count("runs whose sample is complete");
  }
}

/** A run for one upstream, or one list of signals, reads no decision that was made under another. */
function ofSameRevisions(governance, facts, settings) {
  const served = governance.policy(facts.batch[0], facts.policy)?.settings;
  return ["upstream", "signals", "judged"].every((name) => settings[name] === null || served?.[name] === settings[name]);
}

/** Every run names logs as they are: size and root of each that it read. */
export function checkHeads(governance, control, chains, report) {
  for (const { row, place, index } of governance.runs.values()) {
    for (const [log, topic, partition, size, root] of plain(parse(row.heads))) {
      const own = log === "control";
      const chain = own ? control : chains.get(canonical([log, topic, partition]));
      if (chain === undefined || size > chain.size || (own && size > index) || (chain.root(size) ?? root) !== root) {
        report.fault("calibration", place, `it has read another history of ${log} ${topic}[${partition}] than there is`);
      }
    }
  }
}

/** Each input is a drawn response of a recorded decision, with its score and probability. */
export function checkInputs(governance, decisions, report) {
  for (const { row, inputs, place } of governance.runs.values()) {
    const settings = governance.revisions.get(`${row.gate} ${row.gate_revision}`)?.row;
    if (settings === undefined) continue;
    for (const one of inputs) {
      const batch = `${row.gate}/${one.batch_id}#${one.attempt}, response ${one.response_id}`;
      const fault = (detail) => report.fault("calibration", place, `${batch}: ${detail}`);
      const found = decisions.byBatch.get(canonical([row.gate, one.batch_id, one.attempt]));
      const response = found?.facts.responses.find((r) => r[0] === one.response_id);
      if (found === undefined || response === undefined) {
        fault("it has read what no decision on record has");
        continue;
      }
      const { facts } = found;
      if (!response[4] || facts.extra_draw) fault("it has read what its gate's own audit did not draw");
      const own = governance.carriedRow(settings, facts.batch) === undefined;
      if (!ofSameRevisions(governance, facts, own ? settings : { ...settings, signals: null })) fault("it has read a decision for another upstream or list of signals");
      const revision = governance.policy(row.gate, facts.policy)?.settings;
      const base = facts.audit_rate == null ? facts.sampling_probability : revision?.audit_probability;
      if (base !== undefined && one.probability !== base) fault(`its own audit drew it with the probability ${base}`);
      if (revision !== undefined && one.draws !== revision.audit_draws) fault("another number of its responses was to be drawn");
      const plainScore = settings.unit !== "batch" && settings.shape !== "rank" && facts.scorer === settings.scorer;
      const later = governance.carried.get(canonical([settings.scorer, facts.batch, one.response_id]));
      if (plainScore && one.score !== response[1]) fault("its score is not the recorded one");
      else if (settings.unit !== "batch" && later !== undefined && facts.scorer !== settings.scorer && one.score !== later) {
        fault("its score is not the one that it was given later");
      }
    }
    report.count("inputs of runs", inputs.length);
  }
}
