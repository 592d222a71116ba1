"""TLS: what is said over it, who is let in by a certificate, and what must not hold anybody up."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import pytest
import trio

from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.limits import KIB, MIB, READ_SIZE, Limits
from pubsubd.transport.connection import open_connection
from pubsubd.transport.line import LineProtocol
from pubsubd.transport.server import Server
from pubsubd.transport.tls import TlsSocket, client_context, server_context
from pubsubd.transport.trust import Context, Handshake, end_watch
from tests.certificates import Certificates, Pair
from tests.daemons import Daemon, Line, error_codes, frame, program, tool, wait_until

Start = Callable[..., Daemon]


class Secure(Line):
    """A connection that speaks TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(address)
        try:
            self.sock = context.wrap_socket(self.sock, server_hostname=address[0])
        except BaseException:
            self.close()
            raise


@pytest.fixture
def served(start: Start, certificates: Certificates) -> Daemon:
    """A daemon that speaks TLS on both ports."""
    return start(*flags(certificates))


def flags(certificates: Certificates) -> list[str]:
    return [
        f"--tls-certificate={certificates.server_certificate}",
        f"--tls-key={certificates.server_key}",
    ]


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[Callable[..., Secure]]:
    """Connect to a daemon with TLS."""
    lines: list[Secure] = []

    def connect(daemon: Daemon, context: ssl.SSLContext | None = None) -> Secure:
        line = Secure(daemon.address, context or certificates.client_context())
        lines.append(line)
        return line

    yield connect
    for line in lines:
        line.close()


# The socket, in memory


class KeptOpen(socket.socket):
    """A socket of which no side can be shut down."""

    def shutdown(self, how: int) -> None:
        pass


def server_side(certificates: Certificates, client_ca: Path | None = None) -> Context:
    """Return what a listener encrypts with."""
    files = certificates.server_certificate, certificates.server_key
    return server_context(*map(str, files), None if client_ca is None else str(client_ca))


def pair(
    certificates: Certificates,
    server: Context | None = None,
    client: Context | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[TlsSocket, TlsSocket]:
    """Return two ends that have shaken hands; the first one is a server, with that clock."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    ends = (
        TlsSocket(near, server or server_side(certificates), None, clock),
        TlsSocket(
            far,
            client or client_context(str(certificates.ca), watch=True),
            "localhost",
            lambda: 0.0,
        ),
    )
    ends[1].greet()
    for _ in range(6):
        for end in ends:
            with pytest.raises(BlockingIOError):
                end.recv(MIB)
        if ends[0].secure and ends[1].secure:
            break
    assert ends[0].secure
    assert ends[1].secure
    return ends


def failures(near: TlsSocket, far: TlsSocket) -> list[str]:
    """Let two ends shake hands, and return what each of them says of its failure, if it has one."""
    told = ["", ""]
    far.greet()
    for _ in range(8):
        for at, end in enumerate((near, far)):
            with contextlib.suppress(BlockingIOError, OSError):
                try:
                    end.recv(MIB)
                except ssl.SSLError as error:
                    told[at] = told[at] or end.explain(error)
    return told


SERVERS = "(subject CN=localhost, issuer CN=authority)"
EVES = "(subject CN=eve, issuer CN=other-authority)"
OLDS = "(subject CN=old, issuer CN=authority)"
CLIENT = "the client's certificate is not good:"
SERVER = "the server's certificate is not good:"
BY_SERVER = "the server does not accept this daemon's certificate:"
BY_CLIENT = "the client does not accept this daemon's certificate:"
REFUSALS = {  # what the server says, and what the client says
    "strange client": (
        f"{CLIENT} unable to get local issuer certificate {EVES}",
        f"{BY_SERVER} unknown ca {EVES}",
    ),
    "expired client": (
        f"{CLIENT} certificate has expired {OLDS}",
        f"{BY_SERVER} certificate expired {OLDS}",
    ),
    "no client": (
        "the client has shown no certificate, and this listener requires one",
        "the server requires a certificate, and this daemon has shown none",
    ),
    "strange server": (
        f"{BY_CLIENT} unknown ca {SERVERS}",
        f"{SERVER} self-signed certificate in certificate chain {SERVERS}",
    ),
    "other host": (
        f"{BY_CLIENT} bad certificate {SERVERS}",
        f"{SERVER} Hostname mismatch, certificate is not valid for 'example.org'. {SERVERS}",
    ),
}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("case", REFUSALS)
def test_a_handshake_that_fails_says_whose_certificate_whom_did_not_trust(
    certificates: Certificates, case: str, version: ssl.TLSVersion
) -> None:
    server = Pair(certificates.server_certificate, certificates.server_key)
    client = {
        "strange client": certificates.strange_client("eve"),
        "expired client": certificates.expired_client("old"),
        "no client": None,
    }.get(case, certificates.client("ann"))
    trusted = certificates.other_ca if case == "strange server" else certificates.ca
    inside = server_context(*map(str, server), str(certificates.ca), client_required=True)
    inside.maximum_version = version
    files = (None, None) if client is None else map(str, client)
    outside = client_context(str(trusted), *files, watch=True)
    raw = socket.socketpair()
    for one in raw:
        one.setblocking(False)
    host = "example.org" if case == "other host" else "localhost"
    near, far = TlsSocket(raw[0], inside), TlsSocket(raw[1], outside, host)
    told = failures(near, far)
    near.close()
    far.close()
    expected = REFUSALS[case]
    assert told[0] == expected[0]
    if case != "no client" or version == ssl.TLSVersion.TLSv1_3:  # 1.2 has no alert of its own
        assert told[1] == expected[1]


def test_the_certificate_of_a_client_is_kept_no_longer_than_its_handshake_takes(
    certificates: Certificates,
) -> None:
    inside = server_context(
        str(certificates.server_certificate), str(certificates.server_key), str(certificates.ca)
    )
    outside = certificates.client_context(certificates.client("ann"))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = outside.wrap_bio(down, up, server_hostname="localhost")
    server = inside.wrap_bio(up, down, server_side=True)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert isinstance(server, Handshake)
    assert len(server.shown) > 200
    end_watch(server)
    assert server.shown == b""
    assert type(server.context) is ssl.SSLContext
    assert server.getpeercert()


def test_a_connection_is_watched_until_its_handshake_is_done(certificates: Certificates) -> None:
    near, far = pair(certificates, server_side(certificates, certificates.ca))
    for end in (near, far):
        assert type(end.context) is ssl.SSLContext
    near.close()
    far.close()


def test_a_listener_that_asks_for_no_certificate_looks_at_no_handshake(
    certificates: Certificates,
) -> None:
    near, far = pair(certificates, server := server_side(certificates))
    assert near.context is server
    assert not server.watched
    near.close()
    far.close()


def test_what_one_connection_leaves_in_memory_never_comes_to_another(
    certificates: Certificates,
) -> None:
    server = server_side(certificates)
    client = client_context(str(certificates.ca))
    (broken, enemy), (near, far) = (pair(certificates, server, client) for _ in range(2))
    enemy.raw.send(b"\x17\x03\x03\x00\x20" + bytes(32) + b"more of it")
    with pytest.raises(ssl.SSLError):
        broken.recv(MIB)
    for memory in (server.incoming, server.outgoing):
        assert not memory.pending
        memory.write(b"left by an error that nobody has foreseen")
    far.send(b"a question")
    assert near.recv(MIB) == b"a question"
    server.outgoing.write(b"more of it")
    near.send(b"an answer")
    assert far.recv(MIB) == b"an answer"
    for end in (broken, enemy, near, far):
        end.close()


def test_a_read_and_what_was_left_of_the_one_before_are_sent_at_once(
    certificates: Certificates,
) -> None:
    near, far = pair(certificates)
    data = bytes(READ_SIZE + 64 * KIB)
    assert near.send(data) == len(data)
    near.close()
    far.close()


@pytest.mark.parametrize("pieces", [1, 3])
def test_whatever_is_sent_arrives_however_little_the_socket_takes(
    certificates: Certificates, pieces: int
) -> None:
    near, far = pair(certificates)
    rng = random.Random(1)
    near.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    sent = rng.randbytes(3 * MIB)
    at, got = 0, bytearray()
    while len(got) < len(sent):
        try:
            part = sent[at : at + rng.randint(0, 300_000)]
            cuts = sorted(rng.randint(0, len(part)) for _ in range(pieces - 1))
            parts = [part[a:b] for a, b in pairwise([0, *cuts, len(part)])]
            at += near.send(part) if pieces == 1 else near.sendmsg(parts)
        except BlockingIOError:
            assert near.pending
        try:
            got += far.recv(rng.choice((1, 100, 5_000, 256 * KIB)))
        except BlockingIOError:
            continue
    assert got == sent
    near.close()
    far.close()


def test_after_a_read_nothing_is_left_that_no_readable_socket_would_tell_of(
    certificates: Certificates,
) -> None:
    near, far = pair(certificates)
    for size in (1, 16 * KIB, 100 * KIB):
        near.send(bytes(size))
    got = far.recv(MIB)
    assert len(got) == 1 + 16 * KIB + 100 * KIB
    near.close()
    far.close()


def test_what_is_slow_to_decrypt_is_taken_little_by_little(certificates: Certificates) -> None:
    seconds = count()
    near, far = pair(certificates, clock=lambda: float(next(seconds)))
    sent = [bytes((number,)) * 200 for number in range(150)]  # 32 KiB in all
    for one in sent:
        far.send(one)
    got = [near.recv(MIB)]
    while near.held:
        got.append(near.recv(MIB))
    assert b"".join(got) == b"".join(sent)
    assert max(map(len, got)) < 16 * KIB
    assert len(got) > 5
    near.close()
    far.close()


async def test_a_connection_goes_on_with_what_was_slow_to_decrypt(
    certificates: Certificates,
) -> None:
    seconds = count()
    near, far = pair(certificates, clock=lambda: float(next(seconds)))
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        server.start()
        open_connection(server, near, "client", partial(LineProtocol, server.broker))
        pings = [frame("//pubsubd/ping", b"%0200d" % number) for number in range(120)]
        for one in pings:
            far.send(one)
        heard = b""
        while len(heard) < len(b"".join(pings)):
            await trio.lowlevel.wait_readable(far.raw)
            with contextlib.suppress(BlockingIOError):
                heard += far.recv(MIB)
        assert heard == b"".join(pings)
        nursery.cancel_scope.cancel()
    far.close()


def test_an_end_behind_the_last_data_is_noticed_although_the_connection_stays_open(
    certificates: Certificates,
) -> None:
    near, far = pair(certificates)
    far.send(b"last words")
    far.raw = KeptOpen(fileno=far.raw.detach())
    far.shutdown(socket.SHUT_WR)
    assert near.recv(MIB) == b"last words"
    assert near.recv(MIB) == b""
    assert near.send(b"an answer") == 9
    assert far.recv(MIB) == b"an answer"
    near.close()
    far.close()


def test_what_does_not_begin_as_tls_is_told_plainly(certificates: Certificates) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    end = TlsSocket(near, server_side(certificates))
    far.send(b"sub a\n")
    with pytest.raises(ProtocolError, match="tls-required"):
        end.recv(MIB)
    end.send(b"an error")
    assert far.recv(100) == b"an error"
    end.close()
    far.close()


@pytest.mark.parametrize("what", ["nothing", "garbage", "other-key", "encrypted"])
def test_files_that_cannot_be_used_are_told_in_one_line(
    what: str, certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = certificates.server_certificate, certificates.server_key
    if what == "nothing":
        certificate = tmp_path / "none.pem"
    elif what == "garbage":
        certificate = tmp_path / "garbage.pem"
        certificate.write_text("no certificate")
    elif what == "other-key":
        key = certificates.client("ann").key
    else:
        key = tmp_path / "encrypted.key"
        subprocess.run(
            [
                *(tool("openssl"), "pkey", "-in", certificates.server_key),
                *("-aes128", "-out", key, "-passout", "pass:secret"),
            ],
            check=True,
            stdin=subprocess.DEVNULL,
        )
    with pytest.raises(ConfigError) as told:
        server_context(str(certificate), str(key), None)
    assert "\n" not in str(told.value)
    assert str(certificate) in str(told.value)


# The daemon


def test_messages_pass_between_tls_and_tls_and_nothing_is_lost_at_the_end(
    served: Daemon, secure: Callable[..., Secure]
) -> None:
    ann, bob = secure(served), secure(served)
    ann.say(b"sub a\n")
    ann.ping()
    data = random.Random(2).randbytes(900 * KIB)
    bob.say(frame("a", data) + frame("a", b"small") * 1_000)
    assert ann.hear_frame() == ("a", data)
    assert ann.hear(len(frame("a", b"small")) * 1_000) == frame("a", b"small") * 1_000


def test_the_hub_port_speaks_tls_too(served: Daemon, certificates: Certificates) -> None:
    line = Secure(served.hub, certificates.client_context())
    line.say(b'{"command":"pubsub.stats","request_id":"1"}\n')
    assert b'"success":true' in line.hear_until(b"\n")
    line.close()


@pytest.mark.parametrize("said", [b"sub a\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_who_speaks_plainly_where_tls_is_spoken_is_told_so_on_both_ports(
    said: bytes, served: Daemon
) -> None:
    line = Line(served.address)
    line.say(said)
    assert error_codes(line.hear_end()) == ["tls-required"]
    line.close()
    line = Line(served.hub)
    line.say(said)
    assert b"TLS" in line.hear_end()
    line.close()


def test_versions_before_1_2_are_refused_and_1_2_and_1_3_are_spoken(
    served: Daemon, certificates: Certificates
) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = certificates.client_context()
        context.minimum_version = context.maximum_version = version
        line = Secure(served.address, context)
        line.ping()
        line.close()
    context = certificates.client_context()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Secure(served.address, context)
    served.wait_log("reason=tls-failed")


def test_a_handshake_that_does_not_come_is_cut_and_others_are_served_meanwhile(
    start: Start, certificates: Certificates, secure: Callable[..., Secure]
) -> None:
    daemon = start(*flags(certificates), "--handshake-timeout=1")
    silent, halfway = Line(daemon.address), Line(daemon.address)
    halfway.say(b"\x16\x03\x01\x02\x00")

    def served() -> bool:
        with contextlib.suppress(OSError):  # it was too slow itself
            secure(daemon).ping()
            return True
        return False

    wait_until(served, "others are served")
    assert silent.hear_end() == b""
    assert halfway.hear_end() == b""
    assert daemon.wait_log("reason=tls-timeout", 2)
    silent.close()
    halfway.close()


def test_a_certificate_says_who_a_client_is(
    start: Start, certificates: Certificates, secure: Callable[..., Secure]
) -> None:
    daemon = start(*flags(certificates), f"--tls-client-ca={certificates.ca}", "--auth=required")
    known = secure(daemon, certificates.client_context(certificates.client("ann")))
    known.say(b"sub a\n" + frame("a", b"x"))
    assert known.hear_frame() == ("a", b"x")
    stranger = secure(daemon)
    stranger.say(b"sub a\n")
    assert stranger.hear_frame()[1].startswith(b"login-required")
    for pair_ in (certificates.strange_client("ann"), certificates.expired_client("ann")):
        context = certificates.client_context(pair_)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            secure(daemon, context).ping()


def test_clients_without_a_certificate_are_refused_where_one_is_required(
    start: Start, certificates: Certificates, secure: Callable[..., Secure]
) -> None:
    daemon = start(
        *flags(certificates), f"--tls-client-ca={certificates.ca}", "--tls-client-required"
    )
    secure(daemon, certificates.client_context(certificates.client("ann"))).ping()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secure(daemon).ping()
    daemon.wait_log("reason=tls-failed")


def test_a_reader_that_stops_is_cut_and_what_tls_holds_for_it_is_bounded(
    start: Start, certificates: Certificates, secure: Callable[..., Secure]
) -> None:
    daemon = start(*flags(certificates), "--max-pending=256KiB", "--stall-timeout=0")
    slow, fast, bob = secure(daemon), secure(daemon), secure(daemon)
    for line in (slow, fast):
        line.say(b"sub a\n")
        line.ping()
    before = daemon.memory()
    chunk = frame("a", bytes(64 * KIB))
    for _ in range(200):
        bob.say(chunk)
        assert fast.hear(len(chunk)) == chunk
        if "slow-consumer" in daemon.log:
            break
    daemon.wait_log("reason=slow-consumer")
    assert daemon.memory() - before < 16 * MIB


def test_openssl_s_client_can_talk_to_it(served: Daemon, certificates: Certificates) -> None:
    host, port = served.address
    asks = [tool("openssl"), "s_client", "-quiet", "-verify_return_error", "-CAfile"]
    with program(*asks, str(certificates.ca), "-connect", f"{host}:{port}") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"sub a\n" + frame("a", b"hello"))
        process.stdin.flush()
        assert process.stdout.read(len(frame("a", b"hello"))) == frame("a", b"hello")


def test_a_daemon_that_ends_says_so_over_tls(served: Daemon, secure: Callable[..., Secure]) -> None:
    line = secure(served)
    line.say(b"sub a\n")
    line.ping()
    served.signal()
    assert error_codes(line.hear_end()) == ["shutting-down"]
    assert served.wait() == 0


def test_daemons_link_over_tls_and_only_with_a_certificate_they_trust(
    start: Start, certificates: Certificates, secure: Callable[..., Secure]
) -> None:
    one = start(*flags(certificates), "--node=one", "--mesh=m")
    host, port = one.address
    good = start("--node=two", f"--peer={host}:{port}", "--mesh=m", "--mesh-tls")
    good.wait_log("event=dial-failed")
    assert "certificate is not good" in good.log
    two = start(
        "--node=three",
        f"--peer={host}:{port}",
        "--mesh=m",
        "--mesh-tls",
        f"--mesh-tls-ca={certificates.ca}",
    )
    two.wait_log("event=link-up")
    near, far = Line(two.address), secure(one)
    near.say(b"sub //fwd/news\n")
    near.ping()

    def arrived() -> bool:
        far.say(frame("//news", b"hello"))
        near.sock.settimeout(0.2)
        try:
            return near.sock.recv(MIB).startswith(b"pub //fwd/news")
        except TimeoutError:
            return False

    wait_until(arrived, "a message comes over the link")
    near.close()


def test_a_link_shows_its_certificate_and_a_reload_lets_it_trust_another_authority(
    start: Start, certificates: Certificates, tmp_path: Path
) -> None:
    one = start(
        *flags(certificates),
        *("--node=one", "--mesh=m", "--tls-client-required"),
        f"--tls-client-ca={certificates.ca}",
    )
    trusted, shown = tmp_path / "trusted.pem", tmp_path / "shown.pem"
    trusted.write_bytes(certificates.other_ca.read_bytes())
    pair_ = certificates.client("two")
    shown.write_bytes(pair_.certificate.read_bytes() + pair_.key.read_bytes())
    (tmp_path / "two.toml").write_text(
        f'''
        mesh = "m"
        node = "two"
        peer = ["{one.address[0]}:{one.address[1]}"]
        mesh_tls = true
        mesh_tls_ca = "{trusted}"
        mesh_tls_certificate = "{shown}"
        '''
    )
    two = start(f"--config={tmp_path}/two.toml")
    two.wait_log("event=dial-failed")
    assert "link-up" not in one.log
    trusted.write_bytes(certificates.ca.read_bytes())
    two.signal(signal.SIGHUP)
    two.wait_log('event=link-up node="one"')
    bare = start(
        *("--node=three", f"--peer={one.address[0]}:{one.address[1]}", "--mesh=m", "--mesh-tls"),
        f"--mesh-tls-ca={certificates.ca}",
    )
    one.wait_log("the client has shown no certificate, and this listener requires one")
    assert "link-up" not in bare.log
