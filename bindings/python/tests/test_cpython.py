"""CPython's own tests of asyncio over TLS, with this package's contexts and loop in place of its own.

All cases of `test_asyncio.test_ssl` pass but those that are named here.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import unittest

import pytest

import dormouse
import dormouse.asyncio

test_ssl = pytest.importorskip("test.test_asyncio.test_ssl", reason="CPython's tests are not installed")

# Why a case can't pass.
NOT_FOR_US: dict[str, str] = {}


class Both(dormouse.SSLContext):
    """Ours for asyncio, and one of `ssl` for the blocking sockets on the other side."""

    def __init__(self, protocol=None):
        super().__init__(protocol)
        self.twin = ssl.SSLContext(protocol)

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


def names():
    return unittest.TestLoader().getTestCaseNames(Cases)


@pytest.mark.parametrize("name", names())
def test_case(name):
    if name in NOT_FOR_US:
        pytest.skip(NOT_FOR_US[name])
    result = unittest.TestResult()
    Cases(name).run(result)
    for _, trace in [*result.failures, *result.errors]:
        pytest.fail(trace)
    for _, reason in result.skipped:
        pytest.skip(reason)


def test_the_list_names_real_cases():
    assert set(NOT_FOR_US) <= set(names()) or sys.version_info[:2] != (3, 11)
