// As `workers/list_ours.py`, for the official TypeScript SDK: `COUNT ROUNDS`. Client and server are
// a linked pair, which shakes hands.

import { Client, InMemoryTransport } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import * as z from "zod/v4";

const [count, rounds] = process.argv.slice(2).map(Number);
const description = "Add two numbers.";
const inputSchema = z.object({ a: z.number().int(), b: z.number().int() });
const outputSchema = z.object({ result: z.number().int() });

const server = new McpServer({ name: "bench", version: "1.0.0" });
for (let number = 0; number < count; number++) {
  const adds = { description, inputSchema, outputSchema };
  server.registerTool(`add_${number}`, adds, async ({ a, b }) => ({
    content: [{ type: "text", text: String(a + b) }],
    structuredContent: { result: a + b },
  }));
}
const [near, far] = InMemoryTransport.createLinkedPair();
await server.connect(far);
const client = new Client({ name: "bench", version: "1.0.0" });
await client.connect(near);

const walks = [];
for (let round = 0; round < rounds; round++) {
  const used = process.cpuUsage();
  const { tools, nextCursor } = await client.listTools();
  const { user, system } = process.cpuUsage(used);
  walks.push((user + system) / 1e6);
  const names = new Set(tools.map((tool) => tool.name));
  if (nextCursor !== undefined || names.size !== count) {
    throw new Error(`${names.size} tools listed, not ${count}`);
  }
}
console.log(JSON.stringify(walks));
await client.close();
