"""Addresses to listen on: of both families, several, and those of one link only."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from pubsubd.client import Tls, open_client, open_hub_client
from pubsubd.client.faults import ConnectError
from pubsubd.daemon.run import Config, run
from pubsubd.settings.config import ListenerConfig, MeshOptions, TlsFiles
from pubsubd.transport.listen import KEEPALIVE, listen
from tests.certificates import make
from tests.daemons import DEADLINE, Daemon, environment
from tests.running import command_line

Start = Callable[..., Daemon]


def reached(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        return sock.connect_ex((host, port)) == 0


def test_a_star_is_every_address_of_both_families_and_the_log_says_so(start: Start) -> None:
    daemon = start("--host", "*", "--insecure")
    line, hub = daemon.ports["line"], daemon.ports["hub"]
    for one in (line, hub):
        port = one["port"]
        assert one["addresses"] == [f"0.0.0.0:{port}", f"[::]:{port}"]
        assert reached("127.0.0.1", port)
        assert reached("::1", port)
    told = f"line={','.join(line['addresses'])} hub={','.join(hub['addresses'])}"
    daemon.wait_log(f"families=ipv4,ipv6 {told}\n")


def test_who_is_accepted_is_sent_to_at_once_and_is_noticed_when_its_host_vanishes() -> None:
    with contextlib.ExitStack() as stack:
        one = ListenerConfig("line", "line", (("127.0.0.1", 0),))
        [bound] = listen([one], {}, insecure=False, stack=stack)
        stack.enter_context(socket.create_connection(bound.listener.getsockname()))
        bound.listener.setblocking(True)
        accepted = stack.enter_context(bound.listener.accept()[0])
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert tuple(accepted.getsockopt(socket.IPPROTO_TCP, name) for name in names) == KEEPALIVE


def test_two_colons_are_ipv6_alone_and_the_log_says_so(start: Start) -> None:
    daemon = start("--host", "::", "--insecure", "--no-hub")
    port = daemon.address[1]
    daemon.wait_log(f"families=ipv6 line=[::]:{port}\n")
    assert reached("::1", port)
    assert not reached("127.0.0.1", port)


def test_several_hosts_share_a_free_port_and_the_commands_take_the_first(start: Start) -> None:
    hosts = ["127.0.0.2", "127.0.0.1", "::1"]
    daemon = start("--no-hub", *(f"--host={host}" for host in hosts))
    port = daemon.address[1]
    shown = [f"127.0.0.2:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"]
    assert daemon.ports["line"]["addresses"] == shown
    done = subprocess.run(
        command_line("explain", "a", port=port),
        env=environment() | {"PUBSUBD_HOST": " ".join(hosts)},
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stdout == b"no connection would receive a\n", done.stderr


def test_a_port_that_is_taken_on_another_of_its_addresses_is_not_the_free_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = contextlib.ExitStack()
    taken: list[int] = []

    class Late(socket.socket):
        """A socket whose port somebody else takes on another address meanwhile, twice."""

        def bind(self, address: Any) -> None:
            super().bind(address)
            if address == ("127.0.0.2", 0) and len(taken) < 2:
                taken.append(self.getsockname()[1])
                others.enter_context(socket.create_server(("127.0.0.1", taken[-1])))

    monkeypatch.setattr(socket, "socket", Late)
    addresses = (("127.0.0.2", 0), ("127.0.0.1", 0))
    with others, contextlib.ExitStack() as stack:
        one = ListenerConfig("line", "line", addresses)
        ports = [
            bound.listener.getsockname()[1]
            for bound in listen([one], {}, insecure=False, stack=stack)
        ]
        assert len(ports) == 2
        assert len(taken) == 2
        assert len(set(ports)) == 1
        assert not {*ports} & {*taken}
        fixed = ListenerConfig("line", "line", (("127.0.0.1", taken[0]),))
        with pytest.raises(OSError, match="in use"):
            listen([fixed], {}, insecure=False, stack=stack)


def test_a_listener_has_a_list_of_addresses(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "pubsubd.toml"
    path.write_text('[[listener]]\nprotocol = "line"\naddress = ["127.0.0.1:0", "[::1]:0"]\n')
    daemon = start(f"--config={path}", ports=False)
    assert daemon.ports["line"]["addresses"] == [
        f"{host}:{daemon.address[1]}" for host in ("127.0.0.1", "[::1]")
    ]


# On a link of its own: two interfaces, joined in a network of this test alone


ALONE = ["unshare", "--net", "--map-root-user", "--"]
LINK = """
ip link set lo up
ip link add one type veth peer name two
ip link set one up
ip link set two up
ip address add fe80::1/64 dev one nodad
ip address add fe80::2/64 dev two nodad
exec "$@"
"""


def test_on_a_link_a_daemon_is_listened_on_and_dialled_by_its_interface(tmp_path: Path) -> None:
    if subprocess.run([*ALONE, "true"], check=False, stderr=subprocess.PIPE).returncode:
        pytest.skip("this user may not make a network of its own (unshare --net)")
    here = [sys.executable, "-m", __name__, str(tmp_path)]
    done = subprocess.run(
        [*ALONE, "sh", "-ec", LINK, "sh", *here],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done"), done.stderr


async def talk_on_the_link(directory: Path) -> None:
    """Let a daemon at one end serve all kinds of clients, and one at the other end link to it."""
    host, far = "fe80::1%one", "fe80::2%two"
    certificates = make(directory)
    pair, authority = certificates.server("fe80::1"), str(certificates.ca)
    tls, secure = TlsFiles(str(pair.certificate), str(pair.key)), Tls(ca=authority)
    with trio.fail_after(DEADLINE / 2):
        async with trio.open_nursery() as nursery:
            mesh = MeshOptions(node="a")
            config = Config((host,), port=0, hub_port=0, insecure=True, tls=tls, mesh=mesh)
            ports = await nursery.start(run, config)
            port = ports["line"]["port"]
            assert ports["line"] == {
                "host": host,
                "port": port,
                "addresses": [f"[{host}]:{port}"],
            }
            async with open_client(host, port, tls=secure) as client:
                await client.subscribe("a")
                told = json.loads(await client.request("//pubsubd/explain", "a"))
                label = told["receivers"][0]["peer"]
                assert label.startswith("[fe80::1%one]:"), label
            async with open_hub_client(host, ports["hub"]["port"], tls=secure) as hub:
                await hub.ping()
            try:
                async with open_client("fe80::1", port):
                    pass
            except ConnectError as error:
                assert "needs its interface" in str(error)  # noqa: PT017  (no pytest here)
            peers = (f"[{host}]:{port}",)
            mesh = MeshOptions(node="b", peers=peers, tls=True, tls_ca=authority)
            config = Config((far,), port=0, hub_port=None, insecure=True, mesh=mesh)
            other = await nursery.start(run, config)
            async with open_client(far, other["line"]["port"]) as client:
                links: list[dict[str, object]] = []
                while not links:
                    links = json.loads(await client.request("//pubsubd/peers"))["links"]
                assert [one["node"] for one in links] == ["a"]
            nursery.cancel_scope.cancel()
    sys.stdout.write("done")


if __name__ == "__main__":
    trio.run(talk_on_the_link, Path(sys.argv[1]))
