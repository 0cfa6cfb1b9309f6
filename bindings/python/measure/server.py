"""An echo server for `compare`: server.py FRAMEWORK TLS CERTIFICATE KEY. It prints its port.

FRAMEWORK: protocol, streams, uvloop, uvloop-streams, twisted. TLS: plain, own, dormouse.
"""

import asyncio
import gc
import signal
import ssl
import sys

framework, tls, cert, key = sys.argv[1:5]
signal.signal(signal.SIGUSR1, lambda *_: gc.collect())


class Echo(asyncio.Protocol):
    __slots__ = ("transport",)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def connection_lost(self, exc):
        pass


async def echo(reader, writer):
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


def context():
    if tls == "plain":
        return None
    if tls == "own":
        one = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    else:
        import dormouse

        one = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    one.load_cert_chain(cert, key)
    return one


async def serve():
    loop = asyncio.get_running_loop()
    if framework.endswith("streams"):
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context(), backlog=1_000)
    else:
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=context(), backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def with_asyncio():
    import dormouse.asyncio

    if framework.startswith("uvloop"):
        import uvloop

        import dormouse.uvloop

        loop = dormouse.uvloop.new_event_loop() if tls == "dormouse" else uvloop.new_event_loop()
    else:
        loop = dormouse.asyncio.new_event_loop() if tls == "dormouse" else asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve())


def with_twisted():
    from twisted.internet import epollreactor

    epollreactor.install()
    from twisted.internet import protocol, reactor

    class TwistedEcho(protocol.Protocol):
        def dataReceived(self, data):
            self.transport.write(data)

    factory = protocol.Factory.forProtocol(TwistedEcho)
    factory.noisy = False
    if tls == "own":
        from OpenSSL import SSL
        from twisted.internet.ssl import CertificateOptions, PrivateCertificate
        from twisted.protocols.tls import TLSMemoryBIOFactory

        pem = open(cert).read() + open(key).read()
        loaded = PrivateCertificate.loadPEM(pem)
        options = CertificateOptions(privateKey=loaded.privateKey.original, certificate=loaded.original)
        options.getContext().set_mode(SSL.MODE_RELEASE_BUFFERS)
        factory = TLSMemoryBIOFactory(options, False, factory)
    elif tls == "dormouse":
        from dormouse.twisted import TLSFactory

        factory = TLSFactory(context(), False, factory)
    port = reactor.listenTCP(0, factory, backlog=1_000, interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    reactor.run(installSignalHandlers=False)


with_twisted() if framework == "twisted" else with_asyncio()
