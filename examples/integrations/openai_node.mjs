// The package `openai` for Node, unchanged, with a gate in place of the model.
//
// `streamer serve` samples the answers, and returns the one that ships. Anything else is held, also when it cannot be reached.
//
//     node openai_node.mjs "Where is my parcel?"

import OpenAI from "openai";

const HOLD = "Somebody will come back to you.";
const { GATE = "support-bot", GATE_URL = "http://127.0.0.1:8080", GATE_KEY = "none" } = process.env;

const client = new OpenAI({
  baseURL: `${GATE_URL}/v1`,
  apiKey: GATE_KEY,
  timeout: 60_000, // longer than the service waits (`streamer serve --wait`), so that its own hold arrives
  maxRetries: 0, // a retry samples other answers, unless it has the same Idempotency-Key
});

/** The answer that the gate ships, or the hold. */
async function answer(prompt) {
  try {
    const completion = await client.chat.completions.create({
      model: `gate/${GATE}`,
      messages: [{ role: "user", content: prompt }],
    });
    const decision = completion.streamer; // the decision on record, beside OpenAI's own members
    if (decision.action === "ship" && decision.enforced === true) return completion.choices[0].message.content;
    console.error(`held: ${decision.reason}`);
  } catch (error) {
    console.error(`held: ${error}`);
  }
  return HOLD;
}

for (const prompt of process.argv.slice(2)) console.log(await answer(prompt));
