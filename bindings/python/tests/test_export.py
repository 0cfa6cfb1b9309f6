"""Connections that continue in another process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from test_asyncio import Narrow, Recorder, connect, pair, receive

import dormouse
import dormouse.asyncio

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_connection_goes_on_elsewhere(run, server_context, client_context):
    server_context.set_alpn_protocols(["mouse"])
    client_context.set_alpn_protocols(["mouse"])

    async def main():
        server, client = await pair(server_context, client_context)
        cipher = server.transport.get_extra_info("cipher")
        server.transport.write(b"before")
        exported, sock = await server.transport.export()
        assert len(exported) < 160
        assert await server.lost is None
        with pytest.raises(dormouse.MisuseError):
            await server.transport.export()
        client.transport.write(b"meanwhile")
        transport, again = await dormouse.asyncio.restore(
            Recorder, exported, sock, ssl=server_context
        )
        assert again.events == ["made"]
        transport.write(b" after")
        while client.data != b"before after" or again.data != b"meanwhile":
            await asyncio.sleep(0.01)
        view = transport.get_extra_info("ssl_object")
        assert view.selected_alpn_protocol() == "mouse" and view.cipher() == cipher
        # And the client's side too.
        exported, sock = await client.transport.export()
        _, client = await dormouse.asyncio.restore(
            Recorder, exported, sock, ssl=client_context, server_hostname="localhost"
        )
        assert client.transport.get_extra_info("peercert")["subject"]
        client.transport.write(b" and on")
        while again.data != b"meanwhile and on":
            await asyncio.sleep(0.01)
        client.transport.close()
        assert await again.lost is None

    run(main())


def test_what_was_written_is_sent_before(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        client.transport.pause_reading()
        size = 20_000_000
        server.transport.write(b"d" * size)
        with pytest.raises(asyncio.TimeoutError):
            await server.transport.export(timeout_s=0.2)
        assert not server.transport.is_closing() and server.transport.is_reading()
        export = asyncio.ensure_future(server.transport.export(timeout_s=20))
        await asyncio.sleep(0.05)
        with pytest.raises(dormouse.MisuseError, match="exported"):
            server.transport.write(b"x")
        client.transport.resume_reading()
        exported, sock = await export
        transport, again = await dormouse.asyncio.restore(
            Recorder, exported, sock, ssl=server_context
        )
        transport.write(b"!")
        while len(client.data) < size + 1:
            await asyncio.sleep(0.01)
        assert client.data == b"d" * size + b"!"
        transport.close()
        await client.lost

    run(main())


def test_what_arrives_during_an_export_is_for_the_process_that_continues(run, server_context, client_context):
    async def main():
        server, client = await pair(
            server_context, client_context, client=lambda: Narrow(lambda full: full.transport.pause_reading())
        )
        server.transport.pause_reading()
        client.transport.pause_reading()
        size = 20_000_000
        client.transport.write(b"d" * size)
        export = asyncio.ensure_future(client.transport.export(timeout_s=20))
        await asyncio.sleep(0.05)
        client.transport.resume_reading()
        server.transport.write(bytes(range(25)))
        await asyncio.sleep(0.1)
        server.transport.resume_reading()
        exported, sock = await export
        _, again = await dormouse.asyncio.restore(
            Recorder, exported, sock, ssl=client_context, server_hostname="localhost"
        )
        while len(again.data) < 25 or len(server.data) < size:
            await asyncio.sleep(0.01)
        assert again.data == bytes(range(25)) and client.used == 0
        again.transport.close()
        await server.lost

    run(main())


def test_the_end_of_the_wait_for_tickets_does_not_disturb_an_export(run, server_context, client_context):
    server_context.num_tickets = 0

    async def main():
        server, client = await pair(server_context, client_context)
        server.transport.pause_reading()
        client.transport.write(b"d" * 20_000_000)
        export = asyncio.ensure_future(client.transport.export(timeout_s=5))
        while client.transport._flight.timer is not None:
            await asyncio.sleep(0.1)
        server.transport.resume_reading()
        _, sock = await export
        sock.close()
        await server.lost

    run(main())


def test_an_export_without_a_descriptor_changes_nothing(run, server_context, client_context, monkeypatch):
    def exhausted(_):
        raise OSError(errno.EMFILE, "Too many open files")

    async def main():
        server, client = await pair(server_context, client_context)
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", exhausted)
            with pytest.raises(OSError, match="Too many"):
                await server.transport.export()
        server.transport.write(b"still here")
        client.transport.write(b"too")
        while client.data != b"still here" or server.data != b"too":
            await asyncio.sleep(0.01)
        client.transport.close()
        await server.lost

    run(main())


def test_a_close_during_an_export(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        client.transport.pause_reading()
        server.transport.write(b"d" * 20_000_000)
        export = asyncio.ensure_future(server.transport.export(timeout_s=20))
        await asyncio.sleep(0.05)
        server.transport.close()
        client.transport.resume_reading()
        with pytest.raises(dormouse.MisuseError, match="was closed"):
            await export
        assert await client.lost is None and await server.lost is None
        assert len(client.data) == 20_000_000

    run(main())


def test_a_record_that_has_come_in_part_goes_along(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        sealed = client.transport._session.seal(b"in two parts")
        client.transport._below.write(sealed[:10])
        while server.transport._session.is_at_rest:
            await asyncio.sleep(0.01)
        exported, sock = await server.transport.export()
        _, again = await dormouse.asyncio.restore(Recorder, exported, sock, ssl=server_context)
        client.transport._below.write(sealed[10:])
        while again.data != b"in two parts":
            await asyncio.sleep(0.01)
        client.transport.close()
        await again.lost

    run(main())


def test_tls_inside_tls_is_not_exported(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        loop = asyncio.get_running_loop()
        inner_server, inner_client = await asyncio.gather(
            loop.start_tls(server.transport, server, server_context, server_side=True),
            loop.start_tls(client.transport, client, client_context, server_hostname="localhost"),
        )
        with pytest.raises(dormouse.MisuseError, match="inside TLS"):
            await inner_server.export()
        inner_client.write(b"deep")
        inner_client.close()
        assert await server.lost is None and server.data == b"deep"

    run(main())


def test_an_exception_while_a_connection_begins_again(run, server_context, client_context, monkeypatch):
    def fail(_, data):
        raise ZeroDivisionError

    async def main():
        server, client = await pair(server_context, client_context)
        exported, sock = await server.transport.export()
        with monkeypatch.context() as patch:
            patch.setattr(dormouse.asyncio.TLSTransport, "_receive", fail)
            made = []
            await dormouse.asyncio.restore(
                lambda: made.append(Recorder()) or made[0], exported, sock, ssl=server_context
            )
            assert isinstance(await asyncio.wait_for(made[0].lost, 5), ZeroDivisionError)
        await client.lost

    reports = []
    run(main(), reports)
    assert [type(one["exception"]) for one in reports] == [ZeroDivisionError]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def line_of(client: ssl.SSLSocket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += receive(client, 1)
    return line


def test_a_server_restarts_under_load_and_loses_nothing(certs, stdlib_client):
    """`examples/restart.py` replaces itself on SIGHUP, while clients count."""
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "restart.py"), str(port), certs.cert, certs.key]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert "ready" in server.stdout.readline()
    process = server.pid
    try:
        # It reads no answer, so it cannot be passed on. The others can.
        deaf = connect(port, stdlib_client)
        deaf.sendall((b"d" * 999 + b"\n") * 8_000)
        clients = [connect(port, stdlib_client) for _ in range(20)]
        processes = {process}
        for restart in range(4):
            # Each round asks before, while and after the server restarts.
            for number, client in enumerate(clients):
                client.sendall(b"%d/%d\n" % (restart, number))
                if number == len(clients) // 2 and restart:
                    os.kill(process, signal.SIGHUP)
            if restart:
                assert "ready" in server.stdout.readline()
            for number, client in enumerate(clients):
                line = line_of(client)
                assert line.endswith(b" %d %d/%d\n" % (2 * restart + 1, restart, number))
            for client in clients:
                client.sendall(b"who\n")
            answers = {line_of(client).split(b" ")[0] for client in clients}
            assert len(answers) == 1, "one process serves all connections"
            process = int(answers.pop())
            processes.add(process)
        assert len(processes) == 4, "it has restarted three times"
        newcomer = connect(port, stdlib_client)
        newcomer.sendall(b"new\n")
        assert newcomer.recv(100).endswith(b" 1 new\n")
        for client in [*clients, newcomer, deaf]:
            client.close()
    finally:
        os.kill(process, signal.SIGTERM)
        server.wait(20)


def test_a_line_without_an_end_does_not_break_a_restart(certs, stdlib_client):
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "restart.py"), str(port), certs.cert, certs.key]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert "ready" in server.stdout.readline()
    process = server.pid
    try:
        endless, other = connect(port, stdlib_client), connect(port, stdlib_client)
        endless.sendall(b"\xff" * 40_000)
        other.sendall(b"before\n")
        assert line_of(other) == b"%d 1 before\n" % process
        os.kill(process, signal.SIGHUP)
        assert "ready" in server.stdout.readline()
        assert server.wait(20) == 0
        other.sendall(b"after\n")
        process, rest = line_of(other).split(b" ", 1)
        process = int(process)
        assert process != server.pid and rest == b"2 after\n"
        assert endless.recv(1) == b""
        other.close()
        endless.close()
    finally:
        os.kill(process, signal.SIGTERM)
        server.wait(20)
