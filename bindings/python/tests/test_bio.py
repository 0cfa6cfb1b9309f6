"""`wrap_bio`: the objects of `ssl` and ours do the same, step by step, and libraries that use it work."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Callable

import pytest

import dormouse

from conftest import port_of

KINDS = [dormouse.SSLContext, ssl.SSLContext]


class End:
    """One side of a connection in memory."""

    def __init__(self, context: Any, **how: Any) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, **how)

    def step(self, call: Callable[[], Any]) -> Any:
        """The result of a call, or the class and reason of its error."""
        try:
            return call()
        except ssl.SSLWantReadError:
            return "want read"
        except ssl.SSLEOFError:
            return "eof"
        except ssl.SSLZeroReturnError:
            return "zero return"
        except ssl.SSLError as error:
            return error.reason


class Pair:
    def __init__(self, server: Any, client: Any, name: str = "localhost") -> None:
        self.server = End(server, server_side=True)
        self.client = End(client, server_hostname=name)

    def move(self) -> None:
        """Carry what each side has sent to the other."""
        for one, other in ((self.server, self.client), (self.client, self.server)):
            if one.outgoing.pending:
                other.incoming.write(one.outgoing.read())

    def shake_hands(self) -> list[Any]:
        steps = []
        for _ in range(4):
            for end in (self.client, self.server):
                steps.append(end.step(end.tls.do_handshake))
                self.move()
        return steps


def contexts(kind: Any, certs: Any, version: Any = None) -> tuple[Any, Any]:
    server, client = kind(ssl.PROTOCOL_TLS_SERVER), kind(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certs.cert, certs.key)
    client.load_verify_locations(certs.ca)
    if version is not None:
        server.maximum_version = version
    return server, client


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLSv1.2", "TLSv1.3"])
def version(request: Any) -> Any:
    return request.param


def talk(kind: Any, certs: Any, version: Any) -> list[Any]:
    """A whole connection; everything that can be observed."""
    pair = Pair(*contexts(kind, certs, version))
    server, client = pair.server, pair.client
    seen: list[Any] = [client.step(lambda: client.tls.read(1)), pair.shake_hands()]
    seen += [client.tls.version(), server.tls.version(), client.tls.getpeercert(), server.tls.getpeercert()]
    seen += [client.step(lambda: client.tls.read(100)), client.tls.write(b"question"), client.tls.write(b"")]
    pair.move()
    seen += [server.tls.read(4), server.tls.pending(), server.tls.read(100), server.step(lambda: server.tls.read(1))]
    buffer = bytearray(6)
    server.tls.write(memoryview(b"answer"))
    pair.move()
    seen += [client.tls.read(100, buffer), bytes(buffer), client.tls.read(0)]
    seen += [client.step(client.tls.unwrap)]
    pair.move()
    seen += [server.tls.read(100), server.step(server.tls.unwrap)]
    pair.move()
    seen += [client.step(client.tls.unwrap), client.step(lambda: client.tls.read(1)), client.step(lambda: client.tls.write(b"x"))]
    return seen


def test_a_connection_goes_as_that_of_ssl(certs, version):
    ours = talk(dormouse.SSLContext, certs, version)
    assert ours == talk(ssl.SSLContext, certs, version)


@pytest.mark.parametrize("server_kind, client_kind", [KINDS, KINDS[::-1]])
def test_with_ssl_on_the_other_side(certs, version, server_kind, client_kind):
    pair = Pair(contexts(server_kind, certs, version)[0], contexts(client_kind, certs)[1])
    pair.shake_hands()
    for one, other in ((pair.server, pair.client), (pair.client, pair.server)):
        data = bytes(range(256)) * 400
        sent = 0
        while sent < len(data):
            sent += one.tls.write(data[sent:])
        pair.move()
        received = b""
        while len(received) < len(data):
            received += other.tls.read(10_000)
        assert received == data


def ends(kind: Any, certs: Any) -> list[Any]:
    """Ends that are no proper ones."""
    seen: list[Any] = []
    pair = Pair(*contexts(kind, certs))
    pair.client.step(pair.client.tls.do_handshake)
    pair.client.incoming.write_eof()
    seen.append(pair.client.step(pair.client.tls.do_handshake))
    pair = Pair(*contexts(kind, certs))
    pair.shake_hands()
    pair.client.incoming.write_eof()
    seen.append(pair.client.step(lambda: pair.client.tls.read(1)))
    # Data that was not read before the end of our direction.
    pair = Pair(*contexts(kind, certs))
    pair.shake_hands()
    pair.server.tls.write(b"late")
    pair.client.step(pair.client.tls.unwrap)
    pair.move()
    seen.append(pair.client.step(pair.client.tls.unwrap))
    # A server that nobody trusts, and one with another name.
    server, _ = contexts(kind, certs)
    for ca, name in ((certs.stranger, "localhost"), (certs.ca, "other.test")):
        client = kind(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(ca)
        pair = Pair(server, client, name)
        seen.append(next(one for one in pair.shake_hands() if one not in ("want read", None)))
    # What is no TLS.
    pair = Pair(*contexts(kind, certs))
    pair.server.incoming.write(b"GET / HTTP/1.1\r\n\r\n")
    seen.append(pair.server.step(pair.server.tls.do_handshake))
    return seen


def test_improper_ends_are_those_of_ssl(certs):
    assert ends(dormouse.SSLContext, certs) == ends(ssl.SSLContext, certs)


def test_an_alert_reaches_the_peer(certs):
    server, client = contexts(dormouse.SSLContext, certs)
    client = dormouse.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(certs.stranger)
    pair = Pair(server, client)
    assert "TLSV1_ALERT_UNKNOWN_CA" in pair.shake_hands()


def test_sni_callback(certs, monkeypatch):
    other = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.load_cert_chain(certs.other_cert, certs.other_key)
    server, client = contexts(dormouse.SSLContext, certs)

    def choose(tls, name, context):
        if name == "wrong.test":
            raise RuntimeError("wrong")
        tls.context = other

    server.sni_callback = choose
    pair = Pair(server, client, "other.test")
    pair.shake_hands()
    assert pair.server.tls.context is other
    assert ("DNS", "other.test") in pair.client.tls.getpeercert()["subjectAltName"]
    reports: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", reports.append)
    Pair(server, client, "wrong.test").shake_hands()
    assert isinstance(reports[0].exc_value, RuntimeError)


def test_arguments(certs):
    server, client = contexts(dormouse.SSLContext, certs)
    bios = ssl.MemoryBIO(), ssl.MemoryBIO()
    for wrong in (
        lambda: server.wrap_bio(*bios, server_side=True, server_hostname="localhost"),
        lambda: client.wrap_bio(*bios),
        lambda: client.wrap_bio(*bios, server_side=True),
        lambda: server.wrap_bio(*bios, server_hostname="localhost"),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(dormouse.UnsupportedError):
        client.wrap_bio(*bios, server_hostname="localhost", session=object())
    assert client.wrap_bio(*bios, server_hostname=b"localhost").server_hostname == "localhost"


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_is_set_before_the_handshake_counts(certs, kind):
    server, client = contexts(kind, certs)
    _, strict = contexts(kind, certs)
    trusts_stranger = kind(ssl.PROTOCOL_TLS_CLIENT)
    trusts_stranger.load_verify_locations(certs.stranger)
    pair = Pair(server, client)
    for name, value in (("server_side", True), ("server_hostname", "other.test")):
        with pytest.raises(AttributeError):
            setattr(pair.client.tls, name, value)
    pair.client.tls.context = trusts_stranger
    assert pair.client.tls.context is trusts_stranger
    assert "CERTIFICATE_VERIFY_FAILED" in pair.shake_hands()
    pair = Pair(server, trusts_stranger)
    pair.client.tls.context = strict
    assert "CERTIFICATE_VERIFY_FAILED" not in pair.shake_hands()


def test_a_client_forgets_tickets_that_come_late(certs, monkeypatch):
    server = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certs.cert, certs.key)
    server.num_tickets = 0
    pair = Pair(server, contexts(dormouse.SSLContext, certs)[1])
    pair.shake_hands()
    session = pair.client.tls._session
    assert not session.is_at_rest
    later = time.monotonic() + 2
    monkeypatch.setattr("dormouse._bio.time.monotonic", lambda: later)
    pair.server.tls.write(b"x")
    pair.move()
    assert pair.client.tls.read(1) == b"x"
    assert session.is_at_rest


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_ordinary_event_loop(certs, loop):
    """asyncio and uvloop keep their own buffers, and the state is ours."""
    server_context, client_context = contexts(dormouse.SSLContext, certs)

    async def echo(reader, writer):
        writer.write(await reader.readexactly(100_000))
        await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)
        port = port_of(server)
        for context in (client_context, ssl.create_default_context(cafile=certs.ca)):
            reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
            writer.write(b"z" * 100_000)
            assert await reader.read() == b"z" * 100_000
            assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            writer.close()
            await writer.wait_closed()
        server.close()

    if loop == "uvloop":
        pytest.importorskip("uvloop").run(asyncio.wait_for(main(), 30))
    else:
        asyncio.run(asyncio.wait_for(main(), 30))
