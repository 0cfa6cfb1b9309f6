"""echo.py default|memory|sessions|cache-off|plain PORT CERT KEY"""

import sys

from OpenSSL import SSL
from twisted.internet import protocol, reactor, ssl


class Echo(protocol.Protocol):
    def connectionMade(self):
        self.transport.setTcpNoDelay(True)
        # Bytes that the client does not take stop reading from it.
        self.transport.registerProducer(self.transport, True)

    def dataReceived(self, data):
        self.transport.write(data)


def main(variant, port, cert, key):
    factory = protocol.Factory.forProtocol(Echo)
    if variant == "plain":
        reactor.listenTCP(int(port), factory, backlog=4096, interface="127.0.0.1")
        return reactor.run()
    if variant in ("default", "cache-off"):
        options = ssl.DefaultOpenSSLContextFactory(key, cert, sslmethod=SSL.TLS_SERVER_METHOD)
        if variant == "cache-off":
            options.getContext().set_session_cache_mode(SSL.SESS_CACHE_OFF)
    else:
        with open(key) as key_file, open(cert) as cert_file:
            both = ssl.PrivateCertificate.loadPEM(key_file.read() + cert_file.read())
        more = {"enableSessionTickets": True} if variant == "sessions" else {}
        options = ssl.CertificateOptions(
            privateKey=both.privateKey.original, certificate=both.original, **more
        )
    reactor.listenSSL(int(port), factory, options, backlog=4096, interface="127.0.0.1")
    reactor.run()


main(*sys.argv[1:])
