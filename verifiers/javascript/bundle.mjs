// Files of a bundle, from a folder or from a .zip (PKWARE's APPNOTE 4.3: stored and deflated entries, also ZIP64).

import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { inflateRawSync } from "node:zlib";
import { Num, canonical, parse, plain } from "./json.mjs";
import { formOf } from "./schema.mjs";

const LARGEST = 4 * 2 ** 30; // bytes of one file: more than Node puts in a buffer is an error, not an allocation
const MOST_LINE = 2 ** 28; // bytes of one line
const MOST_PACKED = 100; // how many times its size a .zip may have when it is unpacked

/** Thrown where the input cannot be read at all: exit status 2. */
export class Unreadable extends Error {}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of UTF-8 bytes; Unreadable if they are none. */
export function decode(bytes, place) {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Unreadable(`${place} is not UTF-8`);
  }
}

/** A bundle: `has(name)` and `read(name)`, whatever holds it. */
export function openBundle(path) {
  if (!existsSync(path)) throw new Unreadable(`there is no ${path}`);
  if (statSync(path).isDirectory()) {
    return {
      has: (name) => existsSync(join(path, name)),
      read: (name) => {
        try {
          return readFileSync(join(path, name));
        } catch (error) {
          throw new Unreadable(`cannot read ${name}: ${error.message}`);
        }
      },
    };
  }
  const files = readable(() => entries(readFileSync(path)), path);
  return {
    has: (name) => files.has(name),
    read: (name) => {
      if (!files.has(name)) throw new Unreadable(`there is no ${name} in ${path}`);
      return readable(files.get(name), name);
    },
  };
}

/** What is not where the .zip says that it is is Unreadable. */
function readable(read, name) {
  try {
    return read();
  } catch (error) {
    if (error instanceof Unreadable) throw error;
    throw new Unreadable(`${name} is damaged: ${error.message}`);
  }
}

/** Name to a function that gives the content, by the central directory. */
function entries(zip) {
  const end = zip.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  if (end < 0 || end + 22 > zip.length) throw new Unreadable("it is neither a folder nor a .zip");
  let count = zip.readUInt16LE(end + 10);
  let at = zip.readUInt32LE(end + 16);
  const locator = end - 20;
  if (locator >= 0 && zip.readUInt32LE(locator) === 0x07064b50) {
    const wide = Number(zip.readBigUInt64LE(locator + 8));
    count = Number(zip.readBigUInt64LE(wide + 32));
    at = Number(zip.readBigUInt64LE(wide + 48));
  }
  const found = new Map();
  let unpacked = 0;
  for (let i = 0; i < count; i += 1) {
    if (zip.readUInt32LE(at) !== 0x02014b50) throw new Unreadable("the directory of the .zip is damaged");
    const method = zip.readUInt16LE(at + 10);
    const checksum = zip.readUInt32LE(at + 16);
    const sizes = [zip.readUInt32LE(at + 24), zip.readUInt32LE(at + 20), zip.readUInt32LE(at + 42)];
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((o) => zip.readUInt16LE(at + o));
    const name = decode(zip.subarray(at + 46, at + 46 + nameLength), "a name in the .zip");
    const extra = zip.subarray(at + 46 + nameLength, at + 46 + nameLength + extraLength);
    widen(extra, sizes);
    const [size, packed, header] = sizes;
    unpacked += size;
    if (unpacked > MOST_PACKED * zip.length + MOST_LINE) throw new Unreadable("it is small and unpacks to more than any record has");
    if (found.has(name)) throw new Unreadable(`the .zip has two files ${name}`);
    found.set(name, () => {
      if (zip.readUInt32LE(header) !== 0x04034b50) throw new Unreadable("an entry of the .zip is damaged");
      const begin = header + 30 + zip.readUInt16LE(header + 26) + zip.readUInt16LE(header + 28);
      const bytes = zip.subarray(begin, begin + packed);
      if (size > LARGEST) throw new Unreadable(`${name} is too large; unpack the .zip and name the folder`);
      let content = bytes;
      try {
        if (method === 8) content = inflateRawSync(bytes, { maxOutputLength: Math.max(size, 1) });
        else if (method !== 0) throw new Error(`packed by method ${method}`);
      } catch (error) {
        throw new Unreadable(`cannot unpack ${name}: ${error.message}`);
      }
      if (content.length !== size || crc32(content) !== checksum) throw new Unreadable(`${name} is damaged in the .zip`);
      return content;
    });
    at += 46 + nameLength + extraLength + commentLength;
  }
  return found;
}

/** ZIP64: values of 0xffffffff stand, in this order, in the extra field 1. */
function widen(extra, sizes) {
  for (let at = 0; at + 4 <= extra.length; ) {
    const length = extra.readUInt16LE(at + 2);
    if (extra.readUInt16LE(at) === 1) {
      let wide = at + 4;
      for (let i = 0; i < sizes.length; i += 1) {
        if (sizes[i] !== 0xffffffff) continue;
        sizes[i] = Number(extra.readBigUInt64LE(wide));
        wide += 8;
      }
    }
    at += 4 + length;
  }
}

/** The lines of a file without their ends; the last one need not have one. */
export function* lines(bytes) {
  let from = 0;
  while (from < bytes.length) {
    const end = bytes.indexOf(10, from);
    if ((end < 0 ? bytes.length : end) - from > MOST_LINE) throw new Unreadable(`a line is longer than ${MOST_LINE} bytes`);
    yield bytes.subarray(from, end < 0 ? bytes.length : end);
    if (end < 0) return;
    from = end + 1;
  }
}

/**
 * Each line of a file of a bundle as `{ raw, value, number }`, as far as it is of its form: see `formOf`. What cannot even be placed is a
 * fault here.
 */
export function* jsonLines(bytes, name, report) {
  const kind = name.replace(".jsonl", "");
  let number = 0;
  for (const line of lines(bytes)) {
    number += 1;
    let raw;
    try {
      raw = canonicalObject(line);
    } catch (error) {
      throw new Unreadable(`${name}, line ${number}: ${error.message}`);
    }
    const [kept, wrong] = formOf(kind, raw);
    if (kept === null) report.fault("form", `${name}, line ${number}`, wrong);
    else yield { raw: kept, value: plain(kept), number };
  }
}

/** The object that a line has as canonical JSON; throws for anything else. */
export function canonicalObject(line) {
  const text = decode(line, "it");
  const tree = parse(text);
  if (tree === null || typeof tree !== "object" || Array.isArray(tree) || tree instanceof Num) throw new SyntaxError("it is no object");
  if (canonical(tree) !== text) throw new SyntaxError("it is not written as canonical JSON");
  return tree;
}

/** CRC-32 as .zip files have it; node:zlib has it from Node 22 on. */
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

function crc32(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ TABLE[(value ^ byte) & 0xff];
  return (value ^ 0xffffffff) >>> 0;
}
