// Everything that can be derived again about one decision.

import { canonical, parse, plain, sameJson, Num } from "./json.mjs";
import { decode } from "./bundle.mjs";
import { fromBase64, hmac, keyedShare, sha256, uniform, uuid5 } from "./hashes.mjs";
import { micros, secondsBetween, sixDigits } from "./moments.mjs";
import { decide, isBlank, judgedText, roundSix, segmentOf, unread } from "./rules.mjs";

const NAMESPACE = "81e78adcfc1e4630a18cd59094748d62";
const YEAR_10000_MS = 253402300800000;
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const OF_SCORED = ["scored", "closed", "early_warning", "bad_burst", "too_few_alike"]; // `no_threshold` is one of either

/** Which code points of a text that ships go out, where these are not all; as the event says it, where texts are erased. */
function spanOf(text, said, settings) {
  if (text === null || settings.judged.startsWith("call@")) return said.span;
  const out = judgedText(text, settings);
  if (out === text) return undefined;
  const end = [...text.replace(/[ \t\n\r\v\f]+$/, "")].length;
  return [end - [...out].length, end];
}

const withSpan = (action, span) => (action === "ship" && span !== undefined ? { span } : {});

/** What a batch came with, as a tree; undefined: erased, left out, or never kept. */
const metadataOf = ({ raw }, { keep_texts: kept }) => (kept === false ? undefined : raw.content?.metadata);

/** A question but for case and spaces. */
const words = (prompt) => prompt.normalize("NFKC").toLowerCase().split(SPACES).filter(Boolean).join(" ");

function nameIn(metadata, key) {
  const named = metadata[key];
  return segmentOf(plain(named ?? null), named instanceof Num && /[.e]/.test(named.canonical));
}

export const wordsMac = (salt, exchanges) => hmac(Buffer.from(salt, "hex"), canonical(exchanges));

export class Decisions {
  events = new Map(); // partition and leaf: SHA-256 of the published event
  byBatch = new Map(); // gate, batch_id, attempt: what runs need to know of it
  burstNames = new Map(); // of each run, by name and by what stands for it
  before = new Map(); // gate: decisions before the first checkpoint that is committed to its salt

  constructor(governance, manifest, report) {
    this.governance = governance;
    this.report = report;
    this.only = manifest.left_out.other_gates_than;
    this.texts = !manifest.left_out.texts;
  }

  /** What has no content and is not erased: the manifest has to say that the texts of its gate (null: of no gate) are left out. */
  missing(gate, place, what = "its texts") {
    if (!this.texts || (this.only !== null && this.only !== gate)) return;
    this.report.fault("seal", place, `${what} are not there, and neither erased nor said to be left out`);
  }

  /** Take a decision of a partition's chain. */
  add(entry) {
    const { facts, place, partition, index } = entry;
    const { report } = this;
    const [name, id, attempt] = facts.batch;
    report.count("decisions");
    const key = canonical(facts.batch);
    if (this.byBatch.has(key)) report.fault("action", place, "this batch was decided before");
    const drawn = facts.responses.filter((one) => one[4]).map((one) => one[0]);
    this.byBatch.set(key, { facts, rawFacts: entry.rawFacts, place, partition, index, drawn, texts: entry.content?.texts ?? null, erasedAt: entry.erased_at ?? null, hasEvent: Boolean(entry.action) });
    this.#seals(entry);
    const gate = this.governance.gates.get(name);
    const policy = this.governance.policy(name, facts.policy);
    if (gate === undefined || policy === undefined) {
      report.fault("policy", place, `policy ${facts.policy} of its gate is not on record`);
      return;
    }
    this.#order(entry, policy);
    if (this.only !== null && this.only !== name) {
      report.note("other gates", `texts, events and salts of other gates than ${this.only} are left out`);
    }
    const derived = this.#action(entry, policy);
    this.#judged(entry, policy.settings);
    this.#deadlines(entry, policy);
    this.#event(entry, policy, derived.best ?? 0);
    if (gate.salt !== null) this.#draw(entry, gate, policy, derived, { id, attempt });
  }

  #seals({ facts, raw, content, action, place, erased_at: erasedAt, partition, index }) {
    const { report } = this;
    if (action) {
      const value = fromBase64(action.value);
      const key = action.key === null ? null : fromBase64(action.key)?.toString("hex");
      const head = canonical([action.topic, key, action.headers]);
      const digest = value === null ? sha256(head) : sha256(head, Buffer.from([1]), value);
      if (digest !== facts.action) report.fault("seal", place, "the published action, its key or its headers were changed");
      if (value !== null) this.events.set(`${partition} ${index}`, sha256(value));
    }
    if (content) {
      report.count("texts");
      const { content_hash: hash, prompt, references, metadata, texts } = raw.content;
      const mac = hmac(Buffer.from(content.salt, "hex"), canonical([hash, prompt, references, metadata, texts]));
      if (mac !== facts.content_mac) {
        report.fault("seal", place, "the texts, references, metadata or content hash were changed");
      }
    } else {
      report.count("texts not given or erased");
      if (erasedAt !== undefined && erasedAt !== null) this.erased.push({ place, decidedAt: facts.decided_at });
      else this.missing(facts.batch[0], place);
    }
  }

  /** What a judge was asked and said: its seals, and its marks against the numbers that scores are made of. */
  #judged({ facts, raw, judged: words, place }, settings) {
    const { report } = this;
    const { judged = [], responses } = facts;
    const scored = facts.scorer === "judge" && responses.length > 0 && responses[0][1] !== null;
    if ((words ?? judged).length !== judged.length) report.fault("seal", place, "what its judge was asked and said is in no log");
    if (judged.length === 0) {
      if (scored && responses.some((one) => one[2])) report.fault("score", place, "what its judge was asked and said is in no log");
      return;
    }
    const fault = (check, detail) => report.fault(check, place, detail);
    for (const [i, one] of judged.entries()) {
      const { content, erased_at } = words?.[i] ?? {};
      const said = { row: { ...one, gate: facts.batch[0] }, raw: raw.judged?.[i], content, erased_at, place };
      // Where a gate keeps no texts, a judge's words never were there.
      if (settings.keep_texts !== false || content || !erased_at) this.words(said);
      if (one.judged_at !== facts.decided_at) fault("seal", "its judge was asked at another moment than it was decided");
      if (scored && !facts.encoder.startsWith(`judge:${one.judge}/`)) fault("score", "its judge is not the one that it names");
    }
    const marks = new Map(judged.map((one) => [one.response, one.mark]));
    const names = new Set(responses.map((one) => one[0]));
    if (marks.size < judged.length || [...marks.keys()].some((name) => !names.has(name))) {
      fault("score", "its judge was asked about other answers than it has");
    }
    for (const [name, , number] of scored ? responses : []) {
      // An answer that says nothing is put before no judge.
      const mark = marks.has(name) ? marks.get(name) : number === null ? null : 0;
      if (number !== mark) fault("score", `the number that the score of response ${name} is made of is not its judge's mark`);
    }
  }

  /** A judge's words against their seal; what is erased is compared with the erasures on record. */
  words({ row, raw, content, place, erased_at: erasedAt }) {
    const { report } = this;
    if (content) {
      report.count("judgements");
      if (wordsMac(content.salt, raw.content.exchanges) !== row.content_mac) {
        report.fault("seal", place, "what its judge was asked or said was changed");
      }
    } else if (erasedAt) this.erased.push({ place, decidedAt: row.judged_at });
    else this.missing(row.gate, place, "its judge's words");
  }

  erased = [];

  /** The newest policy that the leaf's control log has is the one that decided, or one that the worker refused. */
  #order({ facts, place }, policy) {
    const { report } = this;
    const newest = this.governance.newest(facts.batch[0], facts.control[0])?.row.version;
    const wrong = notNewest(facts, newest, isClosing(policy.row));
    if (wrong === null && facts.policy > (newest ?? 0)) report.count("decisions under a closing that was sealed after them");
    if (wrong !== null) report.fault("order", place, wrong);
    else report.count("decisions under the newest policy");
    if (facts.newest_seen !== undefined) report.count("decisions under a policy before one that the worker refused");
  }

  /** Outcome, selected response and actions from scores and policy. Returns who is best, for the draw. */
  #action(entry, policy) {
    const { facts, content, place } = entry;
    const { report } = this;
    const { settings, row, rule } = policy;
    const fault = (detail) => report.fault("action", place, detail);
    const untrusted = withoutTrust(facts);
    if (facts.unit !== settings.unit && !untrusted) fault(`its unit is not that of policy ${facts.policy}`);
    if (untrusted) report.count("decisions without a trusted policy");
    // Nobody may act on what is not trusted, so it is enforced in shadow mode too.
    const mode = untrusted ? "enforce" : settings.mode;
    if (facts.mode !== mode) fault(`its mode is not that of policy ${facts.policy}`);
    if (facts.scorer !== settings.scorer && !untrusted) fault(`its scorer is not that of policy ${facts.policy}`);
    // Where nothing was embedded none is named.
    const unembedded = facts.embedding_source === "none" && facts.responses.every((one) => one[1] === null);
    if (facts.encoder !== settings.encoder && !(unembedded && facts.encoder === "none") && !untrusted) {
      fault(`its encoder is not that of policy ${facts.policy}`);
    }
    const wanted = settings.upstream;
    if (facts.reason === "upstream_mismatch" && wanted === null) fault("it was held for its upstream, and its gate names none");
    const metadata = metadataOf(entry, settings);
    if (wanted !== null && metadata) {
      const same = plain(metadata.upstream ?? null) === wanted;
      if (!same && facts.responses.some((one) => one[1] !== null)) fault("it was scored, and its answers are not of its gate's upstream");
      if (same && facts.reason === "upstream_mismatch") fault("it was held for its upstream, which is its gate's");
    }
    const hold = settings.hold_action;
    const scores = facts.responses.map((one) => one[1]);
    const actions = facts.responses.map((one) => one[3]);
    if (!scores.length || scores[0] === null) {
      if (OF_SCORED.includes(facts.reason)) fault(`it has no scores, which the reason ${facts.reason} does not explain`);
      if (facts.reason === "not_read" && facts.not_read === undefined) fault("it was held as not read, and names no answer");
      if (facts.outcome !== hold || facts.selected !== null || actions.some((one) => one !== hold)) fault("it was not scored, and not held");
      report.count("actions derived again");
      return { scored: false, best: null };
    }
    this.#madeOf(facts, place);
    const marks = ["cut", "unread", "twin"].map((one) => Number(facts.not_read?.includes(one) ?? false)).join("");
    if (marks !== unread(facts.signals)) fault("which answers were not read does not follow from its signals");
    if (facts.reason === "attempts_exhausted" || facts.batch[2] > settings.max_attempts) fault("attempts beyond the gate's are not scored");
    const texts = content?.texts;
    const blank = facts.unit === "claim"
      ? scores.map(() => false)
      : !["whole", "raw"].includes(settings.judged.split("@")[0])
      ? facts.responses.map((one) => one[2] === null) // nothing in it is judged
      : texts && !texts.includes(null) // a gate may keep no texts
      ? texts.map((text) => isBlank(judgedText(text, settings)))
      : scores.map((score, i) => score === 0 && actions[i] !== "ship" && !(settings.unit === "best" && facts.responses[i][4]));
    const derived = this.#derive(entry, policy, scores, blank);
    tell(derived, facts, hold, row, fault);
    report.count("actions derived again");
    if (rule.kind === "transductive" || rule.kind === "segments") {
      if (facts.cut_state !== derived.cut.state || (facts.cut_threshold ?? null) !== derived.cut.threshold) {
        fault("its own cut does not follow from scores and policy");
      }
    }
    return { scored: true, best: derived.best };
  }

  /** Scores that follow from a recorded number; a blank answer has 0, whatever it brought. */
  #madeOf({ scorer, responses }, place) {
    if (scorer !== "judge") return;
    for (const [id, score, number] of responses) {
      const derived = number === null ? 0 : roundSix(number / 100);
      if (!(Math.abs(derived - score) <= 2e-6)) {
        this.report.fault("score", place, `the score of response ${id} does not follow from the number it is made of`);
      }
    }
    this.report.count("batches whose scores follow from recorded numbers");
  }

  #derive(entry, policy, scores, blank) {
    const { facts, raw } = entry;
    const { settings, row, rule } = policy;
    const metadata = metadataOf({ raw }, settings);
    const segment = settings.segment_by === null ? null : metadata ? nameIn(metadata, settings.segment_by) : (facts.segment ?? "");
    const chance = rule.kind === "smooth" || rule.kind === "ramp";
    const uniforms = chance ? facts.uniforms : null;
    if (chance && uniforms?.length !== scores.length) throw new TypeError("a random gate's numbers are missing");
    const made = decide({ unit: settings.unit, state: row.state, threshold: row.threshold, rule, scores, blank, uniforms, segment, needed: facts.budget ?? null, signals: facts.signals });
    const kept = made.shipped.filter(Boolean).length;
    if (kept < settings.least_kept * scores.length) made.shipped = scores.map(() => false);
    const badBurst = this.#badBurst(entry, policy) && made.cut.state !== "closed" && row.calibrated;
    return { ...made, segment, badBurst, ...(badBurst && { shipped: made.shipped.map(() => false), selected: null }) };
  }

  /** Whether a prompt of a decision's burst has a bad label; where metadata are there, bursts are compared with what they name. */
  #badBurst({ facts, raw, place }, { settings, row }) {
    const { report, governance } = this;
    const run = settings.group_by != null && settings.method === "full" ? governance.runs.get(row.calibration_run) : undefined;
    const metadata = metadataOf({ raw }, settings);
    const read = governance.burstsRead.get(canonical(facts.batch)) ?? [];
    if (run !== undefined) read.push({ run: row.calibration_run, key: settings.group_by, burst: facts.burst ?? null });
    else if (facts.burst !== undefined) report.fault("action", place, "it names a burst, and its policy knows none");
    for (const { run: id, key, burst } of read) {
      if (!metadata) continue;
      const name = key === "prompt" ? words(raw.content.prompt ?? "") : nameIn(metadata, key);
      if (!this.#sameBurst(id, name, burst)) {
        report.fault("action", place, `its burst in run ${id} is not that of its ${key === "prompt" ? "question" : "metadata"}`);
      }
    }
    if (run !== undefined) report.count("decisions by burst");
    return run !== undefined && run.badBursts.has(facts.burst);
  }

  #sameBurst(run, name, burst) {
    if (name === "" || burst === null) return name === "" && burst === null;
    const names = this.burstNames;
    const [one, other] = [`${run} =${name}`, `${run} ${burst}`];
    if (!names.has(one)) names.set(one, burst);
    if (!names.has(other)) names.set(other, name);
    return names.get(one) === burst && names.get(other) === name;
  }

  #deadlines({ facts, place }, { settings }) {
    const { report } = this;
    const now = facts.decided_at;
    const ships = facts.outcome === "ship" || facts.outcome === "mixed";
    let late = isOverdue(facts.deadline_ms, now);
    if (late && ships) report.fault("action", place, "it shipped after its sender's deadline");
    if (settings.decision_deadline_seconds !== null && isLate(settings.decision_deadline_seconds, facts.created_at, facts.timestamp_ms ?? -1, now)) {
      if (ships) report.fault("action", place, "it shipped after its gate's decision deadline");
      late = true;
    }
    if (facts.reason === "deadline_passed" && !late) report.fault("action", place, "it was held for a deadline that had not passed");
  }

  /** The published event says what was recorded. */
  #event({ facts, raw, action, place, source }, policy, best) {
    const { report } = this;
    if (!action) return;
    let event;
    try {
      event = plain(parse(decode(fromBase64(action.value), "the event")));
      if (event === null || typeof event !== "object" || Array.isArray(event)) throw new SyntaxError("it is no object");
    } catch {
      report.fault("action", place, "the published event cannot be read");
      return;
    }
    const [gate, id, attempt] = facts.batch;
    const { settings, row } = policy;
    const own = "cut_state" in facts;
    const cut = own
      ? { state: facts.cut_state, lambda: facts.cut_threshold ?? null }
      : withoutTrust(facts)
        ? { state: "closed", lambda: null }
        : { state: row.state, lambda: row.threshold };
    const floor = settings.label_floor;
    const { spans, rests_on: rests = [] } = plain(metadataOf({ raw: raw ?? {} }, settings)?.["streamer.claims"]) ?? {};
    const scores = facts.responses.map((one) => one[1]);
    if (rests.some((all, i) => all.some((on) => scores[i] > scores[on]))) {
      report.fault("score", place, "a claim has a higher score than one it rests on");
    }
    if (spans) report.note("claims", "texts to show were not put together again from claims: `audit verify` and verify.pyz do that");
    const expected = {
      schema: "streamer.actions.v1",
      action_id: actionId(gate, id, attempt),
      gate,
      batch_id: id,
      attempt,
      unit: facts.unit,
      action: facts.outcome,
      enforced: facts.mode === "enforce",
      selected: facts.selected,
      reason: facts.reason,
      responses: facts.responses.map(([response, score, , one], i) => ({
        id: response, score, action: one, ...(facts.budget && i === best && { budget_needed: facts.budget[0] / (facts.budget[1] + 1) }),
        ...(facts.not_read?.[i] && { not_read: facts.not_read[i] }),
        ...(settings.unit === "claim" && score !== null
          ? { span: spans?.[i] ?? event.responses?.[i]?.span }
          : withSpan(one, spanOf(raw?.content?.texts?.[i] ?? null, event.responses?.[i] ?? {}, settings))),
      })),
      policy: { version: facts.policy, ...cut, alpha: settings.alpha, method: settings.method, segment: facts.segment ?? null },
      scorer: { name: facts.scorer, encoder: facts.encoder, embedding_source: facts.embedding_source, ...(settings.judged !== "whole@1" && { judged: settings.judged }) },
      audit: {
        sampled: facts.sampled,
        probability: facts.sampling_probability,
        label: facts.responses
          .filter(([, score, , , drawn]) => drawn && (floor === null || score === null || score > floor))
          .map(([response]) => response),
      },
      source: { topic: source[1], partition: source[2], offset: source[3] },
      decided_at: facts.decided_at.replace("+00:00", "Z"),
    };
    if (facts.action_id !== expected.action_id) report.fault("action", place, "its action id is another");
    event.decided_at = sixDigits(event.decided_at);
    if ((event.desk_until ?? null) !== null) this.byBatch.get(canonical(facts.batch)).deskUntil = event.desk_until;
    for (const [name, value] of Object.entries(expected)) {
      if (!sameJson(event[name], value)) report.fault("action", place, `the published event does not have the recorded ${SAYS[name] ?? name}`);
    }
  }

  #draw({ facts, place }, gate, { settings }, derived, { id, attempt }) {
    const { report } = this;
    const fault = (detail) => report.fault("draw", place, detail);
    const { salt, name } = gate;
    report.count("draws");
    if (!gate.committed) this.before.set(name, (this.before.get(name) ?? 0) + 1);
    const base = settings.audit_probability;
    let probability = derived.scored ? base : 0;
    if (facts.audit_rate !== undefined && facts.audit_rate !== null) {
      const rate = this.governance.rates.get(facts.audit_rate)?.row;
      const seen = this.governance.rates.get(facts.audit_rate)?.index ?? -1;
      if (seen >= facts.control[0]) report.fault("order", place, `audit rate ${facts.audit_rate} was not on record yet`);
      if (rate === undefined || rate.gate !== name || !rate.boosted || attempt !== 1 || !(facts.decided_at < rate.until)) {
        fault(`audit rate ${facts.audit_rate} did not raise it`);
      }
      probability = Math.min(1, (settings.audit_boost ?? 1) * base);
    }
    if (facts.sampling_probability !== probability) fault(`its logged probability should be ${probability}`);
    const share = keyedShare(salt, "audit", name, id, String(attempt));
    const sampled = derived.scored && share < probability;
    if (facts.sampled !== sampled) fault(sampled ? "the audit sample takes this batch" : "the audit sample does not take this batch");
    const extra = sampled && facts.audit_rate != null && !(share < base);
    if ((facts.extra_draw ?? false) !== extra) fault("whether the gate's own probability drew it is wrong");
    let drawn = new Set();
    if (sampled && settings.unit === "best" && derived.best !== null) drawn.add(facts.responses[derived.best][0]);
    else if (sampled) {
      const order = facts.responses
        .map(([response]) => [keyedShare(salt, "draw", name, id, String(attempt), response), response])
        .sort((a, b) => a[0] - b[0] || Buffer.compare(Buffer.from(a[1]), Buffer.from(b[1])));
      drawn = new Set(order.slice(0, settings.unit === "claim" ? undefined : settings.audit_draws).map((one) => one[1]));
    }
    const said = facts.responses.filter((one) => one[4]).map((one) => one[0]);
    if (said.length !== drawn.size || said.some((one) => !drawn.has(one))) {
      fault(`the audit draw takes ${[...drawn].sort().join(", ") || "none"}, not ${said.join(", ") || "none"}`);
    }
    if (facts.uniforms !== undefined && facts.uniforms !== null) {
      const right = facts.responses.every(
        ([response], i) => uniform(salt, "dither", name, id, attempt, settings.unit === "batch" ? "" : response) === facts.uniforms[i],
      );
      if (!right) fault("its random numbers are not those of its gate's salt");
    }
  }
}

/** Name what of a scored decision does not follow from what was derived. */
function tell(derived, facts, hold, row, fault) {
  const all = derived.shipped.every(Boolean) || derived.selected !== null;
  const outcome = all ? "ship" : derived.shipped.includes(true) ? "mixed" : hold;
  const selected = derived.selected === null ? null : facts.responses[derived.selected][0];
  const full = derived.cut.state === "full";
  const [count, groups] = facts.budget ?? [];
  const unlike = unread(facts.signals).includes("1") ? "not_read" : full ? "too_few_alike" : "scored";
  const held = derived.badBurst ? "bad_burst" : full && !(count > groups) ? "scored" : unlike;
  const closed = row.created_by === "early-warning" && isClosing(row) ? "early_warning" : "closed";
  const reason = !row.calibrated ? "no_threshold" : derived.cut.state === "closed" ? closed : held;
  const actions = derived.shipped.map((one) => (one ? "ship" : hold));
  if (actions.some((one, i) => one !== facts.responses[i][3])) fault("the responses' actions do not follow from scores and policy");
  if (outcome !== facts.outcome) fault("the batch's outcome does not follow from scores and policy");
  if (selected !== facts.selected) fault("the selected response does not follow from scores and policy");
  if (reason !== facts.reason) fault("its reason does not follow from scores and policy");
  if (derived.segment !== (facts.segment ?? null)) fault("its segment is not that of its metadata");
}

/** Whether a policy is one by which somebody closed the gate: no calibration found it, and nothing ships by it. */
const isClosing = (row) => row.state === "closed" && row.calibration_run === null && row.rule === null;

/** Why a decision was not made under the newest policy of its leaf's control log, or a closing after it. */
export function notNewest({ policy, newest_seen: seen }, newest, closes) {
  if (policy > (newest ?? 0)) return closes ? null : `it was decided under policy ${policy}, which was not there yet`;
  return newest > policy && newest !== seen ? `it was decided under policy ${policy}, when policy ${newest} was in force` : null;
}

/** Whether its worker trusted no policy of the gate. */
const withoutTrust = ({ reason, responses }) => reason === "no_threshold" && responses.every((one) => one[1] === null);

const SAYS = { decided_at: "moment of decision", policy: "cut" };

export const actionId = (gate, batch, attempt) => uuid5(NAMESPACE, canonical([gate, batch, attempt]));

/** Whether the sender of a request had stopped to wait. */
export const isOverdue = (deadlineMs, now) => (deadlineMs ?? null) !== null && micros(now) >= BigInt(deadlineMs) * 1000n;

/** Whether a batch was past its gate's decision deadline. */
export function isLate(deadline, createdAt, timestampMs, now) {
  const moments = [];
  if (createdAt !== null) moments.push(secondsBetween(createdAt, now));
  if (timestampMs >= 0 && timestampMs < YEAR_10000_MS) moments.push(Number(micros(now) - BigInt(timestampMs) * 1000n) / 1e6);
  const age = moments.find((one) => one >= -deadline);
  return age === undefined || age > deadline;
}

