"""A plugin for pytest that puts this package's contexts in place of those of `ssl`, for the tests of other projects."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any, Callable

import dormouse
import dormouse.asyncio

_stdlib = ssl.SSLContext


class Both(dormouse.SSLContext):
    """Ours, and one of `ssl` with the same certificates for blocking sockets on the other side."""

    def __init__(self, protocol: Any = None) -> None:
        super().__init__(protocol)
        self.twin = _stdlib(protocol)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> Any:
        # Not by the properties of `ssl`, which look for `ssl.SSLContext`.
        base: Any = _stdlib.__base__
        base.check_hostname.__set__(self.twin, False)
        base.verify_mode.__set__(self.twin, self.verify_mode)
        base.check_hostname.__set__(self.twin, self.check_hostname)
        return self.twin.wrap_socket(*args, **kwargs)


def _of_both(name: str) -> Callable[..., Any]:
    def call(self: Both, *args: Any, **kwargs: Any) -> Any:
        getattr(self.twin, name)(*args, **kwargs)
        return getattr(dormouse.SSLContext, name)(self, *args, **kwargs)

    return call


for _name in ("load_cert_chain", "load_verify_locations", "load_default_certs", "set_alpn_protocols"):
    setattr(Both, _name, _of_both(_name))


def pytest_addoption() -> None:
    """The first hook: libraries make contexts when they are imported."""
    ssl.SSLContext, ssl.create_default_context = Both, dormouse.create_default_context  # type: ignore
    # What it makes.
    dormouse._context.SSLContext = Both  # type: ignore
    if "LOOP_OF_DORMOUSE" in os.environ:
        asyncio.set_event_loop_policy(dormouse.asyncio.EventLoopPolicy())
