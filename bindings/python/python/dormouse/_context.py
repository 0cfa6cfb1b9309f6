"""`SSLContext`: the settings of TLS, in the shape of `ssl.SSLContext`."""

from __future__ import annotations

import os
import ssl
import sys
from typing import Any, Callable, Dict, Iterable, List, NoReturn, Optional, Tuple, Type, TypeVar, Union

from . import _native
from ._encrypted_key import decrypted
from ._errors import SettingsError, UnsupportedError

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
# Takes an SSLObject, the server name and the context. Returns None, or the number of an alert.
SNICallback = Callable[[Any, Any, Any], Optional[int]]
Native = TypeVar("Native")

_TLS12, _TLS13 = 0x0303, 0x0304
_FILE_MAX = 1 << 24

# Options that are always on, or that concern features that the engine does not have.
_OPTIONS_HELD = (
    ssl.OP_ALL
    | ssl.OP_NO_SSLv2
    | ssl.OP_NO_SSLv3
    | ssl.OP_NO_TLSv1
    | ssl.OP_NO_TLSv1_1
    | ssl.OP_NO_COMPRESSION
    | ssl.OP_SINGLE_DH_USE
    | ssl.OP_SINGLE_ECDH_USE
    | getattr(ssl, "OP_NO_RENEGOTIATION", 0)
    | getattr(ssl, "OP_ENABLE_MIDDLEBOX_COMPAT", 0)
)
# Options that a program may change.
_OPTIONS_TAKEN = ssl.OP_NO_TICKET | ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
_OPTIONS_DEFAULT = _OPTIONS_HELD & ~ssl.OP_ALL | ssl.OP_ALL
# The engine verifies strictly, and trusts every certificate that it was given, even one that is no authority's.
_VERIFY_FLAGS_HELD = (
    getattr(ssl, "VERIFY_X509_TRUSTED_FIRST", 0)
    | getattr(ssl, "VERIFY_X509_STRICT", 0)
    | getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0)
)


def _refuse(what: str, why: str) -> NoReturn:
    raise UnsupportedError(f"dormouse.SSLContext has no {what}: {why}")


def _missing(name: str, why: str) -> Any:
    """Return an attribute that can be neither read nor written."""

    def read(_: "SSLContext") -> NoReturn:
        _refuse(name, why)

    def write(_: "SSLContext", value: object) -> NoReturn:
        _refuse(name, why)

    return property(read, write, doc=f"Not supported: {why}.")


def _missing_method(name: str, why: str) -> Any:
    def method(_: "SSLContext", *args: object, **kwargs: object) -> NoReturn:
        _refuse(f"{name}()", why)

    method.__name__ = name
    method.__doc__ = f"Not supported: {why}."
    return method


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        content = file.read(_FILE_MAX + 1)
    if len(content) > _FILE_MAX:
        raise SettingsError(f"{os.fsdecode(path)}: larger than {_FILE_MAX} bytes")
    return content


class SSLContext(ssl.SSLContext):
    """The settings of TLS for connections of this package's transports.

    It derives from `ssl.SSLContext`, so that libraries that require one accept it. Settings that the engine does not
    have raise `UnsupportedError`; none is ignored.

    Changes apply to later connections. Any thread may use a context; only one at a time may change it.
    """

    def __new__(cls, protocol: Optional[int] = None, *args: Any, **kwargs: Any) -> "SSLContext":
        if protocol not in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            raise UnsupportedError(
                "dormouse.SSLContext takes PROTOCOL_TLS_SERVER or PROTOCOL_TLS_CLIENT"
            )
        return super().__new__(cls, protocol, *args, **kwargs)

    def __init__(self, protocol: Optional[int] = None) -> None:
        self._is_server = protocol == ssl.PROTOCOL_TLS_SERVER
        self._native: Any = None
        self._identities: Dict[str, _native.Identity] = {}
        self._roots: List[bytes] = []
        self._alpn: Tuple[str, ...] = ()
        self._groups: Tuple[str, ...] = ()
        self._oldest, self._newest = _TLS12, _TLS13
        self._options = _OPTIONS_DEFAULT
        self._verify_flags = getattr(ssl, "VERIFY_X509_TRUSTED_FIRST", 0)
        self._verify_mode = ssl.CERT_NONE if self._is_server else ssl.CERT_REQUIRED
        self._check_hostname = not self._is_server
        self._sni_callback: Optional[SNICallback] = None
        self._key_log: Optional[str] = None
        self._num_tickets = 2
        self._ticket_keys: Optional[_native.TicketKeys] = None
        self._resumes = True
        #: Whether an end of the transport without close_notify counts as a proper end, as in `asyncio`. An
        #: attacker can then cut off received data unnoticed.
        self.suppress_ragged_eofs = False

    # Certificates and trust

    def load_cert_chain(
        self, certfile: Path, keyfile: Optional[Path] = None, password: object = None
    ) -> None:
        """Load a certificate chain and its key, PEM. They replace a pair with a key of the same kind.

        An encrypted key needs a password, or a function that returns one.
        """
        keyfile = certfile if keyfile is None else keyfile
        key = decrypted(_read(keyfile), password, os.fsdecode(keyfile))
        self._add_identity(
            _native.Identity(_read(certfile), key, os.fsdecode(certfile), os.fsdecode(keyfile))
        )

    def load_self_signed(self, name: str) -> None:
        """Create a self-signed certificate for `name`, for tests."""
        self._add_identity(_native.Identity.self_signed(name))

    def _add_identity(self, identity: _native.Identity) -> None:
        self._identities[identity.key_kind] = identity
        self._native = None

    def load_verify_locations(
        self,
        cafile: Optional[Path] = None,
        capath: Optional[Path] = None,
        cadata: Any = None,
    ) -> None:
        """Trust more certificates. All of `capath` are read at once."""
        if cafile is None and capath is None and cadata is None:
            raise TypeError("cafile, capath and cadata cannot be all omitted")
        if cafile is not None:
            self._trust(_read(cafile), os.fsdecode(cafile))
        if capath is not None:
            for name in sorted(os.listdir(os.fsdecode(capath))):
                path = os.path.join(os.fsdecode(capath), name)
                if _is_hash(name):
                    self._trust(_read(path), path)
        if isinstance(cadata, str):
            self._trust(cadata.encode(), "cadata")
        elif cadata:
            self._trust(_pem_of(bytes(cadata)), "cadata")

    def _trust(self, bundle: bytes, name: str) -> None:
        self._roots.append(_native.authorities(bundle, name))
        self._native = None

    def load_default_certs(self, purpose: Any = ssl.Purpose.SERVER_AUTH) -> None:
        """Trust what the operating system trusts."""
        self._roots.append(_native.system_roots())
        self._native = None

    def set_default_verify_paths(self) -> None:
        """Trust what the operating system trusts."""
        self.load_default_certs()

    def get_ca_certs(self, binary_form: bool = False) -> List[Any]:
        """Return the trusted certificates."""
        found = dict.fromkeys(der for pem in self._roots for der in _native.pem_certificates(pem))
        if binary_form:
            return list(found)
        return [_native.describe_certificate(der) for der in found]

    def cert_store_stats(self) -> Dict[str, int]:
        """Count the trusted certificates."""
        count = len(self.get_ca_certs(binary_form=True))
        return {"x509": count, "crl": 0, "x509_ca": count}

    @property
    def verify_mode(self) -> ssl.VerifyMode:
        """Whether the peer must send a certificate, and whether it is verified."""
        return self._verify_mode

    @verify_mode.setter
    def verify_mode(self, value: int) -> None:
        mode = ssl.VerifyMode(value)
        if mode == ssl.CERT_NONE and self._check_hostname:
            raise ValueError("Cannot set verify_mode to CERT_NONE when check_hostname is enabled.")
        self._verify_mode = mode
        self._native = None

    @property
    def check_hostname(self) -> bool:
        """Whether a server's certificate must be for the requested name."""
        return self._check_hostname

    @check_hostname.setter
    def check_hostname(self, value: object) -> None:
        self._check_hostname = bool(value)
        if self._check_hostname and self._verify_mode == ssl.CERT_NONE:
            self._verify_mode = ssl.CERT_REQUIRED
        self._native = None

    @property
    def verify_flags(self) -> ssl.VerifyFlags:
        """How certificates are verified: always strictly, trusted ones first."""
        return ssl.VerifyFlags(self._verify_flags)

    @verify_flags.setter
    def verify_flags(self, value: int) -> None:
        unknown = value & ~_VERIFY_FLAGS_HELD
        if unknown:
            _refuse(str(ssl.VerifyFlags(unknown)), "revocation lists are not read")
        self._verify_flags = value

    @property
    def hostname_checks_common_name(self) -> bool:
        """Always false: common names are ignored (RFC 9525)."""
        return False

    @hostname_checks_common_name.setter
    def hostname_checks_common_name(self, value: object) -> None:
        if value:
            _refuse("hostname_checks_common_name", "a common name is no server's name (RFC 9525)")

    # Negotiation

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Set the application protocols, the preferred first."""
        names = tuple(alpn_protocols)
        for name in names:
            if not 1 <= len(name.encode("ascii")) <= 255:
                raise SettingsError("ALPN protocols must be 1 to 255 in length")
        self._alpn = names
        self._native = None

    @property
    def minimum_version(self) -> ssl.TLSVersion:
        """The oldest version of TLS: 1.2 or 1.3."""
        return ssl.TLSVersion(self._oldest)

    @minimum_version.setter
    def minimum_version(self, value: int) -> None:
        self._oldest = _version(value)
        self._native = None

    @property
    def maximum_version(self) -> ssl.TLSVersion:
        """The newest version of TLS: 1.2 or 1.3."""
        return ssl.TLSVersion(self._newest)

    @maximum_version.setter
    def maximum_version(self, value: int) -> None:
        self._newest = _version(value)
        self._native = None

    @property
    def options(self) -> ssl.Options:
        """The OpenSSL options in effect."""
        return ssl.Options(self._options)

    @options.setter
    def options(self, value: int) -> None:
        # The client's preference decides in the engine; OpenSSL's contexts have this option from the start.
        unknown = value & ~(_OPTIONS_HELD | _OPTIONS_TAKEN | ssl.OP_CIPHER_SERVER_PREFERENCE)
        if unknown:
            _refuse(str(ssl.Options(unknown)), "the engine has no such behaviour")
        self._options = value | _OPTIONS_HELD
        self._native = None

    def set_ecdh_curve(self, name: Union[str, bytes]) -> None:
        """Allow this group only: X25519MLKEM768, X25519, prime256v1 or secp384r1."""
        name = name.decode("ascii") if isinstance(name, bytes) else name
        before, self._groups = self._groups, (name,)
        try:
            _native.check_groups(self._groups)
        except ValueError:
            self._groups = before
            raise
        self._native = None

    def get_ciphers(self) -> List[Any]:
        """Return the cipher suites: always all that the engine has."""
        return [
            {
                "name": name,
                "protocol": protocol,
                "strength_bits": bits,
                "alg_bits": bits,
                "aead": True,
            }
            for name, protocol, bits in _native.suites()
        ]

    @property
    def sni_callback(self) -> Optional[SNICallback]:
        """Called with an `SSLObject`, the server name that the client requests, and this context.

        It may set the object's `context` to another one. It returns None, or the number of the alert by which
        the client is refused.
        """
        return self._sni_callback

    @sni_callback.setter
    def sni_callback(self, value: Optional[SNICallback]) -> None:
        if value is not None and not callable(value):
            raise TypeError("not a callable object")
        if value is not None and not self._is_server:
            raise ValueError("sni_callback cannot be set on TLS_CLIENT context")
        self._sni_callback = value

    def set_servername_callback(self, server_name_callback: Optional[SNICallback]) -> None:
        """Set `sni_callback`."""
        self.sni_callback = server_name_callback

    # Resumption

    @property
    def num_tickets(self) -> int:
        """How many session tickets a server sends after a TLS 1.3 handshake; 0 turns resumption off."""
        return self._num_tickets

    @num_tickets.setter
    def num_tickets(self, value: int) -> None:
        if not self._is_server:
            raise ValueError("num_tickets is for servers")
        if not 0 <= value <= 16:
            raise ValueError(f"{value} tickets; the range is 0 to 16")
        self._num_tickets = value
        self._native = None

    def load_ticket_keys(self, keyfile: Path, secret: bytes = b"") -> None:
        """Seal tickets with the keys of a file that `dormouse serve` takes as `ticket_keys = "file:…"`.

        All servers with these keys resume each other's sessions. `secret` is the contents of `ticket_secret_file`, for
        keys in Dormouse's own format.

        Those keys rotate, so call this again at least once in each `ticket_rotation`. Servers that have missed a whole
        rotation send no more tickets, and after another one they resume no session.
        """
        self._ticket_keys = _native.TicketKeys(_read(keyfile), secret)
        self._native = None

    @property
    def resumes_sessions(self) -> bool:
        """Client: whether sessions are resumed."""
        return self._resumes

    @resumes_sessions.setter
    def resumes_sessions(self, value: object) -> None:
        self._resumes = bool(value)
        self._native = None

    # Debugging

    @property
    def keylog_filename(self) -> Any:
        """The file that gets the secrets of all connections. Only for debugging."""
        return self._key_log

    @keylog_filename.setter
    def keylog_filename(self, value: Optional[Path]) -> None:
        path = None if value is None else os.fsdecode(value)
        if path is not None:
            # A bad path must fail here, not at the first connection.
            os.close(os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600))
        self._key_log = path
        self._native = None

    @property
    def post_handshake_auth(self) -> bool:
        """Always false: servers request client certificates during the handshake."""
        return False

    @post_handshake_auth.setter
    def post_handshake_auth(self, value: object) -> None:
        if value:
            _refuse("post_handshake_auth", "servers request client certificates during the handshake")

    # For libraries that move the bytes themselves

    #: The class of `wrap_bio`'s objects; `_bio` assigns it.
    sslobject_class: Any = None

    def wrap_bio(  # type: ignore[override]
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: Union[str, bytes, None] = None,
        session: None = None,
    ) -> Any:
        """Return a connection with the interface of `ssl.SSLObject`, over two `ssl.MemoryBIO`."""
        if session is not None:
            _refuse("session", "contexts resume sessions by themselves")
        if isinstance(server_hostname, bytes):
            server_hostname = server_hostname.decode("ascii")
        return self.sslobject_class(self, incoming, outgoing, server_side, server_hostname)

    # Not supported

    wrap_socket = _missing_method(
        "wrap_socket", "use dormouse.asyncio, dormouse.uvloop or dormouse.twisted, or ssl for blocking sockets"
    )
    _wrap_socket = wrap_socket
    _wrap_bio = _missing_method("_wrap_bio", "use wrap_bio()")
    set_ciphers = _missing_method(
        "set_ciphers", "all suites are AEAD with forward secrecy, and none can be turned off"
    )
    set_npn_protocols = _missing_method("set_npn_protocols", "ALPN has replaced it; use set_alpn_protocols()")
    load_dh_params = _missing_method("load_dh_params", "there is no finite-field Diffie-Hellman")
    session_stats = _missing_method("session_stats", "sessions are not counted")
    set_psk_client_callback = _missing_method("set_psk_client_callback", "there are no external PSKs")
    set_psk_server_callback = _missing_method("set_psk_server_callback", "there are no external PSKs")
    security_level = _missing("security_level", "it is OpenSSL's")
    _host_flags = _missing("_host_flags", "they are OpenSSL's")
    _msg_callback = _missing("_msg_callback", "messages of the handshake are not shown")
    _set_alpn_protocols = _missing_method("_set_alpn_protocols", "use set_alpn_protocols()")
    _set_npn_protocols = set_npn_protocols
    _load_windows_store_certs = _missing_method("_load_windows_store_certs", "use load_default_certs()")

    # For the transports

    def native_server(self) -> _native.ServerContext:
        """Return the context of the engine for servers."""
        if not self._is_server:
            raise ValueError("a server needs a context of PROTOCOL_TLS_SERVER")
        return self._prepared(_native.ServerContext, self._new_server)

    def native_client(self) -> _native.ClientContext:
        """Return the context of the engine for clients."""
        if self._is_server:
            raise ValueError("a client needs a context of PROTOCOL_TLS_CLIENT")
        return self._prepared(_native.ClientContext, self._new_client)

    def _prepared(self, kind: Type[Native], make: Callable[[], Native]) -> Native:
        """Return the native context that was made of these settings, or make it."""
        native = self._native
        if isinstance(native, kind):
            return native
        # Another thread may change a setting meanwhile. Its change removes the mark, and what was made of the settings
        # before it is not kept.
        mark = self._native = object()
        native = make()
        if self._native is mark:
            self._native = native
        return native

    def _new_server(self) -> _native.ServerContext:
        if not self._identities:
            raise SettingsError("no certificate; call load_cert_chain() before the server starts")
        asks = None
        if self._verify_mode != ssl.CERT_NONE:
            asks = self._verify_mode == ssl.CERT_REQUIRED
            self._demand_roots()
        tickets = 0 if self._options & ssl.OP_NO_TICKET else self._num_tickets
        return _native.ServerContext(self._common(), asks, tickets, self._ticket_keys)

    def _new_client(self) -> _native.ClientContext:
        verifies = self._verify_mode != ssl.CERT_NONE
        if verifies:
            self._demand_roots()
        resumes = self._resumes and not self._options & ssl.OP_NO_TICKET
        return _native.ClientContext(self._common(), verifies, self._check_hostname, resumes)

    def _demand_roots(self) -> None:
        if not self._roots:
            raise SettingsError(
                f"verify_mode is {self._verify_mode.name}, but nothing is trusted; call load_default_certs() or "
                "load_verify_locations()"
            )

    def _common(self) -> _native.Common:
        oldest, newest = self._oldest, self._newest
        if self._options & ssl.OP_NO_TLSv1_3:
            newest = min(newest, _TLS12)
        if self._options & ssl.OP_NO_TLSv1_2:
            oldest = max(oldest, _TLS13)
        return _native.Common(
            identities=list(self._identities.values()),
            roots=b"".join(self._roots),
            alpn=list(self._alpn),
            oldest=oldest,
            newest=newest,
            groups=list(self._groups),
            key_log=self._key_log,
        )


def _version(value: int) -> int:
    # As in `ssl`, each means the same for both settings: `minimum_version = MAXIMUM_SUPPORTED` leaves only the newest.
    if value == ssl.TLSVersion.MINIMUM_SUPPORTED:
        return _TLS12
    if value == ssl.TLSVersion.MAXIMUM_SUPPORTED:
        return _TLS13
    if value not in (_TLS12, _TLS13):
        _refuse(ssl.TLSVersion(value).name, "supported are TLS 1.2 and TLS 1.3")
    return int(value)


def _is_hash(name: str) -> bool:
    """Return whether a file's name is one of a directory of trusted certificates: 5ed36f99.0."""
    digest, _, number = name.partition(".")
    return len(digest) == 8 and number.isdigit() and all(one in "0123456789abcdef" for one in digest)


def _pem_of(der: bytes) -> bytes:
    """Return certificates that follow one another, DER, as PEM."""
    bundle = []
    while der:
        if len(der) < 4 or der[:2] != b"\x30\x82":
            raise SettingsError("cadata: not a certificate in DER")
        length = 4 + int.from_bytes(der[2:4], "big")
        if len(der) < length:
            raise SettingsError("cadata: the last certificate is cut off")
        bundle.append(ssl.DER_cert_to_PEM_cert(der[:length]))
        der = der[length:]
    return "".join(bundle).encode("ascii")


def create_default_context(
    purpose: Any = ssl.Purpose.SERVER_AUTH,
    *,
    cafile: Optional[Path] = None,
    capath: Optional[Path] = None,
    cadata: Union[str, bytes, bytearray, None] = None,
) -> SSLContext:
    """Create a context with secure settings, as `ssl.create_default_context` does."""
    if purpose == ssl.Purpose.SERVER_AUTH:
        context = SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    elif purpose == ssl.Purpose.CLIENT_AUTH:
        context = SSLContext(ssl.PROTOCOL_TLS_SERVER)
    else:
        raise ValueError(purpose)
    if cafile or capath or cadata:
        context.load_verify_locations(cafile, capath, cadata)
    elif context.verify_mode != ssl.CERT_NONE:
        context.load_default_certs(purpose)
    key_log = os.environ.get("SSLKEYLOGFILE")
    if key_log and not sys.flags.ignore_environment:
        context.keylog_filename = key_log
    return context
