"""The page for people in a browser: what it shows of a running service, and how it is used."""

import json
import re
import signal

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is missing").expect
expect.set_options(timeout=20_000)

HOSTILE = "<img src=x onerror=\"document.title='taken'\">\u202e\u0007</script>"
HOSTILE_SHOWN = HOSTILE.replace("\u202e", r"\u{202e}").replace("\u0007", r"\u{7}")


def rows(page):
    return page.get_by_role("treeitem")


def row(page, text):
    return rows(page).filter(has_text=text)


def table(page, name):
    return page.locator(f'[data-table="{name}"] tbody')


def fact(page, name):
    return page.locator("dl > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def tell(page, path, change):
    """Let the server say something else at a path from now on: what it says now, changed."""
    told = page.request.get(page.url + path).json()
    change(told)
    page.route(f"**/{path}", lambda route: route.fulfill(json=told))


def task(number, name="task", **more):
    flags = {"cancelled": False, "shielded": False, "deadline_seconds": None, "waits_in": None}
    return {"id": number, "name": name, **flags, "nurseries": [], **more}


# -- what it shows ----------------------------------------------------------------


def test_a_request_stands_below_its_session_with_its_age_and_deadline_until_it_ends(shared, visit):
    session = shared.caller.session("watcher")
    held = shared.caller.hold(session, named="slow-one")
    page = visit(shared.admin)
    request = row(page, "id slow-one")
    expect(request).to_contain_text("tools/call inventory_list_items")
    expect(request).to_contain_text(re.compile(r"age [1-9]\.\d s · deadline in 5\d\.\d s"))
    expect(request).to_have_attribute("aria-level", "2")
    above = request.locator("xpath=preceding-sibling::*[1]")
    expect(above).to_contain_text("watcher 1")
    expect(above).to_contain_text("1 in flight")
    expect(above).to_have_attribute("aria-level", "1")
    expect(table(page, "sessions").filter(has_text="watcher 1")).to_be_visible()
    held.close()
    shared.caller.end(session)
    expect(request).to_have_count(0)
    expect(row(page, "watcher 1")).to_have_count(0)


def test_a_call_that_is_given_up_leaves_the_tree_and_is_in_the_histogram(service, visit):
    held = service.caller.hold(named="given-up")
    page = visit(service.admin)
    request = row(page, "id given-up")
    expect(request).to_be_visible()
    expect(row(page, "Requests without a session")).to_have_attribute("aria-level", "1")
    strip = page.get_by_role("img", name=re.compile("^Cancelled: "))
    expect(strip).to_have_attribute("aria-label", re.compile("Cancelled: 0 in 120 seconds"))
    held.close()
    expect(request).to_have_count(0)
    expect(strip).to_have_attribute("aria-label", re.compile("Cancelled: 1 in 120 seconds"))
    drawn = page.locator("#cancelling svg")
    expect(drawn).to_have_attribute("aria-label", re.compile(r"Last 5 minutes, 1 request: half"))
    widths = [bar.get_attribute("width") for bar in drawn.locator("rect").all()]
    assert sorted(widths)[-2:] == ["0%", "55%"]
    page.get_by_text("Cancellations as a table").click()
    counts = table(page, "cancelling").locator("td:last-child").all_inner_texts()
    assert [width != "0%" for width in widths] == [count == "1" for count in counts]


def test_rates_durations_and_errors_are_drawn_and_written(service, visit):
    for _ in range(3):
        service.caller.call("user_get_profile", {"user_id": "u-1"})
    service.caller.call("user_get_profile", {"user_id": "nobody"}, named="failing")
    page = visit(service.admin)
    expect(page.locator("#rates p").nth(0)).to_contain_text("3 since the start")
    expect(page.locator("#rates p").nth(1)).to_contain_text("1 since the start")
    expect(page.locator("#latency svg")).to_have_attribute("aria-label", re.compile("4 requests"))
    page.get_by_text("Rates as a table").click()
    sums = [0, 0, 0]
    expect(table(page, "rates").locator("tr")).to_have_count(12)
    while sums != [3, 1, 0]:  # the running second comes with the next look
        lines = [
            line.locator("td").all_inner_texts()
            for line in table(page, "rates").locator("tr").all()
        ]
        sums = [sum(int(line[column]) for line in lines) for column in (1, 2, 3)]
        assert all(got <= most for got, most in zip(sums, (3, 1, 0), strict=True))
    assert table(page, "stages").inner_text().split() == ["external_service", "1"]
    error = table(page, "errors").locator("tr")
    expect(error).to_have_count(1)
    for said in (
        "user_get_profile",
        "external_service: status",
        "404",
        "users.profile.get",
        "failing",
    ):
        expect(error).to_contain_text(said)
    expect(fact(page, "Errors so far")).to_have_text("1")


def test_the_catalog_and_what_is_quarantined_in_it_with_the_reason(service, visit):
    page = visit(service.admin)
    expect(fact(page, "State")).to_have_text("fresh")
    expect(fact(page, "Served")).to_have_text("3 of 3 published")
    expect(page.get_by_text("Empty: everything is served")).to_be_visible()
    service.sql("UPDATE operations SET target = '{}' WHERE name = 'user_get_profile'")
    record = table(page, "quarantine").locator("tr")
    expect(record).to_contain_text("users.profile.get")
    expect(record).to_contain_text("misses")
    expect(record).to_contain_text("revision ")
    expect(fact(page, "Quarantined")).to_have_text("1")
    expect(fact(page, "Next look")).to_contain_text("in ")


def test_what_outlives_its_cancellation_says_so(shared, visit):
    page = visit(shared.admin)
    stubborn = task(2, cancelled=False, shielded=True, request={
        "id": "7", "method": "tools/call", "target": "stubborn", "revision": None, "session": None,
        "principal": "ann", "age_seconds": 1, "deadline_seconds": 3, "cancelled": True,
    })  # fmt: skip
    stubborn["nurseries"] = [[task(3, "helper", cancelled=True, deadline_seconds=2.5)]]
    tell(page, "tasks", lambda told: told.update(root=task(1, nurseries=[[stubborn]]), cancelled=1))
    expect(row(page, "stubborn")).to_contain_text(re.compile("ann.*cancelled.*shielded"))
    helper = row(page, "helper")
    expect(helper).to_contain_text("deadline in 2.5 s")
    expect(helper).to_contain_text("cancelled")
    expect(helper).to_have_attribute("aria-level", "3")
    expect(fact(page, "Cancelled tasks")).to_have_text("1")


def test_names_from_outside_stay_texts_wherever_they_are_shown(service, visit):
    session = service.caller.session(HOSTILE)
    service.caller.hold(session, named=HOSTILE)
    statement = (
        "INSERT INTO operations (operation_id, name, protocol, target, status)"
        " VALUES (?, ?, 'static', '{}', 'published')"
    )
    service.sql(statement, HOSTILE, HOSTILE)
    page = visit(service.admin)
    expect(table(page, "quarantine").locator("tr")).to_contain_text(HOSTILE_SHOWN)
    expect(table(page, "sessions").locator("tr")).to_contain_text(HOSTILE_SHOWN)
    expect(row(page, f"id {HOSTILE_SHOWN}")).to_be_visible()
    assert page.locator("img").count() == 0
    assert "taken" not in page.title()
    assert "\u202e" not in page.inner_text("body")


def test_the_browser_itself_makes_no_markup_of_texts_and_runs_no_other_script(shared, visit):
    page = visit(shared.admin)
    refused = """() => {
        try { document.body.innerHTML = "<b>x</b>"; } catch (error) { return error.name; }
    }"""
    violations = page.evaluate_handle("""() => {
        const found = [];
        const kept = (event) => found.push(event.effectiveDirective);
        addEventListener("securitypolicyviolation", kept);
        return found;
    }""")
    assert page.evaluate(refused) == "TypeError"
    page.evaluate("""() => {
        const script = document.createElement("link");
        script.rel = "stylesheet";
        script.href = "https://elsewhere.example/style.css";
        document.head.append(script);
        fetch("https://elsewhere.example/").catch(() => {});
    }""")
    page.wait_for_function("(found) => found.length >= 3", arg=violations)
    assert set(violations.json_value()) == {
        "require-trusted-types-for",
        "style-src-elem",
        "connect-src",
    }
    assert len(visit.faults) >= 3
    visit.faults.clear()  # they were asked for


# -- a server that drains, falls silent, fails, says what nobody knows ---------------------


def test_a_server_that_drains_says_so_and_one_that_is_gone_too_until_it_is_back(service, visit):
    service.caller.hold()
    page = visit(service.admin)
    state, trouble = page.locator("#state"), page.locator("#trouble")
    expect(state).to_have_text("Ready")
    expect(trouble).to_be_hidden()
    service.process.send_signal(signal.SIGTERM)
    expect(state).to_contain_text("Draining")
    assert page.title().startswith("Draining")
    service.process.kill()
    expect(trouble).to_be_visible()
    expect(trouble).to_contain_text(re.compile(r"does not answer\. Below is what it said at \d\d:"))
    expect(state).to_have_text("Not answering")
    assert page.title().startswith("Not answering")
    expect(fact(page, "Served")).to_have_text("3 of 3 published")  # what it said last

    again = type(service)(admin_port=service.admin.rpartition(":")[2].strip("/"))
    try:
        expect(state).to_have_text("Ready")
        expect(trouble).to_be_hidden()
        expect(rows(page).filter(has_text="tools/call")).to_have_count(0)
    finally:
        again.close()


def test_a_part_that_fails_is_named_and_the_rest_goes_on(shared, visit):
    page = visit(shared.admin)
    page.route("**/tasks", lambda route: route.fulfill(status=500, body="{}"))
    expect(page.locator("#trouble")).to_have_text(
        "Some of this is missing or old: /tasks answered 500"
    )
    expect(page.locator("#state")).to_have_text("Ready")
    page.unroute("**/tasks")
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_registry_that_was_never_read_is_not_ready(shared, visit):
    page = visit(shared.admin)
    page.route("**/readyz", lambda route: route.fulfill(status=503, json={"status": "not ready"}))
    tell(page, "catalog", lambda told: told.update(ready=False, state="starting", age_seconds=None))
    expect(page.locator("#state")).to_contain_text("Not ready")
    expect(fact(page, "State")).to_contain_text("never read")
    expect(fact(page, "Seen to match")).to_have_text("never")


def test_of_several_processes_each_has_its_own_and_who_is_silent_is_named(shared, visit):
    page = visit(shared.admin)
    session = {
        "id": "server-1", "kind": "http", "server": "s", "revision": None, "client": None,
        "principal": None, "age_seconds": 5, "in_flight": 1,
    }  # fmt: skip
    request = {
        "id": "9", "method": "tools/call", "revision": None, "session": "server-1",
        "principal": None, "age_seconds": 1, "deadline_seconds": 3, "cancelled": False,
    }  # fmt: skip
    roots = []
    for worker, tool in ((1, "first"), (2, "second")):
        # The numbers of tasks and the names of sessions are the same in both.
        inside = task(3, request={**request, "target": tool})
        around = task(2, session=session, nurseries=[[inside]])
        roots.append(task(1, worker=worker, nurseries=[[around]]))
    root = task(0, nurseries=[roots])
    del root["id"]
    tell(page, "tasks", lambda told: told.update(root=root, silent={"3": "does not run"}))
    sessions = [{"worker": worker, **session} for worker in (1, 2)]
    tell(page, "sessions", lambda told: told.update(sessions=sessions, count=2))
    page.route("**/readyz", lambda route: route.fulfill(status=503, json={"status": "not ready"}))
    expect(page.locator("#trouble")).to_contain_text("worker 3 does not run")
    expect(page.locator("#state")).to_contain_text("Not ready: not all workers")
    row(page, "Tasks of the service").press("ArrowRight")
    shown = rows(page).locator(".name")
    expect(shown).to_have_text([
        "server-1, worker 1", "tools/call first", "server-1, worker 2", "tools/call second",
        "Tasks of the service", "worker 1", "worker 2",
    ])  # fmt: skip
    expect(table(page, "sessions")).to_contain_text("server-1, worker 2")


def test_of_very_much_a_part_is_shown_with_all_heads_and_the_rest_is_counted(shared, visit):
    page = visit(shared.admin)
    sessions, tasks = [], []
    for number in range(600):
        sessions.append({
            "id": f"server-{number}", "kind": "http", "server": "s", "revision": None,
            "client": None, "principal": None, "age_seconds": 5, "in_flight": number % 2,
        })  # fmt: skip
        request = {
            "id": "9", "method": "tools/call", "target": f"tool-{number}", "revision": None,
            "session": f"server-{number}", "principal": None, "age_seconds": number,
            "deadline_seconds": 3, "cancelled": False,
        }  # fmt: skip
        children = [task(10_000 + number, request=request)] if number in {599, *range(150)} else []
        children += [task(20_000 + 10 * number + index) for index in range(5)]
        tasks.append(task(10 + number, session=sessions[-1], nurseries=[children]))
    root = task(1, nurseries=[tasks])
    tell(page, "sessions", lambda told: told.update(sessions=sessions, count=700, left_out=100))
    tell(page, "tasks", lambda told: told.update(root=root, left_out=7))
    more = page.locator("#scopes-more")
    expect(more).to_have_text(re.compile(r"Not shown: 500 sessions, 7 tasks, 95\d rows \(close"))
    assert rows(page).count() == 400
    expect(row(page, "server-599")).to_be_visible()  # it does something
    expect(row(page, "server-300")).to_have_count(0)
    expect(row(page, "Tasks of the service")).to_be_visible()


# -- how it is used ---------------------------------------------------------------


def test_the_tree_is_walked_by_keyboard(shared, visit):
    page = visit(shared.admin)
    leaf, twig = task(5, "leaf"), task(4, "twig")
    branch = task(3, "branch", nurseries=[[twig, leaf]])
    root = task(1, nurseries=[[task(2, "other"), branch]])
    tell(page, "tasks", lambda told: told.update(root=root, tasks=12345))
    tell(page, "sessions", lambda told: told.update(sessions=[]))
    expect(fact(page, "Tasks")).to_have_text("12345")
    service = rows(page).filter(has_text="Tasks of the service")
    expect(rows(page)).to_have_count(1)

    def focused():
        return page.evaluate("document.activeElement.querySelector('.name')?.textContent")

    page.locator("#pause").focus()
    page.keyboard.press("Tab")
    assert focused() == "Tasks of the service"
    expect(service).to_have_attribute("aria-expanded", "false")
    outline = "getComputedStyle(document.activeElement).outline"
    assert re.search("solid 3px|3px solid", page.evaluate(outline))
    for key, name, expanded in (
        ("ArrowRight", "Tasks of the service", 3),
        ("ArrowRight", "other", 3),
        ("ArrowRight", "other", 3),
        ("ArrowDown", "branch", 3),
        ("ArrowRight", "branch", 5),
        ("End", "leaf", 5),
        ("ArrowDown", "leaf", 5),
        ("ArrowUp", "twig", 5),
        ("ArrowLeft", "branch", 5),
        ("ArrowLeft", "branch", 3),
        ("Enter", "branch", 5),
        (" ", "branch", 3),
        ("*", "branch", 5),
        ("Home", "Tasks of the service", 5),
        ("ArrowUp", "Tasks of the service", 5),
        ("ArrowLeft", "Tasks of the service", 1),
    ):
        page.keyboard.press(key)
        assert (key, focused(), rows(page).count()) == (key, name, expanded)
    page.keyboard.press("Tab")  # the tree is one stop
    assert page.evaluate("document.activeElement.closest('#scopes')") is None


def test_the_focus_stays_where_it_is_while_the_page_goes_on_and_moves_when_its_row_ends(
    shared, visit
):
    sessions = [shared.caller.session(name) for name in ("first", "second")]
    page = visit(shared.admin)
    row(page, "second 1").click()
    age = row(page, "second 1").locator(".told")
    before = age.inner_text()
    expect(age).not_to_have_text(before)
    expect(row(page, "second 1")).to_be_focused()
    shared.caller.end(sessions[1])
    expect(row(page, "second 1")).to_have_count(0)
    assert page.evaluate("document.activeElement.getAttribute('role')") == "treeitem"
    shared.caller.end(sessions[0])


def test_nothing_is_asked_while_nobody_looks_or_it_is_paused(shared, visit):
    page = visit(shared.admin)
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    def look_away(hidden):
        page.evaluate("""(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""", hidden)  # fmt: skip

    def press(_paused):
        page.locator("#pause").click()

    for stop in (look_away, press):
        with page.expect_response("**/errors"):
            pass
        stop(True)
        page.wait_for_timeout(300)  # what is under way may end
        asked.clear()
        page.wait_for_timeout(1500)
        assert asked == []
        with page.expect_request("**/tasks"):
            stop(False)


@pytest.mark.parametrize("width", [320, 800, 1000])
def test_nothing_is_wider_than_the_window(shared, visit, width):
    long = "x" * 128
    session = shared.caller.session(long)
    page = visit(shared.admin, viewport={"width": width, "height": 700})
    deep = task(99, long, waits_in=f"{long}.{long}:1")
    for number in range(98, 60, -1):
        deep = task(number, long, nurseries=[[deep]])
    tell(page, "tasks", lambda told: told.update(root=task(1, nurseries=[[deep]])))
    tell(page, "catalog", lambda told: told.update(last_error=long, quarantine=[
        {"operation_id": long, "name": long, "fault": "view", "reason": long, "serving": long}
    ]))  # fmt: skip
    tell(page, "errors", lambda told: told.update(by_stage={long: 1}, errors=[
        {"at": "2026-01-01T00:00:00Z", "method": long, "stage": long, "code": long, "tool": long,
         "principal": long, "request_id": long, "duration_ms": 1.5, "operation_id": long}
    ]))  # fmt: skip
    for summary in page.locator("summary").all():
        summary.click()
    expect(table(page, "errors")).to_contain_text(long)
    row(page, "Tasks of the service").click()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    assert rows(page).count() > 15
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = """() => [...document.querySelectorAll("#main *:not(svg *)")]
        .filter((each) => each.checkVisibility() && !each.closest("thead"))
        .filter((each) => each.getBoundingClientRect().right > innerWidth)
        .map((each) => each.outerHTML.slice(0, 80))"""
    assert page.evaluate(cut) == []
    shared.caller.end(session)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_the_light_and_in_the_dark_and_breaks_no_rule_of_wcag(
    shared, visit, scheme
):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    # The policy of the page would keep the checker out.
    page = visit(shared.admin, color_scheme=scheme, bypass_csp=True)
    page.route("**/readyz", lambda route: route.fulfill(status=503, json={"status": "not ready"}))
    page.route("**/rates", lambda route: route.fulfill(status=500, body="{}"))
    tell(page, "catalog", lambda told: told.update(state="failing", last_error="no route"))
    expect(page.locator("#trouble")).to_be_visible()
    expect(page.locator("#state")).to_contain_text("Draining")
    page.locator("#pause").click()
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
    found = axe.Axe().run(page, options=rules)
    assert found.violations_count == 0, found.generate_report()
    assert found.response["passes"]

    ground = luminance(page, "body", "backgroundColor")
    assert (ground < 0.1) == (scheme == "dark")
    for drawn in (".bar[data-kind=good]", ".bar[data-kind=bad]", ".bar[data-kind=odd]"):
        light, dark = sorted((ground, luminance(page, drawn, "fill")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, drawn  # WCAG 2.2, 1.4.11


def test_drawings_have_the_colours_that_somebody_has_chosen_for_everything(shared, visit):
    page = visit(shared.admin, forced_colors="active", color_scheme="light")
    expect(rows(page).first).to_be_visible()
    ground = luminance(page, "body", "backgroundColor")
    for drawn in ("svg text", ".bar[data-kind=good]", ".bar[data-kind=bad]"):
        light, dark = sorted((ground, luminance(page, drawn, "fill")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 7, drawn


def luminance(page, selector, name):
    """The relative luminance of a colour (WCAG 2.2)."""
    read = "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]"
    parts = [int(part) / 255 for part in re.findall(r"\d+", page.evaluate(read, [selector, name]))]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def test_nothing_moves_by_itself(shared, visit):
    page = visit(shared.admin)
    expect(rows(page).first).to_be_visible()
    moving = """() => [...document.querySelectorAll("*")].map((each) => getComputedStyle(each))
        .filter((style) => style.animationName !== "none" || /[1-9]/.test(style.transitionDuration))
        .length"""
    assert page.evaluate(moving) == 0


def test_without_javascript_it_says_so_and_leads_to_the_json(shared, visit):
    page = visit(shared.admin, java_script_enabled=False)
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    assert not page.locator("#main").is_visible()
    links = [link.get_attribute("href") for link in page.locator("nav a").all()]
    assert links == ["catalog", "sessions", "tasks", "rates", "errors", "readyz"]
    for link in links:
        answer = page.request.get(shared.admin + link)
        assert answer.status == 200
        assert json.loads(answer.text())


def test_a_long_table_shows_some_rows_and_all_of_them_on_demand(shared, visit):
    page = visit(shared.admin)
    records = [
        {
            "operation_id": f"op-{n}",
            "name": f"n{n}",
            "fault": "view",
            "reason": "r",
            "serving": None,
        }
        for n in range(30)
    ]
    counts = {"served": 0, "published": 5000, "quarantined": 5000}
    tell(page, "catalog", lambda told: told.update(quarantine=records, counts=counts))
    shown = table(page, "quarantine").locator("tr")
    expect(shown).to_have_count(10)
    more = page.locator('[data-table="quarantine"] button')
    expect(more).to_have_text("Show all 30 of 5000")
    more.press("Enter")
    expect(shown).to_have_count(30)
    expect(more).to_be_focused()
    more.press("Enter")
    expect(shown).to_have_count(10)
