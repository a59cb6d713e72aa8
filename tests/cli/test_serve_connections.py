"""The command on a Unix socket and with TLS, as its settings say."""

import json
import os
import socket
import ssl
import stat
import subprocess

import trustme

from mcp_trio.catalog.registries.schema import create_registry
from tests.cli.test_serve import PATIENCE, Service

SETTINGS = """
[server]
unix_socket = "run/mcp.sock"
unix_mode = "660"
trusted_proxies = ["unix"]

[tls]
cert_file = "cert.pem"
key_file = "key.pem"
client_ca_file = "ca.pem"
client_certificates = "required"

[limits]
max_url_bytes = 100

[catalog]
registry = "operations.sqlite"
"""


def test_a_unix_socket_with_client_certificates_and_limits_of_its_own(tmp_path):
    authority = trustme.CA()
    pair, client = authority.issue_cert("localhost"), authority.issue_cert("robot.example")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    pair.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    (tmp_path / "run").mkdir()
    (tmp_path / "service.toml").write_text(SETTINGS)
    create_registry(tmp_path / "operations.sqlite")
    service = Service(str(tmp_path / "service.toml"))
    try:
        path = tmp_path / "run" / "mcp.sock"
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660
        context = ssl.create_default_context(cafile=os.fspath(tmp_path / "ca.pem"))
        client.configure_cert(context)
        for target, status in ("/healthz", b"200"), ("/" + "a" * 100, b"414"):
            with socket.socket(socket.AF_UNIX) as plain:
                plain.settimeout(PATIENCE)
                plain.connect(str(path))
                with context.wrap_socket(plain, server_hostname="localhost") as stream:
                    stream.sendall(f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                    assert stream.recv(1000).startswith(b"HTTP/1.1 " + status)
        # The line it prints needs no more than the certificates.
        command = service.opening.split("try: ")[1].strip()
        trust = f"--cacert {tmp_path / 'ca.pem'} --cert {tmp_path / 'client.pem'}"
        printed = subprocess.run(
            command.replace("curl -s", f"curl -s {trust}"),
            shell=True,
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        ).stdout
        assert json.loads(printed)["result"]["tools"] == []
        assert service.stop() == 0
        assert not path.exists()
    finally:
        service.close()
