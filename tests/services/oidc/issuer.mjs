// A certified issuer of OpenID Connect, with people who are whatever they type: `node issuer.mjs DIRECTORY SETTINGS`.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [, , modules, settings] = process.argv;
const { Provider } = await import(pathToFileURL(`${modules}/node_modules/oidc-provider/lib/index.js`).href);
const { client, people } = JSON.parse(settings);

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [client],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["groups", "name"] },
  // The `sub` of whoever types a name is that name, and the rest is what the test says of it.
  findAccount: (_context, sub) => ({ accountId: sub, claims: () => ({ sub, ...people[sub] }) }),
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  cookies: { keys: ["of a test"] },
});
server.on("request", provider.callback());
process.stdout.write(`${issuer}\n`);
