// The logs, the checkpoints that say where they stood, and receipts that name single leaves.

import { canonical, parse, plain } from "./json.mjs";
import { canonicalObject, decode, jsonLines, lines } from "./bundle.mjs";
import { wrongForm } from "./schema.mjs";
import { MerkleLog, leafHash, seedCommitment, sha256, signaturesOf, signed } from "./hashes.mjs";
import { micros } from "./moments.mjs";

const BACKWARDS = 60_000_000n; // microseconds: a clock that runs further back is told

export const partitionOf = ([log, topic, partition]) => canonical([log, topic, partition]);

export const nameOf = ([, topic, partition]) => `${topic}[${partition}]`;

/** One log while it is walked. */
class Log extends MerkleLog {
  constructor(name) {
    super();
    this.name = name;
    this.next = 0; // the index of the leaf that comes next
    this.latest = null;
    this.lastOffset = -1;
    this.nextOffset = Infinity;
    this.claimed = 0; // the size that the manifest names
  }

  /** Take the next leaf; true if it is what its hash says. The first root that is not that of the leaves up to it is told. */
  add(index, { leaf: hash, root }, fields, place, report) {
    if (index !== this.next) {
      report.fault("log", `${this.name}, leaf ${this.next}`, `it is missing (the next is ${index})`);
      do this.append(null);
      while (this.size < index && this.size < 1e7);
    }
    this.next = index + 1; // go on from here: one fault, not one for each leaf behind it
    if (index === this.size) this.append(hash);
    if (!this.rootless && (this.root(index + 1) ?? root) !== root) {
      this.rootless = true;
      report.fault("log", place, "its root is not that of the leaves up to it");
    }
    try {
      return fields === null || leafHash(canonical(fields)) === hash;
    } catch {
      return false; // a value that nobody hashed
    }
  }

  /** Tell where a clock ran backwards; what is no time is a fault of its link elsewhere. */
  time(moment, report) {
    if (this.latest !== null && micros(this.latest) - micros(moment) > BACKWARDS) {
      const text = `time runs backwards in ${this.name} at leaf ${this.next - 1}: ${moment} after ${this.latest}`;
      report.note(`clock ${this.name}`, text);
    }
    if (this.latest === null || moment > this.latest) this.latest = moment;
  }

  end(head, report) {
    if (this.size !== head.size) report.fault("log", this.name, `its log has ${this.size} leaves, and should have ${head.size}`);
    else if ((this.root() ?? head.root) !== head.root) report.fault("log", this.name, "its log has another root than its leaves give");
  }
}

// The column of a control row that says when it was written.
const WRITTEN_AT = {
  accounts: "created_at", alert_acknowledgements: "at", api_key_revocations: "revoked_at", api_keys: "created_at",
  calibration_runs: "finished_at", candidate_policies: "at", data_gaps: "recorded_at", dead_letter_replays: "at",
  desk_outcomes: "at", encoders: "first_seen_at", erasures: "at", gate_revisions: "created_at", gates: "created_at",
  judgements: "judged_at", label_revisions: "received_at", label_signatures: "received_at", policies: "valid_from", policy_events: "at",
  proposal_rejections: "rejected_at", restorations: "at",
};

/** Compare when a row says that it was written with when it was sealed. */
function dated({ kind, row, recorded_at: sealed }, place, report) {
  const said = Object.hasOwn(WRITTEN_AT, kind) ? (row[WRITTEN_AT[kind]] ?? null) : null;
  if (said !== null && said !== sealed) report.fault("order", place, `it says that it was written at ${said}, and it was sealed at ${sealed}`);
}

/** Walk the control log; `each(entry)` gets every row that is there, with its place. Returns the log. */
export function walkControl(bundle, manifest, report, each) {
  const head = manifest.head;
  const chain = new Log("control");
  for (const { raw, value } of jsonLines(bundle.read("control.jsonl"), "control.jsonl", report)) {
    report.count("control entries");
    const { index, kind, recorded_at: recordedAt } = value;
    const fields = (row) => ({ record: head.record_id, index, kind, recorded_at: recordedAt, row });
    const place = `control, leaf ${index}, ${kind}${keysOf(value.row)}`;
    const { malformed } = value;
    const sound = chain.add(index, value, malformed === undefined ? fields("sealed" in raw ? raw.sealed : raw.row) : null, place, report);
    if (malformed !== undefined) report.fault("form", place, malformed);
    else if (value.row === null) report.fault("log", place, "the row that was sealed here is gone");
    else if ("sealed" in raw || !sound) report.fault("log", place, "it is not what was recorded");
    if (value.row === null && !sound) report.fault("log", place, "nor does its copy fit the log");
    chain.time(recordedAt, report);
    if (value.row === null) continue;
    dated(value, place, report);
    each({ ...value, rawRow: raw.row, raw, place });
  }
  chain.end(head.control, report);
  chain.claimed = head.control.size;
  return chain;
}

function keysOf(row) {
  const found = [];
  for (const key of ["gate", "name", "revision", "version", "event", "id", "number"]) {
    if (row !== null && key in row && row[key] !== null) found.push(` ${key} ${row[key]}`);
  }
  return found.join("");
}

/** Walk the logs of the partitions; `each(entry)` gets every outcome that is there. Returns logs by partition. */
export function walkOutcomes(bundle, manifest, control, gaps, report, each) {
  const chains = new Map();
  const heads = new Map(manifest.head.partitions.map((head) => [partitionOf(placeOf(head)), head]));
  let current = null;
  let state = null;
  for (const { raw, value } of jsonLines(bundle.read("outcomes.jsonl"), "outcomes.jsonl", report)) {
    report.count("outcomes");
    const { source } = value;
    const [log, , , offset] = source;
    const key = partitionOf(value.source);
    if (key !== current) {
      current = key;
      if (chains.has(key)) report.fault("log", nameOf(value.source), "its leaves are not in one piece");
      chains.set(key, new Log(nameOf(value.source)));
      state = { offset: -1, control: 0 };
    }
    const chain = chains.get(key);
    const { index, kind, recorded_at: recordedAt, facts } = value;
    const batch = facts?.batch !== undefined ? ` (${facts.batch[0]}/${facts.batch[1]}#${facts.batch[2]})` : "";
    const place = `${chain.name}, leaf ${index}, offset ${offset}${batch}`;
    const gone = facts === null;
    const fields = { kind, source: raw.source, index: raw.index, recorded_at: recordedAt, facts: raw.facts };
    const sound = chain.add(index, value, gone ? null : fields, place, report);
    if (value.malformed !== undefined) report.fault("form", place, value.malformed);
    else if (gone) report.fault("log", place, `the ${kind} is gone: ${value.missing ?? "nobody says why"}`);
    else if (!sound) report.fault("log", place, `the ${kind} is not what was recorded`);
    checkOffset(chain, state, offset, log, gaps.get(key) ?? [], place, report);
    chain.time(recordedAt, report);
    if (!gone) {
      checkControl(facts.control, state, control, place, report);
      each({ ...value, rawFacts: raw.facts, raw, place, partition: key });
    }
  }
  for (const [key, head] of heads) {
    const chain = chains.get(key) ?? new Log(nameOf(placeOf(head)));
    chains.set(key, chain);
    chain.nextOffset = head.next_offset;
    chain.claimed = head.size;
    chain.end(head, report);
    if (chain.lastOffset >= head.next_offset) {
      report.fault("log", `${chain.name}, leaf ${chain.size - 1}`, `progress stands at ${head.next_offset}, before the last outcome`);
    }
  }
  for (const [key, chain] of chains) {
    if (!heads.has(key)) report.fault("log", chain.name, "the manifest does not know this log");
  }
  return chains;
}

export const placeOf = (head) => [head.log_id, head.topic, head.partition];

/** Offsets rise; holes are told, unless a data gap is on record, but for requests by HTTP, which are numbered without any. */
function checkOffset(chain, state, offset, log, gaps, place, report) {
  if (offset <= state.offset) report.fault("log", place, `its offset does not follow ${state.offset}`);
  let missing = offset - state.offset - 1;
  for (const [from, to] of gaps) missing -= Math.max(0, Math.min(to, offset) - Math.max(from, state.offset + 1));
  if (missing > 0 && log === "http") report.fault("log", place, `${missing} requests before it are missing`);
  else if (missing > 0) {
    state.holes = (state.holes ?? 0) + missing;
    report.notes.set(`holes ${chain.name}`, `${state.holes} offsets of ${chain.name} have no outcome`);
  }
  state.offset = Math.max(offset, state.offset);
  chain.lastOffset = state.offset;
}

/** The size and root of the control log that an outcome has seen: it was so once, and none before it saw more. */
export function checkControl([size, root], state, control, place, report) {
  if (size > control.size) report.fault("order", place, "it has seen a control log that is longer than this one");
  else if ((control.root(size) ?? root) !== root) report.fault("order", place, "it has seen another control log");
  if (size < state.control) report.fault("order", place, "it has seen less of the control log than the one before it");
  state.control = Math.max(size, state.control);
}

/** Rows in no log: none. */
export function checkUnchained(bundle, report) {
  for (const { value } of jsonLines(bundle.read("unchained.jsonl"), "unchained.jsonl", report)) {
    report.fault("log", `${value.kind} ${value.subject}`, "this row belongs to no log");
  }
}

const NOTE = /^(([^\x00-\x1f\x7f]+)\n([1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n(?:[^\x00-\x1f\x7f]+\n)*)\n((?:\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n)+)$/u;

/**
 * Checkpoints, as signed notes: their signatures, the log of heads against each, and the record against every head under the newest.
 *
 * `outside` are those that somebody kept (null: only the bundle's own count). Those that say more heads than the bundle has are
 * younger, unless they were made before it. What contradicts the log of heads is a fault, unless it was given up where a backup was
 * restored. Returns the newest head that a checkpoint covers, or null.
 */
export function checkCheckpoints({ own, outside, heads, keys, witnesses = new Map(), manifest, control, chains, gates, restorations = [] }, report) {
  const read = (lines, origin) => checkpointsOf(lines, origin, keys, witnesses, report);
  const notes = [...read(outside ?? [], "the file"), ...read(own, "the bundle")];
  const known = manifest.head.record_id;
  const given = givenUp(restorations, known, keys, report);
  const origins = new Set([`streamer/${known}`, ...given.flatMap(({ origin, next }) => [origin, next])]);
  for (const { place, origin } of notes) {
    if (!origins.has(origin)) report.fault("checkpoint", place, "it is of another record");
  }
  const contradicts = ({ place, origin, size }, detail) => {
    if (!given.some((one) => one.origin === origin && one.kept < size && size <= one.most)) report.fault("checkpoint", place, detail);
  };
  const most = notes.reduce((all, { size }) => Math.max(all, size), 0);
  const log = new MerkleLog();
  const last = new Map();
  const bySize = new Map();
  for (const one of notes) bySize.set(one.size, [...(bySize.get(one.size) ?? []), one]);
  let newest = null;
  const cosigned = new Map([...witnesses.keys()].map((name) => [name, { size: 0, leaves: 0 }]));
  for (const line of heads) {
    if (log.size === most) break;
    log.append(sha256("\0", line));
    const number = log.size;
    const place = `checkpoint ${number}`;
    report.count("checkpoints");
    let head = null;
    try {
      head = readHead(line, known, number - 1, last);
    } catch (error) {
      report.fault("checkpoint", place, `its head is none of this record: ${error.message}`);
    }
    if (head !== null) compare(head, place, control, chains, gates, report);
    for (const one of bySize.get(number) ?? []) {
      if (one.root !== log.root()) contradicts(one, "it was made of another log of heads");
      else if (head !== null) {
        newest = head;
        for (const name of one.cosigners) cosigned.set(name, { size: number, leaves: leavesOf(head) });
      }
    }
  }
  for (const one of notes.filter(({ size }) => size > log.size)) {
    const { size, made_at: at, place } = one;
    const mine = place.endsWith("(the bundle)") || (at !== null && micros(at) <= micros(manifest.made_at));
    if (mine) contradicts(one, `it saw ${size} heads, there are ${log.size}: the newest were cut off`);
    else report.note("younger", `checkpoints beyond the ${log.size} heads of the bundle: they are younger, or the end was cut off`);
  }
  tellCosigned(cosigned, control, chains, report);
  return newest;
}

const leavesOf = (head) => head.partitions.reduce((all, { size }) => all + size, head.control.size);

/** How far each witness has cosigned, and what is younger. */
function tellCosigned(cosigned, control, chains, report) {
  const present = [...chains.values()].reduce((all, { size }) => all + size, control.size);
  for (const [name, { size, leaves }] of cosigned) {
    report.count(`heads cosigned by ${name}`, size);
    if (size === 0) report.note(`witness ${name}`, `${name} has cosigned none of the checkpoints that were read`);
    else if (present > leaves) {
      report.note(`witness ${name}`, `${present - leaves} leaves are younger than head ${size}, the newest that ${name} cosigned: whoever has the key could still rewrite them`);
    }
  }
}

/** What was given up where backups were restored: of each origin how many heads stay and went, and the next origin. */
function givenUp(restorations, record, keys, report) {
  const found = [];
  for (const { row, place } of restorations) {
    const { signature, ...said } = row;
    if (![...keys.values()].some((key) => signed(key, "restoration", canonical({ ...said, record }), signature))) {
      report.fault("signature", place, "no trusted key has signed it");
      continue;
    }
    for (const [origin, most] of plain(parse(row.given_up))) {
      found.push({ origin, kept: row.kept, most, next: row.origin });
      report.note(`restored ${row.id} ${origin}`, `heads ${row.kept + 1} to ${most} of ${origin}: a backup was restored at ${row.at}, and ${row.by} gave them up`);
    }
  }
  return found;
}

function checkpointsOf(bytesOfLines, origin, keys, witnesses, report) {
  const found = [];
  for (const [number, bytes] of bytesOfLines.entries()) {
    let one;
    try {
      const said = formed("checkpoints", bytes[0] === 0x7b ? canonicalObject(bytes) : { checkpoint: decode(bytes, "it") });
      const note = NOTE.exec(said.checkpoint);
      if (note === null) throw new SyntaxError("it is no signed note");
      const [, text, name, size, root, lines] = note;
      const place = `checkpoint ${size} (${origin})`;
      one = { place, origin: name, size: Number(size), root: Buffer.from(root, "base64").toString("hex"), made_at: said.made_at ?? null, text, lines };
    } catch (error) {
      report.fault("checkpoint", `${origin}, line ${number + 1}`, `it is no checkpoint: ${error.message}`);
      continue;
    }
    const { ours, cosigned } = signaturesOf(one, keys, witnesses);
    if (ours.length === 0) report.fault("signature", one.place, "it is signed with a key that is not trusted");
    else if (!ours.every((good) => good)) report.fault("signature", one.place, "its signature is not good");
    else {
      for (const [name, good] of cosigned) {
        if (!good) report.fault("signature", one.place, `the cosignature of ${name} is not good for what it says`);
      }
      found.push({ ...one, cosigners: cosigned.filter(([, good]) => good).map(([name]) => name) });
    }
  }
  return found;
}

/** A value of its form, as plain JSON; throws for anything else. */
function formed(name, tree) {
  const wrong = wrongForm(name, tree);
  if (wrong !== null) throw new SyntaxError(`${wrong[0].slice(1)} ${wrong[1]}`);
  return plain(tree);
}

/** A head of this record at its place; throws for anything else, and where a log became shorter. */
function readHead(line, record, index, last) {
  const head = formed("heads", canonicalObject(line));
  const logs = [["control", head.control], ...head.partitions.map((one) => [partitionOf(placeOf(one)), one])];
  const good = head.record === record && head.index === index && logs.every(([key, { size }]) => size >= (last.get(key) ?? 0));
  if (!good) throw new SyntaxError("it is of another record, or place");
  for (const [key, { size }] of logs) last.set(key, size);
  return head;
}

/** The record against a head. */
function compare(one, place, control, chains, gates, report) {
  const at = (chain, { size, root }) => {
    if (size > chain.size) {
      const detail = `${place} saw ${size} leaves, there are ${chain.size}: the tail was cut off`;
      report.fault("checkpoint", `${chain.name}, leaf ${chain.size}`, detail);
    } else if ((chain.root(size) ?? root) !== root) {
      report.fault("checkpoint", `${chain.name}, leaf ${size - 1}`, `${place} saw another root of its first ${size} leaves`);
    }
  };
  at(control, one.control);
  for (const head of one.partitions) {
    const name = nameOf(placeOf(head));
    const chain = chains.get(partitionOf(placeOf(head)));
    if (chain === undefined) {
      report.fault("checkpoint", name, `${place} saw this partition, which is gone`);
      continue;
    }
    at(chain, head);
    if (head.next_offset > chain.nextOffset) {
      report.fault("checkpoint", name, `${place} saw progress at ${head.next_offset}, now it stands at ${chain.nextOffset}`);
    }
  }
  for (const { gate, salt, seed } of one.gates) {
    const known = gates.get(gate);
    if (known === undefined) report.fault("draw", `gate ${gate}`, `${place} is committed to it, and it is gone`);
    else {
      if (known.commitment !== salt) report.fault("draw", known.place, `${place} is committed to another salt`);
      if (known.seed === undefined || seedCommitment(gate, known.seed) !== seed) {
        report.fault("draw", known.place, `${place} is committed to another seed`);
      }
      known.committed = true;
    }
  }
}

/** Receipts that others kept, each `[log, topic, partition, index, leaf, root]`, alone or in an object with the event's hash. */
export function checkReceipts(bytes, control, chains, actions, report) {
  let number = 0;
  // A leaf of the control log has a receipt too, of what became of a batch at the desk.
  chains = new Map([...chains, [canonical(["control", "", 0]), control]]);
  let found = false;
  for (const line of lines(bytes)) {
    number += 1;
    if (line.every((byte) => byte <= 0x20)) continue;
    const place = `receipt ${number}`;
    let receipt;
    let event = null;
    try {
      let value = parse(decode(line, place));
      if (!Array.isArray(value)) {
        event = value.sha256 ?? null;
        value = typeof value.receipt === "string" ? parse(value.receipt) : value.receipt;
      }
      if (value === undefined || wrongForm("receipt", [value, event]) !== null) throw new Error();
      const [log, topic, partition, index, hash, root] = plain(value);
      receipt = { key: canonical([log, topic, partition]), name: `${topic}[${partition}]`, index, hash, root };
    } catch {
      // A last line without its end was interrupted while it was written.
      if (!interrupted(line, bytes)) report.fault("receipt", place, "it is no receipt");
      continue;
    }
    report.count("receipts");
    found = true;
    const chain = chains.get(receipt.key) ?? { size: 0, claimed: 0 }; // a partition that was new after the export
    const where = `${chain.name ?? receipt.name}, leaf ${receipt.index}`;
    if (receipt.index >= chain.size && receipt.index < chain.claimed) {
      const detail = `it is of leaf ${receipt.index}, there are ${chain.size}: the tail was cut off`;
      report.fault("receipt", `${chain.name}, leaf ${chain.size}`, detail);
    } else if (receipt.index >= chain.size) {
      report.note("younger receipts", "some receipts are of leaves that the bundle does not have: they are younger, or the end was cut off");
    } else if (chain.leaf(receipt.index) !== receipt.hash || (chain.root(receipt.index + 1) ?? receipt.root) !== receipt.root) {
      report.fault("receipt", where, `receipt ${number} was made of another history`);
    } else if (event !== null) {
      report.count("events with a receipt");
      const recorded = actions.get(`${receipt.key} ${receipt.index}`);
      if (recorded !== undefined && recorded !== event) report.fault("receipt", where, "another event was published");
    }
  }
  if (!found) report.note("receipts", "the file has no receipt");
}

/** Whether a line is the last one of a file, has no end, and is no JSON. */
function interrupted(line, bytes) {
  if (line.byteOffset + line.length !== bytes.byteOffset + bytes.length) return false;
  try {
    parse(decode(line, "the last line"));
    return false;
  } catch {
    return true;
  }
}
