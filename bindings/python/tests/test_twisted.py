"""Twisted over this package: endpoints, factories, and and the applicable TLS cases of Twisted's own tests."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("twisted")

PREAMBLE = """
import ssl, sys
from twisted.internet import defer, endpoints, protocol, reactor, task
from twisted.internet.error import ConnectionDone, ConnectionLost
import dormouse
from dormouse import twisted as tls

ca, cert, key = sys.argv[1:4]
server_context = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server_context.load_cert_chain(cert, key)
client_context = dormouse.create_default_context(cafile=ca)

class Echo(protocol.Protocol):
    def dataReceived(self, data):
        self.transport.write(data)

class Recorder(protocol.Protocol):
    def __init__(self):
        self.data, self.lost, self.waits = b"", defer.Deferred(), []
    def dataReceived(self, data):
        self.data += data
        for wait in self.waits[:]:
            if len(self.data) >= wait[0]:
                self.waits.remove(wait)
                wait[1].callback(self.data)
    def received(self, count):
        if len(self.data) >= count:
            return defer.succeed(self.data)
        self.waits.append((count, defer.Deferred()))
        return self.waits[-1][1]
    def connectionLost(self, reason):
        self.lost.callback(reason.value)

def factory(make):
    one = protocol.Factory()
    one.noisy = False
    one.protocol = make
    return one

def serve(make):
    return tls.TLSServerEndpoint(reactor, 0, server_context, interface="127.0.0.1").listen(factory(make))

def connect(port, context=client_context, make=Recorder):
    return tls.TLSClientEndpoint(reactor, "localhost", port.getHost().port, context).connect(factory(make))
"""


def run(certs, body: str, *more: str) -> str:
    """Run a reactor in a process of its own: a process can run it once."""
    script = PREAMBLE + "\nasync def main(_):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    script += "\n\ntask.react(lambda reactor: defer.ensureDeferred(main(reactor)))\n"
    command = [sys.executable, "-c", script, certs.ca, certs.cert, certs.key, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_endpoints(certs):
    run(
        certs,
        """
        server_context.set_alpn_protocols(["mouse"])
        client_context.set_alpn_protocols(["mouse"])
        port = await serve(Echo)
        client = await connect(port)
        client.transport.write(b"before the handshake is done")
        assert await client.received(28) == b"before the handshake is done"
        client.transport.writeSequence([b"x" * 1_000_000, b"y"])
        assert len(await client.received(1_000_029)) == 1_000_029
        assert client.transport.negotiatedProtocol == b"mouse"
        assert client.transport.getHandle().version() == "TLSv1.3"
        assert client.transport.getPeerCertificate() == ssl.PEM_cert_to_DER_cert(open(cert).read())
        assert client.transport.getPeer().host == "127.0.0.1"
        client.transport.setTcpNoDelay(True)
        assert client.transport.getTcpNoDelay()
        assert not hasattr(client.transport, "__dict__")
        assert client.transport._session.is_at_rest and client.transport._flight is None
        client.transport.loseConnection()
        client.transport.loseConnection()
        assert isinstance(await client.lost, ConnectionDone)
        client.transport.write(b"late")
        await port.stopListening()
        """,
    )


def test_certificates_that_are_refused(certs):
    run(
        certs,
        """
        port = await serve(Echo)
        strangers = dormouse.create_default_context(cafile=sys.argv[4])
        client = await connect(port, strangers)
        lost = await client.lost
        assert isinstance(lost, ssl.SSLCertVerificationError) and lost.verify_code == 20, lost
        await port.stopListening()
        """,
        certs.stranger,
    )


def test_an_end_that_is_none(certs):
    run(
        certs,
        """
        made = []
        port = await serve(lambda: made.append(Recorder()) or made[-1])
        client = await connect(port)
        client.transport.write(b"half")
        while not made or made[0].data != b"half":
            await task.deferLater(reactor, 0.01)
        client.transport.transport.loseConnection()
        assert isinstance(await made[0].lost, ConnectionLost)
        client = await connect(port)
        client.transport.write(b"whole")
        client.transport.loseConnection()
        while len(made) < 2:
            await task.deferLater(reactor, 0.01)
        assert isinstance(await made[1].lost, ConnectionDone)
        assert made[1].data == b"whole"
        await port.stopListening()
        """,
    )


def test_producers(certs):
    run(
        certs,
        """
        from twisted.protocols.basic import FileSender
        from io import BytesIO
        class Sender(protocol.Protocol):
            def connectionMade(self):
                done = FileSender().beginFileTransfer(BytesIO(b"f" * 3_000_000), self.transport)
                done.addCallback(lambda _: self.transport.loseConnection())
        port = await serve(Sender)
        client = await connect(port)
        client.transport.pauseProducing()
        await task.deferLater(reactor, 0.1)
        assert client.data == b""
        client.transport.resumeProducing()
        assert isinstance(await client.lost, ConnectionDone)
        assert client.data == b"f" * 3_000_000
        await port.stopListening()
        """,
    )


def test_the_end_of_the_handshake(certs):
    run(
        certs,
        """
        from twisted.internet.interfaces import IHandshakeListener
        from zope.interface import implementer
        @implementer(IHandshakeListener)
        class Hasty(Recorder):
            def connectionMade(self):
                self.transport.write(b"one ")
            def handshakeCompleted(self):
                self.transport.write(b"two")
                self.transport.loseConnection()
                self.transport.write(b"late")
        @implementer(IHandshakeListener)
        class Wary(Hasty):
            def handshakeCompleted(self):
                self.transport.failVerification(tls.Failure(ValueError("not this one")))
        made = []
        port = await serve(lambda: made.append(Recorder()) or made[-1])
        client = await connect(port, make=Hasty)
        assert isinstance(await client.lost, ConnectionDone)
        assert isinstance(await made[0].lost, ConnectionDone)
        assert made[0].data == b"one two", made[0].data
        client = await connect(port, make=Wary)
        assert isinstance(await client.lost, ValueError)
        await made[1].lost
        assert made[1].data == b""
        await port.stopListening()
        """,
    )


def test_a_peer_that_ends_both_directions_after_its_question(certs):
    run(
        certs,
        """
        made = []
        class Answering(Recorder):
            def dataReceived(self, data):
                super().dataReceived(data)
                self.transport.write(b"answer")
        port = await serve(lambda: made.append(Answering()) or made[-1])
        address = port.getHost()
        client = await endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", address.port).connect(factory(Recorder))
        session = dormouse._native.Session.connect(client_context.native_client(), "localhost")
        session.receive(b"")
        client.transport.write(session.take_output())
        while session.is_handshaking:
            await task.deferLater(reactor, 0.01)
            data, client.data = client.data, b""
            session.receive(data)
        client.transport.write(session.take_output() + session.seal(b"question") + session.abort(80))
        while not made:
            await task.deferLater(reactor, 0.01)
        lost = await made[0].lost
        assert isinstance(lost, ssl.SSLError) and "INTERNAL_ERROR" in lost.reason, lost
        assert made[0].data == b"question"
        await port.stopListening()
        """,
    )


def test_start_tls(certs):
    run(
        certs,
        """
        class Upgrading(Echo):
            def dataReceived(self, data):
                if data == b"STARTTLS":
                    self.transport.write(b"OK")
                    tls.start_tls(self, server_context, isClient=False)
                else:
                    self.transport.write(data)
        port = await endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory(Upgrading))
        address = port.getHost()
        client = await endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", address.port).connect(factory(Recorder))
        client.transport.write(b"STARTTLS")
        assert await client.received(2) == b"OK"
        tls.start_tls(client, client_context, isClient=True, server_hostname="localhost")
        client.transport.write(b"secret")
        assert await client.received(8) == b"OKsecret"
        client.transport.loseConnection()
        assert isinstance(await client.lost, ConnectionDone)
        await port.stopListening()
        """,
    )


def test_a_web_server_and_curl(certs):
    told = run(
        certs,
        """
        from twisted.web import resource, server
        class Hello(resource.Resource):
            isLeaf = True
            def render_GET(self, request):
                return str(request.isSecure()).encode()
        site = server.Site(Hello())
        endpoint = endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await tls.wrap_server_tls(server_context, endpoint).listen(site)
        from twisted.internet.utils import getProcessOutputAndValue
        url = f"https://localhost:{port.getHost().port}/"
        out, err, code = await getProcessOutputAndValue("curl", ["-sS", "--cacert", ca, url])
        print(out.decode(), err.decode(), code)
        await port.stopListening()
        """,
    )
    assert told.split() == ["True", "0"]


def test_a_server_with_a_client_of_openssl(certs, stdlib_client):
    script = PREAMBLE + textwrap.dedent(
        """
        def tell(port):
            print(port.getHost().port, flush=True)
        serve(Echo).addCallback(tell)
        reactor.run()
        """
    )
    command = [sys.executable, "-c", script, certs.ca, certs.cert, certs.key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline())
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                stdlib_client.maximum_version = version
                plain = socket.create_connection(("127.0.0.1", port), timeout=20)
                with stdlib_client.wrap_socket(plain, server_hostname="localhost") as sock:
                    sock.sendall(b"z" * 200_000)
                    left = 200_000
                    while left:
                        left -= len(sock.recv(left))
                    sock.unwrap()
        finally:
            server.kill()
