"""The first steps of a session, the same for every framework: which context, which name."""

from __future__ import annotations

import ipaddress
from typing import Any, Callable, Optional

from . import _native
from ._context import SSLContext
from ._ssl_object import SSLObject

# Stands for a server without a name: an IP address is not sent as SNI.
_NAMELESS = "0.0.0.0"
_HANDSHAKE_FAILURE = 40
_INTERNAL_ERROR = 80


def server_session(context: SSLContext) -> _native.Session:
    """Return a session with a client that has just connected."""
    if context.sni_callback is not None:
        # Errors in the settings are the program's, and must not be reported to its first client.
        context.native_server()
        return _native.Session.listen()
    return _native.Session.accept(context.native_server())


def client_session(context: SSLContext, server_hostname: Optional[str]) -> _native.Session:
    """Return a session with a server."""
    if not server_hostname:
        if context.check_hostname:
            raise ValueError("check_hostname requires server_hostname")
        return _native.Session.connect(context.native_client(), _NAMELESS)
    return _native.Session.connect(context.native_client(), _in_ascii(server_hostname))


def _in_ascii(name: str) -> str:
    try:
        ipaddress.ip_address(name)
        return name
    except ValueError:
        pass
    if name.startswith("."):
        raise ValueError("server_hostname cannot be an empty string or start with a leading dot.")
    return name.encode("idna").decode("ascii").rstrip(".")


def choose_context(
    session: _native.Session, context: SSLContext, report: Callable[[BaseException], None]
) -> SSLContext:
    """Call the `sni_callback`, and continue with its choice or refuse the client. Return the choice."""
    hello = session.client_hello()
    callback = context.sni_callback
    view = SSLObject(session, context, None, True)
    answer: Any = None
    try:
        if callback is not None and hello is not None:
            answer = callback(view, hello[0], context)
        chosen = view.context
        native = chosen.native_server()
        if answer is not None and not isinstance(answer, int):
            raise TypeError(f"sni_callback returned {answer!r}; expected None or the number of an alert")
    except Exception as error:
        report(error)
        session.refuse(_HANDSHAKE_FAILURE)
        return context
    if answer is None:
        session.decide(native)
        return chosen
    try:
        session.refuse(answer)
    except (ValueError, OverflowError) as error:
        # OverflowError: a number that fits into no alert.
        report(error)
        session.refuse(_INTERNAL_ERROR)
    return context
