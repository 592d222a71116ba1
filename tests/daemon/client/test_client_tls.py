"""Clients with TLS, against the real daemon, and peers that speak it badly or not at all."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import pubsubd.client.line
import pubsubd.client.reconnect
import pubsubd.client.secure
from pubsubd.client import (
    ConnectError,
    DisconnectedError,
    HubMessage,
    Message,
    Tls,
    TlsError,
    open_client,
    open_hub_client,
)
from pubsubd.protocol.errors import ConfigError
from pubsubd.settings.config import Config, TlsFiles
from tests.certificates import Certificates, Pair
from tests.daemons import DEADLINE
from tests.running import Ports, run_until_stopped, running

ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # of a server that takes plain text for bad TLS
REQUIRED = b"tls-required this port speaks TLS"
HTTP_REQUIRED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 33\r\nConnection: close\r\n\r\n"
    b'{"error":"tls-required: use TLS"}'
)


def config(
    pair: Pair | None, *, clients: Certificates | None = None, port: int = 0, hub_port: int = 0
) -> Config:
    """Return the settings of a daemon with a certificate, which wants some of its ``clients``."""
    files = None
    if pair is not None:
        ca = None if clients is None else str(clients.ca)
        files = TlsFiles(str(pair.certificate), str(pair.key), ca, ca is not None)
    return Config(port=port, hub_port=hub_port, tls=files)


def serving(pair: Pair | None, **more: Any) -> AbstractAsyncContextManager[Ports]:
    return running(config(pair, **more))


@pytest.fixture
def pair(certificates: Certificates) -> Pair:
    return Pair(certificates.server_certificate, certificates.server_key)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect again without waiting."""
    monkeypatch.setattr(pubsubd.client.reconnect, "BACKOFF_MAX", 0.0)


async def open_both(ports: Ports, **more: Any) -> list[BaseException]:
    """Open a client of each kind, and return why they cannot be used."""
    raised: list[BaseException] = []
    for open_one, port in ((open_client, ports["line"]), (open_hub_client, ports["hub"])):
        with trio.fail_after(DEADLINE):
            try:
                async with open_one(**({"port": port} | more)) as client:
                    await client.flush()
            except (ConnectError, DisconnectedError) as exc:
                raised.append(exc)
    return raised


async def refusal(ports: Ports, **more: Any) -> str:
    """Return the one reason for which neither client gets TLS."""
    raised = await open_both(ports, **more)
    assert [type(exc) for exc in raised] == [TlsError, TlsError], raised
    reasons = {exc.reason for exc in raised if isinstance(exc, TlsError)}
    assert len(reasons) == 1, reasons
    return reasons.pop()


# Talking


async def test_messages_of_all_sizes_come_through_tls(
    certificates: Certificates, pair: Pair
) -> None:
    sent = [b"%d " % number + b"x" * (number * 37 % 50_000) for number in range(300)]
    sent += [b"y" * 1024 * 1024, b"", b"z"]
    heard: list[Message] = []
    tls = Tls(ca=certificates.ca)
    async with (
        serving(pair) as ports,
        open_client(port=ports["line"], tls=tls) as ann,
        open_client("localhost", ports["line"], tls=tls) as bob,
        trio.open_nursery() as nursery,
    ):

        async def publish() -> None:
            for data in sent:
                await bob.publish("n", data)

        await ann.subscribe("n")
        nursery.start_soon(publish)
        while len(heard) < len(sent):
            heard += await ann.receive()
    assert [message.data for message in heard] == sent


async def test_the_hub_port_is_spoken_through_tls(certificates: Certificates, pair: Pair) -> None:
    tls = Tls(ca=certificates.ca)
    async with (
        serving(pair) as ports,
        open_client(port=ports["line"], tls=tls) as line,
        open_hub_client(port=ports["hub"], tls=tls) as hub,
    ):
        await line.subscribe("chat/")
        await hub.subscribe("chat/#")
        assert await hub.publish("chat/x", "t", {"text": "x" * 100_000}) == 2
        assert (await anext(line)).name == "chat/x"
        message = await anext(hub)
        assert isinstance(message, HubMessage)
        assert message.data == {"text": "x" * 100_000}


async def test_a_context_is_used_as_it_is(certificates: Certificates, pair: Pair) -> None:
    async with serving(pair) as ports:
        assert await open_both(ports, tls=certificates.client_context()) == []
        assert "issuer" in await refusal(ports, tls=ssl.create_default_context())


async def test_true_trusts_what_the_system_trusts(
    certificates: Certificates, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
    async with serving(pair) as ports:
        assert await open_both(ports, tls=True) == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.other_ca))
        assert await refusal(ports, tls=True) == (
            "its certificate is not to be trusted: unable to get local issuer certificate"
        )


def test_nothing_older_than_tls_1_2_is_spoken(certificates: Certificates) -> None:
    for tls in (Tls(), Tls(certificates.ca)):
        context = tls.context()
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED


async def test_tls_1_2_is_spoken(certificates: Certificates, pair: Pair) -> None:
    context = certificates.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(pair) as ports:
        assert await open_both(ports, tls=context) == []


async def test_a_program_that_leaves_says_so(certificates: Certificates) -> None:
    """So the other end knows that it has heard everything."""
    ends: list[bytes] = []
    ended = trio.Event()

    async def serve(raw: trio.SocketStream) -> None:
        context = certificates.server_context()
        stream = trio.SSLStream(raw, context, server_side=True)
        # This raises at an end that was not announced.
        while data := await stream.receive_some():
            await stream.send_all(data)
        ends.append(data)
        ended.set()

    async with peer(serve) as connect:
        async with open_client(connect=connect, tls=Tls(certificates.ca)) as client:
            await client.flush()
        await ended.wait()
    assert ends == [b""]


async def test_an_end_without_a_word_is_a_broken_connection(certificates: Certificates) -> None:
    async def serve(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, certificates.server_context(), server_side=True)
        await stream.send_all(await stream.receive_some())
        await stream.receive_some()
        await raw.aclose()

    async with peer(serve) as connect:
        with pytest.raises(DisconnectedError, match=r"it was cut off|closed the connection"):
            async with open_client(
                connect=connect, tls=Tls(certificates.ca), reconnect=False
            ) as client:
                await client.flush()


@asynccontextmanager
async def peer(
    serve: Callable[[trio.SocketStream], Awaitable[None]],
) -> AsyncIterator[Callable[[], Awaitable[trio.abc.Stream]]]:
    """Serve connections in one's own way; yields how to make one."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]

        async def connect() -> trio.abc.Stream:
            return await trio.open_tcp_stream("127.0.0.1", port)

        yield connect
        nursery.cancel_scope.cancel()


# Whom not to trust


async def test_certificates_that_are_not_good_are_told(certificates: Certificates) -> None:
    tls = Tls(certificates.ca)
    for pair, reason in (
        (certificates.expired_server(), "certificate has expired"),
        (certificates.strange_server(), "unable to get local issuer certificate"),
        (
            certificates.server("example.org"),
            "ip address mismatch, certificate is not valid for '127.0.0.1'",
        ),
    ):
        async with serving(pair) as ports:
            told = await refusal(ports, tls=tls)
            assert told == f"its certificate is not to be trusted: {reason}"
            told = str((await open_both(ports, tls=tls))[0])
            assert told.startswith(f"cannot connect to 127.0.0.1:{ports['line']}: its certificate")


async def test_another_name_may_be_expected_than_the_host(certificates: Certificates) -> None:
    tls = Tls(certificates.ca, server_name="example.org")
    async with serving(certificates.server("example.org")) as ports:
        assert await open_both(ports, tls=tls) == []
        assert "hostname mismatch" in await refusal(
            ports, tls=Tls(certificates.ca, server_name="example.com")
        )


async def test_a_plain_server_is_told(certificates: Certificates) -> None:
    async with serving(None) as ports:
        assert await refusal(ports, tls=Tls(certificates.ca)) == "it does not speak TLS"


async def test_a_server_that_never_answers_is_given_up(
    certificates: Certificates, autojump_clock: trio.testing.MockClock
) -> None:
    async def connect() -> trio.abc.Stream:
        mute, _ = trio.testing.memory_stream_pair()
        return mute

    for open_one in (open_client, open_hub_client):
        with pytest.raises(ConnectError, match="no answer in 10 s") as caught:
            async with open_one(connect=connect, tls=Tls(certificates.ca)):
                raise AssertionError
        assert not isinstance(caught.value, TlsError)
    assert trio.current_time() == 20  # for both


# What servers do not take


async def test_a_certificate_says_who_a_client_is(certificates: Certificates, pair: Pair) -> None:
    async with serving(pair, clients=certificates) as ports:
        alice = Tls(certificates.ca, *certificates.client("alice"))
        assert await open_both(ports, tls=alice) == []
        assert await open_both(ports, tls=certificates.client_context(alice_pair(alice))) == []


def alice_pair(tls: Tls) -> Pair:
    assert tls.certificate is not None
    assert tls.key is not None
    return Pair(tls.certificate, tls.key)  # type: ignore[arg-type]


async def test_a_certificate_that_the_server_refuses_is_told_at_once(
    certificates: Certificates, pair: Pair
) -> None:
    """Though TLS 1.3 tells clients that all is well before the server has looked at it."""
    ca = certificates.ca
    async with serving(pair, clients=certificates) as ports:
        assert await refusal(ports, tls=Tls(ca)) == "it wants a certificate from us"
        for shown, reason in (
            (certificates.strange_client("alice"), "unknown ca"),
            (certificates.expired_client("alice"), "certificate expired"),
        ):
            told = await refusal(ports, tls=Tls(ca, *shown))
            assert told.startswith("it refuses our certificate: ")
            assert reason in told


async def test_a_server_that_speaks_tls_is_told_to_who_does_not(pair: Pair) -> None:
    async with serving(pair) as ports:
        assert await refusal(ports) == "it speaks TLS, and we do not"


@pytest.mark.parametrize(
    ("open_one", "answer"),
    [
        (open_client, ALERT),
        (open_hub_client, ALERT),
        (open_client, b"pub //pubsubd/error %d %b\n" % (len(REQUIRED), REQUIRED)),
        (open_hub_client, HTTP_REQUIRED),
    ],
)
async def test_it_ends_a_client_that_would_connect_again(open_one: Any, answer: bytes) -> None:
    attempts = 0

    async def connect() -> trio.abc.Stream:
        nonlocal attempts
        attempts += 1
        ours, theirs = trio.testing.memory_stream_pair()
        await ours.send_all(answer)
        await ours.send_eof()
        return theirs

    with pytest.raises(TlsError, match="it speaks TLS, and we do not"):
        async with open_one(connect=connect) as client:
            await client.flush()
    assert attempts == 1


# Files


async def test_files_that_cannot_be_used_are_told_before_anything_is_sent(
    certificates: Certificates, pair: Pair, tmp_path: Any
) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("no certificate\n")
    ca = certificates.ca
    alice, bob = certificates.client("alice"), certificates.client("bob")
    for tls, reason in (
        (Tls("/nonexistent/ca"), "cannot read /nonexistent/ca"),
        (Tls(nonsense), f"the authorities in {nonsense}"),
        (Tls(ca, "/nonexistent/mine", alice.key), "cannot read /nonexistent/mine"),
        (Tls(ca, nonsense), f"the certificate {nonsense}"),
        (Tls(ca, alice.certificate, bob.key), "key values mismatch"),
        (Tls(ca, key=alice.key), "a key is of no use without its certificate"),
    ):
        for open_one in (open_client, open_hub_client):
            with pytest.raises(ConfigError, match=reason):
                async with open_one(port=1, tls=tls):
                    raise AssertionError


async def test_an_encrypted_key_is_not_asked_about(
    certificates: Certificates, tmp_path: Any
) -> None:
    """OpenSSL would do so, on the terminal, and wait."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    alice = certificates.client("alice")
    key = load_pem_private_key(alice.key.read_bytes(), None)
    path = tmp_path / "key"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(ConfigError, match="the key is encrypted"):
        Tls(certificates.ca, alice.certificate, path).context()


async def test_a_unix_socket_needs_no_tls() -> None:
    with pytest.raises(ValueError, match="TLS is for TCP"):
        async with open_client(unix="/nonexistent", tls=True):
            raise AssertionError


# Reconnecting


async def test_a_connection_is_renewed_with_the_files_as_they_are_then(
    certificates: Certificates, pair: Pair, tmp_path: Any, at_once: None
) -> None:
    ca = tmp_path / "ca"
    ca.write_bytes(certificates.ca.read_bytes())
    renewed = trio.Event()
    async with trio.open_nursery() as nursery:
        async with serving(pair) as ports:
            client = await nursery.start(keep_open, ports["line"], Tls(ca), renewed)
            await client.subscribe("n")
            ca.write_bytes(certificates.other_ca.read_bytes())
        async with serving(certificates.strange_server(), port=ports["line"]):
            with trio.fail_after(DEADLINE):
                await renewed.wait()
            await client.publish("n", b"x")
            assert await anext(client) == Message("n", b"x")
            nursery.cancel_scope.cancel()


async def test_a_file_that_is_being_written_is_no_reason_to_give_up(
    certificates: Certificates, pair: Pair, tmp_path: Any, at_once: None
) -> None:
    ca = tmp_path / "ca"
    ca.write_bytes(certificates.ca.read_bytes())
    renewed = trio.Event()
    async with trio.open_nursery() as nursery:
        async with serving(pair) as ports:
            client = await nursery.start(keep_open, ports["line"], Tls(ca), renewed)
            ca.write_bytes(b"")
        async with serving(pair, port=ports["line"]):
            with trio.fail_after(DEADLINE):
                await renewed.wait()
            await client.flush()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["line", "hub"])
async def test_a_certificate_that_is_not_good_any_more_ends_a_client(
    kind: str, certificates: Certificates, pair: Pair, at_once: None
) -> None:
    tls = Tls(certificates.ca)
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:
        ports, stop = await nursery.start(run_until_stopped, config(pair))
        port = ports[kind]
        open_one: Any = open_client if kind == "line" else open_hub_client
        with pytest.raises(TlsError, match="not to be trusted"):  # noqa: PT012
            async with open_one(port=port, tls=tls, on_disconnect=reasons.append) as client:
                await client.subscribe("n")
                await stop()
                where = {"port" if kind == "line" else "hub_port": port}
                _, stop = await nursery.start(
                    run_until_stopped, config(certificates.expired_server(), **where)
                )
                with trio.fail_after(DEADLINE):
                    while True:
                        await anext(client)
        await stop()
    assert len(reasons) == 1


async def keep_open(
    port: int,
    tls: Tls,
    renewed: trio.Event,
    *,
    task_status: trio.TaskStatus[pubsubd.client.line.Client],
) -> None:
    async with open_client(port=port, tls=tls, on_connect=renewed.set) as client:
        task_status.started(client)
        await trio.sleep_forever()
