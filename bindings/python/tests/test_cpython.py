"""CPython's own tests of asyncio over TLS, with this package's contexts, in its loop and in asyncio's own.

All cases of `test_asyncio.test_ssl` pass but those that `suites.tsv` names.
"""

from __future__ import annotations

import asyncio
import ssl
import unittest

import pytest

import dormouse.asyncio
from in_place_of_ssl import Both
from suites import impossible

test_ssl = pytest.importorskip("test.test_asyncio.test_ssl", reason="CPython's tests are not installed")

class Lenient(Both):
    """As asyncio has it: some cases end a connection without close_notify."""

    suppress_ragged_eofs = True


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
        context = Lenient(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certfile, keyfile)
        return context

    def _create_client_ssl_context(self, *, disable_verify=True):
        context = Lenient(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
        context.check_hostname = False
        if disable_verify:
            context.verify_mode = ssl.CERT_NONE
        return context


class OverWrapBIO(Cases):
    """In asyncio's own loop, which does TLS by `wrap_bio`."""

    def setUp(self):
        super().setUp()
        asyncio.set_event_loop_policy(None)

    def new_loop(self):
        return asyncio.new_event_loop()


for _name, _reason in impossible("CPython").items():
    setattr(Cases, _name, unittest.skip(_reason)(getattr(test_ssl.TestSSL, _name)))
