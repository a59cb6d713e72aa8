// A server made with the official TypeScript SDK, with what `official.py` offers, too.
//
// Runs with `stdio`, `http` (both eras, sessions for the handshake) or `plain` (both eras as the
// SDK serves them by itself: a handshake without a session). Over HTTP the URL is printed on
// standard error.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import {
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
  toWebRequest,
} from "@modelcontextprotocol/node";
import {
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceTemplate,
  acceptedContent,
  completable,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  isLegacyRequest,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

const PATIENCE = 10_000; // milliseconds `wait_for` waits for a moment
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const PEOPLE = ["ada", "alan", "grace"];
const TONES = ["friendly", "formal", "frank"];
const PAGE = 2; // resources on a page of their list; the SDK itself has no pages

const Person = z.object({ name: z.string().min(1), age: z.number().int().min(0).default(30) });
const PERSON = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1 },
    age: { type: "integer", minimum: 0, default: 30 },
  },
  required: ["name"],
};
const state = createRequestStateCodec({ key: "x".repeat(32) });

// What is shared by the server objects of this process: with HTTP each request has one.
const moments = new Map();
const touches = new Map([
  ["official://watched", 0],
  ["official://other", 0],
]);
const subscribed = new Set();
let grown = false;

function moment(name) {
  if (!moments.has(name)) moments.set(name, Promise.withResolvers());
  return moments.get(name);
}

const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const result = (value) => ({ ...text(JSON.stringify(value)), structuredContent: { result: value } });
const structured = (value) => ({ ...text(JSON.stringify(value)), structuredContent: value });
const question = (message) => inputRequired.elicit({ message, requestedSchema: PERSON });
const sample = (words) =>
  inputRequired.createMessage({
    messages: [{ role: "user", content: { type: "text", text: words } }],
    maxTokens: 20,
  });

/** One server object. `notices` reaches who listens, where the object itself does not. */
function make(notices) {
  const server = new McpServer(
    { name: "official", title: "Official", version: "1.0.0" },
    {
      instructions: "Try everything.",
      capabilities: { logging: {}, resources: { subscribe: true } },
      requestState: { verify: state.verify },
    },
  );
  offerTools(server);
  offerQuestions(server);
  offerResources(server, notices);
  offerPrompts(server);
  if (grown) offerGrown(server);
  server.registerTool("grow", { description: "Offer a tool more from now on." }, async () => {
    if (!grown) offerGrown(server);
    grown = true;
    notices?.toolsChanged();
    return text("grown");
  });
  return server;
}

function offerGrown(server) {
  server.registerTool("grown", { description: "Was not there before." }, async () => text("grown"));
}

function offerTools(server) {
  const numbers = z.object({ a: z.number().int(), b: z.number().int() });
  server.registerTool(
    "add",
    {
      description: "Add two numbers.",
      inputSchema: numbers,
      outputSchema: z.object({ result: z.number().int() }),
    },
    async ({ a, b }) => result(a + b),
  );
  server.registerTool("show", { description: "Return a block of every kind." }, async () => ({
    content: [
      { type: "text", text: "all kinds" },
      { type: "image", data: PIXEL, mimeType: "image/png" },
      { type: "audio", data: SILENCE, mimeType: "audio/wav" },
      {
        type: "resource",
        resource: { uri: "official://inside", mimeType: "text/plain", text: "inside" },
      },
      { type: "resource_link", uri: "official://text", name: "text", mimeType: "text/plain" },
    ],
  }));
  server.registerTool("refuse", { description: "Fail with a text for the model." }, async () => {
    throw new Error("this tool never works");
  });
  const counted = z.object({ to: z.number().int(), until: z.string() });
  server.registerTool("count", { inputSchema: counted }, async ({ to, until }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let step = 1; step <= to && progressToken !== undefined; step++) {
      const params = { progressToken, progress: step, total: to, message: `step ${step}` };
      await ctx.mcpReq.notify({ method: "notifications/progress", params });
    }
    await comes(until);
    return text(`counted to ${to}`);
  });
  const named = z.object({ name: z.string() });
  server.registerTool("hold", { inputSchema: named }, async ({ name }, ctx) => {
    moment(`${name} began`).resolve();
    const { promise, resolve } = Promise.withResolvers();
    ctx.mcpReq.signal.addEventListener("abort", resolve);
    await promise;
    moment(`${name} ended`).resolve();
    return text("nobody reads this");
  });
  const waited = z.object({ moment: z.string() });
  server.registerTool("wait_for", { inputSchema: waited }, async (given) =>
    text(await comes(given.moment)),
  );
  server.registerTool("tell", { inputSchema: waited }, async (given) => {
    moment(given.moment).resolve();
    return text(given.moment);
  });
  server.registerTool("speak", {}, async (ctx) => {
    await ctx.mcpReq.log("debug", "whispered");
    await ctx.mcpReq.log("warning", "said", "official.speak");
    await ctx.mcpReq.log("error", { how: "shouted" });
    return text("spoken");
  });
}

/** Whether a moment came in time. */
async function comes(name) {
  const late = new Promise((resolve) => setTimeout(resolve, PATIENCE, false).unref());
  return Promise.race([moment(name).promise.then(() => true), late]);
}

function offerQuestions(server) {
  const said = z.object({ message: z.string() });
  server.registerTool("ask_form", { inputSchema: said }, async ({ message }, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "who");
    if (answer.kind === "missing") return inputRequired({ inputRequests: { who: question(message) } });
    const content = acceptedContent(ctx.mcpReq.inputResponses, "who", Person) ?? null;
    return structured({ message, action: answer.action, content });
  });
  server.registerTool("ask_page", {}, async (ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "visit");
    if (answer.kind !== "missing") return text(answer.action);
    const visit = inputRequired.elicitUrl({
      message: "Please sign in",
      url: "https://example.com/sign-in",
    });
    return inputRequired({ inputRequests: { visit } });
  });
  const asked = z.object({ question: z.string() });
  server.registerTool("ask_model", { inputSchema: asked }, async (given, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "model");
    if (answer.kind === "missing")
      return inputRequired({ inputRequests: { model: sample(given.question) } });
    return text(`${given.question} ${answer.result.model}: ${saidBy(answer)}`);
  });
  server.registerTool("ask_roots", {}, async (ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, "roots");
    if (answer.kind === "missing")
      return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
    return result(answer.roots.map((root) => `${root.name}: ${root.uri}`));
  });
  server.registerTool("ask_all", {}, askAll);
}

function saidBy(answer) {
  return [answer.result.content].flat()[0].text;
}

/** Ask the user, the model and for the roots in a round, and the user once more in another. */
async function askAll(ctx) {
  const answers = ctx.mcpReq.inputResponses;
  const known = ctx.mcpReq.requestState();
  if (known === undefined && answers === undefined) {
    return inputRequired({
      inputRequests: {
        user: question("Who are you?"),
        model: sample("Say hello"),
        roots: inputRequired.listRoots(),
      },
      requestState: await state.mint({ round: 1 }, ctx),
    });
  }
  if (known.round === 1) {
    const user = acceptedContent(answers, "user", Person).name;
    const found = {
      user,
      model: saidBy(inputResponse(answers, "model")),
      roots: inputResponse(answers, "roots").roots.length,
    };
    return inputRequired({
      inputRequests: { other: question(`Who is with ${user}?`) },
      requestState: await state.mint({ round: 2, found }, ctx),
    });
  }
  return structured({ ...known.found, other: inputResponse(answers, "other").action });
}

function offerResources(server, notices) {
  const words = (uri, said) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: said }] });
  const config = (rest) => ({ mimeType: "text/plain", ...rest });
  server.registerResource("text", "official://text", config({ title: "A text" }), async (uri) =>
    words(uri, "plain and simple"),
  );
  server.registerResource("pixel", "official://pixel", { mimeType: "image/png" }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: "image/png", blob: PIXEL }],
  }));
  server.registerResource("watched", "official://watched", config(), async (uri) =>
    words(uri, `touched ${touches.get("official://watched")} times`),
  );
  const complete = { name: (typed) => PEOPLE.filter((name) => name.startsWith(typed)) };
  server.registerResource(
    "person",
    new ResourceTemplate("official://people/{name}", { list: undefined, complete }),
    config(),
    async (uri, { name }) => words(uri, `This is ${name}.`),
  );
  const all = [
    { name: "text", uri: "official://text", title: "A text", mimeType: "text/plain" },
    { name: "pixel", uri: "official://pixel", mimeType: "image/png" },
    { name: "watched", uri: "official://watched", mimeType: "text/plain" },
  ];
  server.server.setRequestHandler("resources/list", async ({ params }) => {
    const start = params?.cursor === undefined ? 0 : Number(params.cursor);
    if (!(start in all)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "no such page");
    const end = start + PAGE;
    const nextCursor = end < all.length ? { nextCursor: String(end) } : {};
    return { resources: all.slice(start, end), ...nextCursor };
  });
  server.server.setRequestHandler("resources/subscribe", async ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler("resources/unsubscribe", async ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });
  server.registerTool("touch", { inputSchema: z.object({ uri: z.string() }) }, async ({ uri }) => {
    touches.set(uri, touches.get(uri) + 1);
    if (notices) notices.resourceUpdated(uri);
    else if (server.stateless || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
    return result(touches.get(uri));
  });
}

function offerPrompts(server) {
  const name = completable(z.string(), (typed) => PEOPLE.filter((one) => one.startsWith(typed)));
  const tone = completable(z.string(), (typed, context) =>
    TONES.filter((one) => one.startsWith(typed)).filter(
      (one) => !(context?.arguments?.name === "ada" && one === "formal"),
    ),
  ).optional();
  const config = { title: "Greet", description: "Greet somebody.", argsSchema: z.object({ name, tone }) };
  server.registerPrompt("greet", config, async (given) => ({
    messages: [
      {
        role: "user",
        content: { type: "text", text: `Give ${given.name} a ${given.tone ?? "friendly"} greeting.` },
      },
    ],
  }));
}

// -- serving -----------------------------------------------------------------------------

const sessions = new Map();

/** Serve a request of the handshake era, in its session. */
async function inSession(request, response, parsed) {
  const id = request.headers["mcp-session-id"];
  if (id !== undefined) {
    if (sessions.has(id)) await sessions.get(id).handleRequest(request, response, parsed);
    else response.writeHead(404).end();
    return;
  }
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (made) => void sessions.set(made, transport),
    onsessionclosed: (ended) => void sessions.delete(ended),
  });
  await make().connect(transport);
  await transport.handleRequest(request, response, parsed);
}

function serveHTTP(answer) {
  const listener = createServer((request, response) => {
    answer(request, response).catch((error) => {
      console.error(error);
      if (!response.headersSent) response.writeHead(500).end();
    });
  });
  listener.listen(0, "127.0.0.1", () =>
    console.error(`http://127.0.0.1:${listener.address().port}/mcp`),
  );
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

const mode = process.argv[2];
if (mode === "stdio") {
  serveStdio(({ era }) => {
    const server = make();
    server.stateless = era === "modern";
    return server;
  });
} else {
  const handler = createMcpHandler(() => make(handler.notify), {
    legacy: mode === "plain" ? "stateless" : "reject",
  });
  const stateless = toNodeHandler(handler);
  serveHTTP(async (request, response) => {
    if (mode === "plain") return stateless(request, response);
    const parsed = await body(request);
    const legacy = await isLegacyRequest(await toWebRequest(request, parsed), parsed);
    if (!legacy) return stateless(request, response, parsed);
    return inSession(request, response, parsed);
  });
}
