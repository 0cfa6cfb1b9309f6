"""Twisted over this package: endpoints, factories, producers, and peers that use OpenSSL."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

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

# `client` is a plain connection with a client's `session` over it; `made` gets the protocol of the server.
HANDSHAKE_BY_HAND = """
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
        client.transport.write(session.take_output())
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


# library: Twisted | works | endpoints, factories and `start_tls` of `dormouse.twisted`
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


def test_a_producer_waits_for_the_end_of_the_handshake(certs):
    run(
        certs,
        """
        from twisted.protocols.basic import FileSender
        from io import BytesIO
        file = BytesIO(b"f" * 50_000_000)
        class Sender(protocol.Protocol):
            def connectionMade(self):
                FileSender().beginFileTransfer(file, self.transport).addErrback(lambda _: None)
        port = await serve(Sender)
        address = port.getHost()
        silent = await endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", address.port).connect(factory(Recorder))
        await task.deferLater(reactor, 0.5)
        assert file.tell() < 1_000_000, file.tell()
        silent.transport.loseConnection()
        await silent.lost
        await port.stopListening()
        """,
    )


def test_writes_beside_a_producer_that_is_paused(certs):
    run(
        certs,
        """
        from twisted.protocols.basic import FileSender
        from io import BytesIO
        made = []
        class Sender(protocol.Protocol):
            def dataReceived(self, data):
                made.append(self)
                FileSender().beginFileTransfer(BytesIO(b"f" * 12_000_000), self.transport)
        port = await serve(Sender)
        client = await connect(port)
        client.transport.write(b"go")
        await client.received(1)
        client.transport.pauseProducing()
        await task.deferLater(reactor, 0.3)
        for _ in range(2):
            made[0].transport.write(b"g" * 1_000)
        client.transport.resumeProducing()
        data = await client.received(12_002_000).addTimeout(20, reactor)
        assert data.count(b"f") == 12_000_000 and data.count(b"g") == 2_000
        client.transport.abortConnection()
        await client.lost
        await port.stopListening()
        """,
    )


@pytest.mark.parametrize("last", ["close()", "abort(80)"])
def test_a_producer_without_an_end_is_stopped_when_its_peer_ends(certs, last):
    run(
        certs,
        HANDSHAKE_BY_HAND
        + """
        from twisted.internet.interfaces import IPushProducer
        from zope.interface import implementer
        @implementer(IPushProducer)
        class Endless:
            runs = stopped = False
            def resumeProducing(self):
                self.runs = True
                self.produce()
            def produce(self):
                if self.runs:
                    made[0].transport.write(b"e" * 50_000)
                    reactor.callLater(0, self.produce)
            def pauseProducing(self):
                self.runs = False
            def stopProducing(self):
                self.runs, self.stopped = False, True
        client.transport.write(session.seal(b"x"))
        await made[0].received(1)
        client.transport.pauseProducing()
        endless = Endless()
        made[0].transport.registerProducer(endless, True)
        endless.resumeProducing()
        while endless.runs:
            await task.deferLater(reactor, 0.01)
        client.transport.write(eval("session." + sys.argv[4]))
        await task.deferLater(reactor, 0.1)
        client.transport.resumeProducing()
        lost = await made[0].lost.addTimeout(5, reactor)
        assert isinstance(lost, (ConnectionDone, ssl.SSLError)) and endless.stopped, lost
        assert isinstance(await client.lost, ConnectionDone)
        await port.stopListening()
        """,
        last,
    )


def test_the_end_of_a_connection_whose_peer_still_writes(certs):
    run(
        certs,
        """
        made = []
        class Answering(Recorder):
            def connectionMade(self):
                made.append(self)
                self.transport.write(b"ready")
            def dataReceived(self, data):
                super().dataReceived(data)
                self.transport.write(b"a" * 4_000_000)
                self.transport.loseConnection()
                self.transport.pauseProducing()
        port = await serve(Answering)
        client = await connect(port)
        await client.received(5)
        client.transport.write(b"go")
        client.transport.pauseProducing()
        await task.deferLater(reactor, 0.1)
        client.transport.write(b"more")
        await task.deferLater(reactor, 0.3)
        client.transport.resumeProducing()
        lost = await client.lost.addTimeout(20, reactor)
        assert isinstance(lost, ConnectionDone), lost
        assert len(client.data) == 4_000_005, len(client.data)
        assert isinstance(await made[0].lost, ConnectionDone)
        assert made[0].data == b"go"
        assert not reactor.getDelayedCalls(), "no limit remains"
        await port.stopListening()
        """,
    )


def test_a_peer_that_does_not_end_its_direction_is_not_waited_for_long(certs):
    run(
        certs,
        HANDSHAKE_BY_HAND
        + """
        tls._PEER_END_S = 0.3
        client.transport.write(session.seal(b"x"))
        await made[0].received(1)
        made[0].transport.loseConnection()
        begun = reactor.seconds()
        assert isinstance(await made[0].lost.addTimeout(10, reactor), ConnectionDone)
        assert reactor.seconds() - begun > 0.2, "it has not waited"
        assert isinstance(await client.lost, ConnectionDone)
        await port.stopListening()
        """,
    )


def test_a_client_without_a_usable_server_name(certs):
    run(
        certs,
        """
        import pytest
        port = await endpoints.TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory(Echo))
        plain = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port)
        with pytest.raises(ValueError, match="server_hostname"):
            tls.wrap_client_tls(client_context, plain).connect(factory(Recorder))
        with pytest.raises(dormouse.SettingsError, match="not a name"):
            tls.wrap_client_tls(client_context, plain, "not a name").connect(factory(Recorder))
        client = await plain.connect(factory(Recorder))
        with pytest.raises(ValueError, match="server_hostname"):
            tls.start_tls(client, client_context, isClient=True)
        client.transport.write(b"still plain")
        assert await client.received(11) == b"still plain"
        client.transport.loseConnection()
        await client.lost
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
        class Leaving(Recorder):
            def handshakeCompleted(self):
                self.transport.loseConnection()
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
        client = await connect(port, make=Leaving)
        assert isinstance(await client.lost, ConnectionDone)
        await made[2].lost
        assert not reactor.getDelayedCalls(), "no limit remains"
        await port.stopListening()
        """,
    )


def test_a_peer_that_requests_keys_without_end_and_reads_nothing(certs):
    run(
        certs,
        """
        sys.path.insert(0, sys.argv[4])
        from key_updates import Requester
        size, count = 20_000_000, 100
        made = []
        port = await serve(lambda: made.append(Recorder()) or made[0])
        address = port.getHost()
        below = await endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", address.port).connect(factory(Recorder))
        client = Requester(ca)
        def arrived():
            data, below.data = below.data, b""
            return data
        while not client.shake(arrived()):
            below.transport.write(client.output())
            await task.deferLater(reactor, 0.01)
        below.transport.write(client.output() + client.request())
        while not made or made[0].data != b"x":
            await task.deferLater(reactor, 0.01)
        queue = made[0].transport.transport
        def unsent():
            return len(queue.dataBuffer) - queue.offset + queue._tempDataLen
        below.transport.pauseProducing()
        made[0].transport.write(b"d" * size)
        before = None
        while before != unsent():
            before = unsent()
            await task.deferLater(reactor, 0.2)
        for i in range(count):
            below.transport.write(client.request())
            while len(made[0].data) < i + 2:
                await task.deferLater(reactor, 0.001)
        assert unsent() <= before, (before, unsent())
        below.transport.resumeProducing()
        opened = 0
        while opened < size:
            await task.deferLater(reactor, 0.01)
            opened += len(client.open(arrived()))
        made[0].transport.write(b"with the new key")
        last = b""
        while not last:
            await task.deferLater(reactor, 0.01)
            last = client.open(arrived())
        assert (opened, last) == (size, b"with the new key")
        made[0].transport.abortConnection()
        await below.lost
        await port.stopListening()
        """,
        str(Path(__file__).parent),
    )


def test_a_peer_that_ends_both_directions_after_its_question(certs):
    run(
        certs,
        HANDSHAKE_BY_HAND
        + """
        client.transport.write(session.seal(b"question") + session.abort(80))
        while not made:
            await task.deferLater(reactor, 0.01)
        lost = await made[0].lost
        assert isinstance(lost, ssl.SSLError) and "INTERNAL_ERROR" in lost.reason, lost
        assert made[0].data == b"question"
        await port.stopListening()
        """,
    )


@pytest.mark.parametrize(("version", "resumes"), [("TLSv1_2", True), ("TLSv1_3", False)])
def test_resumption_by_a_client(certs, version, resumes):
    """The tickets of TLS 1.3 come after the handshake, and a quiet connection keeps no memory for them."""
    told = run(
        certs,
        """
        client_context.maximum_version = ssl.TLSVersion[sys.argv[4]]
        port = await serve(Echo)
        for _ in range(3):
            client = await connect(port)
            client.transport.write(b"x")
            await client.received(1)
            print(client.transport.getHandle().session_reused)
            client.transport.loseConnection()
            await client.lost
        await port.stopListening()
        """,
        version,
    )
    assert told.split() == ["False", str(resumes), str(resumes)]


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
