// From the tasks and sessions that the server tells to the tree that is shown: sessions, the
// requests in each, the tasks of a request. Tasks of nobody's request stand below their own head.

const MAX_SESSIONS = 200;

function scope(kind, key, name, told, flags = [], children = []) {
  return { kind, key, name, told, flags, children };
}

function times(of) {
  const found = [];
  if (of.age_seconds !== undefined) found.push(`age ${duration(of.age_seconds)}`);
  if (of.deadline_seconds !== null && of.deadline_seconds !== undefined) {
    found.push(`deadline in ${duration(of.deadline_seconds)}`);
  }
  return found;
}

function flagsOf(task, request) {
  const flags = [];
  if (task.cancelled || request?.cancelled) flags.push("cancelled");
  if (task.shielded) flags.push("shielded");
  return flags;
}

function sessionScope(session) {
  const who = [session.client, session.principal].filter(Boolean).join(", ");
  const told = [session.kind, session.revision, ...times(session), `${session.in_flight} in flight`];
  const name = named(session.worker, session.id);
  const key = `session ${within(session.worker, session.id)}`;
  return scope("session", key, who ? `${name}, ${who}` : name, told.filter(Boolean));
}

function gather(tree, sessions) {
  const bySession = new Map(sessions.map((each) => [within(each.worker, each.id), sessionScope(each)]));
  const alone = scope("group", "alone", "Requests without a session", []);
  const requests = [];

  function below(task, session, worker) {
    return task.nurseries.flat().map((child) => visit(child, session, worker)).filter(Boolean);
  }

  // `session` and `worker` are those around the task.
  function visit(task, session, around) {
    const worker = task.worker ?? around;
    const own = within(worker, task.id);
    if (task.session) {
      const key = within(worker, task.session.id);
      const found = bySession.get(key) ?? sessionScope({ worker, ...task.session });
      bySession.set(key, found);
      found.flags = flagsOf(task);
      found.children.push(...below(task, key, worker));
      return null;
    }
    const waits = task.waits_in && `waits in ${task.waits_in}`;
    if (task.request) {
      const request = task.request;
      const name = request.target ? `${request.method} ${request.target}` : request.method;
      const about = [...times(request), request.principal, `id ${request.id}`, waits];
      const shown = scope("request", `request ${own}`, name, about.filter(Boolean), flagsOf(task, request));
      shown.children = below(task, session, worker);
      requests.push([request, request.session ? within(worker, request.session) : session, shown]);
      return null;
    }
    const told = [...times(task), waits].filter(Boolean);
    const name = task.worker === undefined ? task.name : `worker ${task.worker}`;
    return scope("task", `task ${own}`, name, told, flagsOf(task), below(task, session, worker));
  }

  const rest = tree.root ? visit(tree.root, null, undefined) : null;
  requests.sort(([left], [right]) => right.age_seconds - left.age_seconds);
  for (const [, session, shown] of requests.reverse()) {
    (bySession.get(session) ?? alone).children.unshift(shown);
  }
  const found = [...bySession.values()];
  const busy = (session) => session.children.some((child) => child.kind === "request");
  // Who does something is never among those that are left out.
  const first = [...new Set([...found.filter(busy), ...found])];
  const kept = new Set(first.slice(0, MAX_SESSIONS));
  const roots = found.filter((session) => kept.has(session));
  if (alone.children.length) roots.push(alone);
  if (rest) roots.push(scope("group", "service", "Tasks of the service", [], [], rest.children));
  return { roots, requests: requests.length, hidden: found.length - kept.size };
}
