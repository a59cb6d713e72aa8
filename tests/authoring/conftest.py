"""The upstream of the tests of the runtime, for what was imported."""

from tests.runtime import conftest as runtime

upstream = runtime.upstream
