"""Measurements of mcp_trio beside others that can do the same work, in the same run.

`python -m benchmarks` runs them: each is a module with a question and a `measure` that gives
`findings`, which `report` and `page` show. `servers/` holds the programs under load, `workers/`
those that measure inside themselves, `peers` makes the environment that other people's packages
live in, `processes` starts and stops programs. Where calls are given up, `contenders` says who
takes part, `calls` and `wires` are the plain client, `clients` runs those of the packages, and
`moments` hears what handlers tell. `steps` counts instructions and times nothing.
Figures that were measured stand in `docs/benchmarks.md`, never here.
"""
