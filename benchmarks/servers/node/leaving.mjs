// The client of the official TypeScript SDK, which does what ../../workers/client_ours.py does.
//
// Arguments: a URL or a command as a JSON array, a revision, and how many others call `add` all
// the time. Standard input has a line of JSON for each thing to do. Calls are given up by their
// AbortSignal and timed out by their own option.

import { createSocket } from "node:dgram";
import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [target, revision, others] = process.argv.slice(2);
const sender = createSocket("udp4");
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of all processes

function giveUp({ arguments: { name, port } }, at = now()) {
  sender.send(`${name} gave-up ${at}`, port, "127.0.0.1");
}

function transport() {
  if (!target.startsWith("[")) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" });
}

const mode = revision === "2025-11-25" ? "legacy" : { pin: revision };
const client = new Client(
  { name: "bench", version: "1.0.0" },
  { versionNegotiation: { mode } },
);
let running = [];

function call({ tool, arguments: given, seconds, ...order }) {
  const aborting = new AbortController();
  const options = { signal: aborting.signal };
  if (seconds !== undefined) {
    options.timeout = 1000 * seconds;
    giveUp({ ...order, arguments: given }, now() + seconds);
  }
  running.push([{ arguments: given }, aborting]);
  client.callTool({ name: tool, arguments: given }, options).catch(() => undefined);
}

async function add() {
  for (;;) {
    const { structuredContent } = await client.callTool({
      name: "add",
      arguments: { a: 2, b: 40 },
    });
    if (structuredContent.result !== 42) throw new Error("2 + 40 is something else");
  }
}

/** End the session, where there is one, and the line. */
async function leave() {
  await line.terminateSession?.();
  await client.close();
}

const line = transport();
await client.connect(line);
for (let number = 0; number < Number(others); number++) add().catch(() => undefined);
console.log("connected");
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.do === "call") {
    call(order);
    continue;
  }
  for (const [given, aborting] of running) {
    giveUp(given);
    if (order.do === "cancel") aborting.abort();
  }
  running = [];
  if (order.do === "leave") await leave();
}
await leave().catch(() => undefined); // it has left already, perhaps
process.exit();
