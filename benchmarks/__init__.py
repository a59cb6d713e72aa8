"""Measurements of mcp_trio beside the official Python SDK, in the same run on the same machine.

`python -m benchmarks.tools_call_http`, `benchmarks.tools_call_memory` and `benchmarks.cancel`
print ratios first; each takes `--quick`. `servers/` holds the programs under load, `peers` makes
the environment that other people's packages live in, `processes` starts and stops programs.
`catalog` looks at how our own figures grow, `steps` counts instructions. Figures that were measured
stand in `docs/benchmarks.md`, never here.
"""
