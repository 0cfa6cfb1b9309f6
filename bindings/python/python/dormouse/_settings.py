"""The settings of a transport's connections."""

from __future__ import annotations

from typing import Optional

from ._context import SSLContext


class Settings:
    """The settings of all connections of a server, or of one connection of a client."""

    __slots__ = (
        "context",
        "server_side",
        "server_hostname",
        "handshake_timeout_s",
        "shutdown_timeout_s",
        "announces",
    )

    def __init__(
        self,
        context: SSLContext,
        *,
        server_side: bool,
        server_hostname: Optional[str] = None,
        ssl_handshake_timeout: Optional[float] = None,
        ssl_shutdown_timeout: Optional[float] = None,
        announces: bool = True,
    ) -> None:
        if server_side:
            context.native_server()
        else:
            context.native_client()
        self.context = context
        self.server_side = server_side
        self.server_hostname = server_hostname
        self.handshake_timeout_s = _positive("ssl_handshake_timeout", ssl_handshake_timeout, 60.0)
        self.shutdown_timeout_s = _positive("ssl_shutdown_timeout", ssl_shutdown_timeout, 30.0)
        # Whether to call connection_made(); with start_tls() the protocol was called before.
        self.announces = announces

    def with_context(self, context: SSLContext) -> Settings:
        """Return the same with another context, which an `sni_callback` has chosen."""
        return Settings(
            context,
            server_side=True,
            ssl_handshake_timeout=self.handshake_timeout_s,
            ssl_shutdown_timeout=self.shutdown_timeout_s,
            announces=self.announces,
        )


def _positive(name: str, value: Optional[float], default: float) -> float:
    if value is None:
        return default
    if value <= 0:
        raise ValueError(f"{name} should be a positive number, got {value}")
    return value
