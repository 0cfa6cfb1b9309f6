"""`SSLContext`: its features, and that no setting is ignored silently."""

from __future__ import annotations

import inspect
import os
import ssl
import subprocess

import pytest

import dormouse

from conftest import openssl

# Names of `ssl.SSLContext` that mean the same here without being overridden.
INHERITED = {
    "__dict__",
    "__firstlineno__",
    "__module__",
    "__new__",
    "__static_attributes__",
    "__weakref__",
    "_encode_hostname",
    "_windows_cert_stores",
    "protocol",
    "sslobject_class",
    "sslsocket_class",
}


def server() -> dormouse.SSLContext:
    return dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def client() -> dormouse.SSLContext:
    return dormouse.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def test_nothing_of_openssl_shines_through():
    names = set(dir(ssl.SSLContext)) - set(dir(object))
    assert names - set(vars(dormouse.SSLContext)) <= INHERITED


@pytest.mark.parametrize(
    "use",
    [
        lambda one: one.set_ciphers("ALL"),
        lambda one: one.load_dh_params("x"),
        lambda one: one.wrap_socket(None),
        lambda one: one.session_stats(),
        lambda one: one.security_level,
        lambda one: setattr(one, "post_handshake_auth", True),
        lambda one: setattr(one, "hostname_checks_common_name", True),
        lambda one: setattr(one, "minimum_version", ssl.TLSVersion.TLSv1_1),
        lambda one: setattr(one, "verify_flags", ssl.VERIFY_CRL_CHECK_LEAF),
        lambda one: setattr(one, "options", one.options | ssl.OP_NO_QUERY_MTU)
        if hasattr(ssl, "OP_NO_QUERY_MTU")
        else one.set_ciphers(""),
        lambda one: setattr(one, "options", one.options | 1 << 2),
    ],
)
def test_what_is_not_there_raises(use):
    with pytest.raises(dormouse.UnsupportedError) as caught:
        use(client())
    assert isinstance(caught.value, NotImplementedError) and isinstance(caught.value, ssl.SSLError)
    assert str(caught.value).startswith("dormouse.SSLContext has no ")


@pytest.mark.parametrize("protocol", [None, ssl.PROTOCOL_TLS, 77])
def test_other_protocols_are_refused(protocol):
    with pytest.raises(dormouse.UnsupportedError, match="PROTOCOL_TLS_SERVER or PROTOCOL_TLS_CLIENT"):
        dormouse.SSLContext(protocol)


def test_defaults_are_those_of_ssl():
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        ours, theirs = dormouse.SSLContext(protocol), ssl.SSLContext(protocol)
        for name in ("verify_mode", "check_hostname", "sni_callback", "keylog_filename", "post_handshake_auth"):
            assert getattr(ours, name) == getattr(theirs, name), name
            assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
        assert ours.protocol == protocol
        assert ours.minimum_version == ssl.TLSVersion.TLSv1_2
        assert ours.maximum_version == ssl.TLSVersion.TLSv1_3


def test_a_certificate_for_a_name_needs_a_judge():
    one = client()
    with pytest.raises(ValueError, match="check_hostname"):
        one.verify_mode = ssl.CERT_NONE
    one.check_hostname = False
    one.verify_mode = ssl.CERT_NONE
    one.check_hostname = True
    assert one.verify_mode == ssl.CERT_REQUIRED


def test_options_and_versions():
    one = server()
    one.options |= ssl.OP_NO_SSLv2 | ssl.OP_NO_TLSv1 | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    one.options |= ssl.OP_NO_TICKET
    assert one.options & ssl.OP_NO_TICKET and one.options & ssl.OP_NO_SSLv3
    one.minimum_version = one.maximum_version = ssl.TLSVersion.TLSv1_3
    one.maximum_version = ssl.TLSVersion.TLSv1_2
    one.load_self_signed("localhost")
    with pytest.raises(dormouse.SettingsError, match="TLS version|newest|oldest"):
        one.native_server()
    one.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    one.native_server()


def test_extreme_versions_mean_the_same_for_both_settings():
    one = client()
    one.minimum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert one.minimum_version == ssl.TLSVersion.TLSv1_3
    one.minimum_version = one.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    assert one.minimum_version == one.maximum_version == ssl.TLSVersion.TLSv1_2
    one.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert one.maximum_version == ssl.TLSVersion.TLSv1_3


def test_a_change_while_a_context_is_built_is_not_lost(monkeypatch):
    one = server()
    one.load_self_signed("localhost")
    build = dormouse.SSLContext._new_server

    def interrupted(self):
        built = build(self)
        # As another thread may.
        self.num_tickets = 0
        return built

    with monkeypatch.context() as patch:
        patch.setattr(dormouse.SSLContext, "_new_server", interrupted)
        before = one.native_server()
    after = one.native_server()
    assert after is not before and one.native_server() is after
    one.verify_mode = ssl.CERT_REQUIRED
    for _ in range(2):
        with pytest.raises(dormouse.SettingsError, match="CERT_REQUIRED"):
            one.native_server()
    one.verify_mode = ssl.CERT_NONE
    assert isinstance(one.native_server(), dormouse._native.ServerContext)


def test_files_that_can_not_be_used(certs, tmp_path):
    one = server()
    with pytest.raises(FileNotFoundError):
        one.load_cert_chain("no such file")
    with pytest.raises(dormouse.SettingsError, match="certificate"):
        one.load_cert_chain(certs.cert, certs.cert)
    with pytest.raises(dormouse.SettingsError) as caught:
        one.load_cert_chain(certs.cert, certs.other_key)
    assert certs.other_key in str(caught.value)
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for wrong in (empty, certs.key):
        with pytest.raises(dormouse.SettingsError) as caught:
            one.load_verify_locations(wrong)
        assert os.fspath(wrong) in str(caught.value)
    with pytest.raises(TypeError):
        one.load_verify_locations()
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(
        ["openssl", "ec", "-in", certs.key, "-aes128", "-passout", "pass:x", "-out", encrypted],
        check=True,
        capture_output=True,
    )
    with pytest.raises(dormouse.SettingsError, match="encrypted"):
        one.load_cert_chain(certs.cert, encrypted)


def test_settings_that_do_not_suffice(certs):
    with pytest.raises(dormouse.SettingsError, match="load_cert_chain"):
        server().native_server()
    with pytest.raises(dormouse.SettingsError, match="load_default_certs"):
        client().native_client()
    asking = server()
    asking.load_cert_chain(certs.cert, certs.key)
    asking.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(dormouse.SettingsError, match="CERT_REQUIRED"):
        asking.native_server()
    with pytest.raises(ValueError, match="PROTOCOL_TLS_CLIENT"):
        server().native_client()
    with pytest.raises(ValueError, match="PROTOCOL_TLS_SERVER"):
        client().native_server()


def test_trust_in_every_form(certs, tmp_path):
    pem = open(certs.ca).read()
    der = ssl.PEM_cert_to_DER_cert(pem)
    stranger = ssl.PEM_cert_to_DER_cert(open(certs.stranger).read())
    (tmp_path / "5ed36f99.0").write_text(pem)
    (tmp_path / "README").write_text("nothing that can be read")
    for given in (
        {"cafile": certs.ca},
        {"capath": tmp_path},
        {"cadata": pem},
        {"cadata": der},
        {"cafile": certs.ca, "cadata": der},
    ):
        one = client()
        one.load_verify_locations(**given)
        assert one.get_ca_certs(binary_form=True) == [der]
    one = client()
    one.load_verify_locations(cadata=der + stranger)
    assert one.cert_store_stats() == {"x509": 2, "crl": 0, "x509_ca": 2}
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_verify_locations(cadata=der + stranger)
    by_serial = lambda shown: shown["serialNumber"]  # noqa: E731
    assert sorted(one.get_ca_certs(), key=by_serial) == sorted(theirs.get_ca_certs(), key=by_serial)
    for wrong in (b"no DER", der[:-1]):
        with pytest.raises(dormouse.SettingsError, match="cadata"):
            client().load_verify_locations(cadata=wrong)


def test_nothing_in_a_pem_text_is_passed_over(certs, tmp_path):
    one, other = open(certs.ca).read(), open(certs.stranger).read()
    for given in (
        f"\ufeff{one}{other}",
        f"{one}\ufeff{other}",
        f"{one}{other}".replace("\n", "\r\n"),
        f"{one}{other}".replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        f"subject=O = F\xf5o\n{one}{other}",
    ):
        trusting = client()
        trusting.load_verify_locations(cadata=given)
        assert trusting.cert_store_stats()["x509"] == 2
    latin1 = tmp_path / "latin1.pem"
    latin1.write_bytes(b"subject=O = F\xf5o\n" + one.encode())
    client().load_verify_locations(latin1)
    lines = len(one.splitlines())
    for text, why in (
        (one.strip() + other, f":{lines}: -----END and other text in one line"),
        (one + " " + other, f":{lines + 1}: a marker that does not begin its line"),
        (one.replace("CERTIFICATE", "PKCS7"), "openssl pkcs7 -print_certs"),
    ):
        wrong = tmp_path / "wrong.pem"
        wrong.write_text(text)
        for load in (client().load_verify_locations, server().load_cert_chain):
            with pytest.raises(dormouse.SettingsError) as caught:
                load(wrong)
            assert os.fspath(wrong) in str(caught.value) and why in str(caught.value)


def test_certificates_of_the_system_are_shown_as_ssl_shows_them(tmp_path):
    one = client()
    one.load_default_certs()
    for index, der in enumerate(one.get_ca_certs(binary_form=True)):
        path = tmp_path / f"{index}.pem"
        path.write_text(ssl.DER_cert_to_PEM_cert(der))
        theirs = ssl._ssl._test_decode_cert(str(path))
        assert dormouse._native.describe_certificate(der) == theirs
    assert index > 10


def test_a_certificate_is_replaced_by_one_with_a_key_of_its_kind(certs):
    one = server()
    one.load_cert_chain(certs.cert, certs.key)
    one.load_cert_chain(certs.other_cert, certs.other_key)
    one.load_cert_chain(certs.client_cert, certs.client_key)
    assert sorted(one._identities) == ["EC", "RSA"]


def test_groups():
    for name in ("X25519", "prime256v1", "secp384r1", b"X25519MLKEM768"):
        client().set_ecdh_curve(name)
    with pytest.raises(ValueError, match="x25519"):
        client().set_ecdh_curve("curve of yesterday")


def test_alpn_names():
    for wrong in ([""], ["x" * 256]):
        with pytest.raises(ssl.SSLError, match="1 to 255"):
            client().set_alpn_protocols(wrong)


def test_ciphers_are_told():
    names = {one["name"] for one in client().get_ciphers()}
    assert {"TLS_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"} <= names
    known = {one["name"] for one in ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).get_ciphers()}
    assert names <= known


def test_a_context_of_a_default_purpose(certs, monkeypatch, tmp_path):
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    one = dormouse.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert one.keylog_filename == str(log) and log.stat().st_mode & 0o777 == 0o600
    assert one.verify_mode == ssl.CERT_NONE
    monkeypatch.delenv("SSLKEYLOGFILE")
    assert dormouse.create_default_context().get_ca_certs(binary_form=True)
    with pytest.raises(ValueError):
        dormouse.create_default_context("purpose")


def test_it_is_documented():
    for name, member in vars(dormouse.SSLContext).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert member.__doc__, name


ENCRYPTED = {
    "PKCS #8": ["pkcs8", "-topk8", "-v2", "aes-256-cbc"],
    "PKCS #8 with AES-128": ["pkcs8", "-topk8", "-v2", "aes-128-cbc"],
    "PKCS #8 with AES-192 and SHA-1": ["pkcs8", "-topk8", "-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA1"],
    "PKCS #8 with SHA-384": ["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA384"],
    "PKCS #8 with SHA-512": ["pkcs8", "-topk8", "-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512"],
    "PKCS #8 with Triple DES": ["pkcs8", "-topk8", "-v2", "des3"],
    "PKCS #8 by PKCS #12": ["pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES"],
    "the older form of EC": ["ec", "-aes256"],
    "the older form of EC with Triple DES": ["ec", "-des3"],
    "the older form of EC with AES-128": ["ec", "-aes128"],
}


@pytest.mark.parametrize("form", ENCRYPTED)
def test_an_encrypted_key(certs, tmp_path, form):
    key = tmp_path / "key.pem"
    openssl(*ENCRYPTED[form], "-in", certs.key, "-out", str(key), "-passout", "pass:pässword")
    both = tmp_path / "both.pem"
    both.write_bytes(open(certs.cert, "rb").read() + key.read_bytes())
    for make in (server, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)):
        for password in ("pässword", "pässword".encode(), bytearray("pässword".encode()), lambda: "pässword"):
            make().load_cert_chain(certs.cert, key, password)
        make().load_cert_chain(both, password="pässword")
        # A key that is not encrypted needs no password, and takes one.
        make().load_cert_chain(certs.cert, certs.key, password="x")
        with pytest.raises(ssl.SSLError):
            make().load_cert_chain(certs.cert, key, "wrong")
        for wrong, error in ((1, TypeError), ("x" * 2000, ValueError)):
            with pytest.raises((error, ssl.SSLError)):
                make().load_cert_chain(certs.cert, key, wrong)
    with pytest.raises(dormouse.SettingsError):
        server().load_cert_chain(certs.cert, key)


def test_encryption_that_is_not_supported_names_the_remedy(certs, tmp_path):
    key = tmp_path / "key.pem"
    # A password that would have to be hashed for longer than a second is refused at once.
    for how in (["-scrypt"], ["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512", "-iter", "2000001"]):
        openssl("pkcs8", "-topk8", *how, "-in", certs.key, "-out", str(key), "-passout", "pass:x")
        with pytest.raises(dormouse.SettingsError, match="openssl pkcs8 -topk8") as caught:
            server().load_cert_chain(certs.cert, key, "x")
        assert os.fspath(key) in str(caught.value)
    openssl("pkcs8", "-topk8", "-in", certs.key, "-out", str(key), "-passout", "pass:x")
    lines = key.read_text().splitlines()
    key.write_text("\n".join([*lines[:2], lines[-1], ""]))
    with pytest.raises(dormouse.SettingsError, match="cannot be decrypted"):
        server().load_cert_chain(certs.cert, key, "x")
