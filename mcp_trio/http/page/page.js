// Asks the listener every second for as long as somebody may look, and shows what it tells.

const PATHS = ["readyz", "catalog", "sessions", "tasks", "rates", "errors"];
const INTERVAL = 1000;
const PATIENCE = 5000;

const tree = new Tree(place("scopes"));
const strips = [
  new Strip(place("rates"), "Succeeded", "good"),
  new Strip(place("rates"), "Failed", "bad"),
  new Strip(place("rates"), "Cancelled", "odd"),
];
const latency = new Histogram(place("latency"), "good");
const cancelling = new Histogram(place("cancelling"), "odd");
const histogramTable = (name, label) =>
  new Table(name, { label, columns: ["Duration", "Requests"], none: "None", first: 20, cards: false });
const tables = {
  quarantine: new Table("quarantine", {
    label: "Quarantine",
    columns: ["Tool", "Operation", "Fault", "Reason", "Served instead"],
    none: "Empty: everything is served as it is published.",
  }),
  rates: new Table("rates", {
    label: "Requests in steps of ten seconds",
    columns: ["Seconds ago", "Succeeded", "Failed", "Cancelled"],
    none: "None",
    first: 12,
    cards: false,
  }),
  latency: histogramTable("latency", "Requests by duration"),
  cancelling: histogramTable("cancelling", "Cancelled requests by the time they took to end"),
  stages: new Table("stages", { label: "Errors by stage", columns: ["Stage", "Errors"], none: "None.", cards: false }),
  errors: new Table("errors", {
    label: "Latest errors",
    columns: ["At", "Tool or method", "Stage", "Code", "Upstream", "Operation", "Caller", "Request", "Took"],
    none: "None.",
    first: 5,
  }),
  sessions: new Table("sessions", {
    label: "Sessions",
    columns: ["Session", "Kind", "Server", "Revision", "Client", "Caller", "Age", "In flight"],
    none: "None.",
  }),
};

// -- what is shown ------------------------------------------------------------------------

const STATES = {
  starting: ["starting: the registry was never read", "odd"],
  fresh: ["fresh", "good"],
  failing: ["failing: the last look failed, what was good last is served", "bad"],
  stale: ["stale: the registry was not seen to match for too long", "bad"],
  stopped: ["stopped: nobody looks at the registry", "bad"],
};

function showReadiness(ready, catalog, unheard) {
  let told = ["Ready", "good"];
  if (!ready && unheard.length) told = ["Not ready: not all workers answer", "bad"];
  else if (!ready && catalog?.ready) told = ["Draining: running requests may end, nothing new is taken", "odd"];
  else if (!ready) told = ["Not ready: the registry was not read yet", "bad"];
  state(...told);
}

function state(text, kind) {
  say(place("state"), text);
  mark(place("state"), "data-kind", kind);
  document.title = `${text.split(":")[0]} · mcp-trio ${location.host}`;
}

function showCatalog(catalog) {
  const counts = catalog.counts;
  const [word, kind] = STATES[catalog.state] ?? [catalog.state, "unknown"];
  facts(place("catalog"), [
    ["State", word, kind],
    ["Served", `${counts.served} of ${counts.published} published`],
    ["Quarantined", counts.quarantined, counts.quarantined ? "odd" : null],
    ["Seen to match", catalog.age_seconds === null ? "never" : `${duration(catalog.age_seconds)} ago`],
    ["Next look", catalog.next_refresh_seconds === null ? null : `in ${duration(catalog.next_refresh_seconds)}`],
    ["Failed looks", catalog.consecutive_failures, catalog.consecutive_failures ? "bad" : null],
    ["Last error", catalog.last_error ?? "none", catalog.last_error === null ? null : "bad"],
    ["Second look due", catalog.awaiting_confirmation ? "yes" : "no"],
    ["Changes", catalog.swaps],
    ["Revision", catalog.revision.slice(0, 12)],
    ["Listing", catalog.listing_revision.slice(0, 12)],
  ]);
  const rows = catalog.quarantine.map((each) => {
    const serving = each.serving === null ? "nothing" : `revision ${each.serving.slice(0, 12)}`;
    return [each.name, each.operation_id, each.fault, each.reason, serving];
  });
  tables.quarantine.show(rows, counts.quarantined);
}

function showScopes(tasks, sessions) {
  const found = gather(tasks, sessions.sessions);
  const hidden = tree.show(found.roots);
  const counts = [
    many(sessions.count, "session"),
    `${many(found.requests, "request")} running`,
    many(tasks.tasks, "task"),
    `${tasks.cancelled} cancelled`,
  ];
  say(place("scopes-counts"), counts.join(", "));
  const left = [
    found.hidden + sessions.left_out && many(found.hidden + sessions.left_out, "session"),
    tasks.left_out && many(tasks.left_out, "task"),
    hidden && `${many(hidden, "row")} (close something to see them)`,
  ].filter(Boolean);
  say(place("scopes-more"), `Not shown: ${left.join(", ")}`);
  place("scopes-more").hidden = left.length === 0;
  return found.requests;
}

function showRates(rates) {
  const columns = ["success", "error", "cancelled"];
  columns.forEach((name, index) => {
    const values = rates.seconds.map((second) => second[index]);
    strips[index].show(values, rates.total[name]);
  });
  const steps = [];
  for (let end = rates.seconds.length; end > 0; end -= 10) {
    const step = rates.seconds.slice(Math.max(0, end - 10), end);
    const ago = rates.seconds.length - end;
    steps.push([`${ago}–${ago + step.length}`, ...columns.map((_, at) => step.reduce((sum, each) => sum + each[at], 0))]);
  }
  tables.rates.show(steps);
  for (const [chart, table, data] of [
    [latency, tables.latency, rates.latency_ms],
    [cancelling, tables.cancelling, rates.cancel_ms],
  ]) {
    chart.show(data, rates.window_seconds);
    const names = classes(data.bounds);
    table.show(data.counts.map((count, index) => [names[index], count]));
  }
}

function showErrors({ by_stage, errors }) {
  tables.stages.show(Object.entries(by_stage));
  tables.errors.show(
    errors.map((each) => [
      clock(new Date(each.at)),
      each.tool ?? each.method,
      each.sub ? `${each.stage}: ${each.sub}` : each.stage,
      each.code,
      each.upstream_status,
      each.operation_id,
      each.principal,
      named(each.worker, each.request_id),
      each.duration_ms < 1000 ? `${Math.round(each.duration_ms)} ms` : duration(each.duration_ms / 1000),
    ]),
  );
}

function showSessions({ sessions, count }) {
  const rows = sessions.map((each) => [
    named(each.worker, each.id),
    each.kind,
    each.server,
    each.revision,
    each.client,
    each.principal,
    duration(each.age_seconds),
    each.in_flight,
  ]);
  tables.sessions.show(rows, count);
}

function showNow({ rates, sessions, tasks, errors }, running) {
  const lately = rates?.seconds.slice(-10) ?? [];
  const sum = lately.flat().reduce((left, right) => left + right, 0);
  const failed = errors && Object.values(errors.by_stage).reduce((left, right) => left + right, 0);
  facts(place("now"), [
    ["Requests a second", rates && (sum / Math.max(lately.length, 1)).toFixed(1)],
    ["Requests running", running],
    ["Sessions", sessions?.count],
    ["Tasks", tasks?.tasks],
    ["Cancelled tasks", tasks?.cancelled, tasks?.cancelled ? "odd" : null],
    ["Errors so far", failed, failed ? "bad" : null],
    ["Half took", rates && quantile(rates.latency_ms, 0.5)],
    ["95 % took", rates && quantile(rates.latency_ms, 0.95)],
  ]);
}

function show(told, unheard) {
  place("main").hidden = false;
  showReadiness(told.readyz?.status === "ready", told.catalog, unheard);
  if (told.catalog) showCatalog(told.catalog);
  let running = null;
  if (told.tasks && told.sessions) running = showScopes(told.tasks, told.sessions);
  if (told.rates) showRates(told.rates);
  if (told.errors) showErrors(told.errors);
  if (told.sessions) showSessions(told.sessions);
  showNow(told, running);
}

// -- asking -------------------------------------------------------------------------------

class Unexpected extends Error {}

async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  // The probe says 503 with a body of its own for "not ready".
  if (!response.ok && !(path === "readyz" && response.status === 503)) {
    throw new Unexpected(`/${path} answered ${response.status}`);
  }
  return response.json();
}

function trouble(text) {
  place("trouble").hidden = text === null;
  if (text !== null) say(place("trouble"), text);
}

let answered = null; // when the server answered last
let silent = false;
let looking = false;
let paused = false;
let timer = null;

// Whether there is an answer of any kind.
const heard = (answers) =>
  answers.some(({ status, reason }) => status === "fulfilled" || reason instanceof Unexpected);

async function look() {
  // One question is enough to hear nothing.
  const first = silent ? await Promise.allSettled([ask("readyz")]) : [];
  const answers = silent && !heard(first) ? first : await Promise.allSettled(PATHS.map(ask));
  silent = !heard(answers);
  if (silent) {
    state("Not answering", "bad");
    const since = answered === null ? "" : ` Below is what it said at ${clock(answered)}.`;
    trouble(`The server does not answer.${since}`);
    return;
  }
  answered = new Date();
  say(place("seen"), `as of ${clock(answered)}`);
  const failed = answers.flatMap((answer) => (answer.status === "rejected" ? [answer.reason.message] : []));
  const told = Object.fromEntries(PATHS.map((path, index) => [path, answers[index].value]));
  const silents = Object.values(told).map((each) => each?.silent ?? {});
  const unheard = Object.entries(Object.assign({}, ...silents)).map(([worker, why]) => `worker ${worker} ${why}`);
  const missing = [...failed, ...unheard];
  trouble(missing.length ? `Some of this is missing or old: ${missing.join(", ")}` : null);
  show(told, unheard);
}

async function turn() {
  if (looking) return;
  looking = true;
  const began = performance.now();
  try {
    await look();
  } catch (error) {
    console.error(error);
    trouble("This page does not understand what the server says. Load it again: the server may be newer.");
  } finally {
    looking = false;
    later(Math.max(INTERVAL - (performance.now() - began), INTERVAL / 4));
  }
}

function later(delay) {
  clearTimeout(timer);
  if (!document.hidden && !paused) timer = setTimeout(turn, delay);
}

place("pause").addEventListener("click", () => {
  paused = !paused;
  mark(place("pause"), "aria-pressed", String(paused));
  later(0);
});
document.addEventListener("visibilitychange", () => later(0));

say(place("where"), location.host);
place("pause").hidden = false;
later(0);
