"""TLS: which clients can connect, which tenant a certificate names, certificates renewed while the
daemon runs, and what stays plaintext."""

import asyncio
import socket
import ssl
import subprocess
import threading

import grpc
import pagoda
import pagoda.aio
import pytest
from certificates import Authority
from pagoda_client import Client, call_status, reason_of
from pagoda_daemon import CALL_SECONDS, PAGODAD, Daemon
from pagoda.v1 import events_pb2, events_pb2_grpc

PAGODACTL = PAGODAD.with_name("pagodactl")
HERE = ("IP:127.0.0.1", "DNS:localhost")
ALICE = "token-of-alice-0123456789"
OPERATOR = "token-of-the-operator-0123456789"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "certificates")


@pytest.fixture
def start_tls(start_daemon, authority):
    """start_tls(client_certificates, ...) starts a daemon with TLS on loopback, and with the Unix
    socket in plaintext."""
    def start(client_certificates="none", server=None, client_ca=authority, **sections):
        certificate, key = authority.sign("daemon", *HERE)
        tls = {"certificate": str(certificate), "key": str(key), "client_certificates": client_certificates}
        if client_certificates != "none":
            tls["client_ca"] = str(client_ca.certificate)
        return start_daemon(server={"tls": tls} | (server or {}), **sections)

    return start


def channel(daemon, authority, certificate=None, key=None):
    """A TLS channel to a daemon that the authority signed; the test's end closes it."""
    read = [path.read_bytes() if path else None for path in (authority.certificate, key, certificate)]
    daemon.channels.append(grpc.secure_channel(daemon.grpc_address, grpc.ssl_channel_credentials(*read),
                                               options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]))
    return daemon.channels[-1]


def cannot_connect(connection):
    with pytest.raises(grpc.RpcError) as failure:
        Client(connection)
    return failure.value.code() == grpc.StatusCode.UNAVAILABLE


def served_certificate(daemon):
    """What a new connection is shown, as DER."""
    host, _, port = daemon.grpc_address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), timeout=CALL_SECONDS) as plain, context.wrap_socket(plain) as connection:
        return connection.getpeercert(binary_form=True)


def der(certificate):
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


def test_a_tls_port_serves_tls_alone(start_tls, authority):
    daemon = start_tls()
    with Client(channel(daemon, authority)) as client:
        assert client.allocate(1)
    assert cannot_connect(daemon.connect(daemon.grpc_address)), "in plaintext"
    with Client(daemon.connect()) as client:
        assert client.allocate(1), "the Unix socket stays as it is"


def test_a_daemon_of_another_authority_is_not_believed(start_tls, tmp_path):
    daemon = start_tls()
    assert cannot_connect(channel(daemon, Authority(tmp_path / "another", "another")))


def test_where_clients_show_certificates_only_the_authoritys_count(start_tls, authority, tmp_path):
    daemon = start_tls("required")
    assert cannot_connect(channel(daemon, authority)), "without a certificate"
    assert cannot_connect(channel(daemon, authority, *Authority(tmp_path / "another", "another").sign("client")))
    with Client(channel(daemon, authority, *authority.sign("client"))) as client:
        assert client.allocate(1), "no caller is configured, so every client can do everything"


def test_a_certificates_subject_is_a_tenant_or_an_operator(start_tls, authority):
    daemon = start_tls("required", operator_token=OPERATOR, operators={"tokens_file": "operators.tokens", "subjects": ["root"]},
                       tenants=[{"name": "alice", "subjects": ["engine-7.example.org"]}, {"name": "bob", "subjects": ["bob"]}])

    def tenant(*names):
        with Client(channel(daemon, authority, *authority.sign(*names))) as client:
            return client.opened.tenant

    assert tenant("whatever", "DNS:engine-7.example.org") == "alice", "by an alternative name"
    assert tenant("bob") == "bob", "by the common name"
    assert tenant("root") == ""
    for names in (("stranger",), ("bob", "DNS:engine-7.example.org")):
        with pytest.raises(grpc.RpcError) as failure:
            tenant(*names)
        assert reason_of(call_status(failure.value)) == "UNAUTHENTICATED"


def test_where_certificates_are_optional_a_token_does(start_tls, authority):
    daemon = start_tls("optional", operator_token=OPERATOR, secrets={"alice.tokens": ALICE},
                       tenants=[{"name": "alice", "tokens_file": "alice.tokens"}, {"name": "bob", "subjects": ["bob"]}])
    certificate, key = authority.sign("bob")
    files = {"ca_file": str(authority.certificate)}
    with pagoda.connect(daemon.grpc_address, token=ALICE, **files) as client, client.sequence(range(9)):
        pass
    with pytest.raises(pagoda.Unauthenticated):
        pagoda.connect(daemon.grpc_address, **files)
    files |= {"certificate_file": str(certificate), "key_file": str(key)}
    with pagoda.connect(daemon.grpc_address, **files) as client, pagoda.watch(daemon.grpc_address, **files):
        with pytest.raises(pagoda.PermissionDenied):
            client.status()
    # A certificate does not make a wrong token valid.
    with pytest.raises(pagoda.Unauthenticated):
        pagoda.connect(daemon.grpc_address, token="token-of-a-stranger-0123456789", **files)

    async def story():
        async with pagoda.aio.connect(daemon.grpc_address, token=OPERATOR, **files) as client:
            assert (await client.status()).sessions == 1

    asyncio.run(story())


def test_a_renewed_certificate_is_for_new_connections_and_old_ones_go_on(start_tls, authority):
    daemon = start_tls()
    first = served_certificate(daemon)
    watch = events_pb2_grpc.EventServiceStub(channel(daemon, authority)).Watch(events_pb2.WatchRequest())
    next(watch)
    certificate, _ = authority.sign("daemon", *HERE)
    assert served_certificate(daemon) == der(certificate) != first
    with Client(channel(daemon, authority)) as client:
        client.cache(1, range(9))
    while not any(event.HasField("stored") for event in next(watch).events):
        pass
    watch.cancel()


def test_a_renewed_authority_decides_on_new_clients(start_tls, authority, tmp_path):
    of_clients, another = (Authority(tmp_path / name, name) for name in ("of-clients", "another"))
    daemon = start_tls("required", client_ca=of_clients)
    signed = of_clients.sign("client")
    with Client(channel(daemon, authority, *signed)) as old:
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(another.certificate.read_bytes())
        fresh.rename(of_clients.certificate)
        assert cannot_connect(channel(daemon, authority, *signed))
        with Client(channel(daemon, authority, *another.sign("client"))) as new:
            assert new.allocate(1)
        assert old.allocate(1), "the open connection still works"


@pytest.mark.parametrize("broken", ["certificate", "key", "another's key", "open to all", "missing"])
def test_a_broken_replacement_is_not_served(start_tls, authority, tmp_path, broken):
    daemon = start_tls()
    certificate, key = (authority.folder / f"daemon.{kind}" for kind in ("pem", "key"))
    first = served_certificate(daemon)
    if broken == "certificate":
        certificate.write_text("not a certificate")
    elif broken == "key":
        key.write_text("not a key")
    elif broken == "another's key":
        key.write_bytes(Authority(tmp_path / "another", "another").sign("another")[1].read_bytes())
    elif broken == "open to all":
        key.chmod(0o644)
        key.write_bytes(key.read_bytes())
    else:
        certificate.unlink()
    assert served_certificate(daemon) == first
    daemon.wait_until(lambda daemon: "the earlier ones stay in use" in daemon.log.read_text())
    with Client(channel(daemon, authority)) as client:
        assert client.allocate(1)
    assert daemon.log.read_text().count("the earlier ones stay in use") == 1, "logged once, not with each connection"
    certificate, _ = authority.sign("daemon", *HERE)
    assert served_certificate(daemon) == der(certificate) != first, "a valid certificate is served again"


def start_that_fails(folder, **server):
    folder.mkdir(exist_ok=True)
    daemon = Daemon(folder, server=server)
    assert daemon.run_to_its_end() == 1
    return daemon.log.read_text()


def test_files_that_are_no_good_keep_the_daemon_from_starting(authority, tmp_path):
    certificate, key = authority.sign("daemon", *HERE)
    _, anothers_key = authority.sign("another")
    good = {"certificate": str(certificate), "key": str(key)}
    assert "nothing.pem" in start_that_fails(tmp_path / "a", tls=good | {"certificate": str(tmp_path / "nothing.pem")})
    assert "is not the key of" in start_that_fails(tmp_path / "b", tls=good | {"key": str(anothers_key)})
    assert "has no certificate" in start_that_fails(tmp_path / "c", tls=good | {"certificate": str(key)})
    key.chmod(0o604)
    assert "every user of this machine" in start_that_fails(tmp_path / "d", tls=good)


@pytest.mark.parametrize("key", ["grpc_address", "http_address"])
def test_plaintext_for_other_machines_is_refused_unless_the_operator_wants_it(start_daemon, tmp_path, key):
    said = start_that_fails(tmp_path / "refused", **{key: "0.0.0.0:0"})
    permission = "http_insecure" if key == "http_address" else "insecure"
    assert f"server.{key} 0.0.0.0:0 would serve other machines without TLS" in said and f"server.{permission}: true" in said
    daemon = start_daemon(server={key: "0.0.0.0:0", permission: True})
    assert "warning insecure: " in daemon.log.read_text()
    if key == "http_address":
        daemon.http_address = daemon.http_address.replace("0.0.0.0", "127.0.0.1")
        assert daemon.http("/readyz")[0] == 200
    else:
        with Client(daemon.connect(daemon.grpc_address.replace("0.0.0.0", "127.0.0.1"))) as client:
            assert client.allocate(1)


def test_tls_may_serve_other_machines(start_tls, authority):
    daemon = start_tls(server={"grpc_address": "0.0.0.0:0"})
    assert "insecure" not in daemon.log.read_text()
    daemon.grpc_address = daemon.grpc_address.replace("0.0.0.0", "127.0.0.1")
    with Client(channel(daemon, authority)) as client:
        assert client.allocate(1)


def test_a_peer_that_says_nothing_keeps_nobody_from_connecting(start_tls, authority):
    daemon = start_tls()
    host, _, port = daemon.grpc_address.rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=CALL_SECONDS) for _ in range(50)]
    clients = []
    threads = [threading.Thread(target=lambda: clients.append(Client(channel(daemon, authority)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CALL_SECONDS)
    assert len(clients) == 4
    for one in silent:
        one.close()


def test_pagodactl_speaks_tls(start_tls, authority, tmp_path):
    daemon = start_tls("required")
    certificate, key = authority.sign("client")

    def status(*arguments, **environment):
        return subprocess.run([PAGODACTL, "--endpoint", daemon.grpc_address, "--timeout", "20", *arguments, "status"],
                              capture_output=True, text=True, timeout=60, check=False, env=environment)

    assert status("--ca", authority.certificate, "--certificate", certificate, "--key", key).returncode == 0
    assert status(PAGODA_CA=str(authority.certificate), PAGODA_CERTIFICATE=str(certificate), PAGODA_KEY=str(key)).returncode == 0
    other = Authority(tmp_path / "another", "another").certificate
    stranger = status("--ca", other, "--certificate", certificate, "--key", key)
    assert stranger.returncode == 3 and "certificate of that CA" in stranger.stderr, stranger
    alone = status("--ca", authority.certificate, "--key", key)
    assert alone.returncode == 1 and "needs its key" in alone.stderr
    missing = status("--ca", tmp_path / "nothing.pem")
    assert missing.returncode == 1 and "nothing.pem" in missing.stderr
    daemon.grpc_address = f"unix:{daemon.unix_socket}"
    assert status(PAGODA_CA=str(authority.certificate)).returncode == 0, "the Unix socket needs no TLS, and has none"
