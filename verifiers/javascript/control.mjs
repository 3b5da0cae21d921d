// What the control log says of gates, policies, runs, audit rates and erasures, in the order in which it was recorded.

import { canonical, float, parse, plain } from "./json.mjs";
import { Unreadable } from "./bundle.mjs";
import { saltCommitment, sha256, signed } from "./hashes.mjs";
import { CALIBRATED_FOR, FIRST_SETTINGS, FLOATS, LATER_SETTINGS } from "./settings.mjs";
import { Waits } from "./waits.mjs";

const KEYS = {
  gates: ["name"], gate_revisions: ["gate", "revision"], policies: ["gate", "version"], calibration_runs: ["id"], audit_rates: ["id"],
  api_keys: ["id"], api_key_revocations: ["id"], accounts: ["name", "revision"], proposal_rejections: ["run"],
  restorations: ["id"],
};

export class Governance {
  #seen = new Set();
  gates = new Map(); // name: { commitment, seed, salt, committed, policies, index }
  revisions = new Map(); // gate, revision: the row
  burstsRead = new Map(); // gate, batch_id, attempt: run, key and burst of each run that has read it
  runs = new Map(); // id: { row, inputs, candidates, place, index }
  rates = new Map(); // id: the row
  erasures = [];
  gaps = new Map(); // partition: [from, to) offsets that retention removed
  fileLabels = [];
  labelSignatures = [];
  desk = [];
  restorations = []; // backups that were restored
  judgements = []; // what judges were asked and said for labels
  waits = new Waits();
  carried = new Map(); // scorer, batch and response: what an adopted candidate made of an earlier decision
  #inForce = new Set(); // runs
  #rows = new Map(); // hash of a list of signals, and batch: its row of it

  constructor(report) {
    this.report = report;
  }

  /** Take a row of the control log. */
  add(entry) {
    const { kind, row, place, index } = entry;
    if (Object.hasOwn(KEYS, kind)) {
      const key = canonical([kind, ...KEYS[kind].map((name) => row[name])]);
      if (this.#seen.has(key)) this.report.fault("log", place, "it is on record twice");
      this.#seen.add(key);
    }
    if (kind === "gates") this.#addGate(entry);
    else if (kind === "gate_revisions") this.revisions.set(`${row.gate} ${row.revision}`, { row, raw: entry.rawRow, index });
    else if (kind === "policies") this.#addPolicy(entry);
    else if (kind === "calibration_runs") this.runs.set(row.id, this.#run(entry));
    else if (kind === "proposal_rejections") this.waits.rejection(row);
    else if (kind === "audit_rates") this.rates.set(row.id, { row, index });
    else if (kind === "restorations") this.restorations.push(entry);
    else if (kind === "give_outs") throw new Unreadable("decisions of this record were given out, which verify.pyz reads from segments");
    else if (kind === "erasures") this.erasures.push({ row, place, index });
    else if (kind === "label_revisions") this.#addLabel(entry);
    else if (kind === "label_signatures") this.labelSignatures.push({ row, index });
    else if (kind === "desk_outcomes") this.desk.push({ ...entry, content: entry.content ?? null });
    else if (kind === "judgements") this.judgements.push(entry);
    else if (kind === "carried_scores") this.carried.set(canonical([row.scorer, row.of, row.response_id]), row.score);
    else if (kind === "carried_signals") this.#rows.set(canonical([row.list, row.of]), row.signals);
    else if (kind === "data_gaps") {
      const key = canonical([row.log_id, row.topic, row.partition]);
      this.gaps.set(key, [...(this.gaps.get(key) ?? []), [row.from_offset, row.to_offset]]);
    }
  }

  /** The row that an adopted candidate with these settings' list of signals made of an earlier decision. */
  carriedRow({ signals }, batch) {
    return this.#rows.get(canonical([sha256(signals ?? ""), batch]));
  }

  #addLabel({ row, place, index }) {
    this.fileLabels.push({ row, index });
    if (row.effective_at !== (row.labelled_at < row.received_at ? row.labelled_at : row.received_at)) {
      this.report.fault("label", place, "it takes effect at another time than the earlier of labelled and received");
    }
  }

  #addGate({ row, place, audit_salt: salt, index }) {
    const gate = { name: row.name, commitment: row.audit_salt, seed: row.seed, salt: null, committed: false, policies: [], index, place };
    this.gates.set(row.name, gate);
    if (salt === undefined || salt === null) {
      this.report.note(`salt of ${row.name}`, `the salt of ${row.name} is not revealed: its draws are not checked`);
    } else if (saltCommitment(row.name, salt) !== row.audit_salt) {
      this.report.fault("draw", place, "its salt is not the one that it is committed to");
    } else gate.salt = Buffer.from(salt, "hex");
  }

  #addPolicy({ row, rawRow, place, index, recorded_at: recordedAt }) {
    const gate = this.gates.get(row.gate);
    const revision = this.revisions.get(`${row.gate} ${row.gate_revision}`);
    if (gate === undefined || revision === undefined) {
      this.report.fault("policy", place, "its gate or revision is not on record before it");
      return;
    }
    const before = gate.policies.at(-1);
    if (row.version !== (before?.row.version ?? 0) + 1) this.report.fault("policy", place, "versions do not follow each other");
    const rule = row.rule === null ? { kind: "indicator", parameters: {}, curve: null } : plain(parse(row.rule));
    const policy = { row, raw: rawRow, rule, settings: revision.row, revision, index, place, recordedAt };
    gate.policies.push(policy);
    this.waits.policy(row);
    if (!row.calibrated && row.state !== "closed") this.report.fault("policy", place, "it was never calibrated, and is not closed");
    if (row.calibration_run !== null) this.#againstRun(policy);
  }

  #againstRun({ row, settings, place }) {
    const run = this.runs.get(row.calibration_run);
    const fault = (detail) => this.report.fault("policy", place, detail);
    if (run === undefined || run.row.gate !== row.gate) {
      fault(`run ${row.calibration_run} of this gate is not on record before it`);
      return;
    }
    const decides = run.candidates.find((one) => one.decides);
    const same =
      run.row.state === row.state && run.row.threshold === row.threshold && run.row.guarantee === row.guarantee &&
      (decides === undefined || canonical(normalRule(decides.rule)) === canonical(normalRule(row.rule)));
    if (!same) fault(`it is not what run ${row.calibration_run} found`);
    const calibrated = this.revisions.get(`${row.gate} ${run.row.gate_revision}`)?.row;
    if (calibrated !== undefined && !sameCalibration(calibrated, settings)) {
      fault(`run ${row.calibration_run} was made for other settings of its gate`);
    }
    if (settings.two_people && !this.#inForce.has(run.row.id)) {
      const [by, asked] = [row.created_by, run.row.requested_by];
      const person = (name) => name.replace(/^account:/, "");
      const byItself = by === "recalibrator" && asked === "recalibrator";
      if (!byItself && (by === person(by) || person(by) === person(asked))) fault(`its gate demands two people: ${asked} asked for it, and ${by} put it in force`);
    }
    this.#inForce.add(run.row.id);
  }

  #run({ row, raw, place, index }) {
    const table = (name) => {
      const { columns, rows, sha256: digest } = row[name];
      const values = raw[name];
      if (values.length !== rows || sha256(canonical(values)) !== digest) {
        this.report.fault("log", place, `its ${name} are not what was recorded`);
      }
      return plain(values).map((one) => Object.fromEntries(columns.map((column, i) => [column, one[i]])));
    };
    const run = { row, place, index, inputs: table("inputs"), candidates: table("candidates") };
    const groups = new Map();
    for (const one of run.inputs) {
      const batch = canonical([one.batch_id, one.attempt]);
      groups.set(batch, [...(groups.get(batch) ?? []), one]);
    }
    // Below a label floor no label was due, nor of a claim that scores no more than a wrong one, where that is the whole loss.
    const settings = this.revisions.get(`${row.gate} ${row.gate_revision}`)?.row;
    const { label_floor: floor = null, unit, loss } = settings ?? {};
    let missing = 0;
    for (const some of groups.values()) {
      const wrong = unit === "claim" && loss === "any" ? some.filter((one) => one.severity === 1) : [];
      const above = Math.max(floor ?? -Infinity, ...wrong.map((one) => one.score));
      missing += some.filter((one) => one.severity === null && one.score > above).length;
    }
    if (groups.size !== row.groups || run.inputs.length !== row.items || missing !== row.missing) {
      const detail = "it has read another number of groups, items or missing labels than it says";
      this.report.fault("calibration", place, detail);
    }
    run.badBursts = new Set(run.inputs.filter((one) => one.bad && one.severity !== null && one.burst !== null).map((one) => one.burst));
    if (settings?.group_by != null) {
      for (const [key, burst] of new Map(run.inputs.map((one) => [canonical([row.gate, one.batch_id, one.attempt]), one.burst]))) {
        this.burstsRead.set(key, [...(this.burstsRead.get(key) ?? []), { run: row.id, key: settings.group_by, burst }]);
      }
    }
    if (settings !== undefined && settings.method !== row.method) {
      this.report.fault("calibration", place, "its method is not that of its gate's revision");
    }
    const decides = run.candidates.filter((one) => one.decides);
    if (decides.length !== 1) this.report.fault("calibration", place, "not one calibrator decides");
    else if (decides[0].state !== row.state || decides[0].threshold !== row.threshold) {
      this.report.fault("calibration", place, "its threshold is not that of the calibrator that decides");
    }
    const tooSoon = this.waits.run(row, decides[0]);
    if (tooSoon !== null) this.report.fault("policy", place, tooSoon);
    return run;
  }

  /** The newest policy of a gate when the control log had `size` leaves. */
  newest(name, size) {
    const policies = this.gates.get(name)?.policies ?? [];
    return policies.findLast((policy) => policy.index < size);
  }

  policy(name, version) {
    return this.gates.get(name)?.policies.find((policy) => policy.row.version === version);
  }
}

export const normalRule = (text) => (text === null ? null : parse(text));

/** What is read under a condition only: `audit-format.md`, "A policy and its run". */
const SOMETIMES = new Set(["segment_fallback", "signals"]);
const METHOD_READS = {
  mean: [], crc: [], bb: ["draws"], rbwa: ["eta"], transductive: [], hb: ["delta"], betting: ["delta"], bernstein: ["delta"],
  selective: ["delta"], "selective-mean": [], age: ["rho"], full: ["signals", "ship_above", "least_alike"],
};

function sameCalibration(one, other) {
  const names = [...CALIBRATED_FOR.filter((name) => !SOMETIMES.has(name)), ...(METHOD_READS[one.method] ?? [])];
  if (one.segment_by !== null) names.push("segment_fallback");
  if (one.shape === "smooth" || one.shape === "ramp") names.push("width");
  const read = (row, name) => {
    const extra = row.parameters === null ? {} : plain(parse(row.parameters));
    return row[name] ?? extra[name] ?? null;
  };
  return names.every((name) => read(one, name) === read(other, name));
}

/** The text under the signature of a policy. */
export function policyStatement(policy, recordId, gate) {
  const { row, revision, rule } = policy;
  const settings = {};
  for (const name of FIRST_SETTINGS) settings[name] = setting(name, revision);
  for (const [name, before] of Object.entries(LATER_SETTINGS)) {
    const value = setting(name, revision);
    if (plain(value) !== before && value !== undefined) settings[name] = value;
  }
  return canonical({
    format: 1,
    record: recordId,
    gate: row.gate,
    version: row.version,
    gate_revision: row.gate_revision,
    settings,
    state: row.state,
    lambda: row.threshold === null ? null : float(row.threshold),
    rule: ruleWithFloats(rule),
    calibrated: row.calibrated,
    calibration_run: row.calibration_run,
    seed: gate.seedCommitment,
    audit_salt: gate.commitment,
    valid_from: row.valid_from,
    guarantee: row.guarantee,
    by: row.created_by,
    reason: row.reason,
  });
}

function setting(name, { row, raw }) {
  const value = row[name];
  if (value === null || value === undefined) return value;
  if (FLOATS.has(name)) return float(value);
  if (name === "labellers" || name === "parameters") return typeof value === "string" ? parse(value) : raw[name];
  return value;
}

/** A rule with its real numbers written as floats, however they were stored. */
function ruleWithFloats({ kind, parameters, curve }) {
  const real = (value) => (value === null ? null : float(value));
  const written = { ...parameters };
  for (const name of ["width", "quantile", "alpha", "floor", "ridge", "ship_above"]) {
    if (name in written) written[name] = real(written[name]);
  }
  if (kind === "segments") {
    written.own = Object.fromEntries(Object.entries(parameters.own).map(([name, { state, lambda }]) => [name, { state, lambda: real(lambda) }]));
  }
  return { kind, parameters: written, curve: curve && curve.map((point) => point.map(real)) };
}

/** Signatures of policies, each gate's from the first trusted one on. */
export function checkPolicySignatures(governance, keys, recordId, seedOf, report) {
  for (const gate of governance.gates.values()) {
    gate.seedCommitment = seedOf(gate);
    let trusted = false;
    for (const policy of gate.policies) {
      const { signature, key_id: keyId } = policy.row;
      const key = keys.get(keyId);
      const good =
        signature !== null && key !== undefined &&
        signed(key, "policy", policyStatement(policy, recordId, gate), signature);
      if (good) report.count("policy signatures");
      else if (signature !== null && key !== undefined) report.fault("policy", policy.place, "its signature is not good for what it says");
      else if (!trusted) report.count("policies before the first that is signed with a trusted key");
      else {
        const why = signature === null ? "it is not signed" : "it is signed with a key that is not trusted";
        report.fault("policy", policy.place, `${why}, and a policy before it was`);
      }
      trusted ||= good;
    }
  }
}

/** The scorer of another package is named by a hash of what is frozen of it. */
export function checkModels(governance, report) {
  for (const { row } of governance.revisions.values()) {
    const [name, hash] = row.scorer.split("@");
    const { model } = row;
    const place = `gate ${row.gate} revision ${row.revision}`;
    if (hash === undefined) {
      if (model !== null) report.fault("model", place, `it has a model, and its scorer is ${name}`);
    } else if (model === null || hash !== sha256(model).slice(0, 16)) {
      report.fault("model", place, `its model is not that of ${row.scorer}`);
    } else {
      report.count("frozen scorers of other packages");
    }
  }
}
