"""Twisted's own tests of connections, with endpoints of this package, on each reactor. `test_others_own.py` runs them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import twisted
from twisted.internet.test.connectionmixins import ConnectionTestsMixin, EndpointCreator
from twisted.internet.test.reactormixins import ReactorBuilder
from twisted.internet.test.test_tcp import AbortConnectionMixin

import dormouse
from dormouse.twisted import TLSClientEndpoint, TLSServerEndpoint

PAIR = Path(twisted.__file__).parent / "test" / "server.pem"


def client_context() -> dormouse.SSLContext:
    context = dormouse.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Creator(EndpointCreator):
    """Endpoints of this package."""

    def server(self, reactor: Any) -> Any:
        context = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PAIR)
        return TLSServerEndpoint(reactor, 0, context)

    def client(self, reactor: Any, address: Any) -> Any:
        return TLSClientEndpoint(reactor, "127.0.0.1", address.port, client_context())


class Connections(ReactorBuilder, ConnectionTestsMixin):
    endpoints = Creator()


class Aborts(ReactorBuilder, AbortConnectionMixin):
    endpoints = Creator()


for tests in (Connections, Aborts):
    globals().update(tests.makeTestCaseClasses())
