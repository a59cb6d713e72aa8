// The official TypeScript client, driven through one session; what it saw is printed as JSON.
//
// Takes the same JSON argument as ../peer_client.py and reports the same, section by section,
// in the form of the wire; what differs is said where it differs. The session stays open until
// standard input ends. Nothing is judged here; the tests do that.

import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const SECTION_DEADLINE = 15_000; // milliseconds for one section
const WATCHED = "interop://watched";
const OTHER = "interop://other";

const task = JSON.parse(process.argv[2]);

/** Every notification outside of calls, in order. */
class Ears {
  heard = [];
  #waiting = new Set();

  hear(message) {
    const { _meta, ...params } = message.params ?? {};
    this.heard.push({ method: message.method, params });
    for (const look of this.#waiting) look();
  }

  of(method) {
    return this.heard
      .filter((said) => said.method === `notifications/${method}`)
      .map((said) => said.params);
  }

  /** Wait until something was heard so often. */
  async wait(method, times) {
    const { promise, resolve } = Promise.withResolvers();
    const look = () => this.of(method).length >= times && resolve();
    this.#waiting.add(look);
    look();
    await promise;
    this.#waiting.delete(look);
  }
}

/** How the client chooses the era; without this it would always shake hands. */
function negotiation(mode) {
  return ["legacy", "auto"].includes(mode) ? { mode } : { mode: { pin: mode } };
}

const ears = new Ears();
const asked = [];
const client = new Client(
  { name: "interop-typescript", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    versionNegotiation: negotiation(task.mode),
  },
);
client.fallbackNotificationHandler = async (message) => ears.hear(message);

/** Note what the server asks, without what only a request of its own would carry. */
function note(request) {
  const { _meta, ...params } = request.params ?? {};
  asked.push(params);
  return params;
}

client.setRequestHandler("elicitation/create", async (request) => {
  const params = note(request);
  if (params.message === "Please decline") return { action: "decline" };
  if (params.mode === "url") return { action: "accept" };
  return { action: "accept", content: { name: "Ada", age: 36 } };
});
client.setRequestHandler("sampling/createMessage", async (request) => {
  note(request);
  return { role: "assistant", content: { type: "text", text: "Hello." }, model: "parrot" };
});
client.setRequestHandler("roots/list", async (request) => {
  note(request);
  return { roots: [{ uri: "file:///home/ada", name: "home" }] };
});

const handshake = () => client.getProtocolEra() === "legacy";
const call = (name, args = {}, meta = undefined, options = undefined) =>
  client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options);

let refused; // the last error that the server sent

/** The error with which a call is answered, as the wire had it; `{}` if it is not. */
async function refusal(pending) {
  try {
    await pending;
  } catch (error) {
    // The client gives a missing resource one code in both eras, so its own error is no witness.
    if (error instanceof ProtocolError) return refused;
    throw error;
  }
  return {};
}

/** Listen to changes of the stateless era while something happens; note what was agreed to. */
async function listening(honoured, filter, body) {
  const subscription = await client.listen(filter);
  honoured.push(subscription.honoredFilter);
  await body();
  await subscription.close();
}

async function opening() {
  const discovered = handshake() ? undefined : await client.discover();
  return {
    protocol: client.getNegotiatedProtocolVersion(),
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(),
    supported: discovered?.supportedVersions ?? null,
    ping: handshake() ? await client.ping() : null,
  };
}

async function mirroring() {
  const early = await call("locate", { region: "north" });
  await client.listTools();
  const regions = [];
  // Not one of these can stand in a header as it is.
  for (const region of ["süd", " east ", "=?base64?d2VzdA==?="]) {
    regions.push(await call("locate", { region }));
  }
  return { early, regions };
}

/** Every list, page by page. The list methods of the client fetch all pages in one go. */
async function listing() {
  const lists = {
    tools: "tools/list",
    prompts: "prompts/list",
    resources: "resources/list",
    resourceTemplates: "resources/templates/list",
  };
  const seen = {};
  for (const [kind, method] of Object.entries(lists)) {
    const pages = [];
    let cursor;
    do {
      const page = await client.request({ method, params: cursor ? { cursor } : {} });
      pages.push(page[kind]);
      cursor = page.nextCursor;
    } while (cursor);
    const stray = client.request({ method, params: { cursor: "nobody's" } });
    seen[kind] = { pages, stray: await refusal(stray) };
  }
  return seen;
}

async function calling() {
  const progress = [];
  // The answer has to wait for this: the client drops progress that it reads along with it.
  const onprogress = async ({ progress: value, total, message }) => {
    progress.push([value, total, message]);
    if (value === total) await call("tell", { moment: "counted" });
  };
  const seen = {
    add: await call("add", { a: 2, b: 40 }),
    show: await call("show"),
    bad_arguments: await call("add", { a: "two", b: 40 }),
    refuse: await call("refuse"),
    unknown: await refusal(call("nothing")),
    count: await call("count", { to: 3, until: "counted" }, undefined, { onprogress }),
  };
  const giveUp = new AbortController();
  const held = call("hold", { name: "held" }, undefined, { signal: giveUp.signal });
  const over = held.then(
    () => "answered",
    () => "given up",
  );
  seen.began = await call("wait_for", { moment: "held began" });
  giveUp.abort("enough");
  await over;
  // The session goes on, so nothing but the cancellation can have ended the call.
  seen.ended = await call("wait_for", { moment: "held ended" });
  return { ...seen, progress };
}

async function reading() {
  const read = (name) => client.readResource({ uri: `interop://${name}` });
  const there = {};
  const names = ["text", "pixel", "people", "people/ada", "squares/12", "files/a/b"];
  for (const name of [...names, "search?words=x"]) there[name] = (await read(name)).contents;
  const missing = {};
  for (const name of ["nothing", "people/bob", "squares/many"]) {
    missing[name] = await refusal(read(name));
  }
  return { there, missing };
}

async function watching() {
  const honoured = [];
  const method = "resources/updated";
  const seen = {};
  const reads = async () => (await client.readResource({ uri: WATCHED })).contents[0].text;
  const both = async () => {
    seen.before = await reads();
    await call("touch", { uri: WATCHED });
    await ears.wait(method, 1);
    seen.after = await reads(); // what the client may have kept is no longer true
    await call("touch", { uri: OTHER });
    await ears.wait(method, 2);
  };
  const one = async () => {
    for (const uri of [WATCHED, OTHER]) await call("touch", { uri });
    await ears.wait(method, 3);
  };
  if (handshake()) {
    for (const uri of [WATCHED, OTHER]) await client.subscribeResource({ uri });
    seen.nothing = await refusal(client.subscribeResource({ uri: "interop://nothing" }));
    await both();
    await client.unsubscribeResource({ uri: WATCHED });
    await one();
  } else {
    await listening(honoured, { resourceSubscriptions: [WATCHED, OTHER] }, both);
    await listening(honoured, { resourceSubscriptions: [OTHER] }, one);
  }
  return { ...seen, heard: ears.of(method).map((params) => params.uri), honoured };
}

async function prompting() {
  const get = (name, args) => client.getPrompt({ name, ...(args && { arguments: args }) });
  return {
    greet: await get("greet", { name: "Ada", tone: "formal" }),
    defaults: await get("greet", { name: "Ada" }),
    dialogue: await get("dialogue"),
    cite: await get("cite"),
    unknown: await refusal(get("nothing")),
    incomplete: await refusal(get("greet")),
    unfit: await refusal(get("greet", { name: "Ada", tone: "rude" })),
  };
}

async function completing() {
  const greet = { type: "ref/prompt", name: "greet" };
  const template = { type: "ref/resource", uri: "interop://people/{name}/{tone}" };
  const complete = async (ref, name, value, known) =>
    client.complete({
      ref,
      argument: { name, value },
      ...(known && { context: { arguments: known } }),
    });
  const nothing = complete({ type: "ref/prompt", name: "nothing" }, "name", "");
  return {
    unknown: await refusal(nothing),
    prompt: (await complete(greet, "name", "a")).completion,
    template: (await complete(template, "tone", "f")).completion,
    knowing: (await complete(template, "tone", "f", { name: "ada" })).completion,
    nobody: (await complete(greet, "tone", "f")).completion,
  };
}

async function logging() {
  const speak = async (level) => {
    if (handshake()) {
      await client.setLoggingLevel(level);
      await call("speak");
    } else {
      await call("speak", {}, { "io.modelcontextprotocol/logLevel": level });
    }
  };
  await call("speak"); // nobody has asked for anything yet
  const unasked = handshake() ? 2 : 0;
  await speak("debug");
  await ears.wait("message", unasked + 3);
  await speak("error");
  await ears.wait("message", unasked + 4);
  const heard = ears.of("message");
  return { unasked: heard.slice(0, unasked), asked: heard.slice(unasked) };
}

async function asking() {
  const seen = {
    form: await call("ask_form", { message: "Who are you?" }),
    declined: await call("ask_form", { message: "Please decline" }),
    page: await call("ask_page"),
    model: await call("ask_model", { question: "Say hello" }),
    roots: await call("ask_roots"),
  };
  const sofar = [...asked];
  seen.all = await call("ask_all");
  seen.prompt = await client.getPrompt({ name: "interview" });
  if (handshake()) await ears.wait("elicitation/complete", 1);
  return { ...seen, asked: sofar, completed: ears.of("elicitation/complete") };
}

async function changing() {
  const honoured = [];
  const last = {};
  const lists = {
    tools: () => client.listTools(),
    prompts: () => client.listPrompts(),
    resources: () => client.listResources(),
  };
  const grow = async () => {
    for (const [kind, fetch] of Object.entries(lists)) {
      await fetch(); // so that there is something to forget
      await call("grow", { kind });
      await ears.wait(`${kind}/list_changed`, 1);
      last[kind] = (await fetch())[kind].at(-1).name;
    }
  };
  if (handshake()) {
    await grow();
  } else {
    const kinds = Object.keys(lists).map((kind) => [`${kind}ListChanged`, true]);
    await listening(honoured, Object.fromEntries(kinds), grow);
  }
  const methods = ears.heard.map((said) => said.method);
  return { heard: methods.filter((method) => method.endsWith("/list_changed")), last, honoured };
}

const SECTIONS = {
  opening,
  mirroring,
  listing,
  calling,
  reading,
  watching,
  prompting,
  completing,
  logging,
  asking,
  changing,
};

/** Run one section; what goes wrong is told by the test that looks at it. */
async function run(section) {
  const late = Promise.withResolvers();
  const timer = setTimeout(() => late.reject(new Error("took too long")), SECTION_DEADLINE);
  try {
    return await Promise.race([section(), late.promise]);
  } catch (error) {
    return { fault: `${error?.stack ?? error}\n${JSON.stringify(error)}` };
  } finally {
    clearTimeout(timer);
  }
}

let transport;
if (task.url) {
  transport = new StreamableHTTPClientTransport(new URL(task.url));
} else {
  const [command, ...args] = task.command;
  transport = new StdioClientTransport({ command, args, env: process.env });
}
await client.connect(transport);
const receive = transport.onmessage;
transport.onmessage = (message, extra) => {
  if (message.error) refused = message.error;
  receive(message, extra);
};
const report = {};
for (const name of task.sections) report[name] = await run(SECTIONS[name]);
process.stdout.write(`${JSON.stringify(report)}\n`);
for await (const _ of process.stdin);
await transport.terminateSession?.();
await client.close();
