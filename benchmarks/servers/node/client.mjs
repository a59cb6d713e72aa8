// As `workers/caller_ours.py`, for the client of the official TypeScript SDK.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const WARM_UP = 0.5;
const WIDTHS = [1, 16];
const [url, revision, seconds] = process.argv.slice(2);

const mode = revision < "2026" ? "legacy" : { pin: revision };
const client = new Client({ name: "bench", version: "1.0.0" }, { versionNegotiation: { mode } });
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);

/** Keep so many calls in flight for so long; calls in a second, and microseconds of each. */
async function keep(width, length) {
  let answered = 0;
  const began = performance.now();
  const used = process.cpuUsage();
  async function calling() {
    while (performance.now() < began + 1000 * length) {
      const result = await client.callTool({ name: "add", arguments: { a: 2, b: 40 } });
      if (result.structuredContent?.result !== 42) throw new Error(JSON.stringify(result));
      answered += 1;
    }
  }
  await Promise.all(Array.from({ length: width }, calling));
  const took = (performance.now() - began) / 1000;
  const { user, system } = process.cpuUsage(used);
  return [answered / took, (user + system) / answered];
}

const figures = {};
for (const width of WIDTHS) {
  await keep(width, WARM_UP);
  figures[width] = await keep(width, Number(seconds));
}
console.log(JSON.stringify(figures));
await transport.terminateSession();
await client.close();
