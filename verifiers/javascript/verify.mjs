#!/usr/bin/env node
// Verify an audit bundle of conformal-streamer with nothing but Node (20 or later).
//
// Written from docs/audit-format.md alone, so that the record can be checked by a program that shares no line with the one
// that made it. `node verify.mjs bundle.zip --public-key F --checkpoints F [--receipts F] [--policy-keys F] [--label-keys F] [--witness-keys F] [--json]`

import { readFileSync } from "node:fs";
import { Unreadable, decode, lines, openBundle } from "./bundle.mjs";
import { checkCheckpoints, checkReceipts, checkUnchained, walkControl, walkOutcomes } from "./chains.mjs";
import { Governance, checkModels, checkPolicySignatures } from "./control.mjs";
import { Decisions } from "./decisions.mjs";
import { checkDesk } from "./desk.mjs";
import { readKeys, readWitnessKeys, seedCommitment, sha256 } from "./hashes.mjs";
import { canonical, parse, plain } from "./json.mjs";
import { Labels, checkSeverities, readLabelKeys } from "./labels.mjs";
import { checkBudgets, checkCalibrations } from "./recalibrate.mjs";
import { Report, printable } from "./report.mjs";
import { checkCompleteness, checkHeads, checkInputs } from "./runs.mjs";
import { wrongForm } from "./schema.mjs";
import { checkErasures, checkRefusals } from "./refusals.mjs";

const USAGE = `usage: node verify.mjs [--public-key FILE] [--checkpoints FILE] [--receipts FILE] [--policy-keys FILE] [--label-keys FILE] [--witness-keys FILE] [--json] BUNDLE

BUNDLE         folder or .zip made by \`streamer audit export\`
--public-key   PEM file with the public keys that may sign checkpoints
--checkpoints  checkpoints kept outside the database: one JSON a line, or a signed note
--receipts     receipts of decisions that somebody kept, one JSON a line
--policy-keys  PEM file with the public keys that may sign policies
--label-keys   public keys of labellers, each after a line \`labeller: NAME\`
--witness-keys keys of witnesses, NAME+HASH+KEY, one a line: say how far each has cosigned the record
--json         print one JSON object

Exit status: 0 everything fits, 2 something cannot be read, 3 something was changed.`;

/** Verify a bundle; returns the report. Throws Unreadable. */
export function verifyBundle({ bundle, publicKey, checkpoints, receipts, policyKeys, labelKeys = null, witnessKeys = null }) {
  const report = new Report();
  const manifest = readManifest(bundle);
  checkFiles(bundle, manifest, report);
  let keys = publicKey === null ? null : readKeys(publicKey);
  if (keys === null) {
    report.note("own key", "the public keys are those of the bundle: whoever made it may have made them");
    keys = bundle.has("public-key.pem") ? readKeys(decode(bundle.read("public-key.pem"), "public-key.pem")) : new Map();
  }
  const governance = new Governance(report);
  const control = walkControl(bundle, manifest, report, (entry) => {
    guarded(report, entry.place, () => governance.add(entry));
  });
  const [own, heads] = ["checkpoints.jsonl", "heads.jsonl"].map((name) => [...lines(bundle.read(name))]);
  const outside = checkpoints === null ? null : checkpointLines(checkpoints);
  if (outside === null) report.note("no outside checkpoints", "no checkpoints kept outside: somebody may have made all of this anew");
  else if (outside.length === 0) report.note("no outside checkpoints", "the file has no checkpoint: somebody may have made all of this anew");
  const decisions = new Decisions(governance, manifest, report);
  const others = [];
  const labels = new Labels(labelKeys === null ? null : readLabelKeys(labelKeys), manifest.head.record_id);
  for (const one of governance.fileLabels) labels.addRow(one);
  for (const one of governance.labelSignatures) labels.addSignature(one);
  const chains = walkOutcomes(bundle, manifest, control, governance.gaps, report, (entry) => {
    if (entry.kind === "decision") others.push(entry);
    else guarded(report, entry.place, () => checkRefusals(entry, decisions, report));
    if (entry.kind === "label") labels.addOutcome(entry);
  });
  const { gates, restorations } = governance;
  const witnesses = witnessKeys === null ? new Map() : readWitnessKeys(witnessKeys);
  const newest = checkCheckpoints({ own, outside, heads, keys, witnesses, manifest, control, chains, gates, restorations }, report);
  for (const entry of others) guarded(report, entry.place, () => decisions.add(entry));
  for (const entry of governance.judgements) guarded(report, entry.place, () => decisions.words(entry));
  checkUnchained(bundle, report);
  checkDesk(governance, decisions, report);
  checkErasures(governance, decisions, report);
  checkModels(governance, report);
  checkCompleteness(governance, decisions, headsOf, report);
  checkHeads(governance, control, chains, report);
  checkInputs(governance, decisions, report);
  checkSeverities(governance, labels, headsOf, report);
  checkCalibrations(governance, decisions, report);
  checkBudgets(governance, decisions, report);
  if (receipts !== null) checkReceipts(receipts, control, chains, decisions.events, report);
  const seedOf = (gate) => seedCommitment(gate.name, gate.seed);
  if (policyKeys !== null) checkPolicySignatures(governance, readKeys(policyKeys), manifest.head.record_id, seedOf, report);
  tellYounger(newest, control, chains, report);
  return report;
}

function readManifest(bundle) {
  let manifest;
  try {
    const tree = parse(decode(bundle.read("manifest.json"), "manifest.json"));
    const wrong = wrongForm("manifest", tree);
    if (wrong !== null) throw new SyntaxError(`${wrong[0].slice(1) || "it"} ${wrong[1]}`);
    manifest = plain(tree);
  } catch (error) {
    if (error instanceof Unreadable) throw error;
    throw new Unreadable(`manifest.json: ${error.message}`);
  }
  return manifest;
}

function checkFiles(bundle, manifest, report) {
  for (const [name, { sha256: digest, lines: count }] of Object.entries(manifest.files)) {
    const bytes = bundle.read(name);
    if (sha256(bytes) !== digest) report.fault("bundle", name, "it is not the file that was exported");
    else if (name.endsWith(".jsonl") && [...lines(bytes)].length !== count) report.fault("bundle", name, `it has not ${count} lines`);
  }
}

/** How long the partitions' logs were when a run began to read. */
function headsOf(row) {
  return new Map(plain(parse(row.heads)).map(([log, topic, partition, size]) => [canonical([log, topic, partition]), size]));
}

/** A last line without its end was interrupted, and does not count. */
function completeLines(bytes) {
  return [...lines(bytes.subarray(0, bytes.lastIndexOf(10) + 1))].filter((line) => line.length > 0);
}

/** A file of checkpoints: one JSON a line, or a signed note as a witness gives it. */
function checkpointLines(bytes) {
  return bytes.length === 0 || bytes[0] === 0x7b ? completeLines(bytes) : [bytes];
}

/** Values that cannot be read are a fault of their row. */
function guarded(report, place, check) {
  try {
    check();
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof SyntaxError || error instanceof RangeError)) throw error;
    report.fault("value", place, `it has a value that cannot be read: ${error.message}`);
  }
}

function tellYounger(newest, control, chains, report) {
  const seen = new Map((newest?.partitions ?? []).map((head) => [`["${head.log_id}","${head.topic}",${head.partition}]`, head.size]));
  let younger = control.size - (newest?.control.size ?? 0);
  for (const [key, chain] of chains) younger += chain.size - (seen.get(key) ?? 0);
  if (younger > 0) report.note("younger leaves", `${younger} leaves are younger than the last checkpoint: they could still be rewritten unseen`);
}

function options(argv) {
  const found = { bundle: null, json: false };
  const files = { "--public-key": "publicKey", "--checkpoints": "checkpoints", "--receipts": "receipts", "--policy-keys": "policyKeys", "--label-keys": "labelKeys", "--witness-keys": "witnessKeys" };
  for (let i = 0; i < argv.length; i += 1) {
    const [name, given] = argv[i].startsWith("--") && argv[i].includes("=") ? argv[i].split(/=(.*)/s) : [argv[i], undefined];
    if (name === "--json") found.json = true;
    else if (name === "--help" || name === "-h") return null;
    else if (name in files) {
      found[files[name]] = given ?? argv[(i += 1)];
      if (found[files[name]] === undefined) throw new Unreadable(`${name} needs a file`);
    } else if (name.startsWith("-") || found.bundle !== null) throw new Unreadable(`what is ${name}?\n${USAGE}`);
    else found.bundle = name;
  }
  if (found.bundle === null) throw new Unreadable(USAGE);
  return found;
}

function main(argv) {
  try {
    const chosen = options(argv);
    if (chosen === null) {
      process.stdout.write(`${USAGE}\n`);
      return 0;
    }
    const read = (path) => {
      try {
        return path === undefined ? null : readFileSync(path);
      } catch (error) {
        throw new Unreadable(`${path}: ${error.message}`);
      }
    };
    const text = (path) => (path === undefined ? null : decode(read(path), path));
    const report = verifyBundle({
      bundle: openBundle(chosen.bundle),
      publicKey: text(chosen.publicKey),
      checkpoints: read(chosen.checkpoints),
      receipts: read(chosen.receipts),
      policyKeys: text(chosen.policyKeys),
      labelKeys: text(chosen.labelKeys),
      witnessKeys: text(chosen.witnessKeys),
    });
    process.stdout.write(`${chosen.json ? report.asJson() : report.asText()}\n`);
    return report.faults.length ? 3 : 0;
  } catch (error) {
    if (!(error instanceof Unreadable || error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError)) throw error;
    const said = error.message.split("\n").map(printable).join("\n");
    process.stderr.write(`cannot read it: ${said}\n`);
    return 2;
  }
}

if (import.meta.filename === process.argv[1] || import.meta.url === `file://${process.argv[1]}`) process.exitCode = main(process.argv.slice(2));
