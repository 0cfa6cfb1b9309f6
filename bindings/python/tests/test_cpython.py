"""CPython's own tests of asyncio over TLS, with this package's contexts, in its loop and in asyncio's own.

All cases of `test_asyncio.test_ssl` pass but those that are named in `NOT_FOR_US`.
"""

from __future__ import annotations

import asyncio
import ssl
import unittest

import pytest

import dormouse
import dormouse.asyncio

test_ssl = pytest.importorskip("test.test_asyncio.test_ssl", reason="CPython's tests are not installed")

# Why a case can't pass.
NOT_FOR_US = {
    "test_flush_before_shutdown": "it uses private attributes of asyncio's own TLS",
    "test_remote_shutdown_receives_trailing_data": "it uses private methods of asyncio's own TLS",
    "test_shutdown_timeout_handler_not_set": "it expects no close_notify in reply to an end without one",
}


class Both(dormouse.SSLContext):
    """Ours for asyncio, and one of `ssl` for the blocking sockets on the other side."""

    def __init__(self, protocol=None):
        super().__init__(protocol)
        self.twin = ssl.SSLContext(protocol)
        # As asyncio has it; some cases end a connection without close_notify.
        self.suppress_ragged_eofs = True

    def wrap_socket(self, *args, **kwargs):
        return self.twin.wrap_socket(*args, **kwargs)


class Cases(test_ssl.TestSSL):
    def setUp(self):
        asyncio.set_event_loop_policy(dormouse.asyncio.EventLoopPolicy())
        super().setUp()

    def tearDown(self):
        super().tearDown()
        asyncio.set_event_loop_policy(None)

    def new_loop(self):
        return dormouse.asyncio.new_event_loop()

    def _create_server_ssl_context(self, certfile, keyfile=None):
        context = Both(ssl.PROTOCOL_TLS_SERVER)
        for one in (context, context.twin):
            one.load_cert_chain(certfile, keyfile)
        return context

    def _create_client_ssl_context(self, *, disable_verify=True):
        context = Both(ssl.PROTOCOL_TLS_CLIENT)
        for one in (context, context.twin):
            one.load_default_certs()
            one.check_hostname = False
            if disable_verify:
                one.verify_mode = ssl.CERT_NONE
        return context


class OverWrapBIO(Cases):
    """In asyncio's own loop, which does TLS by `wrap_bio`."""

    def setUp(self):
        super().setUp()
        asyncio.set_event_loop_policy(None)

    def new_loop(self):
        return asyncio.new_event_loop()


for _name, _reason in NOT_FOR_US.items():
    setattr(Cases, _name, unittest.skip(_reason)(getattr(test_ssl.TestSSL, _name)))
