-- Load for benchmarks/tools_call_http.py: one tools/call after the other on every connection.
-- Arguments after the URL: the body with %d where the id goes, how many texts a right answer holds,
-- those texts, then "Name: value" header lines. Ids never repeat: a session may not have one twice.

local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(args)
    sent, wrong = 0, 0
    template = args[1]
    expected = {}
    for i = 3, 2 + tonumber(args[2]) do
        table.insert(expected, args[i])
    end
    wrk.method = "POST"
    for i = 3 + #expected, #args do
        local name, value = args[i]:match("^([^:]+): (.*)$")
        wrk.headers[name] = value
    end
end

function request()
    sent = sent + 1
    return wrk.format(nil, nil, nil, (template:gsub("%%d", tostring(sent))))
end

function response(status, headers, body)
    local right = status == 200
    for _, text in ipairs(expected) do
        right = right and body:find(text, 1, true)
    end
    if not right then
        wrong = wrong + 1
    end
end

function done(summary, latency, requests)
    local bad = 0
    for _, thread in ipairs(threads) do
        bad = bad + thread:get("wrong")
    end
    local e = summary.errors
    io.write(string.format(
        'RESULT {"requests": %d, "seconds": %.6f, "wrong": %d, "broken": %d, "p50_ms": %.3f, "p99_ms": %.3f}\n',
        summary.requests, summary.duration / 1e6, bad, e.connect + e.read + e.write + e.timeout,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
