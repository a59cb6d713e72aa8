// The official TypeScript client at a server that wants tokens; what it saw is printed as JSON.
//
// Takes the same JSON argument as ../authorized_client.py and reports the same.

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const BACK = "http://127.0.0.1:1/callback";
const ROUNDS = 3; // times that a person is asked for one request

const task = JSON.parse(process.argv[2]);
const scopes = [];
let back; // what the person came back with

/** Reads the page of the authorization server, and allows what it asks for. */
async function visit(url) {
  scopes.push(url.searchParams.get("scope") ?? "");
  const page = await (await fetch(url)).text();
  const [, number] = page.match(/name="number" value="([^"]+)"/);
  const body = new URLSearchParams({ number, answer: "yes" });
  const sent = await fetch(new URL("/consent", url), { method: "POST", body, redirect: "manual" });
  back = new URL(sent.headers.get("location")).searchParams;
}

const kept = {};
const provider = {
  redirectUrl: BACK,
  clientMetadata: { client_name: "Interop", redirect_uris: [BACK] },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  discoveryState: () => kept.discovery,
  redirectToAuthorization: visit,
};

let transport;

/** Do something, again each time the person has allowed more. */
async function allowed(work) {
  for (let round = 0; ; round += 1) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || round === ROUNDS) throw error;
      await transport.finishAuth(back);
    }
  }
}

const mode = task.mode === "legacy" ? "legacy" : { pin: task.mode };
const client = await allowed(async () => {
  transport = new StreamableHTTPClientTransport(new URL(task.url), { authProvider: provider });
  const made = new Client({ name: "interop", version: "1.0.0" }, { versionNegotiation: { mode } });
  await made.connect(transport);
  return made;
});

const call = async (name, args = {}) =>
  (await allowed(() => client.callTool({ name, arguments: args }))).content[0].text;
const listed = (await client.listTools()).tools.map((tool) => tool.name);
const said = [await call("read_note"), await call("write_note", { text: "by TypeScript" })];
said.push(await call("read_note"));
console.log(JSON.stringify({ listed, said, scopes }));
process.stdin.on("end", () => process.exit(0)).resume();
