// Runs verifiers/javascript on one bundle after another: a request is a line of JSON, and so is its answer.

import { createInterface } from "node:readline";
import { Unreadable, openBundle } from "../../../verifiers/javascript/bundle.mjs";
import { verifyBundle } from "../../../verifiers/javascript/verify.mjs";

const bytes = (lines) => (lines === null ? null : Buffer.concat(lines.map((line) => Buffer.from(line.endsWith("\n") ? line : `${line}\n`))));

for await (const line of createInterface({ input: process.stdin })) {
  const { bundle, keys, policyKeys, labelKeys, outside, receipts } = JSON.parse(line);
  let answer;
  try {
    const checkpoints = bytes(outside);
    const read = { bundle: openBundle(bundle), publicKey: keys, policyKeys, labelKeys, checkpoints, receipts: bytes(receipts) };
    answer = verifyBundle(read).asJson();
  } catch (error) {
    answer = JSON.stringify(error instanceof Unreadable ? { unreadable: error.message } : { crashed: error.stack });
  }
  process.stdout.write(`${answer}\n`);
}
