"""The README's first example, as a reader copies it."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_the_first_example(tmp_path, certs):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.S)[1]
    shutil.copy(certs.cert, tmp_path / "cert.pem")
    shutil.copy(certs.key, tmp_path / "key.pem")
    (tmp_path / "server.py").write_text(example.replace("8443", str(port)))
    server = subprocess.Popen([sys.executable, "server.py"], cwd=tmp_path)
    try:
        curl = ["curl", "-sS", "--retry", "20", "--retry-delay", "1", "--retry-connrefused"]
        url = f"https://localhost:{port}/"
        done = subprocess.run([*curl, "--cacert", certs.ca, url], capture_output=True, text=True)
        assert done.stdout == "hello\n", done.stderr
    finally:
        server.kill()
        server.wait()
