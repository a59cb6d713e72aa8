"""A browser for all tests, and a service with an admin listener for those that leave it running.

The browser is that of the system, driven by Playwright. Where one of them is missing the tests are
skipped; `MCP_TRIO_TEST_CHROMIUM` makes that a failure.
"""

from __future__ import annotations

import os
import re
import shutil

import pytest

from tests.browser.callers import Caller
from tests.cli.test_serve import Service

NAMES = ("chromium", "chromium-browser", "google-chrome")


def _chromium():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = "Chromium is missing: install it (apt-get install chromium)"
        assert not os.environ.get("MCP_TRIO_TEST_CHROMIUM"), missing
        pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is missing")
    program = _chromium()
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Open a page as somebody with such a window sees it.

    Afterwards nothing may stand in `visit.faults`: errors of scripts, and what a policy forbids.
    """
    contexts, faults = [], []

    def opened(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda told: faults.append(told.text) if _broken(told) else None)
        page.goto(url)
        return page

    opened.faults = faults
    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _broken(told):
    # What a browser says of a server that is gone or not ready is no fault of the page.
    return told.type == "error" and "Failed to load resource" not in told.text


class Watched(Service):
    """A demo with an admin listener, and somebody who calls it."""

    def __init__(self, admin_port="0"):
        super().__init__("--demo", "--port", "0", "--admin-port", admin_port)
        self.admin = re.search(r"admin on (\S+?);", self.opening)[1] + "/"
        self.caller = Caller(self.url)

    def close(self):
        if hasattr(self, "caller"):
            self.caller.close()
        super().close()


@pytest.fixture(scope="session")
def shared():
    """A service that no test ends or changes the tools of."""
    service = Watched()
    yield service
    service.close()


@pytest.fixture
def service():
    """A service of the test's own."""
    service = Watched()
    yield service
    service.close()
