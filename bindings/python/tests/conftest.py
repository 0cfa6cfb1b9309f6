"""Certificates, event loops and peers for all tests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import pytest

import dormouse
import dormouse.asyncio

TIMEOUT_S = 30


class Certificates(NamedTuple):
    """Files of an authority, and of certificates for `localhost` that it has signed."""

    ca: str
    cert: str
    key: str
    other_cert: str  # for other.test
    other_key: str
    client_cert: str
    client_key: str
    stranger: str  # an authority that has signed nothing here
    expired_cert: str
    expired_key: str
    inter: str  # an authority that the first has signed
    below_cert: str  # for localhost, signed by it
    below_key: str


def openssl(*args: str) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def signed(folder: Path, name: str, alternative: str, *, kind: str = "ec", by: str = "ca", ca: bool = False) -> None:
    """Make a key and a certificate for it, signed by an authority; `ca`: another authority."""
    how = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"], "rsa": ["rsa:2048"]}[kind]
    key, request, cert = (str(folder / f"{name}.{end}") for end in ("key", "csr", "pem"))
    openssl("req", "-newkey", *how, "-nodes", "-keyout", key, "-out", request, "-subj", f"/O=Dormouse/CN={name}")
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"basicConstraints=CA:{str(ca).upper()}\nsubjectAltName={alternative}\n")
    authority = ["-CA", str(folder / f"{by}.pem"), "-CAkey", str(folder / f"{by}.key"), "-CAcreateserial"]
    openssl("x509", "-req", "-in", request, *authority, "-out", cert, "-days", "30", "-extfile", str(extensions))


def expired(folder: Path) -> None:
    """Make an expired certificate; only `openssl ca` takes a date."""
    signed(folder, "expired", "DNS:localhost")
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("77\n")
    config = folder / "ca.conf"
    config.write_text(
        f"[ca]\ndefault_ca=it\n[it]\ndatabase={folder}/index.txt\nserial={folder}/serial\nnew_certs_dir={folder}\n"
        f"certificate={folder}/ca.pem\nprivate_key={folder}/ca.key\ndefault_md=sha256\npolicy=any\n"
        "[any]\norganizationName=optional\ncommonName=supplied\n"
    )
    openssl(
        *("ca", "-batch", "-config", str(config), "-in", str(folder / "expired.csr"), "-notext"),
        *("-out", str(folder / "expired.pem"), "-startdate", "20200101000000Z", "-enddate", "20210101000000Z"),
        *("-extfile", str(folder / "expired.ext")),
    )


@pytest.fixture(scope="session")
def certs(tmp_path_factory: Any) -> Certificates:
    folder = tmp_path_factory.mktemp("certs")
    for name in ("ca", "stranger"):
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
            *("-subj", f"/CN=Test {name}", "-days", "30", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
    local = "DNS:localhost,DNS:*.local.test,IP:127.0.0.1,IP:::1,email:a@local.test,URI:https://local.test/"
    signed(folder, "local", local)
    signed(folder, "other", "DNS:other.test")
    signed(folder, "client", "email:mouse@local.test", kind="rsa")
    signed(folder, "inter", "DNS:inter.test", ca=True)
    signed(folder, "below", "DNS:localhost", by="inter")
    expired(folder)
    files = ("ca.pem", "local.pem", "local.key", "other.pem", "other.key", "client.pem", "client.key")
    files += ("stranger.pem", "expired.pem", "expired.key", "inter.pem", "below.pem", "below.key")
    return Certificates(*(str(folder / name) for name in files))


LOOPS = ["asyncio", "uvloop"]


def loop_factory(name: str) -> Callable[[], Any]:
    if name == "uvloop":
        pytest.importorskip("uvloop")
        return importlib.import_module("dormouse.uvloop").new_event_loop
    return dormouse.asyncio.new_event_loop


@pytest.fixture(params=LOOPS)
def run(request: Any) -> Callable[..., Any]:
    """Run a coroutine in each kind of loop, for a bounded time. Errors that the loop reports fail the test."""
    factory = loop_factory(request.param)

    def run_bounded(main: Any, reports: Any = None) -> Any:
        seen: list[Any] = []

        async def bounded() -> Any:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: seen.append(context))
            return await asyncio.wait_for(main, TIMEOUT_S)

        result = dormouse.asyncio.run_with(factory, bounded(), None)
        if reports is None:
            assert not seen, seen
        else:
            reports.extend(seen)
        return result

    return run_bounded


@pytest.fixture
def server_context(certs: Certificates) -> dormouse.SSLContext:
    context = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    return context


@pytest.fixture
def client_context(certs: Certificates) -> dormouse.SSLContext:
    return dormouse.create_default_context(cafile=certs.ca)


@pytest.fixture
def stdlib_server(certs: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    return context


@pytest.fixture
def stdlib_client(certs: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certs.ca)


@contextlib.contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run `work` beside the body. Its result is the list's one element afterwards; its error is raised."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield results
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), "the thread hangs"
    if errors:
        raise errors[0]


async def beside(work: Callable[[], Any]) -> Any:
    """Run blocking work in another thread, and wait for it."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


def port_of(server: Any) -> int:
    return server.sockets[0].getsockname()[1]
