"""What others make of bytes, to hold ours against."""

import h11

from mcp_trio.http.strict_lines import read_strictly


def read_by_h11(data):
    """Method, target, fields, version and body of the one request that these bytes are."""
    connection = h11.Connection(h11.SERVER)
    read_strictly(connection)
    connection.receive_data(data)
    request, body = connection.next_event(), b""
    assert isinstance(request, h11.Request)
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Data)
        body += event.data
    assert connection.trailing_data == (b"", False)
    assert connection.their_state is h11.DONE
    assert not connection.they_are_waiting_for_100_continue
    fields = [(name, value) for name, value in request.headers]
    return (request.method, request.target, fields, request.http_version), body
