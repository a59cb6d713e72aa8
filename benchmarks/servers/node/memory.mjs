// As `workers/memory_ours.py`, for the official TypeScript SDK: `N`. Client and server are a linked
// pair, which shakes hands.

import { Client, InMemoryTransport } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import * as z from "zod/v4";

const WARM_UP = 200;
const count = Number(process.argv[2]);
const description = "Add two numbers.";
const inputSchema = z.object({ a: z.number().int(), b: z.number().int() });
const outputSchema = z.object({ result: z.number().int() });

const server = new McpServer({ name: "bench", version: "1.0.0" });
server.registerTool("add", { description, inputSchema, outputSchema }, async ({ a, b }) => ({
  content: [{ type: "text", text: String(a + b) }],
  structuredContent: { result: a + b },
}));
const [near, far] = InMemoryTransport.createLinkedPair();
await server.connect(far);
const client = new Client({ name: "bench", version: "1.0.0" });
await client.connect(near);

/** Time one call, and see that the answer is right; seconds. */
async function once() {
  const began = performance.now();
  const result = await client.callTool({ name: "add", arguments: { a: 2, b: 40 } });
  const took = performance.now() - began;
  if (result.structuredContent?.result !== 42) throw new Error(JSON.stringify(result));
  return took / 1000;
}

for (let call = 0; call < WARM_UP; call++) await once();
const taken = [];
for (let call = 0; call < count; call++) taken.push(await once());
console.log(JSON.stringify(taken));
await client.close();
