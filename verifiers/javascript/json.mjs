// JSON that keeps apart what JavaScript does not: 1 and 1.0, and integers beyond 2^53.
//
// `parse` gives a tree whose numbers are `Num`; `plain` turns it into ordinary values (integers beyond 2^53 as BigInt);
// `canonical` writes either kind of tree the way the record hashes it. A plain number that is whole is written as an integer,
// so what has floats in it must be hashed as it was parsed, or with `float(...)` around them.

/** A number as it stood in the text, with the form that canonical JSON gives it. */
export class Num {
  constructor(value, canonical) {
    this.value = value;
    this.canonical = canonical;
  }
}

/** A float for `canonical`, whatever its value. */
export const float = (value) => new Num(value, writeFloat(value));

const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const BLANK = /[ \t\n\r]*/y;
const WORDS = [
  ["true", true],
  ["false", false],
  ["null", null],
];
const DEEPEST = 200;

/** Parse one JSON value; throws SyntaxError for anything else, for a repeated key and for numbers that no double holds. */
export function parse(text) {
  let at = 0;

  const fail = (why) => {
    throw new SyntaxError(`${why} at character ${at}`);
  };
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found === null) return null;
    at = pattern.lastIndex;
    return found;
  };
  const take = (character) => {
    match(BLANK);
    if (text[at] !== character) return false;
    at += 1;
    return true;
  };

  function string() {
    if (text[at] !== '"') fail("no string");
    let end = at; // of no length that a pattern could have trouble with
    let escapes;
    do {
      end = text.indexOf('"', end + 1);
      if (end < 0) fail("no end of a string");
      for (escapes = 0; text[end - 1 - escapes] === "\\"; ) escapes += 1;
    } while (escapes % 2 === 1);
    const quoted = text.slice(at, end + 1);
    at = end + 1;
    return JSON.parse(quoted);
  }

  function value(depth) {
    if (depth > DEEPEST) fail("nested too deeply");
    match(BLANK);
    const first = text[at];
    if (first === "{") {
      at += 1;
      const made = Object.create(null);
      if (take("}")) return made;
      do {
        match(BLANK);
        const key = string();
        if (key in made) fail(`a second ${JSON.stringify(key)}`);
        if (!take(":")) fail("no colon");
        made[key] = value(depth + 1);
      } while (take(","));
      if (!take("}")) fail("no end of an object");
      return made;
    }
    if (first === "[") {
      at += 1;
      const made = [];
      if (take("]")) return made;
      do made.push(value(depth + 1));
      while (take(","));
      if (!take("]")) fail("no end of an array");
      return made;
    }
    if (first === '"') return string();
    for (const [word, meant] of WORDS) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return meant;
      }
    }
    const found = match(NUMBER);
    if (found === null) fail("no value");
    if (found[1] === undefined && found[2] === undefined) {
      const whole = BigInt(found[0]);
      const small = Number(whole);
      return new Num(Number.isSafeInteger(small) ? small : whole, whole.toString());
    }
    const number = Number(found[0]);
    if (!Number.isFinite(number)) fail("a number that no double holds");
    return float(number);
  }

  const whole = value(0);
  match(BLANK);
  if (at !== text.length) fail("something after the value");
  return whole;
}

/** The ordinary values of a parsed tree. */
export function plain(tree) {
  if (tree === null || typeof tree !== "object") return tree;
  if (tree instanceof Num) return tree.value;
  if (Array.isArray(tree)) return tree.map(plain);
  const made = Object.create(null);
  for (const key in tree) made[key] = plain(tree[key]);
  return made;
}

/** The float as Python's `repr` writes it: the shortest digits, with an exponent below 1e-4 and from 1e16 on. */
export function writeFloat(value) {
  if (Object.is(value, -0)) return "-0.0";
  const [mantissa, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (value !== 0 && (power < -4 || power >= 16)) {
    return `${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const sign = mantissa.startsWith("-") ? "-" : "";
  const digits = mantissa.replace("-", "").replace(".", "");
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${digits}`;
  const before = digits.slice(0, power + 1).padEnd(power + 1, "0");
  return `${sign}${before}.${digits.slice(power + 1) || "0"}`;
}

/** Whether two values are the same JSON, 1 and 1.0 taken for one, and numbers that are `near` parts of them apart. */
export function sameJson(one, other, near = 0) {
  if (near > 0 && typeof one === "number" && typeof other === "number") return Math.abs(one - other) <= near * Math.max(1, Math.abs(one));
  if (one === null || other === null || typeof one !== "object" || typeof other !== "object") return one === other;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => key in other && sameJson(one[key], other[key], near));
}

/** Order by code points, which is also the order of the UTF-8 bytes (JavaScript's own is by UTF-16 units). */
export function byCodePoint(left, right) {
  return Buffer.compare(Buffer.from(left), Buffer.from(right));
}

/** Canonical JSON as text. */
export function canonical(tree) {
  if (tree === null || typeof tree === "boolean") return String(tree);
  if (typeof tree === "string") {
    if (!tree.isWellFormed()) throw new SyntaxError("a lone surrogate");
    return JSON.stringify(tree);
  }
  if (tree instanceof Num) return tree.canonical;
  if (typeof tree === "bigint") return tree.toString();
  if (typeof tree === "number") return Number.isInteger(tree) ? String(tree) : writeFloat(tree);
  if (Array.isArray(tree)) return `[${tree.map(canonical).join(",")}]`;
  if (tree === undefined) throw new TypeError("a value is missing");
  const keys = Object.keys(tree);
  const ascii = keys.every((key) => /^[\x00-\x7f]*$/.test(key));
  keys.sort(ascii ? undefined : byCodePoint);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(tree[key])}`).join(",")}}`;
}
