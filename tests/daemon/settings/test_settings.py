"""Settings: the table, the file with its faults, what goes before what, and what a reload does."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.cli.logs import read_pairs
from pubsubd.protocol.errors import ConfigError
from pubsubd.protocol.limits import KIB, MIB
from pubsubd.settings.file import line_of, read_file
from pubsubd.settings.load import load
from pubsubd.settings.table import SETTINGS
from tests import forks
from tests.certificates import Certificates, Pair
from tests.daemon.transport.test_tls import Secure
from tests.daemons import DEADLINE, ROOT, Daemon, Line, environment, error_codes, frame, wait_until
from tests.scrapes import scrape

Start = Callable[..., Daemon]
Dial = Callable[..., Line]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a settings file."""
    path, new = tmp_path / "pubsubd.toml", tmp_path / "new"

    def write_one(text: str) -> Path:
        new.write_text(text, encoding="utf-8")
        return new.replace(path)  # a daemon may be reading it

    return write_one


# The file


def test_all_settings_can_stand_in_a_file_and_arrive_as_they_are(
    write: Callable[[str], Path],
) -> None:
    texts = {
        "host": '"127.0.0.2"',
        "max_pending": '"2MiB"',
        "max_payload": "4096",
        "stall_timeout": "1",
        "hub_any_topic": "true",
        "hub_host": '["a.example", "b.example"]',
        "slow_consumer": '"drop"',
        "log_level": '"warning"',
        "peer": '["127.0.0.1:9"]',
    }
    path = write("".join(f"{key} = {text}\n" for key, text in texts.items()))
    config = load({}, path).config
    assert config.hosts == ("127.0.0.2",)
    assert config.limits.max_pending == 2 * MIB
    assert config.limits.max_payload == 4 * KIB
    assert config.limits.stall_timeout == 1.0
    assert config.hub_limits.any_topic
    assert config.hub_hosts == ("a.example", "b.example")
    assert config.limits.slow_consumer == "drop"
    assert config.log_level == "warning"
    assert config.mesh is not None
    assert config.mesh.peers == ("127.0.0.1:9",)


def test_every_default_is_one_that_a_file_and_a_flag_could_give(
    write: Callable[[str], Path],
) -> None:
    for setting in SETTINGS.values():
        if setting.default is None:
            continue
        shown = setting.kind.show(setting.default)
        if not setting.kind.many:
            assert setting.kind.from_text(shown) == setting.default, setting.name
        value = list(setting.default) if setting.kind.many else setting.default
        assert setting.kind.from_toml(value) == setting.default, setting.name


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n\nmax_pendin = 1\n", 3, "max_pendin is no setting; perhaps max_pending?"),
        ('port = "9014"\n', 1, "port: '9014' is not a whole number"),
        ("port = true\n", 1, "port: true is not a whole number"),
        ("# a\nport = 65536\n", 2, "port: 65536 is not in the range 0 to 65535"),
        ("hub_host = 'a'\n", 1, "hub_host: 'a' is not a list of texts"),
        ("hub_audience = 1\n", 1, "hub_audience: 1 is not a list of texts"),
        ("hub_host = [\n  'a',\n  1,\n]\n", 1, "hub_host: 1 is not a text"),
        ("max_payload = '12 parsecs'\n", 1, "is not bytes"),
        ("max_payload = 0\n", 1, "0 is less than 1"),
        ("drain_timeout = nan\n", 1, "is not a number of seconds"),
        ("slow_consumer = 'wait'\n", 1, "'wait' is not one of throttle, disconnect, drop"),
        ("insecure = 1\n", 1, "1 is not true or false"),
        ("[host]\na = 1\n", 1, "a table is not a list of texts"),
        ("host = ['::1', 7]\n", 1, "host: 7 is not a text"),
        ("\nhost = 'a\\\n", 2, "at the end"),
        ("users_file = ''\n", 1, "must not be empty"),
        ("users_file = 'a\tb'\n", 1, "cannot be printed"),
        ("[[acl]]\npublish = ['a']\n", 1, "who is missing"),
        ("[[acl]]\nwho = ['a']\npublsh = ['a']\n", 3, "perhaps publish?"),
        ("[acl]\nwho = ['a']\n", 1, "begun by [[acl]]"),
        ("[[acl]]\nwho = ['a']\n[[acl]]\nwho = ['b']\nreceive = ['a b']\n", 3, "'a b'"),
        ("[[listener]]\naddress = '127.0.0.1:1'\n", 1, "protocol has to be line or hub"),
        ("[[listener]]\nprotocol = 'line'\n", 1, "address is missing"),
        ("[[listener]]\nprotocol = 'line'\naddress = '9014'\n", 3, "is no HOST:PORT"),
        ("[[listener]]\nprotocol = 'line'\naddress = ['a:1', 'b']\n", 3, "'b' is no HOST:PORT"),
        ("[[listener]]\nprotocol = 'line'\naddress = []\n", 1, "address is missing"),
        (
            "[[listener]]\nprotocol = 'line'\naddress = ['unix:/a', 'b:1']\n",
            3,
            "a Unix socket has a listener of its own",
        ),
        (
            "[[listener]]\nprotocol = 'line'\naddress = 'a:1'\n\nhub_rate = 1\n",
            5,
            "hub_rate is not a setting of a line listener",
        ),
        (
            "[[listener]]\nprotocol = 'line'\naddress = 'a:1'\nlog_level = 'info'\n",
            4,
            "log_level is not a setting of one listener",
        ),
        (
            "[[listener]]\nprotocol='hub'\naddress='a:1'\n" * 2,
            4,
            "two listeners with the name hub",
        ),
        ("[[listener]]\nprotocol = 'line'\naddress = 'a:1'\ntls = true\n", 4, "only be false"),
        ("[[listener]]\nprotocol = 'line'\naddress = 'a:1'\ntls_key = 'k'\n", 1, "tls_key"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    text: str, line: int, said: str, write: Callable[[str], Path]
) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as told:
        load({}, path)
    assert "\n" not in str(told.value)
    assert re.search(rf"pubsubd\.toml(, line {line}:|: .*\(at line {line},)", str(told.value))
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\nhost = '\xff'\n", "line 2: this is not UTF-8"),
        (b"#" * (MIB + 1), "over 1048576 bytes"),
        (b"a=" + b"[" * 20_000, "nested too deeply"),
        (b"a = 1\na = 2\n", "overwrite"),
    ],
)
def test_a_file_that_is_no_toml_is_an_error_and_no_crash(
    data: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        read_file(path)


def test_a_file_that_is_not_there_or_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot read /none: No such file"):
        load({}, Path("/none"))
    with pytest.raises(ConfigError, match="cannot read /: Is a directory"):
        load({}, Path("/"))


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_line_of_a_value_is_that_of_its_statement(seed: int, count: int) -> None:
    rng = random.Random(seed)
    lines, where = [], {}
    for number in range(count):
        lines += rng.choice(([], [""], ["# k0 = 1"], ["", "#"]))
        where[f"k{number}"] = len(lines) + 1
        lines += rng.choice(
            (
                [f"k{number} = 1"],
                [f"k{number} = [", "  1,", f"  # k{number} = 2", "]"],
                [f'k{number} = """', "k1 = 5", '"""'],
            )
        )
    text = "\n".join(lines) + "\n"
    assert tomllib.loads(text)
    assert {key: line_of(text, (key,)) for key in where} == where


# What goes together


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tls_key": "k"}, "tls_key is of no use without tls_certificate"),
        (
            {"tls_certificate": "c", "tls_client_required": True},
            "tls_client_required is of no use without tls_client_ca",
        ),
        ({"host": ("", "::1")}, "an empty one stands for no TCP, and goes with no other"),
        ({"mesh_secret_file": "s"}, "mesh_secret_file is of no use without peer or mesh"),
        ({"mesh": "m", "mesh_tls_ca": "c"}, "mesh_tls_ca is of no use without mesh_tls"),
        ({"hub_audience": ("a",)}, "hub_audience is of no use without hub_auth"),
        ({"jwt_leeway": 60.0}, "jwt_leeway is of no use without hub_auth"),
        ({"auth": "required"}, "nobody could come in by the listener line"),
    ],
)
def test_settings_that_are_of_no_use_alone_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(values)


def test_a_listener_has_what_its_table_says_and_the_rest_of_the_daemon(
    write: Callable[[str], Path],
) -> None:
    path = write(
        """
        max_payload = 100
        max_pending = 1000
        tls_certificate = "c"
        users_file = "u"
        [[listener]]
        protocol = "line"
        address = ["127.0.0.1:1", "[::1]:1"]
        tls = false
        auth = "none"
        max_pending = 2000
        [[listener]]
        name = "public"
        protocol = "hub"
        address = "[::1]:2"
        hub_rate = 7
        [[listener]]
        name = "own"
        protocol = "line"
        address = "unix:/run/x"
        """
    )
    line, public, own = load({}, path).config.all_listeners()
    assert (line.name, line.addresses, line.login, line.tls) == (
        "line",
        (("127.0.0.1", 1), ("::1", 1)),
        False,
        None,
    )
    assert (line.limits.max_pending, line.limits.max_payload) == (2000, 100)
    assert (public.addresses, public.login, public.hub_limits.rate) == ((("::1", 2),), True, 7)
    assert public.tls is not None
    assert (own.unix, own.tls, own.login) == ("/run/x", None, True)


def test_listeners_and_the_flags_for_one_do_not_go_together(write: Callable[[str], Path]) -> None:
    path = write("[[listener]]\nprotocol = 'line'\naddress = '127.0.0.1:1'\n")
    with pytest.raises(ConfigError, match="port is of no use where"):
        load({"port": 5}, path)


def test_a_flag_goes_before_its_variable_and_that_before_the_file(
    write: Callable[[str], Path], start: Start, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("max_payload = 10\nmax_subscriptions = 1\ncommand_timeout = 30\n")
    daemon = start(f"--config={path}", "--max-payload=20")
    line = dial(daemon)
    line.say(frame("a", bytes(20)) + b"sub a\nsub b\n" + frame("a", bytes(21)))
    assert error_codes(line.hear_end()) == ["too-many-subscriptions", "payload-too-large"]


def test_each_listener_has_its_own_limits_and_encryption(
    write: Callable[[str], Path], start: Start, certificates: Certificates, tmp_path: Path
) -> None:
    path = write(
        f"""
        max_payload = 100
        tls_certificate = "{certificates.server_certificate}"
        tls_key = "{certificates.server_key}"
        [[listener]]
        protocol = "line"
        address = "127.0.0.1:0"
        tls = false
        max_payload = 10
        max_connections = 2
        [[listener]]
        name = "public"
        protocol = "line"
        address = "127.0.0.1:0"
        [[listener]]
        name = "local"
        protocol = "line"
        address = "unix:{tmp_path}/socket"
        max_payload = 20
        [[listener]]
        protocol = "hub"
        address = "127.0.0.1:0"
        hub_max_message = 100
        """
    )
    daemon = start(f"--config={path}", ports=False)
    ports = daemon.ports
    assert ports["local"] == {"unix": f"{tmp_path}/socket"}
    plain = [Line(daemon.address) for _ in range(2)]
    for one in plain:
        one.ping()
    third = Line(daemon.address)
    assert error_codes(third.hear_end()) == ["too-many-connections"]
    public = Secure(
        (ports["public"]["host"], ports["public"]["port"]), certificates.client_context()
    )
    local = Line(ports["local"]["unix"])
    for line, most in ((plain[0], 10), (public, 100), (local, 20)):
        line.say(b"sub a\n" + frame("a", bytes(most)))
        assert line.hear_frame() == ("a", bytes(most))
        line.say(frame("a", bytes(most + 1)))
        assert error_codes(line.hear_end()) == ["payload-too-large"]
    hub = Secure(daemon.hub, certificates.client_context())
    hub.say(b'{"type":"hub:ping","pad":"%b"}\n' % (b"-" * 100))
    assert b"over 100" in hub.hear_until(b"\n")
    for line in (*plain, third, public, local, hub):
        line.close()


# --check


def check(path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        [sys.executable, "-m", "pubsubd", "serve", "--check", f"--config={path}", *flags],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_check_says_that_good_settings_are_good_and_does_not_serve(
    write: Callable[[str], Path], certificates: Certificates, tmp_path: Path
) -> None:
    path = write(
        f'host = ["*", "::1"]\ninsecure = true\nport = 1\nno_hub = true\nunix = "{tmp_path}/a"\n'
        f'tls_certificate = "{certificates.server_certificate}"\n'
        f'tls_key = "{certificates.server_key}"\n'
    )
    done = check(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path} is good\nline: 0.0.0.0:1, [::]:1\nunix: {tmp_path}/a\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1\n", "line 1: prot is no setting"),
        ("tls_certificate = '/none.pem'\n", "cannot read /none.pem"),
        ("users_file = '/none'\n", "/none"),
        ("hub_auth = '/none'\n", "/none"),
        ("host = '0.0.0.0'\n", "is not loopback"),
        ("host = 'no such host'\n", "cannot resolve"),
        ("mesh = 'm'\nmesh_secret_file = '/none'\n", "cannot read the secret"),
    ],
)
def test_check_tells_what_is_wrong_in_one_line(
    text: str, said: str, write: Callable[[str], Path]
) -> None:
    done = check(write(text))
    assert done.returncode == 2
    assert done.stdout == ""
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert said in told
    assert "Traceback" not in done.stderr


# Beyond loopback


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "there is no login"),
        ("users_file = '{users}'", "without TLS"),
        ("tls_certificate = '{certificate}'\ntls_key = '{key}'", "there is no login"),
        ("users_file = '{users}'\ntls_certificate = '{certificate}'\ntls_key = '{key}'", ""),
        ("insecure = true", ""),
    ],
)
def test_an_address_beyond_loopback_needs_both_a_login_and_tls(
    more: str, said: str, write: Callable[[str], Path], certificates: Certificates, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("")
    users.chmod(0o600)
    names = {"users": users, "certificate": certificates.server_certificate}
    text = more.format(**names, key=certificates.server_key)
    done = check(write(f"host = '0.0.0.0'\nport = 0\nhub_port = 0\n{text}\n"))
    if said:
        assert said in done.stderr
        assert done.returncode == 2
    else:
        assert done.returncode == 0, done.stderr


# Reload


def reload(daemon: Daemon, outcome: str = "reloaded") -> str:
    """Let a daemon read its settings again, and return the line that tells what came of it."""
    before = daemon.log.count("event=reload")
    daemon.signal(signal.SIGHUP)
    wait_until(lambda: daemon.log.count("event=reload") > before, "the settings are read again")
    line = [line for line in daemon.log.splitlines() if "event=reload" in line][-1]
    assert f"event={outcome}" in line, line
    return line


def test_a_reload_changes_limits_for_connections_that_are_open(
    write: Callable[[str], Path], start: Start, dial: Dial
) -> None:
    path = write("max_payload = 10\nmax_subscriptions = 1\n")
    daemon = start(f"--config={path}")
    line = dial(daemon)
    line.say(b"sub a\nsub b\n")
    assert error_codes(line.ping()) == ["too-many-subscriptions"]
    write("max_payload = 20\nmax_subscriptions = 2\n")
    reload(daemon)
    line.say(b"sub b\n" + frame("b", bytes(20)))
    assert line.hear_frame() == ("b", bytes(20))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_payload = 20\nmax_subscriptions =\n", "at line 2"),
        ("max_payload = 20\nport = 1\nmax_subscriptions = 'x'\n", "max_subscriptions: 'x'"),
        ("max_payload = 20\nnode = 'other'\n", "restart: node"),
        ("max_payload = 20\nhost = '127.0.0.2'\n", "a change that needs a restart: host"),
        ("max_payload = 20\ntls_certificate = '/none'\n", "cannot read /none"),
        ("max_payload = 20\nusers_file = '/none'\n", "/none"),
    ],
)
def test_a_reload_that_fails_changes_nothing_and_says_why(
    text: str, said: str, write: Callable[[str], Path], start: Start, dial: Dial
) -> None:
    path = write("max_payload = 10\n")
    daemon = start(f"--config={path}")
    watcher, line = dial(daemon), dial(daemon)
    watcher.say(b"sub //pubsubd/events\n")
    watcher.ping()
    write(text)
    assert said in reload(daemon, "reload-failed")
    assert b"reload-failed" in watcher.hear_frame()[1]
    line.say(frame("b", bytes(20)))
    assert error_codes(line.hear_end()) == ["payload-too-large"]
    write("max_payload = 30\n")
    reload(daemon)
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as errors


def test_a_reload_lets_new_connections_see_another_certificate_and_keeps_the_old_ones(
    write: Callable[[str], Path], start: Start, certificates: Certificates
) -> None:
    def text(certificate: Path, key: Path) -> str:
        return f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'

    path = write(text(certificates.server_certificate, certificates.server_key))
    daemon = start(f"--config={path}")
    old = Secure(daemon.address, certificates.client_context())
    first = old.sock.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    write(text(*certificates.server("127.0.0.1")))
    reload(daemon)
    new = Secure(daemon.address, certificates.client_context())
    assert new.sock.getpeercert(binary_form=True) != first  # type: ignore[attr-defined]
    for line in (old, new):
        line.ping()
        line.close()


def test_the_log_and_the_metrics_say_when_certificates_expire(
    write: Callable[[str], Path], start: Start, certificates: Certificates
) -> None:
    def text(pair: Pair) -> str:
        return (
            '[[listener]]\nprotocol = "hub"\naddress = "127.0.0.1:0"\n[[listener]]\n'
            'protocol = "line"\naddress = "127.0.0.1:0"\n'
            f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
            f'tls_client_ca = "{certificates.ca}"\n'
        )

    expired = certificates.expired_server()
    daemon = start(f"--config={write(text(expired))}", ports=False)
    log = daemon.wait_log("event=ready")
    assert log.count("event=certificate-") == 2
    assert f'event=certificate-invalid detail="tls_certificate {expired.certificate}: the' in log
    expires = f'event=certificate-expires detail="tls_client_ca {certificates.ca}: the certificate'
    assert f"{expires} of CN=authority expires in less than a day, on 20" in log
    write(text(certificates.lasting_server(-1, 365, "127.0.0.1")))
    reload(daemon)
    log = daemon.wait_log(expires, 2)
    assert log.count("event=certificate-invalid") == 1
    assert log.count(expires) == 2
    told = scrape(daemon).samples["pubsubd_tls_not_after_timestamp_seconds"]
    days = {labels: (at - time.time()) / 86_400 for labels, at in told.items()}
    assert days == {
        ("listener=line", "setting=tls_certificate"): pytest.approx(365, abs=0.1),
        ("listener=line", "setting=tls_client_ca"): pytest.approx(1, abs=0.1),
    }
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # with what it had to log as an error


def test_a_reload_changes_the_log_level(write: Callable[[str], Path], start: Start) -> None:
    path = write("")
    daemon = start(f"--config={path}")
    write("log_level = 'debug'\n")
    reload(daemon)
    line = Line(daemon.address)
    line.say(b"pub a 10 x")
    line.vanish()
    daemon.wait_log("event=lost")


def test_a_reload_dials_new_peers_and_lets_go_of_those_that_are_gone(
    write: Callable[[str], Path], start: Start
) -> None:
    other, third = start("--mesh=m", "--node=other"), start("--mesh=m", "--node=third")
    path = write(f'mesh = "m"\nnode = "one"\npeer = ["127.0.0.1:{other.address[1]}"]\n')
    daemon = start(f"--config={path}")
    daemon.wait_log('event=link-up node="other"')
    write(f'mesh = "m"\nnode = "one"\npeer = ["127.0.0.1:{third.address[1]}"]\n')
    reload(daemon)
    daemon.wait_log('event=link-up node="third"')
    daemon.wait_log('event=link-down node="other"')


def test_a_hangup_without_a_file_changes_nothing(start: Start, dial: Dial) -> None:
    daemon = start()
    line = dial(daemon)
    reload(daemon)
    line.ping()


def test_no_connection_is_dropped_by_reloads_under_load(
    write: Callable[[str], Path], start: Start, dial: Dial
) -> None:
    path = write("max_pending = 100000\n")
    daemon = start(f"--config={path}")
    reader, writer = dial(daemon), dial(daemon)
    reader.say(b"sub a\n")
    reader.ping()
    heard = 0
    for turn in range(20):
        write(f"max_pending = {100_000 + turn}\nmax_connections = {1000 + turn}\n")
        daemon.signal(signal.SIGHUP)
        for number in range(50):
            writer.say(frame("a", b"%d" % (turn * 50 + number)))
            name, data = reader.hear_frame()
            assert (name, int(data)) == ("a", heard)
            heard += 1
    reload(daemon)
    assert writer.stats()["connections"] == 2


# The log


def test_the_log_can_be_json_with_the_same_keys(start: Start, dial: Dial) -> None:
    daemon = start("--log-format=json", "--max-payload=5")
    line = dial(daemon)
    line.say(frame("a", bytes(6)))
    line.hear_end()
    daemon.wait_log('"event": "closed"')
    events = [json.loads(line) for line in daemon.log.splitlines()]
    assert events[0]["event"] == "ready"
    assert {"time", "level", "pid", "line", "hub"} <= events[0].keys()
    closed = next(one for one in events if one["event"] == "closed")
    assert closed["connection"] == 1
    assert closed["reason"] == "payload-too-large"
    assert closed["detail"].startswith("6 bytes")
    daemon.signal()
    assert daemon.wait() == 0
    daemon.log_file.write_text("")  # it is not in the form that all other tests look for


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        st.one_of(st.integers(0, 10**9), st.text(max_size=20)),
    )
)
def test_pairs_of_the_log_are_read_as_they_were_written(pairs: dict[str, Any]) -> None:
    line = " ".join(
        f"{key}={value if isinstance(value, int) else json.dumps(value)}"
        for key, value in pairs.items()
    )
    assert read_pairs(line) == pairs


# The page


def test_the_page_is_what_the_table_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "conf-page", "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
