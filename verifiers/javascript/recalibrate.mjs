// Every calibration run again from its inputs and the gate's seed, by every calibrator that the run names.

import { canonical, parse, plain } from "./json.mjs";
import { asCut, calibrate, knows } from "./calibrators.mjs";

const NEAR = 1e-9; // of levels that logarithms and exponentials go into

export function checkCalibrations(governance, decisions, report) {
  for (const run of governance.runs.values()) {
    const settings = governance.revisions.get(`${run.row.gate} ${run.row.gate_revision}`)?.row;
    if (settings === undefined || run.inputs.length === 0) continue;
    const fault = (detail) => report.fault("calibration", run.place, detail);
    const gate = governance.gates.get(run.row.gate);
    if (gate !== undefined && gate.seed !== run.row.seed) fault("its seed is not its gate's");
    const alpha = Number((settings.alpha / settings.max_attempts).toFixed(15));
    if (run.row.alpha !== alpha) fault(`its budget should be ${alpha}`);
    const groups = groupsOf(run, decisions, report);
    if (groups === null) continue;
    const sample = sampleOf(run, settings, groups.filter((group) => group.old), alpha);
    for (const candidate of run.candidates) checkCandidate(run, candidate, sample, settings, groups, fault, report);
    report.count("calibrations derived again");
  }
}

/** The groups of a run in the order of their decisions, missing severities as 1. */
function groupsOf(run, decisions, report) {
  const groups = new Map();
  for (const one of run.inputs) {
    const id = `${one.batch_id}#${one.attempt}`;
    if (!groups.has(id)) {
      const facts = decisions.byBatch.get(canonical([run.row.gate, one.batch_id, one.attempt]))?.facts;
      const decidedAt = facts?.decided_at ?? "";
      groups.set(id, {
        id, decidedAt, old: decidedAt < run.row.older_than, segment: one.segment ?? "", draws: one.draws,
        items: [], scores: [], severities: [], waits: false,
      });
    }
    const group = groups.get(id);
    group.items.push(one.response_id);
    group.scores.push(one.score);
    group.severities.push(one.severity ?? 1);
    group.waits ||= one.severity === null;
  }
  const sorted = [...groups.values()].sort((a, b) => (a.decidedAt < b.decidedAt ? -1 : a.decidedAt > b.decidedAt ? 1 : 0));
  const values = sorted.flatMap((group) => [...group.scores, ...group.severities]);
  if (values.some((value) => !(value >= 0 && value <= 1))) {
    report.fault("calibration", run.place, "a score or severity that it has read is not in [0, 1]");
    return null;
  }
  return sorted;
}

function sampleOf(run, settings, groups, alpha) {
  const extra = settings.parameters ? (typeof settings.parameters === "string" ? plain(parse(settings.parameters)) : settings.parameters) : {};
  const history = run.row.history ? plain(parse(run.row.history)) : null;
  const { eta, draws, delta, rho } = settings;
  return {
    groups,
    alpha,
    seed: String(run.row.seed),
    parameters: { eta, draws, delta, rho, ...extra },
    drawn: settings.unit === "response" ? Math.min(settings.audit_draws, ...groups.map((group) => group.draws)) : 1,
    floor: settings.label_floor,
    history: history ?? { cuts: [], prompts: 0 },
  };
}

function checkCandidate(run, candidate, sample, settings, groups, fault, report) {
  const method = candidate.decides ? settings.method : candidate.method;
  if (!knows(method)) {
    report.note(`method ${method}`, `what runs say by the method ${method} is not derived again`);
    return;
  }
  const own = {
    method,
    shape: candidate.decides || settings.shape === "rank" ? settings.shape : "indicator",
    segmentBy: candidate.decides ? settings.segment_by : null,
    fallback: settings.segment_fallback,
    width: settings.width,
  };
  const read = { ...sample, floor: !candidate.decides && method === "clt" ? null : sample.floor };
  let found = calibrate(read, own);
  const suffix = candidate.decides && run.row.suffix ? plain(parse(run.row.suffix)) : null;
  if (suffix !== null && suffix.calibrated_on > 0) {
    if (own.segmentBy !== null || method === "transductive") {
      report.note("suffix tests", "thresholds from the newest groups alone are not derived again for segments and transductive rules");
      return;
    }
    const labelled = groups.filter((group) => !group.waits);
    const newest = labelled.slice(-suffix.calibrated_on);
    const alone = calibrate({ ...read, groups: newest }, own);
    if (alone.value > found.value) found = alone;
  }
  const cut = asCut(found.value);
  const where = `by ${candidate.method} it says ${words(candidate)}, and its inputs give ${words({ state: cut.state, threshold: cut.lambda })}`;
  const exact = own.shape !== "smooth" && own.shape !== "ramp";
  const same = candidate.state === cut.state && (exact ? candidate.threshold === cut.lambda : near(candidate.threshold, cut.lambda));
  if (!same) fault(where);
  const rule = candidate.rule === null ? { kind: "indicator", parameters: {}, curve: null } : plain(parse(candidate.rule));
  if (!near(rule, found.rule)) fault(`by ${candidate.method} it says another rule than its inputs give`);
}

const words = ({ state, threshold }) => (state === "cut" ? `a cut at ${threshold}` : state);

/** Whether two values are the same JSON, but for what rounding does to numbers. */
function near(one, other) {
  if (typeof one === "number" && typeof other === "number") return Math.abs(one - other) <= NEAR * Math.max(1, Math.abs(one));
  if (one === null || other === null || typeof one !== "object" || typeof other !== "object") return one === other;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => key in other && near(one[key], other[key]));
}
