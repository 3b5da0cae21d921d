// Compute the test vectors of docs/audit-format.md: `node vectors.mjs docs/audit-format.vectors.json` names those that fit, or the first that does not.

import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { checkCheckpoints, checkControl } from "./chains.mjs";
import { Governance, policyStatement } from "./control.mjs";
import { actionId, isLate, isOverdue, notNewest, wordsMac } from "./decisions.mjs";
import { deskDeadline, deskId, textMac } from "./desk.mjs";
import { MerkleLog, hmac, keyedBits, leafHash, saltCommitment, seedCommitment, sha256, signedText, uniform } from "./hashes.mjs";
import { Num, canonical, parse, plain } from "./json.mjs";
import { Labels, labelStatement, severities } from "./labels.mjs";
import { micros } from "./moments.mjs";
import { Report } from "./report.mjs";
import { decide, isBlank, segmentOf } from "./rules.mjs";
import { ByScore, Fit, bySignals, fitted } from "./signals.mjs";
import { isLooser, served } from "./waits.mjs";

const PKCS8 = "302e020100300506032b657004220420"; // what stands before the 32 bytes of a private key of Ed25519

function privateKey(hex) {
  const key = createPrivateKey({ key: Buffer.from(PKCS8 + hex, "hex"), format: "der", type: "pkcs8" });
  const open = createPublicKey(key);
  return { key, open, id: sha256(open.export({ type: "spki", format: "der" }).subarray(-32)) };
}

const bytes = (hex) => Buffer.from(hex, "hex");
const word = ({ state, lambda }) => (state === "cut" ? lambda : state);

const VECTORS = {
  canonical: (given) => ({ output: canonical(parse(given.input)) }),
  merkle({ leaves }) {
    const log = new MerkleLog();
    for (const one of leaves) log.append(leafHash(one));
    return { roots: leaves.map((_, i) => log.root(i)).concat(log.root()) };
  },
  "control-leaf": ({ record, index, kind, recorded_at: at }, raw) => ({
    leaf: leafHash(canonical({ record, index, kind, recorded_at: at, row: raw.row })),
  }),
  "outcome-leaf": ({ index, kind, recorded_at: at }, raw) => ({
    leaf: leafHash(canonical({ kind, source: raw.source, index, recorded_at: at, facts: raw.facts })),
  }),
  commitments: ({ gate, salt, seed }) => ({
    salt_commitment: saltCommitment(gate, salt),
    seed_commitment: seedCommitment(gate, seed),
  }),
  seals(given, raw) {
    const value = Buffer.from(given.value, "base64");
    const head = canonical([given.topic, Buffer.from(given.key, "base64").toString("hex"), given.headers]);
    const texts = [raw.content_hash, raw.prompt, raw.references, raw.metadata, raw.texts];
    return {
      content_mac: hmac(bytes(given.salt), canonical(texts)),
      action: sha256(head, Buffer.from([1]), value),
      action_id: actionId(...given.batch),
    };
  },
  checkpoint({ private_key: hex, checkpoint: given }, raw) {
    const { open, id } = privateKey(hex);
    const report = new Report();
    const manifest = { head: { record_id: raw.head.record }, made_at: raw.head.at };
    const control = { size: 0, root: () => null };
    const lines = { own: [Buffer.from(given)], outside: null, heads: [Buffer.from(canonical(raw.head))] };
    checkCheckpoints({ ...lines, keys: new Map([[id, open]]), manifest, control, chains: new Map(), gates: new Map() }, report);
    return { checkpoint: report.faults.length === 0 ? given : null };
  },
  decisions: (given) =>
    given.map((one) => {
      const found = decide({ ...one, rule: { kind: "indicator" }, uniforms: null, segment: null });
      return { shipped: found.shipped, selected: found.selected };
    }),
  blanks: (given) => given.map(([text]) => [text, isBlank(text)]),
  rules: (given) =>
    given.map((one) => {
      const found = decide({ blank: one.scores.map(() => false), uniforms: null, segment: null, threshold: null, ...one });
      return { shipped: found.shipped, selected: found.selected, cut: word({ state: found.cut.state, lambda: found.cut.threshold }) };
    }),
  segments: (given, raw) =>
    given.map(([value], i) => {
      const [tree] = raw[i];
      return [value, segmentOf(value, tree instanceof Num && /[.e]/.test(tree.canonical))];
    }),
  deadlines: (given) =>
    given.map(({ deadline_ms: ms = null, decision_deadline_seconds: seconds = null, created_at: created, timestamp_ms: stamp, decided_at: now }) => ({
      late: isOverdue(ms, now) || (seconds !== null && isLate(seconds, created, stamp, now)),
    })),
  desk: ({ batch, text, salt, decided_at: decidedAt, desk_deadline_seconds: seconds, until }) => ({
    id: deskId(batch),
    text_mac: textMac(salt, text),
    until: micros(until) === deskDeadline(decidedAt, seconds) ? until : null,
  }),
  judgement: ({ salt }, raw) => ({ content_mac: wordsMac(salt, raw.exchanges) }),
  severities(given) {
    const labels = new Labels();
    given.labels.forEach((one, index) => labels.addRow({ row: { ...given.response, ...one, id: index }, index }));
    const of = ({ kind, labellers }) =>
      labels.of(given.response.gate, given.response).filter((one) => one.kind === kind && (labellers === null || labellers.includes(one.labeller)));
    return { read: given.read.map((one) => ({ mean: severities(of(one), "mean")[0], highest: severities(of(one), "highest")[0] })) };
  },
  order({ policies, decisions, logs, control_size: size }) {
    const newest = (control) => policies.findLast(([at]) => at < control)?.[1];
    const fits = (seen) => {
      const report = new Report();
      const state = { control: 0 };
      const control = { size, root: (at) => `${at}` };
      for (const one of seen) checkControl([one, `${one}`], state, control, "", report);
      return report.faults.length === 0;
    };
    return {
      decisions: decisions.map((one) => ({ fits: notNewest(one, newest(one.control), policies.some(([, version, closes]) => version === one.policy && closes)) === null })),
      logs: logs.map(({ controls }) => ({ fits: fits(controls) })),
    };
  },
  waits: (given) => given.map(({ before, after }) => ({ looser: isLooser(served(before), served(after)) })),
  "label-signature"({ private_key: hex, record, label }, raw) {
    const { key, id } = privateKey(hex);
    const text = signedText("label", labelStatement(raw.label, record));
    return { key_id: id, statement: text, signature: sign(null, Buffer.from(text), key).toString("base64") };
  },
  transductive: ({ rule, cuts }) => ({
    cuts: cuts.map(({ scores }) => {
      const asked = { unit: "response", state: "open", threshold: null, rule, scores, blank: scores.map(() => false) };
      const { cut } = decide({ ...asked, uniforms: null, segment: null });
      return { scores, cut: word({ state: cut.state, lambda: cut.threshold }) };
    }),
  }),
  draws({ salt, gate, batch_id: batch, attempt, response }) {
    const n = (...parts) => keyedBits(bytes(salt), ...parts);
    return {
      audit: n("audit", gate, batch, String(attempt)),
      draw: n("draw", gate, batch, String(attempt), response),
      severity: uniform(bytes(salt), "severity", gate, batch, attempt),
      dither: uniform(bytes(salt), "dither", gate, batch, attempt, response),
    };
  },
  "policy-signature"({ private_key: hex, record, salt, seed, row, settings }, raw) {
    const governance = new Governance(new Report());
    const revision = { ...settings, gate: row.gate, revision: row.gate_revision };
    const before = { ...row, version: row.version - 1, calibration_run: null };
    const add = (kind, one, rawRow) => governance.add({ kind, row: one, rawRow, place: kind, index: 0 });
    add("gates", { name: row.gate, audit_salt: saltCommitment(row.gate, salt), seed });
    add("gate_revisions", revision, raw.settings);
    add("policies", before, raw.row);
    add("policies", row, raw.row);
    const gate = governance.gates.get(row.gate);
    gate.seedCommitment = seedCommitment(row.gate, seed);
    const text = signedText("policy", policyStatement(governance.policy(row.gate, row.version), record, gate));
    const { key } = privateKey(hex);
    return { statement: text, signature: sign(null, Buffer.from(text), key).toString("base64") };
  },
  "all-signals"({ prompts, cases, by_score: { scores, severities, asked } }) {
    const groups = prompts.map(([signals, bad, segment]) => ({ signals, bad, segment }));
    const losses = new ByScore(scores.map((score, i) => ({ scores: [score], severities: [severities[i]] })));
    return {
      cases: cases.map((one) => {
        const { said, prompts: own } = fitted(groups, one);
        const rule = { parameters: { fits: [said], segment_by: one.segment_by, pooled: one.segment_fallback === "pooled" } };
        return { fit: { ...said }, asked: one.asked.map((batch) => ({ budget: bySignals(rule, [new Fit(own)], batch) })) };
      }),
      by_score: { asked: asked.map(([score]) => [score, losses.needed({ responses: [["", score]] }, "best")]) },
    };
  },
};

const fits = [];
for (const [name, raw] of Object.entries(parse(readFileSync(process.argv[2], "utf8")))) {
  if (!(name in VECTORS)) continue; // of calibrators, which this verifier does not run
  const given = plain(raw);
  const made = VECTORS[name](given, raw);
  const same = (one, other) => {
    if (one === null || other === null || typeof one !== "object") return one === other;
    return (Object.keys(one).length > 0 || Object.keys(other).length === 0) && Object.keys(one).every((key) => same(one[key], other[key]));
  };
  if (!same(made, given)) {
    console.error(name, made);
    process.exit(1);
  }
  fits.push(name);
}
console.log(fits.sort().join("\n"));
