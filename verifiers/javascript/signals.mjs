// The method full, labelled prompts that look at least as good by all signals, and p by one score: section "All signals" of
// docs/audit-format.md.

import { sha256 } from "./hashes.mjs";
import { fsum } from "./sums.mjs";
import { limitsOf, roundSix, unread } from "./rules.mjs";

export const RIDGE = 100;
const INTERCEPT_RIDGE = 1e-6;
const TIE = 1e-9;
const [LEAST_PROMPTS, MOST_PROMPTS, MOST_SEGMENTS, LEAST_READ] = [40, 5000, 500, 20];

/** The largest count that ships, floor(alpha (G + 1) / R), in whole numbers of alpha as it is written. */
export function allowed(alpha, groups, attempts) {
  const [, whole, digits = "", power = "0"] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(alpha));
  const scale = BigInt(digits.length - Number(power));
  return Number((BigInt(whole + digits) * BigInt(groups + 1)) / (10n ** scale * BigInt(attempts)));
}

/** A row of float32 in hexadecimal, with 1 for the intercept in front. */
function rowOf(hex) {
  const bytes = Buffer.from(hex, "hex");
  return Float64Array.from({ length: 1 + bytes.length / 4 }, (_, i) => (i === 0 ? 1 : bytes.readFloatLE(4 * i - 4)));
}

function dot(one, other) {
  let sum = 0;
  for (let i = 0; i < one.length; i += 1) sum += one[i] * other[i];
  return sum;
}

/** The inverse of a positive definite matrix by Gauss and Jordan. */
function inverse(matrix) {
  const size = matrix.length;
  const rows = matrix.map((row, i) => Float64Array.from({ length: 2 * size }, (_, j) => (j < size ? row[j] : Number(j - size === i))));
  for (let i = 0; i < size; i += 1) {
    const own = rows[i].map((value) => value / rows[i][i]);
    rows[i] = own;
    for (let j = 0; j < size; j += 1) {
      const by = rows[j][i];
      if (j !== i) rows[j] = rows[j].map((value, at) => value - by * own[at]);
    }
  }
  return rows.map((row) => row.slice(size));
}

/** The ridge regression on labelled prompts, with a count for new ones. */
export class Fit {
  #bad = new Map([[null, []]]);

  /** `prompts` : { signals, bad, segment } each. */
  constructor(prompts) {
    const rows = prompts.map(({ signals }) => rowOf(signals));
    this.kinds = {};
    for (const one of prompts.map(({ signals }) => unread(signals))) this.kinds[one] = (this.kinds[one] ?? 0) + 1;
    const columns = Array.from(rows[0], (_, j) => Float64Array.from(rows, (row) => row[j]));
    const gram = columns.map((one, i) => columns.map((other, j) => dot(one, other) + (i !== j ? 0 : i ? RIDGE : INTERCEPT_RIDGE)));
    this.inverse = inverse(gram);
    const targets = prompts.map(({ bad }) => (bad ? -1 : 1));
    const sums = columns.map((column) => dot(column, targets));
    this.weights = this.inverse.map((row) => dot(row, sums));
    for (const [i, { bad, segment }] of prompts.entries()) {
      if (!bad) continue;
      const one = { row: rows[i], score: dot(rows[i], this.weights) };
      this.#bad.get(null).push(one);
      this.#bad.set(segment, [...(this.#bad.get(segment) ?? []), one]);
    }
  }

  /** Whether too few prompts were read, or not, as this. */
  unfamiliar(signals, least) {
    const own = unread(signals);
    return (this.kinds[own] ?? 0) < (Number(own) ? least : Math.min(least, LEAST_READ));
  }

  /** 1 and how many bad prompts, of a segment or (null) of all, score at least as high as a new one that is supposed bad. */
  count(signals, segment) {
    const x = rowOf(signals);
    if (x.length !== this.weights.length) throw new TypeError("its row has another number of signals");
    const g = this.inverse.map((row) => dot(row, x));
    const h = dot(x, g);
    const own = dot(x, this.weights);
    const step = (-1 - own) / (1 + h);
    const bar = own + h * step - TIE;
    let count = 1;
    for (const { row, score } of this.#bad.get(segment) ?? []) if (score + dot(row, g) * step >= bar) count += 1;
    return count;
  }
}

/** What a rule of all signals says of its prompts, and which these are; null where there are too few, or some have no signals. */
export function fitted(groups, { alpha, max_attempts: attempts, segment_by: segmentBy, segment_fallback: fallback }) {
  const prompts = groups.slice(-MOST_PROMPTS);
  const most = allowed(alpha, prompts.length, attempts);
  if (prompts.length < LEAST_PROMPTS || most < 1 || prompts.some(({ signals }) => signals === null)) return null;
  const sizes = new Map();
  if (segmentBy !== null) for (const { segment } of prompts) sizes.set(segment, (sizes.get(segment) ?? 0) + 1);
  const kept = [...sizes].sort((a, b) => b[1] - a[1] || Buffer.compare(Buffer.from(a[0]), Buffer.from(b[0]))).slice(0, MOST_SEGMENTS);
  const own = Object.create(null);
  for (const [name, size] of kept) {
    const k = allowed(alpha, size, attempts);
    if (k >= 1 || fallback !== "pooled") own[name] = [size, k];
  }
  const sealed = prompts.map(({ signals, bad, segment }) =>
    Buffer.concat([Buffer.from([Number(bad)]), Buffer.from(signals, "hex"), Buffer.from(`${segmentBy === null ? "" : segment}\0`)]),
  );
  const rows = sha256(...sealed.sort(Buffer.compare));
  return { prompts, said: { groups: prompts.length, bad: prompts.filter(({ bad }) => bad).length, allowed: most, rows, own } };
}

/** The count and G that a batch has by a rule of all signals; `fits` are those of its prompts. */
export function bySignals(rule, fits, { signals, segment }) {
  if (signals === undefined) return null;
  const found = limitsOf(rule, segment).map(([groups, , of], i) => [fits[i].unfamiliar(signals, rule.parameters.least_alike) ? groups + 1 : fits[i].count(signals, of), groups]);
  return found.reduce((most, one) => (one[0] / (one[1] + 1) > most[0] / (most[1] + 1) ? one : most));
}

/** The same where one score is cut: 1 and the severities at or above its score. */
export class ByScore {
  #above = new Map();

  #of = new Map();

  constructor(groups) {
    this.groups = groups;
    this.pairs = groups.map(({ scores, severities }) => [scores[0], severityOf(severities)]).sort((a, b) => a[0] - b[0]);
  }

  /** Of the prompts of a segment alone. */
  of(name) {
    if (!this.#of.has(name)) this.#of.set(name, new ByScore(this.groups.filter(({ segment }) => segment === name)));
    return this.#of.get(name);
  }

  needed({ responses }, unit) {
    const scores = responses.map((one) => one[1]);
    const score = unit === "best" ? Math.max(...scores) : roundSix(fsum(scores) / scores.length);
    const found = this.pairs.findIndex(([other]) => other >= score);
    const at = found < 0 ? this.pairs.length : found;
    if (!this.#above.has(at)) this.#above.set(at, 1 + fsum(this.pairs.slice(at).map((one) => one[1])));
    return [this.#above.get(at), this.pairs.length];
  }
}

/** The severity of a prompt: the mean of those of its items. */
export const severityOf = (severities) => fsum(severities) / severities.length;
