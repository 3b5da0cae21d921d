// From scores and a policy to what ships: section "Decisions" of docs/audit-format.md.

import { UNREAD } from "./settings.mjs";
import { fsum } from "./sums.mjs";

const TOLERANCE = 1e-12; // of what rounding does to a sum of losses

/** The cut as a number: everything above it ships. */
export const bar = ({ state, threshold }) => (state === "closed" ? Infinity : state === "open" ? -Infinity : threshold);

/** Code points that no reader sees though their category does not say so. */
const UNSEEN = new Set([0x115f, 0x1160, 0x2065, 0x2800, 0x3164, 0xffa0, 0xfffc, 0xfffd, 0x13441, 0x13442, 0x1d159]);
const UNSEEN_CATEGORY = /^[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Mc}\p{Me}\p{Mn}\p{Zl}\p{Zp}\p{Zs}]$/u;

function seen(character) {
  const code = character.codePointAt(0);
  const nothing =
    UNSEEN.has(code) || (code >= 0xfff0 && code <= 0xfff8) || (code >= 0xe0000 && code <= 0xe0fff) ||
    (code >= 0xfdd0 && code <= 0xfdef) || (code & 0xfffe) === 0xfffe;
  return !nothing && !UNSEEN_CATEGORY.test(character);
}

/** An answer without its reasoning, empty where that does not end; by a gate that reads answers raw as it is. */
export function judgedText(text, { judged }) {
  const tags = judged === "raw@1" ? [] : [...text.matchAll(/<(\/?)(?:think|thinking|reasoning)>/gi)];
  if (tags.length === 0) return text;
  const last = tags[tags.length - 1];
  return last[1] ? text.slice(last.index + last[0].length).replace(/^[ \t\n\r\v\f]+|[ \t\n\r\v\f]+$/g, "") : "";
}

/** Whether an answer has nothing to see. */
export const isBlank = (text) => ![...text].some(seen);

/**
 * Round a score to six digits, an exact half to the even digit, as Python's `round(x, 6)` does.
 *
 * `toFixed` looks at the exact value too, but takes an exact half up. Halves are the odd multiples of 1/128.
 */
export function roundSix(value) {
  const half = (value * 128) % 2 === 1;
  const digits = value.toFixed(7);
  return Number(half && Number(digits.at(-2)) % 2 === 0 ? digits.slice(0, -1) : value.toFixed(6));
}

/** The segment that metadata name: a text, a whole number or a truth value as JSON, else the empty text. */
export function segmentOf(value, isFloat) {
  if (typeof value === "boolean") return String(value);
  if ((typeof value === "number" || typeof value === "bigint") && !isFloat && value > -1e18 && value < 1e18) return String(value);
  return typeof value === "string" && [...value].length <= 200 ? value : "";
}

/**
 * What a policy says of a scored batch: `shipped` for each response, `best` and `selected` by position, and the cut.
 *
 * A batch's own cut under a transductive rule is computed as well.
 */
export function decide({ unit, state, threshold, rule, scores, blank, uniforms, segment, needed = null, signals }) {
  let cut = { state, threshold };
  if (rule.kind === "segments" && segment !== null) {
    const own = rule.parameters.own[segment];
    if (own !== undefined) cut = { state: own.state, threshold: own.lambda };
  }
  const numbers = rule.kind === "rank" ? ranks(scores) : scores;
  const plain = gate(unit, bar(cut), numbers, blank);
  if (rule.kind === "smooth" || rule.kind === "ramp") return { ...byChance(unit, bar(cut), rule, scores, blank, uniforms), cut };
  if (rule.kind === "full" && state === "full") {
    const ships = needed !== null && limitsOf(rule, segment).some(([groups, k]) => groups === needed[1] && needed[0] <= k);
    return { ...gate(unit, ships ? rule.parameters.ship_above || -Infinity : Infinity, scores, blank), cut };
  }
  if (unread(signals).includes("1")) return { ...gate(unit, Infinity, scores, blank), cut }; // no threshold has seen its like
  if (rule.kind === "transductive" && state !== "closed") {
    const eligible = plain.score === null ? scores : [plain.score];
    const level = Math.max(ownLevel(rule, eligible), rule.parameters.floor ?? -Infinity);
    cut = level === -Infinity ? { state: "open", threshold: null } : { state: "cut", threshold: level };
    return { ...gate(unit, level, scores, blank), cut };
  }
  return { ...plain, cut };
}

/** Why the encoder did not read a batch: a digit each reason, 1 where the row (float32, hexadecimal) has it. */
export function unread(signals = "") {
  const row = Buffer.from(signals, "hex");
  return UNREAD.map((i) => Number(row.length >= 4 * (i + 1) && row.readFloatLE(4 * i) === 1)).join("");
}

/** G, k and the segment that counts (null: all prompts do) of each fit of a rule of all signals. */
export function limitsOf({ parameters: { fits, segment_by: segmentBy, pooled } }, segment) {
  return fits.map(({ groups, allowed, own }) => {
    const of = own[segment ?? ""];
    if (segmentBy === null || (of === undefined && pooled)) return [groups, allowed, null];
    return [...(of ?? [0, 0]), segment ?? ""];
  });
}

function gate(unit, level, scores, blank) {
  if (unit === "response" || unit === "claim") return { shipped: scores.map((score, i) => score > level && !blank[i]), best: null, selected: null, score: null };
  if (unit === "batch") {
    const mean = roundSix(fsum(scores) / scores.length);
    const ships = mean > level && !blank.includes(true);
    return { shipped: scores.map(() => ships), best: null, selected: null, score: mean };
  }
  const best = bestOf(scores, blank);
  const ships = scores[best] > level;
  return {
    shipped: scores.map((_, i) => ships && i === best),
    best,
    selected: ships ? best : null,
    score: scores[best] ?? 0,
  };
}

/** The highest score that is not of a blank answer, the first among equals. */
export function bestOf(scores, blank) {
  let best = null;
  for (let i = 0; i < scores.length; i += 1) if (!blank[i] && (best === null || scores[i] > scores[best])) best = i;
  return best;
}

/** For each response the share of the batch that scores strictly less. */
const ranks = (scores) => scores.map((score) => scores.filter((other) => other < score).length / scores.length);

function byChance(unit, level, rule, scores, blank, uniforms) {
  const { width } = rule.parameters;
  const plain = gate(unit, level, scores, blank);
  const passes = scores.map((score, i) => {
    const deciding = plain.score ?? score;
    const u = uniforms[i];
    return deciding - width * (rule.kind === "smooth" ? Math.log(u) - Math.log1p(-u) : u) > level;
  });
  if (unit === "response") return { ...plain, shipped: passes.map((one, i) => one && !blank[i]) };
  if (unit === "batch") return { ...plain, shipped: passes.map(() => passes.every(Boolean) && !blank.includes(true)) };
  const shipped = passes.map((one, i) => one && i === plain.best);
  return { ...plain, shipped, selected: shipped[plain.best] ? plain.best : null };
}

/** The level of one batch by a transductive rule. */
function ownLevel({ parameters: { alpha, groups, labelled }, curve }, scores) {
  const limit = budget(alpha, groups) + 1;
  const levels = curve.map(([level]) => level ?? -Infinity);
  const ranked = scores.toSorted((a, b) => b - a);
  const most = Math.min(labelled ?? ranked.length, ranked.length);
  let found = Math.max(ranked[0], levels[0]);
  for (let shipped = 0; shipped < ranked.length; ) {
    const upper = ranked[shipped];
    while (shipped < ranked.length && ranked[shipped] === upper) shipped += 1;
    const charge = Math.min(shipped, most) / most;
    const position = curve.findIndex(([, total]) => -total >= charge - limit);
    if (position < 0) break;
    const lower = shipped < ranked.length ? ranked[shipped] : -Infinity;
    const level = Math.max(lower, levels[position]);
    if (level >= upper) break;
    found = level;
  }
  return found;
}

/** The largest sum of losses that a budget allows over G groups. */
export function budget(alpha, groups) {
  const allowance = alpha * (groups + 1);
  return allowance - 1 + TOLERANCE * Math.max(1, allowance);
}
