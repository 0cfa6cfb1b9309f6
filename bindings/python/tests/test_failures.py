"""What a program is told when a connection fails, beside asyncio's own TLS, and which alert the peer gets.

`failures.tsv` has the answers; DORMOUSE_WRITE=1 writes it anew, for FAILURES.md. The peer is `ssl` over a blocking socket, or
plain TCP.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import struct
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from conftest import openssl, signed

import dormouse
import dormouse.asyncio

TABLE = Path(__file__).parent.parent / "failures.tsv"
TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
Setup = Callable[[Any], None]


def shown(error: Optional[BaseException]) -> str:
    """Return the error's class among those of `ssl` and Python, with what programs look at, and its message."""
    if error is None:
        return "no error"
    known = next(one for one in type(error).__mro__ if one.__module__ in ("ssl", "builtins"))
    reason = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    code = f" {error.verify_code}" if isinstance(error, ssl.SSLCertVerificationError) else ""
    text = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$|\('127.0.0.1', \d+\)", "", getattr(error, "strerror", None) or str(error))
    # What we have sent is what the peer gets, and the time is another one each day.
    text = re.sub(r"; sent the alert \w+| \(the time is [^;)]*\)|the time is [^;)]*; ", "", text).replace(" (blame: peer)", "")
    return f"{known.__name__}{f' {reason}' if reason else ''}{code}: {text.strip()}"


class Peer:
    """A blocking peer in a thread. It notes the error that it gets."""

    def __init__(self, act: Callable[[socket.socket], None], *, port: Optional[int] = None) -> None:
        self.error: Optional[BaseException] = None
        self.act = act
        self.listener = None if port else socket.create_server(("127.0.0.1", 0))
        self.port = port or (self.listener.getsockname()[1] if self.listener else 0)
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        if self.listener:
            self.listener.settimeout(5)
        try:
            sock = self.listener.accept()[0] if self.listener else socket.create_connection(("127.0.0.1", self.port))
            sock.settimeout(5)
            with sock:
                self.act(sock)
        except (OSError, ValueError) as error:
            self.error = error

    def alert(self) -> str:
        self.thread.join(10)
        reason = getattr(self.error, "reason", None) or ""
        return f"; the peer gets {reason}" if "ALERT" in reason else ""


def speaks(context: ssl.SSLContext, act: Callable[[ssl.SSLSocket], Any] = lambda tls: tls.recv(100)) -> Callable[[socket.socket], None]:
    def run(sock: socket.socket) -> None:
        name = None if context.protocol == ssl.PROTOCOL_TLS_SERVER else "localhost"
        with context.wrap_socket(sock, server_side=name is None, server_hostname=name) as tls:
            act(tls)

    return run


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Ending(asyncio.Protocol):
    """Notes how the connection ends."""

    def __init__(self) -> None:
        self.ended: "asyncio.Future[Optional[BaseException]]" = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Optional[BaseException]) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


class Bench:
    """Performs each situation with asyncio's TLS and with Dormouse's."""

    def __init__(self, certs: Any, special: Dict[str, List[str]]) -> None:
        self.certs, self.special = certs, special

    def pair(self, name: str) -> List[str]:
        return self.special.get(name) or [getattr(self.certs, f"{name}_cert"), getattr(self.certs, f"{name}_key")]

    def peer_server(self, name: str, setup: Optional[Setup] = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.pair(name))
        if setup:
            setup(context)
        return context

    def client(self, name: str = "local", setup: Optional[Setup] = None, peer: Optional[Setup] = None, act: Any = None, timeout: Any = None) -> Any:
        """A client of asyncio; the peer is a server with the certificate of this name, or `act`."""

        async def attempt(ours: bool) -> str:
            context = (dormouse if ours else ssl).create_default_context(cafile=self.certs.ca)
            if setup:
                setup(context)
            peer_of = Peer(act or speaks(self.peer_server(name, peer)))
            peer_of.thread.start()
            how = {"ssl_handshake_timeout": timeout} if timeout else {}
            loop = asyncio.get_running_loop()
            try:
                _, protocol = await loop.create_connection(Ending, "127.0.0.1", peer_of.port, ssl=context, server_hostname="localhost", **how)
                error = await asyncio.wait_for(protocol.ended, 5)
            except Exception as failure:
                error = failure
            return shown(error) + await asyncio.to_thread(peer_of.alert)

        return attempt

    def server(self, setup: Optional[Setup] = None, peer: Optional[Setup] = None, act: Any = None, timeout: Any = None) -> Any:
        """A server of asyncio, whose errors of handshakes the loop reports at most; the peer is a client."""

        async def attempt(ours: bool) -> str:
            context = (dormouse if ours else ssl).SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.pair("local"))
            if setup:
                setup(context)
            loop, errors = asyncio.get_running_loop(), asyncio.Queue()  # type: ignore
            loop.set_exception_handler(lambda _, report: errors.put_nowait(report.get("exception")))
            loop.set_debug(True)

            class Noting(Ending):
                def connection_lost(self, error: Optional[BaseException]) -> None:
                    errors.put_nowait(error)

            how = {"ssl_handshake_timeout": timeout} if timeout else {}
            server = await loop.create_server(Noting, "127.0.0.1", 0, ssl=context, **how)
            client = ssl.create_default_context(cafile=self.certs.ca)
            if peer:
                peer(client)
            peer_of = Peer(act or speaks(client), port=server.sockets[0].getsockname()[1])
            peer_of.thread.start()
            try:
                error = await asyncio.wait_for(errors.get(), 1)
                told = shown(error)
            except asyncio.TimeoutError:
                told = "no event"
            server.close()
            return told + await asyncio.to_thread(peer_of.alert)

        return attempt

    def after(self, act: Callable[[socket.socket, bytes], Any]) -> Any:
        """An established client, whose peer does this."""
        return self.client(act=lambda sock: self.established(sock, act))

    def established(self, sock: socket.socket, act: Callable[[socket.socket, bytes], None]) -> None:
        """Performs the handshake in memory, sends a record through `act`, and waits for the answer."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.peer_server("local").wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        sock.sendall(outgoing.read())
        tls.write(b"some words")
        act(sock, outgoing.read())
        while answer := sock.recv(65536):
            incoming.write(answer)
            try:
                tls.read(100)
            except ssl.SSLWantReadError:
                continue


def waits(sock: socket.socket) -> None:
    while sock.recv(10_000):
        pass


def both(*setups: Setup) -> Setup:
    def all_of(context: Any) -> None:
        for setup in setups:
            setup(context)

    return all_of


def only(version: Any) -> Setup:
    def setup(context: Any) -> None:
        context.minimum_version = context.maximum_version = version

    return setup


def situations(bench: Bench) -> Dict[str, Any]:
    certs = bench.certs

    def asks(context: Any) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certs.ca)

    def shows_stranger(context: Any) -> None:
        context.load_cert_chain(*bench.special["stranger"])

    def forged(sock: socket.socket, record: bytes) -> None:
        sock.sendall(record[:-1] + bytes([record[-1] ^ 1]))

    def refuse_name(context: Any) -> None:
        context.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    found = {
        "client: the certificate is of an unknown authority": bench.client("stranger"),
        "client: the certificate is of an unknown authority, which was sent too": bench.client("stranger_chain"),
        "client: the certificate is self-signed": bench.client("self"),
        "client: the certificate has expired": bench.client("expired"),
        "client: the certificate is not valid yet": bench.client("future"),
        "client: the certificate is for another name": bench.client("other"),
        "client: the certificate is for clients only": bench.client("for_clients"),
        "client: the certificate is for a CA, and trusted by nobody": bench.client("authority"),
        "client: no common protocol version": bench.client(setup=only(TLS12), peer=only(TLS13)),
        "client: no common cipher suite": bench.client(setup=only(TLS12), peer=lambda one: one.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")),
        "client: the server answers in plaintext": bench.client(act=lambda sock: (sock.recv(1000), sock.sendall(b"220 ready\r\n"), sock.recv(1000))),
        "client: the server closes during the handshake": bench.client(act=lambda sock: sock.recv(1000)),
        "client: the server resets the connection during the handshake": bench.client(act=lambda sock: (sock.recv(1000), reset(sock))),
        "client: the server does not answer (ssl_handshake_timeout)": bench.client(act=waits, timeout=0.2),
        "server: no common protocol version": bench.server(only(TLS13), only(TLS12)),
        "server: sni_callback returns an alert": bench.server(refuse_name),
        "server: the client sends plain HTTP": bench.server(act=lambda sock: (sock.sendall(b"GET / HTTP/1.1\r\n\r\n"), sock.recv(100))),
        "server: the client sends other bytes": bench.server(act=lambda sock: (sock.sendall(b"U" * 32), sock.recv(100))),
        "server: the client closes during the handshake": bench.server(act=lambda sock: None),
        "server: the client resets the connection during the handshake": bench.server(act=lambda sock: (sock.sendall(b"\x16\x03\x01"), reset(sock))),
        "server: the client does not speak (ssl_handshake_timeout)": bench.server(act=waits, timeout=0.2),
        "a forged record arrives": bench.after(forged),
        "a record that is too long arrives": bench.after(lambda sock, _: sock.sendall(bytes.fromhex("1703037000"))),
        "the connection ends within a record": bench.after(lambda sock, record: (sock.sendall(record[:9]), sock.shutdown(socket.SHUT_WR))),
        "the connection ends without close_notify": bench.after(lambda sock, _: sock.shutdown(socket.SHUT_WR)),
        "the connection is reset": bench.after(lambda sock, _: reset(sock)),
    }
    for name, version in (("TLSv1.2", TLS12), ("TLSv1.3", TLS13)):
        found |= {
            f"client without the certificate that the server requires, {name}": bench.client(setup=only(version), peer=asks),
            f"client whose certificate the server does not trust, {name}": bench.client(setup=both(only(version), shows_stranger), peer=asks),
            f"server: the client has no certificate, {name}": bench.server(both(only(version), asks)),
            f"server: the client's certificate is of an unknown authority, {name}": bench.server(both(only(version), asks), shows_stranger),
            f"server: the client does not trust the certificate, {name}": bench.server(only(version), lambda one: None, act=speaks(ssl.create_default_context(cafile=certs.stranger))),
        }
    return found


@pytest.fixture
def special(certs: Any) -> Dict[str, List[str]]:
    """Certificates that no other test needs."""
    folder = Path(certs.ca).parent
    key, pem = str(folder / "self.key"), str(folder / "self.pem")
    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    openssl(*new, *names, "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", pem)
    signed(folder, "of-stranger", "DNS:localhost", by="stranger")
    signed(folder, "authority", "DNS:localhost", by="stranger", ca=True)
    signed(folder, "for-clients", "DNS:localhost\nextendedKeyUsage=clientAuth")
    chain = folder / "of-stranger-chain.pem"
    chain.write_text((folder / "of-stranger.pem").read_text() + Path(certs.stranger).read_text())
    config = folder / "ca.conf"
    signed(folder, "future", "DNS:localhost")
    openssl(
        *("ca", "-batch", "-config", str(config), "-in", str(folder / "future.csr"), "-notext", "-out", str(folder / "future.pem")),
        *("-startdate", "20480101000000Z", "-enddate", "20490101000000Z", "-extfile", str(folder / "future.ext")),
    )

    def pair(name: str) -> List[str]:
        return [str(folder / f"{name}.pem"), str(folder / f"{name}.key")]

    stranger_key = str(folder / "of-stranger.key")
    return {
        "local": [certs.cert, certs.key], "self": [pem, key], "stranger": pair("of-stranger"), "stranger_chain": [str(chain), stranger_key],
        "authority": pair("authority"), "for_clients": pair("for-clients"), "future": pair("future"),
    }


def test_what_programs_are_told_is_what_the_table_says(certs: Any, special: Dict[str, List[str]]) -> None:
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}, {' '.join(ssl.OPENSSL_VERSION.split()[:2])[:11]}"
    lines = [version]
    for situation, attempt in situations(Bench(certs, special)).items():
        theirs = asyncio.run(attempt(False))
        ours = dormouse.asyncio.run(attempt(True))
        lines.append("\t".join((situation, theirs, ours)))
    if os.environ.get("DORMOUSE_WRITE"):
        TABLE.write_text("\n".join(lines) + "\n")
    expected = TABLE.read_text().splitlines()
    if expected[0] != version:
        # Other versions have other answers of their own.
        lines, expected = ([line.split("\t")[::2] for line in all_of[1:]] for all_of in (lines, expected))  # type: ignore
    assert lines == expected
