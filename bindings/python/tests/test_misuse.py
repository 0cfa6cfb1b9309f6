"""Bad input and misuse: an error that says what is wrong, never a crash."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from conftest import port_of
from test_asyncio import Recorder, by_hand, first_of, pair

import dormouse
from dormouse import _native


def sessions(server_context, client_context):
    """Two sessions at rest, without an event loop."""
    client = _native.Session.connect(client_context.native_client(), "localhost")
    server = _native.Session.accept(server_context.native_server())
    client.receive(b"")
    for _ in range(3):
        server.receive(client.take_output())
        client.receive(server.take_output())
    assert client.is_at_rest and server.is_at_rest
    return server, client


def test_sessions_by_hand(server_context, client_context):
    server, client = sessions(server_context, client_context)
    assert server.receive(client.seal(b"hello")) == (b"hello", 0)
    assert server.receive(client.update_keys() + client.seal(b"again"))[0] == b"again"
    assert client.receive(server.seal(b"answer"))[0] == b"answer"
    assert server.receive(client.close()) == (b"", _native.ENDED)
    assert server.end[0] == "closed"
    client.receive(server.abort(80))
    assert client.end[0] == "alert" and client.end[2] == 80


def test_calls_in_a_wrong_state(server_context, client_context):
    handshaking = _native.Session.accept(server_context.native_server())
    for call in (
        lambda: handshaking.seal(b"x"),
        lambda: handshaking.close(),
        lambda: handshaking.export(),
        lambda: handshaking.decide(server_context.native_server()),
        lambda: handshaking.refuse(40),
    ):
        with pytest.raises(dormouse.MisuseError):
            call()
    server, client = sessions(server_context, client_context)
    client.close()
    with pytest.raises(dormouse.MisuseError):
        client.seal(b"x")
    server.export()
    for call in (lambda: server.seal(b"x"), lambda: server.export()):
        with pytest.raises(dormouse.MisuseError):
            call()
    # close_notify, user_canceled and no_renegotiation are no errors.
    for code in (0, 90, 100, 255):
        for call in (client.abort, handshaking.refuse):
            with pytest.raises(ValueError, match=f"^{code} is not an error alert"):
                call(code)
    with pytest.raises(dormouse.SettingsError, match="not a name"):
        _native.Session.connect(client_context.native_client(), "not a name")
    for wrong in (None, "text", 7):
        with pytest.raises(TypeError):
            client.receive(wrong)


def test_bytes_that_are_no_exported_connection(server_context, client_context):
    server, _ = sessions(server_context, client_context)
    exported = server.export()
    assert len(exported) < 150
    for wrong, why in (
        (b"", "0 bytes"),
        (b"\x02" + exported[1:], "version 2; this package reads version 1"),
        (exported[:-1], "exported connection: "),
        (exported + b"\0", "exported connection: "),
        (exported[:4], "4 bytes"),
        (exported[:3] + b"\xff" + exported[4:], "not"),
        (exported[:-128] + bytes(128), "exported connection: "),
        (exported[:-128] + os.urandom(128), "exported connection: "),
    ):
        with pytest.raises(ValueError, match=why):
            _native.Session.restore(wrong)
    _native.Session.restore(exported)


def test_garbage_ends_a_connection_and_nothing_else(server_context, client_context):
    for length in (1, 5, 100, 70_000):
        server, _ = sessions(server_context, client_context)
        server.receive(b"\x17\x03\x03\x00\x20" + os.urandom(length))
        handshaking = _native.Session.accept(server_context.native_server())
        handshaking.receive(os.urandom(length))
    server, client = sessions(server_context, client_context)
    forged = bytearray(client.seal(b"hello"))
    forged[-1] ^= 1
    assert server.receive(bytes(forged)) == (b"", _native.ENDED | _native.OUTPUT)
    assert server.end[0] == "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"


def test_after_the_end(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        transport = client.transport
        transport.close()
        transport.close()
        transport.abort()
        await client.lost
        transport.write(b"x")
        transport.write_eof()
        transport.close()
        transport.abort()
        transport.pause_reading()
        transport.resume_reading()
        assert transport.is_closing() and not transport.is_reading()
        assert transport.get_extra_info("ssl_object") is None
        assert transport.get_extra_info("sslcontext") is client_context
        assert "closed" in repr(transport)
        with pytest.raises(dormouse.MisuseError):
            await transport.export()
        await server.lost

    run(main())


def test_another_thread(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        loop = asyncio.get_running_loop()
        transport = client.transport
        for call in (lambda: transport.write(b"x"), transport.write_eof, transport.close):
            with pytest.raises(dormouse.WrongThreadError, match="call_soon_threadsafe"):
                await loop.run_in_executor(None, call)
        client.transport.write(b"still alive")
        while server.data != b"still alive":
            await asyncio.sleep(0.01)
        client.transport.close()
        await server.lost

    run(main())


@pytest.mark.parametrize("first", ["write", "close", "write_eof", "export", "eof", "tickets"])
def test_a_loop_may_move_to_another_thread(server_context, client_context, first):
    # Without tickets the client waits for them until a timer ends.
    server_context.num_tickets = 0
    loop = dormouse.asyncio.new_event_loop()
    server, client = loop.run_until_complete(pair(server_context, client_context))

    async def use():
        if first == "export":
            _, sock = await client.transport.export()
            sock.close()
        elif first == "eof":
            client.transport._below.write_eof()
        if first in ("export", "eof"):
            assert isinstance(await server.lost, dormouse.SSLEOFError)
            return
        if first == "tickets":
            while client.transport._flight is not None:
                await asyncio.sleep(0.05)
        elif first == "write_eof":
            client.transport.write_eof()
        elif first == "write":
            client.transport.write(b"from elsewhere")
            while server.data != b"from elsewhere":
                await asyncio.sleep(0.01)
        client.transport.close()
        assert await server.lost is None

    errors = []

    def go_on():
        try:
            loop.run_until_complete(asyncio.wait_for(use(), 20))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    thread.join()
    loop.close()
    assert not errors


def test_a_child_can_not_use_the_connections_of_its_parent(server_context, client_context):
    server, client = sessions(server_context, client_context)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = "no error"
        try:
            client.seal(b"by the child")
        except dormouse.MisuseError as error:
            told = str(error)
            # A connection of its own works.
            one, other = sessions(server_context, client_context)
            told += str(one.receive(other.seal(b"own"))[0])
        finally:
            os.write(writer, told.encode())
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 1_000).decode()
    os.waitpid(child, 0)
    os.close(reader)
    assert "belongs to the parent process" in told and told.endswith("b'own'"), told
    assert server.receive(client.seal(b"by the parent"))[0] == b"by the parent"


@pytest.mark.parametrize("at", ["connection_made", "data_received", "eof_received"])
def test_exceptions_of_a_protocol(run, server_context, client_context, at):
    class Failing(Recorder):
        pass

    def fail(self, *args):
        raise ZeroDivisionError(at)

    setattr(Failing, at, fail)

    async def main():
        made = []

        def factory():
            made.append(Failing())
            return made[0]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context)
        transport, client = await loop.create_connection(
            Recorder,
            "127.0.0.1",
            server.sockets[0].getsockname()[1],
            ssl=client_context,
            server_hostname="localhost",
        )
        transport.write(b"x")
        if at == "eof_received":
            transport.write_eof()
        await client.lost
        lost = await asyncio.wait_for(made[0].lost, 10)
        assert isinstance(lost, ZeroDivisionError)
        server.close()

    reports = []
    run(main(), reports)
    assert [type(one["exception"]) for one in reports] == [ZeroDivisionError]


def test_an_exception_while_held_data_is_delivered(run, server_context, client_context):
    class Failing(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

        def data_received(self, data):
            raise ZeroDivisionError

    async def main():
        made = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: made.append(Failing()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        # The data arrives together with the end of the handshake.
        below, session = await by_hand(port_of(server), client_context)
        below.transport.write(session.take_output() + session.seal(b"first") + session.seal(b"second"))
        protocol = await first_of(made)
        protocol.transport.resume_reading()
        assert isinstance(await asyncio.wait_for(protocol.lost, 10), ZeroDivisionError)
        await below.lost
        server.close()

    reports = []
    run(main(), reports)
    assert [type(one["exception"]) for one in reports] == [ZeroDivisionError]


def test_calls_out_of_callbacks(run, server_context, client_context):
    class Reentrant(Recorder):
        def connection_made(self, transport):
            transport.write(b"at once")
            transport.pause_reading()
            transport.resume_reading()
            super().connection_made(transport)

        def data_received(self, data):
            super().data_received(data)
            self.transport.write(b"in data_received")
            self.transport.close()
            self.transport.write(b"not sent")

    async def main():
        server, client = await pair(server_context, client_context, client=Reentrant)
        server.transport.write(b"x")
        assert await client.lost is None
        assert await server.lost is None
        assert server.data == b"at oncein data_received"

    run(main())


def test_memory_of_an_object():
    # A quiet connection is these two objects. Raise the bounds only for a reason.
    assert dormouse.asyncio.TLSTransport.__basicsize__ <= 88
    assert _native.Session.__basicsize__ <= 224
