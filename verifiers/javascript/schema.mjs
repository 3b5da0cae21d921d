// The form of a bundle's lines: docs/audit-format.schema.json, in the part of JSON Schema that it uses.
//
// A check takes a value as it was parsed, with its numbers as `Num`, and gives null, or where in it something is wrong and what.

import { readFileSync } from "node:fs";
import { Num, parse, plain } from "./json.mjs";

const { $defs: SCHEMAS } = plain(parse(readFileSync(new URL("../../docs/audit-format.schema.json", import.meta.url), "utf8")));

const SAID = {
  string: "a text", integer: "a whole number", number: "a number", boolean: "true or false", object: "an object", array: "a list",
  null: "null",
};

function isOf(value, type) {
  if (value === null) return type === "null";
  if (value instanceof Num) return type === "number" || (type === "integer" && !/[.e]/.test(value.canonical));
  if (Array.isArray(value)) return type === "array";
  return typeof value === type && type !== "number";
}

/** What compares a value with a schema. Null passes every test but those of type and words. */
function checker(schema) {
  const tests = [];
  const test = (holds, what) => tests.push((value) => (value === null || holds(value) ? null : ["", what]));
  const words = "const" in schema ? [schema.const] : schema.enum;
  if (words !== undefined) tests.push((value) => (words.includes(value) ? null : ["", `is none of ${words.join(", ")}`]));
  if ("type" in schema) {
    const types = [schema.type].flat();
    const what = `is not ${types.map((type) => SAID[type]).join(" or ")}`;
    tests.push((value) => (types.some((type) => isOf(value, type)) ? null : ["", what]));
  }
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const most = schema.maximum ?? schema.exclusiveMaximum;
  if (most !== undefined) {
    const fits = ({ value }) =>
      ("minimum" in schema ? value >= least : value > least) && ("maximum" in schema ? value <= most : value < most);
    test(fits, `is not between ${least} and ${most}`);
  }
  if ("pattern" in schema) {
    const pattern = new RegExp(schema.pattern, "u");
    test((value) => pattern.test(value), "is not of its form");
  }
  if ("format" in schema) test(isDate, "is no moment");
  if ("contentSchema" in schema) tests.push(ofText(checker(schema.contentSchema)));
  if ("prefixItems" in schema) {
    const parts = schema.prefixItems.map(checker);
    test((value) => value.length === parts.length, `has not ${parts.length} parts`);
    tests.push((value) => value && first(value, (one, at) => inside(parts[at](one), `[${at}]`)));
  } else if ("items" in schema) {
    const each = checker(schema.items);
    test((value) => value.length >= (schema.minItems ?? 0), `has fewer than ${schema.minItems} parts`);
    tests.push((value) => value && first(value, (one, at) => inside(each(one), `[${at}]`)));
  }
  if ("properties" in schema || "additionalProperties" in schema) tests.push(ofObject(schema));
  if ("if" in schema) {
    const [holds, yes, no] = [schema.if, schema.then, schema.else].map(checker);
    tests.push((value) => value && (holds(value) === null ? yes : no)(value));
  }
  if ("anyOf" in schema) {
    const ways = schema.anyOf.map(checker);
    tests.push((value) => (ways.some((way) => way(value) === null) ? null : ["", "has none of its forms"]));
  }
  return (value) => first(tests, (one) => one(value));
}

const inside = (wrong, at) => wrong && [at + wrong[0], wrong[1]];

function first(values, check) {
  for (let at = 0; at < values.length; at += 1) {
    const wrong = check(values[at], at);
    if (wrong) return wrong;
  }
  return null;
}

function isDate(text) {
  const seconds = text.slice(0, 19);
  const at = Date.parse(`${seconds}Z`);
  return !Number.isNaN(at) && !seconds.startsWith("0000") && new Date(at).toISOString().startsWith(seconds);
}

function ofText(inner) {
  return (text) => {
    if (text === null) return null;
    try {
      return inner(parse(text));
    } catch (error) {
      return ["", `is no JSON (${error.message})`];
    }
  };
}

function ofObject({ properties = {}, required = [], additionalProperties: more = true }) {
  const known = new Map(Object.entries(properties).map(([name, one]) => [name, checker(one)]));
  const other = typeof more === "object" ? checker(more) : () => (more ? null : ["", "is unknown"]);
  return (value) => {
    if (value === null) return null;
    for (const name of required) if (!(name in value)) return [`.${name}`, "is missing"];
    return first(Object.keys(value), (name) => inside((known.get(name) ?? other)(value[name]), `.${name}`));
  };
}

const checkers = new Map();

/** Where a value is not of the form of this name, and what is wrong; null: nothing. */
export function wrongForm(name, tree) {
  if (!Object.hasOwn(SCHEMAS, name)) return [".kind", "is unknown"];
  if (!checkers.has(name)) checkers.set(name, checker(SCHEMAS[name]));
  return checkers.get(name)(tree) ?? (name === "outcomes.decision" && tree.facts !== null ? uneven(tree) : null);
}

/** What no schema says: lists about responses have a part for each, and either all responses have scores or none has. */
function uneven({ facts, content, judged }) {
  const { responses } = facts;
  const lists = [
    ["facts.uniforms", facts.uniforms, responses.length],
    ["facts.not_read", facts.not_read, responses.length],
    ["content.texts", content?.texts, responses.length],
    ["judged", judged, facts.judged?.length ?? 0],
  ];
  for (const [where, some, of] of lists) {
    if (some !== undefined && some.length !== of) return [`.${where}`, `has not ${of} parts`];
  }
  const scored = new Set(responses.map(([, score]) => score !== null));
  return scored.size > 1 ? [".facts.responses", "has scores of some responses alone"] : null;
}

const PLACED = ["index", "kind", "recorded_at", "leaf", "root", "source"];

/** A line of `control` or `outcomes` as far as it is of its form: whole, what places its leaf, or null; and what is wrong with it. */
export function formOf(name, tree) {
  const wrong = wrongForm(name === "unchained" ? name : `${name}.${typeof tree.kind === "string" ? tree.kind : ""}`, tree);
  if (wrong === null) return [tree, null];
  if (name === "unchained") return [null, `${wrong[0].slice(1)} ${wrong[1]}`];
  const kept = { __proto__: null };
  for (const one of PLACED) if (one in tree) kept[one] = tree[one];
  const beyond = wrongForm(`${name}.leaf`, kept);
  if (beyond !== null) return [null, `${beyond[0].slice(1)} ${beyond[1]}`];
  const part = name === "control" ? "row" : "facts";
  kept.malformed = tree[part] === null ? undefined : `${wrong[0].slice(1)} ${wrong[1]}`;
  return [{ ...kept, [part]: null }, null];
}
