// Hashes, commitments, keyed numbers and signatures: section 2 and 3 of docs/audit-format.md.

import { createHash, createHmac, createPublicKey, verify } from "node:crypto";
import { Unreadable } from "./bundle.mjs";
import { canonical } from "./json.mjs";

export function sha256(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest("hex");
}

/** The hash of a leaf of a Merkle log, and of a node (RFC 9162, section 2.1). */
export const leafHash = (text) => sha256("\0", text);
const nodeHash = (left, right) => (left === null || right === null ? null : sha256("\x01", Buffer.from(left, "hex"), Buffer.from(right, "hex")));

/** A Merkle log: its leaves by their hashes, and its root at each size that it had. */
export class MerkleLog {
  #levels = [[]]; // hashes of the perfect subtrees of 1, 2, 4, ... leaves
  #roots = new Map([[0, sha256()]]);

  get size() {
    return this.#levels[0].length;
  }

  leaf(index) {
    return this.#levels[0][index];
  }

  append(hash) {
    for (let k = 0; ; k += 1) {
      const level = (this.#levels[k] ??= []);
      level.push(hash);
      if (level.length % 2 === 1) return;
      hash = nodeHash(level.at(-2), hash);
    }
  }

  /** The root of the first `size` leaves; null where one of them is missing. */
  root(size = this.size) {
    if (this.#roots.has(size)) return this.#roots.get(size);
    let root;
    for (let k = 0; size >> k > 0; k += 1) {
      if ((size >> k) % 2 === 0) continue;
      const left = this.#levels[k][(size >> k) - 1];
      root = root === undefined ? left : nodeHash(left, root);
    }
    this.#roots.set(size, root);
    return root;
  }
}

/** SHA-256 over a name, a zero byte and what follows. */
export const named = (name, ...parts) => sha256(`${name}\0`, ...parts);

export const hmac = (salt, text) => createHmac("sha256", salt).update(text).digest("hex");

export const saltCommitment = (gate, salt) => named("streamer.salt.v1", canonical([gate, salt]));
export const seedCommitment = (gate, seed) => named("streamer.seed.v1", canonical([gate, seed]));

/** The first eight bytes of the keyed hash of `parts`, as BigInt. */
export function keyedBits(salt, ...parts) {
  const mac = createHmac("sha256", salt);
  for (const part of parts) {
    const bytes = Buffer.from(part);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(bytes.length);
    mac.update(length).update(bytes);
  }
  return mac.digest().readBigUInt64BE(0);
}

/** The number of a draw as a double in [0, 1]: n / 2^64. */
export const keyedShare = (salt, ...parts) => Number(keyedBits(salt, ...parts)) / 2 ** 64;

/** A batch's number in (0, 1): `dither` and a response for a random gate, `severity` for its mark. */
export function uniform(salt, use, gate, batch, attempt, ...parts) {
  const bits = keyedBits(salt, use, gate, batch, String(attempt), ...parts);
  return (Number(bits >> 12n) + 0.5) / 2 ** 52;
}

/** The UUID of version 5 of a name, in a namespace in hexadecimal. */
export function uuid5(namespace, name) {
  const hash = createHash("sha1").update(Buffer.from(namespace, "hex")).update(name).digest().subarray(0, 16);
  hash[6] = (hash[6] & 0x0f) | 0x50;
  hash[8] = (hash[8] & 0x3f) | 0x80;
  return hash.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

const PEM = /-----BEGIN PUBLIC KEY-----[\s\S]*?-----END PUBLIC KEY-----/g;

/** Ed25519 keys of a PEM file by their id, the SHA-256 of the 32 bytes. */
export function readKeys(text) {
  const keys = new Map();
  for (const block of text.match(PEM) ?? []) {
    let key;
    try {
      key = createPublicKey(block);
    } catch (error) {
      throw new Unreadable(`a public key cannot be read: ${error.message}`);
    }
    if (key.asymmetricKeyType !== "ed25519") throw new Unreadable("a public key is not of Ed25519");
    keys.set(sha256(key.export({ type: "spki", format: "der" }).subarray(-32)), key);
  }
  if (keys.size === 0) throw new Unreadable("there is no public key in the file");
  return keys;
}

/** Bytes of strict base64; null if it is none. */
export function fromBase64(text) {
  if (typeof text !== "string" || text.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? bytes : null;
}

const [LOG, WITNESS] = [1, 4]; // kinds of keys (c2sp.org/signed-note)

/** The four bytes by which a signature line of a note names a key. */
function keyHash(name, key, kind) {
  const raw = key.export({ type: "spki", format: "der" }).subarray(-32);
  return Buffer.from(sha256(`${name}\n`, Buffer.of(kind), raw), "hex").subarray(0, 4);
}

/** The keys of witnesses by their names: NAME+HASH+KEY, one a line; an address behind it is passed over. */
export function readWitnessKeys(text) {
  const keys = new Map();
  for (const line of text.split(/\r?\n/).filter((one) => one.trim() !== "")) {
    const [, name, named, encoded] = /^([^+ ]+)\+([0-9a-f]{8})\+([^ ]+)/.exec(line) ?? [];
    const raw = fromBase64(encoded);
    if (raw?.length !== 33 || raw[0] !== WITNESS) throw new Unreadable(`${line} is no key of a witness`);
    const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.subarray(1).toString("base64url") }, format: "jwk" });
    if (keyHash(name, key, WITNESS).toString("hex") !== named) throw new Unreadable(`${name} is no key of a witness`);
    keys.set(name, key);
  }
  return keys;
}

/** What known keys say of a note: `ours`, whether each signature of the log is good, and `cosigned`, likewise by witness. */
export function signaturesOf({ text, origin, lines }, keys, witnesses) {
  const found = { ours: [], cosigned: [] };
  for (const line of lines.trimEnd().split("\n")) {
    const [, name, encoded] = line.split(" ");
    const raw = Buffer.from(encoded, "base64");
    const named = (key, kind) => key !== undefined && raw.subarray(0, 4).equals(keyHash(name, key, kind));
    for (const key of name === origin ? keys.values() : []) {
      if (named(key, LOG)) found.ours.push(goodSignature(key, text, raw.subarray(4)));
    }
    if (named(witnesses.get(name), WITNESS) && raw.length === 76) {
      const said = `cosignature/v1\ntime ${raw.readBigUInt64BE(4)}\n${text}`;
      found.cosigned.push([name, goodSignature(witnesses.get(name), said, raw.subarray(12))]);
    }
  }
  return found;
}

/** Whether a signature, as bytes, is good for a text. */
export const goodSignature = (key, text, bytes) => bytes.length === 64 && verify(null, Buffer.from(text), key, bytes);

/** What the signature of a policy, a label or a restoration covers: its text as DSSE writes it. */
export function signedText(kind, text) {
  const type = `application/vnd.streamer.${kind}.v1+json`;
  return `DSSEv1 ${type.length} ${type} ${Buffer.byteLength(text)} ${text}`;
}

/** Whether a signature in base64 is good for the text of a policy, a label or a restoration. */
export function signed(key, kind, text, signature) {
  const bytes = fromBase64(signature);
  return bytes !== null && goodSignature(key, signedText(kind, text), bytes);
}
