// Thresholds from labelled groups, by every method: section "Calibrators" of docs/audit-format.md.
//
// A group is { id, items, scores, severities }; a cut is a number, Infinity where nothing ships and -Infinity where all does.

import { createHmac } from "node:crypto";
import { Sum, binomialCdf, doubleBelow, doubleOf, gammaQuantile, normalQuantile, rankOf } from "./mathematics.mjs";
import { budget } from "./rules.mjs";

const SLACK = 1e-12;
const WINDOW_LEVELS = 2048;
const MOST_SEGMENTS = 500;
const TENTHS = [3, 4, 5, 6, 7, 8, 9, 10];

// -- randomness from the seed and from names ---------------------------------------------------------------------------

/** The digest of parts under a seed: each part is preceded by its length in four bytes. */
function digest(seed, ...parts) {
  const mac = createHmac("sha256", `streamer.calibration.v1:${seed}`);
  for (const part of parts) {
    const bytes = Buffer.from(part);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    mac.update(length).update(bytes);
  }
  return mac.digest();
}

const byBytes = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));

/** Position of the item with the smallest digest. */
export function pick(seed, group) {
  const ranked = group.items.map((item, i) => [digest(seed, "crc", group.id, item), item, i]);
  ranked.sort((a, b) => Buffer.compare(a[0], b[0]) || byBytes(a[1], b[1]));
  return ranked[0][2];
}

export const coin = (seed, id) => Number(digest(seed, "coin", id).readBigUInt64BE(0) >> 11n) * 2 ** -53;

/** Group ids in the order in which betting reads them. */
export function readingOrder(seed, groups) {
  return groups
    .map((group) => [digest(seed, "order", group.id), group])
    .sort((a, b) => Buffer.compare(a[0], b[0]) || byBytes(a[1].id, b[1].id))
    .map((one) => one[1]);
}

/** What each item of a group weighs, by method. */
export const WEIGHTS = {
  mean: ({ group }) => group.items.map(() => 1 / group.items.length),
  crc({ group, seed }) {
    const chosen = pick(seed, group);
    return group.items.map((_, i) => (i === chosen ? 1 : 0));
  },
  bb({ group, seed, parameters: { draws } }) {
    const named = group.items.map((item, i) => [item, i]).sort((a, b) => byBytes(a[0], b[0]));
    const counts = group.items.map(() => 0);
    for (let first = 0; first < draws; first += 4) {
      const bytes = digest(seed, "bb", group.id, String(first));
      for (let draw = 0; draw < Math.min(4, draws - first); draw += 1) {
        const word = bytes.readBigUInt64BE(8 * draw);
        counts[named[Number((word * BigInt(group.items.length)) >> 64n)][1]] += 1;
      }
    }
    return counts.map((count) => count / draws);
  },
  rbwa({ group, seed, parameters: { eta } }) {
    const scale = Math.min(eta, 1);
    const number = (bytes, at) => (Number(bytes.readBigUInt64BE(at) >> 11n) + 0.5) * 2 ** -53;
    const logs = group.items.map((item) => {
      const bytes = digest(seed, "rbwa", group.id, item);
      const gamma = gammaQuantile(eta + 1, number(bytes, 0));
      return Math.log(number(bytes, 8)) * (scale / eta) + scale * Math.log(gamma);
    });
    const largest = Math.max(...logs);
    const parts = logs.map((log) => Math.exp((log - largest) / scale));
    const total = parts.reduce((sum, part) => sum.add(part), new Sum()).value;
    return parts.map((part) => part / total);
  },
};

export const SCHEMES = Object.keys(WEIGHTS);

/** Scores and losses, weight times severity, of all items. */
function losses({ groups, seed, parameters }, scheme) {
  return groups.flatMap((group) => {
    const weights = group.items.length === 1 ? [1] : WEIGHTS[scheme]({ group, seed, parameters });
    return group.scores.map((score, i) => [score, group.severities[i] * weights[i]]);
  });
}

// -- the summed loss -----------------------------------------------------------------------------------------------------

/** Levels, falling, and the summed loss just below each. */
function lossCurve(items) {
  const carrying = items.filter(([, loss]) => loss > 0).sort((a, b) => b[0] - a[0]);
  const levels = [];
  const totals = [];
  const sum = new Sum();
  for (const [score, loss] of carrying) {
    sum.add(loss);
    if (levels.at(-1) === score) totals[totals.length - 1] = sum.value;
    else {
      levels.push(score);
      totals.push(sum.value);
    }
  }
  return { levels, totals };
}

/** The smallest level whose summed loss is within the limit. */
function smallest(items, limit) {
  if (limit < 0) return Infinity;
  const { levels, totals } = lossCurve(items);
  const first = totals.findIndex((total) => total > limit);
  return first < 0 ? -Infinity : levels[first];
}

const byScheme = (sample, scheme) => smallest(losses(sample, scheme), budget(sample.alpha, sample.groups.length));

/** Groups sorted by id, each with its loss over the items that score at a level or above: `rows` walks the levels down. */
function table({ groups }) {
  const sorted = groups.toSorted((a, b) => byBytes(a.id, b.id));
  const scores = groups.flatMap((group) => group.scores.filter((_, i) => group.severities[i] > 0));
  const levels = [...new Set(scores)].sort((a, b) => b - a);
  const row = (level, inOrder = sorted) =>
    inOrder.map((group) => {
      const total = new Sum();
      group.scores.forEach((score, i) => score >= level && total.add(group.severities[i] / group.items.length));
      return Math.min(1, total.value);
    });
  return { sorted, levels, row };
}

const mean = (values) => values.reduce((sum, one) => sum.add(one), new Sum()).value / values.length;

function deviation(values) {
  const middle = mean(values);
  const squares = values.reduce((sum, one) => sum.add((one - middle) ** 2), new Sum()).value;
  return Math.sqrt(squares / (values.length - 1));
}

/** The first level, from the strictest down, whose losses are refused. */
function firstRefused({ levels, row }, refused, inOrder) {
  for (const level of levels) if (refused(row(level, inOrder))) return level;
  return -Infinity;
}

// -- with high probability -------------------------------------------------------------------------------------------------

export function hoeffdingBentkus(total, count, alpha) {
  const average = Math.min(total / count, alpha);
  let divergence = (1 - average) * Math.log((1 - average) / (1 - alpha));
  if (average > 0) divergence += average * Math.log(average / alpha);
  const whole = Math.min(count, Math.ceil(total - SLACK * Math.max(1, total)));
  return Math.min(1, Math.exp(-count * Math.max(0, divergence)), Math.E * binomialCdf(whole, count, alpha));
}

export function bettingP(values, alpha, delta) {
  const count = values.length;
  let [sum, squares, wealth, most] = [0, 0, 0, 0];
  let variance = 0.25;
  values.forEach((loss, i) => {
    const bet = Math.min(1, Math.sqrt((2 * Math.log(1 / delta)) / (count * variance)));
    wealth += Math.log1p(-bet * (loss - alpha));
    most = Math.max(most, wealth);
    sum += loss;
    squares += (loss - (sum + 0.5) / (i + 2)) ** 2;
    variance = (squares + 0.25) / (i + 2);
  });
  return Math.exp(-most);
}

/** One item of each group, and whether it is wrong; counts above a level. */
function oneItem({ groups, seed }) {
  const marks = groups.map((group) => {
    const item = group.items.length === 1 ? 0 : pick(seed, group);
    const severity = group.severities[item];
    return { score: group.scores[item], wrong: severity === 1 || (severity > 0 && coin(seed, group.id) < severity) };
  });
  const above = (level) => {
    const shipped = marks.filter((one) => one.score > level);
    return { shipped: shipped.length, errors: shipped.filter((one) => one.wrong).length };
  };
  return { scores: marks.map((one) => one.score).sort((a, b) => b - a), above };
}

const binomialP = ({ errors, shipped }, alpha) => (shipped > 0 ? binomialCdf(errors, shipped, alpha) : 1);

function selective(sample) {
  const { alpha, parameters: { delta }, history } = sample;
  const floor = sample.floor ?? 0;
  const items = oneItem(sample);
  const falling = (levels) => [...new Set(levels)].sort((a, b) => b - a);
  if (history.cuts.length) {
    let found = Infinity;
    for (const cut of falling(history.cuts.map((one) => Math.max(one, floor)))) {
      if (!(binomialP(items.above(cut), alpha) <= delta)) break;
      found = cut;
    }
    return found;
  }
  const ranks = TENTHS.map((tenths) => Math.ceil((tenths * items.scores.length) / 10)).filter((rank) => rank < items.scores.length);
  const own = falling([...ranks.map((rank) => Math.max(items.scores[rank], floor)), floor]);
  return own.findLast((level) => binomialP(items.above(level), alpha) <= delta / TENTHS.length) ?? Infinity;
}

function selectiveMean(sample) {
  const floor = sample.floor ?? 0;
  const items = oneItem(sample);
  const levels = [...new Set([...items.scores.filter((score) => score > floor), floor])].sort((a, b) => a - b);
  const inside = ({ shipped, errors }) => {
    const room = sample.alpha * (shipped + 1);
    return errors + 1 <= room + SLACK * Math.max(1, room);
  };
  return levels.find((level) => inside(items.above(level))) ?? Infinity;
}

// -- every method ------------------------------------------------------------------------------------------------------------

/** The fewest groups that a budget can be met with. */
const groupsNeeded = (alpha) => Math.max(0, Math.ceil((1 - SLACK) / alpha) - 1);

const METHODS = {
  ...Object.fromEntries(SCHEMES.map((name) => [name, (sample) => byScheme(sample, name)])),
  age(sample) {
    const { groups, alpha, parameters: { rho } } = sample;
    const weights = groups.map((_, position) => rho ** (groups.length - 1 - position));
    const total = weights.reduce((sum, one) => sum.add(one), new Sum()).value;
    const items = groups.flatMap((group, g) =>
      group.scores.map((score, i) => [score, (group.severities[i] / group.items.length) * weights[g]]),
    );
    return smallest(items, budget(alpha, total));
  },
  hb(sample) {
    const { groups, alpha, parameters: { delta } } = sample;
    if (groups.length === 0) return Infinity;
    const { levels, totals } = lossCurve(losses(sample, "mean"));
    const passes = (total) => hoeffdingBentkus(Math.min(total, groups.length), groups.length, alpha) <= delta;
    if (!passes(0)) return Infinity;
    const first = totals.findIndex((total) => !passes(total));
    return first < 0 ? -Infinity : levels[first];
  },
  betting(sample) {
    const { groups, alpha, seed, parameters: { delta } } = sample;
    if (groups.length === 0 || bettingP(groups.map(() => 0), alpha, delta) > delta) return Infinity;
    return firstRefused(table(sample), (row) => bettingP(row, alpha, delta) > delta, readingOrder(seed, groups));
  },
  bernstein(sample) {
    const { groups, alpha, parameters: { delta } } = sample;
    const log = Math.log(2 / delta);
    const count = groups.length;
    if (count < Math.ceil((7 * log) / (3 * alpha)) + 1) return Infinity;
    const room = alpha - (7 * log) / (3 * (count - 1));
    return firstRefused(table(sample), (row) => mean(row) + Math.sqrt((2 * log) / count) * deviation(row) > room);
  },
  clt(sample) {
    const { groups, alpha, parameters } = sample;
    const count = groups.length;
    if (count < Math.max(2, groupsNeeded(alpha))) return Infinity;
    const z = normalQuantile(Math.min(parameters.delta, 0.5));
    const room = alpha - 1 / (count + 1) + SLACK;
    return firstRefused(table(sample), (row) => mean(row) + (z * deviation(row)) / Math.sqrt(count) > room);
  },
  selective,
  "selective-mean": selectiveMean,
  transductive: (sample) => transductive(sample).value,
};

export const knows = (method) => method in METHODS;

export const METHOD_NAMES = Object.keys(METHODS);

const floored = (value, floor) => (floor === null ? value : Math.max(value, floor));

/** The window of the summed loss, and the strictest threshold that a batch can get. */
function transductive(sample) {
  const { groups, alpha, drawn } = sample;
  const limit = budget(alpha, groups.length);
  const curve = lossCurve(losses(sample, "mean"));
  const levels = [-Infinity, ...curve.levels.toReversed()];
  const totals = [...curve.totals.toReversed(), 0];
  const first = totals.findIndex((total) => total <= limit + 1);
  const end = totals.findIndex((total) => total <= limit);
  const last = end < 0 ? totals.length - 1 : end;
  const window = thinned(levels.slice(first, last + 1), totals.slice(first, last + 1), limit);
  const strictest = byScheme(sample, "mean");
  return { window, value: drawn === 1 ? strictest : Math.min(strictest, 1) };
}

/** At most 2,048 levels: the first, the last, and of the others each that begins another equal share of the fall. */
function thinned(levels, totals, limit) {
  if (levels.length <= WINDOW_LEVELS) return levels.map((level, i) => [level, totals[i]]);
  const span = totals[0] - Math.max(totals.at(-1), limit) || 1;
  const kept = [0];
  let reached = 0;
  for (let i = 1; i < levels.length - 1; i += 1) {
    const share = Math.trunc(((totals[0] - totals[i]) / span) * (WINDOW_LEVELS - 1));
    if (share > reached) {
      kept.push(i);
      reached = share;
    }
  }
  return [...kept, levels.length - 1].map((i) => [levels[i], totals[i]]);
}

// -- shapes and segments -------------------------------------------------------------------------------------------------------

/** A gate's threshold and rule, by its method, shape and segments. */
export function calibrate(sample, { method, shape, segmentBy, fallback, width }) {
  const { floor, groups } = sample;
  if (segmentBy !== null) return bySegment(sample, { method, segmentBy, fallback });
  if (shape === "smooth" || shape === "ramp") {
    return { value: soft(sample, method, shape, width), rule: { kind: shape, parameters: { width }, curve: null } };
  }
  if (shape === "quantile") {
    const plain = METHODS[method]({ ...sample, floor: null });
    if (!Number.isFinite(plain)) return { value: plain, rule: { kind: "quantile", parameters: { quantile: null }, curve: null } };
    const scores = groups.flatMap((group) => group.scores);
    const higher = scores.filter((score) => score > plain);
    const quantile = scores.filter((score) => score <= plain).length / scores.length;
    const value = higher.length ? doubleBelow(Math.min(...higher)) : 1;
    return { value, rule: { kind: "quantile", parameters: { quantile }, curve: null } };
  }
  if (shape === "rank") return { value: METHODS[method](sample), rule: { kind: "rank", parameters: {}, curve: null } };
  if (method === "transductive") {
    const { window, value } = transductive(sample);
    const parameters = { alpha: sample.alpha, groups: groups.length, labelled: sample.drawn, floor };
    const curve = window.map(([level, total]) => [level === -Infinity ? null : level, total]);
    return { value: floored(value, floor), rule: { kind: "transductive", parameters, curve } };
  }
  return { value: floored(METHODS[method](sample), floor), rule: { kind: "indicator", parameters: {}, curve: null } };
}

export const asCut = (value) =>
  value === Infinity ? { state: "closed", lambda: null } : value === -Infinity ? { state: "open", lambda: null } : { state: "cut", lambda: value };

function bySegment(sample, { method, segmentBy, fallback }) {
  const { groups, alpha, floor } = sample;
  const parts = new Map();
  for (const group of groups) parts.set(group.segment, [...(parts.get(group.segment) ?? []), group]);
  const large = [...parts].filter(([, some]) => some.length >= groupsNeeded(alpha));
  large.sort((a, b) => b[1].length - a[1].length || byBytes(a[0], b[0]));
  const own = {};
  for (const [name, some] of large.slice(0, MOST_SEGMENTS)) {
    own[name] = asCut(floored(byScheme({ ...sample, groups: some }, method), floor));
  }
  const rest = fallback === "pooled" ? byScheme(sample, method) : Infinity;
  return { value: floored(rest, floor), rule: { kind: "segments", parameters: { key: segmentBy, own }, curve: null } };
}

/** The level of a random gate: the smallest double within the budget. */
function soft(sample, method, shape, width) {
  const items = losses(sample, method);
  const limit = budget(sample.alpha, sample.groups.length);
  if (limit < 0) return Infinity;
  const share = (score, level) => {
    const away = (score - level) / width;
    if (shape === "ramp") return Math.min(1, Math.max(0, away));
    const small = Math.exp(-Math.abs(away));
    return (away >= 0 ? 1 : small) / (1 + small);
  };
  const lost = (level) => items.reduce((sum, [score, loss]) => sum.add(loss * share(score, level)), new Sum()).value;
  const everything = lost(-Infinity);
  if (everything <= limit) return -Infinity;
  if (limit === 0) return Infinity;
  const [over, within] =
    shape === "ramp"
      ? [-width, 1]
      : [width * Math.log((everything - limit) / everything), 1 + width * Math.log(everything / limit)];
  if (!(lost(within) <= limit)) return Infinity;
  if (lost(over) <= limit) return over;
  let [low, high] = [rankOf(over), rankOf(within)];
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (lost(doubleOf(middle)) <= limit) high = middle;
    else low = middle;
  }
  return doubleOf(high);
}
