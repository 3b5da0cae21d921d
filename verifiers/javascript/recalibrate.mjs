// What a run's policies compare batches with, from its inputs, and the budget that each decision needed by it. No calibrator is run.

import { canonical, parse, plain, sameJson } from "./json.mjs";
import { sha256, uniform } from "./hashes.mjs";
import { unread } from "./rules.mjs";
import { ByScore, Fit, RIDGE, bySignals, fitted, severityOf } from "./signals.mjs";

const NEAR = 1e-9; // of levels that logarithms and exponentials go into

export function checkCalibrations(governance, decisions, report) {
  for (const run of governance.runs.values()) {
    const settings = governance.revisions.get(`${run.row.gate} ${run.row.gate_revision}`)?.row;
    if (settings === undefined) continue;
    run.compares = { byScore: new ByScore([]) };
    if (run.inputs.length === 0) continue;
    const fault = (detail) => report.fault("calibration", run.place, detail);
    const gate = governance.gates.get(run.row.gate);
    if (gate !== undefined && gate.seed !== run.row.seed) fault("its seed is not its gate's");
    const alpha = Number((settings.alpha / settings.max_attempts).toFixed(15));
    if (run.row.alpha !== alpha) fault(`its budget should be ${alpha}`);
    const read = groupsOf(run, settings, governance, decisions, report);
    if (read === null) continue;
    checkBursts(read, gate?.salt ?? null, fault);
    const groups = read.filter(({ spare }) => !spare);
    for (const group of read) checkMark(run, group, gate?.salt ?? null, settings, fault);
    run.compares.byScore = new ByScore(groups.filter((group) => group.old));
    const decides = run.candidates.find((one) => one.decides);
    if (decides !== undefined && settings.method === "full") checkSignals(run, decides, settings, groups, fault);
    report.note("calibrators", "thresholds of runs were not derived again from what they had read: `audit verify` and verify.pyz do that");
  }
}

/** The groups of a run in the order of their decisions, missing severities as 1. */
function groupsOf(run, settings, governance, decisions, report) {
  const groups = new Map();
  for (const one of run.inputs) {
    const id = `${one.batch_id}#${one.attempt}`;
    if (!groups.has(id)) {
      const batch = [run.row.gate, one.batch_id, one.attempt];
      const facts = decisions.byBatch.get(canonical(batch))?.facts;
      const decidedAt = facts?.decided_at ?? "";
      const { segment, burst, spare } = one;
      groups.set(id, {
        id, decidedAt, old: decidedAt < run.row.older_than, segment: segment ?? "", burst, spare, batch,
        scores: [], severities: [], waits: false, bad: false, said: [],
        signals: governance.carriedRow(settings, batch) ?? facts?.signals ?? null,
      });
    }
    const group = groups.get(id);
    group.scores.push(one.score);
    group.severities.push(one.severity ?? 1);
    group.waits ||= one.severity === null;
    group.said.push(one.bad);
  }
  const sorted = [...groups.values()].sort((a, b) => (a.decidedAt < b.decidedAt ? -1 : a.decidedAt > b.decidedAt ? 1 : 0));
  const values = sorted.flatMap((group) => [...group.scores, ...group.severities]);
  if (values.some((value) => !(value >= 0 && value <= 1))) {
    report.fault("calibration", run.place, "a score or severity that it has read is not in [0, 1]");
    return null;
  }
  return sorted;
}

/** Of each burst one batch counts: the first by the gate's draw, of those old enough where there are some. */
function checkBursts(groups, salt, fault) {
  const bursts = new Map();
  for (const { burst, spare, old, batch } of groups) {
    if (burst === null && !spare) continue;
    const place = (old ? 0 : 1) + (salt === null ? 0 : uniform(salt, "burst", ...batch));
    bursts.set(burst, [...(bursts.get(burst) ?? []), { place, spare }]);
  }
  for (const members of bursts.values()) {
    const counts = members.filter(({ spare }) => !spare);
    if (counts.length !== 1 || counts[0].place !== Math.min(...members.map(({ place }) => place))) {
      fault("of a burst of its inputs another batch counts, by its gate's draw");
    }
  }
}

/** Whether a prompt counts as bad by the method full: a severity between 0 and 1 with that chance, by its gate's draw. */
function checkMark(run, group, salt, { method }, fault) {
  const severity = severityOf(group.severities);
  const drawn = severity > 0 && severity < 1;
  group.bad = drawn ? Boolean(group.said[0]) : severity > 0;
  if (drawn && salt !== null) group.bad = uniform(salt, "severity", ...group.batch) < severity;
  if (method === "full" && group.said.some((one) => one !== group.bad)) {
    fault(`${group.id}: its prompt is ${group.bad ? "bad" : "good"}, by its severity ${severity}`);
  }
}

/** A rule of all signals from its prompts, where there are enough. */
function checkSignals(run, candidate, settings, groups, fault) {
  const first = fitted(groups.filter((group) => group.old), settings);
  if (first === null) return;
  const suffix = run.row.suffix ? plain(parse(run.row.suffix)) : null;
  const newest = suffix?.calibrated_on > 0 ? fitted(groups.filter((group) => !group.waits).slice(-suffix.calibrated_on), settings) : null;
  const found = newest === null ? [first] : [first, newest];
  const { segment_by, segment_fallback, signals } = settings;
  const { ship_above, least_alike } = plain(parse(settings.parameters ?? "{}"));
  const parameters = { signals: sha256(signals), ridge: RIDGE, segment_by, pooled: segment_fallback === "pooled", ship_above, least_alike, fits: found.map(({ said }) => said) };
  const rule = { kind: "full", parameters, curve: null };
  const said = candidate.rule === null ? null : plain(parse(candidate.rule));
  if (candidate.state !== "full" || candidate.threshold !== null || !sameJson(said, rule, NEAR)) {
    fault(`by ${candidate.method} it says another rule than its inputs give`);
  }
  run.compares.bySignals = { rule, prompts: found.map(({ prompts }) => prompts) };
}

/** The budget that each decision needed, from the labelled prompts of its policy's run. */
export function checkBudgets(governance, decisions, report) {
  const fits = new Map(); // of the runs of policies
  for (const { facts, place } of decisions.byBatch.values()) {
    const policy = governance.policy(facts.batch[0], facts.policy);
    const run = governance.runs.get(policy?.row.calibration_run);
    let needed = null;
    if (run?.compares !== undefined && facts.responses.length > 0 && facts.responses[0][1] !== null) {
      const { byScore, bySignals: by } = run.compares;
      const { settings, rule } = policy;
      if (by !== undefined) {
        if (!fits.has(run)) fits.set(run, by.prompts.map((prompts) => new Fit(prompts)));
        needed = bySignals(by.rule, fits.get(run), facts);
      } else if (
        ["indicator", "segments"].includes(rule.kind) && ["mean", "full", ...(settings.unit === "best" ? ["crc", "bb", "rbwa"] : [])].includes(settings.method) && ["best", "batch"].includes(settings.unit) && settings.label_floor === null &&
        !unread(facts.signals).includes("1")
      ) {
        const pooled = settings.segment_fallback === "pooled" && rule.parameters.own?.[facts.segment ?? ""] === undefined;
        const of = rule.kind === "segments" && !pooled ? byScore.of(facts.segment ?? "") : byScore;
        needed = of.needed(facts, settings.unit);
      }
    }
    if (needed !== null) report.count("budgets derived again");
    const said = facts.budget ?? null;
    if (said?.[0] === needed?.[0] && said?.[1] === needed?.[1]) continue;
    const [first, second] = [said, needed].map((one) => (one === null ? "none" : `${one[0]} of ${one[1] + 1}`));
    report.fault("action", place, `the budget that it needed is ${second} by its policy's labelled prompts, and ${first} on record`);
  }
}
