// Calls the TypeScript client for a test: a line of JSON in, a line of JSON out.
import { createInterface } from "node:readline";

const { Client, Trouble } = await import(process.argv[2]);
const clients = new Map();

function answersOf(answers) {
  return Array.isArray(answers) ? answers : new Map(Object.entries(answers));
}

async function call({ url, key, method, args, options }) {
  const name = JSON.stringify([url, key]);
  if (!clients.has(name)) clients.set(name, new Client(url, { key: key ?? undefined }));
  if (method === "decide") args[2] = answersOf(args[2]);
  for (const date of ["createdAt", "labelledAt"]) if (date in options) options[date] = new Date(options[date]);
  return (await clients.get(name)[method](...args, options.noOptions ? null : options)) ?? null;
}

for await (const line of createInterface({ input: process.stdin })) {
  let said;
  try {
    said = { value: await call(JSON.parse(line)) };
  } catch (error) {
    said = error instanceof Trouble ? { trouble: { reason: error.reason, detail: error.detail } } : { error: String(error) };
  }
  console.log(JSON.stringify(said));
}
