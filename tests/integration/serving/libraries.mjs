// As libraries.py, for packages of npm: `node libraries.mjs URL`.
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, streamText, tool } from "ai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const provider = createOpenAI({ baseURL: process.argv[2], apiKey: "none" });
const said = z.object({ said: z.string() });
const release = JSON.parse(readFileSync("node_modules/ai/package.json", "utf8")).version;

for (const [name, model] of [
  ["AI SDK", provider],
  ["AI SDK, chat", provider.chat],
]) {
  const asked = (gate, prompt) => ({ model: model(gate), prompt, maxRetries: 0 });
  const asks = {
    text: async (...of) => (await generateText(asked(...of))).text,
    stream: async (...of) => {
      let failed;
      const text = await streamText({ ...asked(...of), onError: ({ error }) => (failed = error) }).text;
      if (failed) throw failed;
      return text;
    },
    schema: async (...of) => (await generateObject({ ...asked(...of), schema: said })).object,
    tool: async (...of) =>
      (await generateText({ ...asked(...of), tools: { look: tool({ inputSchema: said }) } })).toolCalls[0].input,
  };
  const kinds = {};
  for (const [kind, ask] of Object.entries(asks)) {
    kinds[kind] = {};
    for (const gate of ["text", "json", "tools"]) {
      const came = [];
      for (const number of [1, 3]) {
        came.push(
          await ask(gate, `Question ${number}`).then(
            (found) => ({ came: found ?? null }),
            (error) => ({ error: error.name.replace(/^AI_/, ""), says: String(error) }),
          ),
        );
      }
      kinds[kind][gate] = came;
      if ("came" in came[0]) break;
    }
  }
  console.log(JSON.stringify({ name, version: release, kinds }));
}
