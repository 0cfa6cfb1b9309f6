"""The tests of TLS that libraries publish, with this package's contexts, each suite in a pytest of its own.

`suites.tsv` names the cases that cannot pass, with reasons.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Mapping, NamedTuple

import pytest

from suites import impossible

HERE = Path(__file__).resolve().parent
# Source archives of the projects whose packages have no tests.
ARCHIVES = HERE.parents[1] / "target" / "archives"


class Suite(NamedTuple):
    name: str  # of the project, on PyPI and in suites.tsv
    tests: str  # a module of the package or of this folder, or a file of the source archive
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    only: str = ""  # of pytest's -k
    environment: Mapping[str, str] = {}


OUR_LOOP = {"LOOP_OF_DORMOUSE": "1"}
AIOHTTP = ("aiohttp", "pytest_mock", "trustme", "proxy", "freezegun")
AUTOBAHN = ("pytest_asyncio", "cryptography", "nacl")
# Its plugin runs the tests.
NO_ASYNCIO = ("-p", "no:asyncio")

SUITES = [
    Suite("trio", "trio._tests.test_ssl", ("trustme", "OpenSSL"), ("-p", "trio._tests.pytest_plugin", "--run-slow")),
    Suite("aiosmtpd", "aiosmtpd.tests.test_starttls", ("pytest_mock",)),
    Suite("aiosmtpd", "aiosmtpd.tests.test_smtps", ("pytest_mock",)),
    Suite("twisted", "twisted_own", ("hamcrest", "service_identity")),
    Suite("anyio", "tests/streams/test_tls.py", ("trustme", "psutil"), ("-o", "anyio_mode=auto")),
    Suite("httpcore", "tests/_async/test_integration.py", ("pytest_httpbin", "trio")),
    Suite("httpx", "tests/test_config.py", ("trustme", "trio")),
    *[
        Suite("autobahn", "src/autobahn/asyncio/test/test_aio_tls.py", AUTOBAHN, environment={"USE_ASYNCIO": "1", **loop})
        for loop in ({}, OUR_LOOP)
    ],
    *[
        Suite("aiohttp", f"tests/{file}.py", AIOHTTP, NO_ASYNCIO, "ssl or tls or fingerprint or secure", environment)
        for file in ("test_client_functional", "test_connector", "test_proxy_functional", "test_web_sendfile_functional")
        for environment in ({}, OUR_LOOP)
    ],
]


def archive(project: str) -> Path:
    """Download the source archive of the installed version, once."""
    wanted = f"{project}-{importlib.metadata.version(project)}"
    if not (ARCHIVES / wanted).is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", project]
        got = subprocess.run([*pip, "--dest", str(ARCHIVES), wanted.replace("-", "==")], check=False)
        if got.returncode != 0:
            pytest.skip(f"pip cannot download the source archive of {project}")
        with tarfile.open(ARCHIVES / f"{wanted}.tar.gz") as packed:
            packed.extractall(ARCHIVES, filter="data")
    return ARCHIVES / wanted


def has_our_loop(suite: Suite) -> bool:
    return OUR_LOOP.items() <= suite.environment.items()


def name_of(suite: Suite) -> str:
    return f"{suite.name}-{suite.tests}{'-our-loop' * has_our_loop(suite)}"


@pytest.mark.parametrize("suite", SUITES, ids=name_of)
def test_their_own(suite, tmp_path):
    for module in (suite.name, *suite.needs):
        pytest.importorskip(module)
    tests = [str(archive(suite.name) / suite.tests)] if "/" in suite.tests else ["--pyargs", suite.tests]
    # Not the settings of their checkouts, which need more plugins.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    cases = impossible(suite.name)
    if has_our_loop(suite):
        cases.update(impossible(f"{suite.name} in our loop"))
    but = [f"not ({' or '.join(cases)})"] if cases else []
    chosen = " and ".join([*([f"({suite.only})"] if suite.only else []), *but])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "in_place_of_ssl", "-p", "no:cacheprovider", "--tb=native", *suite.options]
        + ["-c", str(tmp_path / "pytest.ini"), "-k", chosen, *tests],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", ""))),
            **suite.environment,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr
    print(run.stdout.splitlines()[-1])
