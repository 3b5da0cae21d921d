import createClient from "openapi-fetch";
import type { paths } from "./api.ts";

declare const process: { readonly argv: string[] };
const [, , baseUrl = "", gate = ""] = process.argv;
const client = createClient<paths>({ baseUrl });
const path = { gate };

async function decide(batch_id: string, score: number) {
  const responses = [
    { id: "a", text: "Here.", score },
    { id: "b", text: "There.", score: 0.1 },
  ];
  const body = { batch_id, prompt: "Where?", responses };
  return (await client.POST("/v1/gates/{gate}/decisions", { params: { path }, body })).data!;
}

const ships = await decide("typescript-1", 0.9);
const held = await decide("typescript-2", 0.2);
const { batch_id } = ships;
const found = await client.GET("/v1/gates/{gate}/decisions/{batch_id}", { params: { path: { gate, batch_id } } });
const label = await client.POST("/v1/gates/{gate}/labels", {
  params: { path },
  body: { batch_id, response_id: "a", severity: 0.5, kind: "human", labeller: "ana" },
});
const shown = await client.GET("/v1/gates/{gate}", { params: { path } });
const refused = await client.GET("/v1/gates/{gate}", { params: { path: { gate: "nobody" } } });
const said = await client.POST("/v1/chat/completions", {
  body: {
    model: "chatty",
    messages: [{ role: "user", content: "Where?" }],
    temperature: 0.1,
    response_format: { type: "text" },
    tool_choice: "none",
  },
});
const of = [ships.action, ships.selected, held.action, found.data?.action, label.data?.recorded, shown.data?.gate];
console.log(JSON.stringify([...of, refused.error?.code, typeof said.data === "object" && said.data.id !== ""]));
