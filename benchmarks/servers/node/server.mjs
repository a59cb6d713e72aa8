// The official TypeScript SDK with the tools of `ours`, as its documentation serves them.
//
// Arguments: `stateless` (2026-07-28 over HTTP), `sessions` (the handshake, over HTTP, with
// sessions) or `stdio` (both eras); for HTTP then `json` or `sse`, the form of an answer with
// news before it, and the URL of the upstream. The URL is told on standard error. With an upstream
// there are no tools to give up: all that there are cost a request here.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createSocket } from "node:dgram";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import {
  NodeStreamableHTTPServerTransport,
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
} from "@modelcontextprotocol/node";
import { McpServer, createMcpHandler, isInitializeRequest } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod/v4";

const [mode, form, upstream] = process.argv.slice(2);
const inputSchema = z.object({ a: z.number().int(), b: z.number().int() });
const outputSchema = z.object({ result: z.number().int() });
const heldSchema = z.object({ name: z.string(), port: z.number(), talk: z.boolean() });
const workedSchema = z.object({ name: z.string(), port: z.number(), steps: z.number().int() });
const description = "Add two numbers.";

const answer = (result) => ({
  content: [{ type: "text", text: String(result) }],
  structuredContent: { result },
});

// What is told to whoever measures: see ../telling.py.
const ports = new Set();
const sender = createSocket("udp4");
sender.unref();
const send = (port, line) => sender.send(line, port, "127.0.0.1");
const now = () => Number(process.hrtime.bigint()) / 1e9; // the clock of all processes

function tell(port, name, what) {
  ports.add(port);
  send(port, `${name} ${what} ${now()}`);
}

// What keeps the loop of Node alive: there are no tasks to count.
process.on("SIGUSR2", () => {
  for (const port of ports) send(port, `tasks tasks ${process.getActiveResourcesInfo().length}`);
});

/** Until cancelled; with `talk` the answer begins as a stream. */
async function hold({ name, port, talk }, ctx) {
  if (talk) {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    const params = { progressToken, progress: 1 };
    await ctx.mcpReq.notify({ method: "notifications/progress", params });
  }
  const { promise, resolve } = Promise.withResolvers();
  ctx.mcpReq.signal.addEventListener("abort", resolve);
  tell(port, name, "began");
  try {
    await promise;
  } finally {
    tell(port, name, "ended");
  }
  return answer(0);
}

/** Steps of a millisecond, beside a program. */
async function work({ name, port, steps }, ctx) {
  const { signal } = ctx.mcpReq;
  const child = spawn("sleep", ["60"], { signal });
  child.on("error", () => undefined); // it was aborted
  tell(port, name, "began");
  try {
    for (let step = 0; step < steps; step++) {
      await sleep(1, undefined, { signal });
      tell(port, name, "step");
    }
  } finally {
    tell(port, name, "ended");
  }
  child.kill();
  return answer(steps);
}

/** One server object: the SDK wants one for each request, or for each session. */
function make() {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  const adds = { description, inputSchema, outputSchema };
  server.registerTool("add", adds, async ({ a, b }) => answer(a + b));
  server.registerTool("add_talking", adds, async ({ a, b }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    const params = { progressToken, progress: 1 };
    await ctx.mcpReq.notify({ method: "notifications/progress", params });
    return answer(a + b);
  });
  if (upstream) {
    server.registerTool("add_rest", adds, async (given) => {
      const response = await fetch(`${upstream}/add`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(given),
      });
      return answer((await response.json()).result);
    });
  } else {
    const held = { description: "Hold on.", inputSchema: heldSchema, outputSchema };
    server.registerTool("hold", held, hold);
    const worked = { description: "Work.", inputSchema: workedSchema, outputSchema };
    server.registerTool("work", worked, work);
  }
  return server;
}

const sessions = new Map();

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

/** Serve a request in its session. */
async function inSession(request, response) {
  const parsed = await body(request);
  const id = request.headers["mcp-session-id"];
  if (id && sessions.has(id)) return sessions.get(id).handleRequest(request, response, parsed);
  if (id || !isInitializeRequest(parsed)) return response.writeHead(id ? 404 : 400).end();
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: form === "json",
    onsessioninitialized: (made) => void sessions.set(made, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await make().connect(transport);
  return transport.handleRequest(request, response, parsed);
}

function serveHTTP(handle) {
  const validHost = localhostHostValidation();
  const validOrigin = localhostOriginValidation();
  const listener = createServer((request, response) => {
    if (validHost(request, response) && validOrigin(request, response)) {
      handle(request, response);
    }
  });
  listener.listen(0, "127.0.0.1", () =>
    console.error(`http://127.0.0.1:${listener.address().port}/mcp`),
  );
}

if (mode === "stdio") serveStdio(make);
else if (mode === "sessions") serveHTTP(inSession);
else serveHTTP(toNodeHandler(createMcpHandler(make, { responseMode: form === "json" ? "json" : "auto" })));
