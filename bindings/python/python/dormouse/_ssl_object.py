"""`SSLObject`: the TLS properties of a connection, in the shape of `ssl.SSLObject`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Dict, List, NoReturn, Optional, Tuple

from . import _native
from ._errors import UnsupportedError

if TYPE_CHECKING:
    from ._context import SSLContext


class SSLObject:
    """A view of a connection. It is created on request, and the connection does not keep it."""

    __slots__ = ("_session", "_context", "_server_hostname", "_server_side")

    def __init__(
        self,
        session: _native.Session,
        context: SSLContext,
        server_hostname: Optional[str],
        server_side: bool,
    ) -> None:
        self._session = session
        self._context = context
        self._server_hostname = server_hostname
        self._server_side = server_side

    @property
    def context(self) -> SSLContext:
        """The context. In an `sni_callback` another one can be set."""
        return self._context

    @context.setter
    def context(self, context: SSLContext) -> None:
        self._context = context

    @property
    def server_hostname(self) -> Optional[str]:
        """Client: the requested name."""
        return self._server_hostname

    @property
    def server_side(self) -> bool:
        """Whether this side is the server."""
        return self._server_side

    def version(self) -> Optional[str]:
        """Return "TLSv1.2" or "TLSv1.3"; None before the handshake is done."""
        return self._session.version

    def cipher(self) -> Optional[Tuple[str, str, int]]:
        """Return the suite's name, the protocol and the bits of the key."""
        return self._session.cipher

    def selected_alpn_protocol(self) -> Optional[str]:
        """Return the application protocol."""
        return self._session.alpn

    def selected_npn_protocol(self) -> None:
        """Return None: ALPN has replaced NPN."""

    def compression(self) -> None:
        """Return None: nothing is compressed."""

    def pending(self) -> int:
        """Return 0: received data was passed on."""
        return 0

    @property
    def session_reused(self) -> bool:
        """Whether an earlier session was resumed."""
        return self._session.is_resumed

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return the peer's certificate: its description, or DER. None if there is none."""
        chain = self._session.peer_certificates
        if not chain:
            return None
        if binary_form:
            return chain[0]
        return describe(chain[0]) if self.context.verify_mode else {}

    def get_unverified_chain(self) -> List[bytes]:
        """Return the certificates that the peer sent, DER, its own first."""
        return list(self._session.peer_certificates)

    @property
    def session(self) -> NoReturn:
        """Not supported: contexts resume sessions by themselves."""
        raise UnsupportedError("dormouse.SSLObject has no session: contexts resume sessions by themselves")

    def shared_ciphers(self) -> NoReturn:
        """Not supported: the client's offer is not kept."""
        raise UnsupportedError("dormouse.SSLObject has no shared_ciphers(): the client's offer is not kept")

    def get_channel_binding(self, cb_type: str = "tls-unique") -> None:
        """Return None: the handshake is not kept, and TLS 1.3 has no `tls-unique`."""
        if cb_type not in ssl.CHANNEL_BINDING_TYPES:
            raise ValueError(f"{cb_type} channel binding type not implemented")

    def _of_the_transport(self, *args: object, **kwargs: object) -> NoReturn:
        """Not supported: the transport does it."""
        raise UnsupportedError("dormouse.SSLObject only describes a connection; its transport reads and writes")

    do_handshake = read = write = unwrap = verify_client_post_handshake = _of_the_transport

    def __repr__(self) -> str:
        return f"<dormouse.SSLObject {self.version() or 'handshaking'}>"


def describe(der: bytes) -> Dict[str, Any]:
    """Return a certificate as `ssl.SSLSocket.getpeercert` does."""
    return _native.describe_certificate(der)
