"""All settings of the daemon: the one source of flags, variables, file keys and manual page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pubsubd.protocol.limits import HubLimits, Limits
from pubsubd.settings.kinds import (
    Kind,
    choices,
    counts,
    lists,
    networks,
    numbers,
    sizes,
    spans,
    switches,
    texts,
    times,
    workers,
)

Where = Literal["", "line", "hub", "both"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: its key in the file; flag and variable are derived from it.
        kind: how its values are written and checked.
        default: the value if none is given; None if it depends on other settings.
        help: one line for ``--help``.
        doc: the text of the manual page, in mdoc(7).
        live: whether a reload can change it.
        listener: protocols whose ``[[listener]]`` tables may set it; empty for none.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    doc: str
    live: bool = False
    listener: Where = ""

    @property
    def flag(self) -> str:
        """The flag of ``pubsubd serve``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "PUBSUBD_" + self.name.upper()


_LIMITS, _HUB = Limits(), HubLimits()
_PORT = counts(0, 65_535, "PORT")

SECTIONS: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    (
        "Where to listen",
        (
            Setting(
                "host",
                lists("HOST", single=True, empty=True),
                ("127.0.0.1",),
                "Name or address to listen on, * for all; may be repeated; empty for no TCP.",
                """\
Name or address to listen on.
May be given several times, and as a list in the file.
A name is resolved once, and all its addresses are used.
.Li 0.0.0.0
stands for all IPv4 addresses,
.Li ::
for all IPv6 addresses, and
.Li *
for both.
A link-local IPv6 address needs its interface:
.Li fe80::1%eth0 .
If the text is empty, the daemon does not listen on TCP.
An address other than loopback needs
.Sy insecure
where clients can connect without a login or without TLS.
""",
            ),
            Setting(
                "port",
                _PORT,
                9014,
                "TCP port to listen on; 0 takes a free one.",
                """\
TCP port, 0 to 65535.
With 0 the system chooses a free port; the log and
.Sy ports_file
name it.
""",
            ),
            Setting(
                "hub_port",
                _PORT,
                9015,
                "TCP port for JSON clients; 0 takes a free one.",
                """\
TCP port for clients that speak JSON, 0 to 65535, on the same
.Sy host .
Its protocols are described in
.Xr pubsubd-hub 7 .
""",
            ),
            Setting(
                "no_hub",
                switches(),
                False,
                "Do not listen for JSON clients.",
                """\
Do not listen for clients that speak JSON.
""",
            ),
            Setting(
                "unix",
                texts("PATH"),
                None,
                "Listen on this Unix socket as well.",
                """\
Listen on this Unix socket as well.
See
.Sx FILES
in
.Xr pubsubd 8 .
""",
            ),
            Setting(
                "ports_file",
                texts("PATH"),
                None,
                "Once ready, write the actual addresses to this file, as JSON.",
                """\
Write the actual addresses to this file once all of them accept connections.
See
.Sx FILES
in
.Xr pubsubd 8 .
""",
            ),
            Setting(
                "workers",
                workers(),
                1,
                "Processes that share the connections; auto for one per core.",
                """\
Processes that share the connections, 1 to 256, or
.Cm auto
for one per core that the daemon may use.
To clients they are one daemon: see
.Sx WORKERS
in
.Xr pubsubd 8 .
""",
            ),
            Setting(
                "insecure",
                switches(),
                False,
                "Allow addresses beyond loopback without login or without TLS.",
                """\
Allow an address other than loopback even where clients can connect without a login or
without TLS.
See
.Sx SECURITY
in
.Xr pubsubd 8 .
""",
            ),
        ),
    ),
    (
        "Who may connect",
        (
            Setting(
                "auth",
                choices("required", "none"),
                None,
                "Whether clients have to log in.",
                """\
Whether clients have to log in:
.Cm required
or
.Cm none .
The default is
.Cm required
if
.Sy users_file
is set, and on hub ports also if
.Sy hub_auth
is set; otherwise
.Cm none .
On a Unix socket the system identifies the client, which need not log in.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "users_file",
                texts("FILE"),
                None,
                "Users who may log in: hashes of their passwords and tokens.",
                """\
File with the hashes of passwords and tokens, one per line, written by
.Xr pubsubd 1
.Cm passwd .
It is read at the start and at each reload.
If a reload finds a user removed from it, that user's connections are closed.
""",
                live=True,
            ),
            Setting(
                "auth_timeout",
                times(),
                _LIMITS.auth_timeout,
                "Time a client has to log in, where that is required.",
                """\
How long a connection may take to log in, where that is required.
Time spent waiting for a password to be checked does not count.
""",
                live=True,
            ),
            Setting(
                "trusted_proxies",
                networks(),
                (),
                "A network of proxies that report their clients' addresses; may be repeated.",
                """\
Network, such as
.Li 10.0.0.0/8 ,
or address of proxies that report their clients' addresses, by the PROXY protocol or, on hub
ports, in the headers X-Forwarded-For and Forwarded.
Such reports from others are ignored.
See
.Xr pubsubd-proxy 7 .
May be given several times.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "hub_auth",
                texts("FILE"),
                None,
                "Require tokens (JWT), and check them with the key in this file.",
                """\
Require tokens on the hub port, and check them with the key in this file.
See
.Sx SECURITY
in
.Xr pubsubd 8 .
""",
                live=True,
            ),
            Setting(
                "hub_audience",
                lists("NAME", single=True),
                (),
                "Audience (aud) that tokens must be for; may be repeated.",
                """\
A name of this hub in the
.Li aud
of tokens, as a string or a list of strings.
A token is accepted only if its
.Li aud
contains one of them.
If none is set, a token with an
.Li aud
is refused, because it is for somebody else.
""",
                live=True,
            ),
            Setting(
                "jwt_leeway",
                times(zero=True),
                0.0,
                "Seconds by which the clock of the issuer of tokens may differ.",
                """\
Seconds by which the clock of the issuer of tokens may differ: a token is accepted that long
before its
.Li nbf
and after its
.Li exp .
60 is usual.
""",
                live=True,
            ),
            Setting(
                "hub_host",
                lists("NAME"),
                (),
                "A host name that browsers may use for the hub port, * for all; may be repeated.",
                """\
Host name that browsers may use to reach the hub port, in addition to
.Li localhost ,
.Sy host
and numeric addresses;
.Li *
allows all, which lets any web page whose name is made to point here use the port.
May be given several times.
""",
                live=True,
            ),
            Setting(
                "hub_origin",
                lists("ORIGIN"),
                (),
                "A web origin whose pages may use the hub port, * for all; may be repeated.",
                """\
Web origin, such as
.Li https://example.org ,
whose pages may use the hub port, in addition to the port's own; use
.Li *
for all.
May be given several times.
""",
                live=True,
            ),
        ),
    ),
    (
        "Encryption",
        (
            Setting(
                "tls_certificate",
                texts("FILE"),
                None,
                "Speak TLS, with the certificate in this file.",
                """\
Speak TLS 1.2 or newer with the certificate in this PEM file.
Intermediate certificates may follow it there.
The file is read at the start and at each reload; open connections keep the old
certificate.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_key",
                texts("FILE"),
                None,
                "The certificate's private key.  [default: in the same file]",
                """\
The certificate's private key, in PEM and not encrypted.
The default is the file of the certificate.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_client_ca",
                texts("FILE"),
                None,
                "Authorities whose certificates identify clients.",
                """\
PEM file of authorities whose certificates identify clients.
The user's name is the common name of the certificate's subject.
A client with such a certificate need not log in.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_client_required",
                switches(),
                False,
                "Refuse clients without such a certificate.",
                """\
Refuse, in the handshake, clients that show no such certificate.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "handshake_timeout",
                times(),
                _LIMITS.handshake_timeout,
                "Time that a TLS handshake may take.",
                """\
How long a TLS handshake may take.
""",
                live=True,
            ),
        ),
    ),
    (
        "Limits",
        (
            Setting(
                "max_payload",
                sizes(),
                _LIMITS.max_payload,
                "Largest payload of one message.",
                """\
Largest payload of one message.
A larger one is refused at its header, without being read, and the connection is closed.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "max_subscriptions",
                counts(),
                _LIMITS.max_subscriptions,
                "Substrings of one connection.",
                """\
Most substrings that one connection may subscribe to.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "max_subscriptions_total",
                counts(),
                _LIMITS.max_subscriptions_total,
                "Subscriptions of all connections together.",
                """\
Most subscriptions of all connections together: substrings, names and wildcards.
Each takes some 300 bytes.
""",
                live=True,
            ),
            Setting(
                "max_connections",
                counts(),
                _LIMITS.max_connections,
                "Most open connections, if there are enough file descriptors.",
                """\
Most connections open at the same time.
The daemon raises its soft limit of file descriptors as far as the hard limit
allows.
If that is not enough, it lowers this number to the descriptors it may have
minus 16.
A connection beyond the limit gets the error
.Li too-many-connections
and is closed.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "max_pending",
                sizes(),
                _LIMITS.max_pending,
                "Most bytes that may wait for one consumer.",
                """\
Most bytes that may wait to be sent to one consumer.
A consumer is slow if more is due while it is over this limit.
""",
                live=True,
                listener="line",
            ),
            Setting(
                "slow_consumer",
                choices("throttle", "disconnect", "drop"),
                _LIMITS.slow_consumer,
                "Wait for a slow consumer and then cut it, cut it at once, or drop the excess.",
                """\
What to do about a slow consumer:
.Bl -tag -width "disconnect"
.It Cm throttle
Wait for it before it reaches the limit, by not reading from the publisher that
fills its backlog.
If that does not help, disconnect it.
.It Cm disconnect
Disconnect it without waiting.
.It Cm drop
Drop the messages that exceed its limit, without waiting.
.El
.Pp
.Xr pubsubd-protocol 7
has the details.
""",
                live=True,
            ),
            Setting(
                "stall_timeout",
                times(zero=True),
                _LIMITS.stall_timeout,
                "How long publishers wait for a consumer that takes nothing.",
                """\
How long publishers wait for a consumer that takes nothing at all.
""",
                live=True,
            ),
            Setting(
                "stall_budget",
                times(zero=True),
                _LIMITS.stall_budget,
                "How long publishers wait for one consumer in any 10 seconds.",
                """\
How long, in any 10 seconds, publishers wait for one consumer.
""",
                live=True,
            ),
            Setting(
                "request_rate",
                numbers(),
                _LIMITS.request_rate,
                "Most requests per second from one connection; 0 for no limit.",
                """\
Most requests per second from one connection, in bursts of ten times as many; 0 for no limit.
A request is what the daemon answers itself, such as
.Li //pubsubd/stats
or Synap's
.Li pubsub.info .
Requests over the limit get an error.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "message_rate",
                numbers(),
                _LIMITS.message_rate,
                "Most messages per second from one connection; 0 for no limit.",
                """\
Most messages per second that are read from one connection, in the long run; 0 for no limit.
The rest wait, unread, at the client.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "byte_rate",
                numbers(),
                _LIMITS.byte_rate,
                "Most bytes per second from one connection; 0 for no limit.",
                """\
Most bytes per second that are read from one connection, in the long run; 0 for no limit.
The rest wait, unread, at the client.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "command_timeout",
                times(),
                _LIMITS.command_timeout,
                "Silence allowed in the middle of a command.",
                """\
How long a client may be silent in the middle of a command.
Between commands it may be silent for ever.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "drain_timeout",
                times(zero=True),
                _LIMITS.drain_timeout,
                "How long a daemon that shuts down goes on delivering.",
                """\
How long a daemon that shuts down goes on reading and delivering.
See
.Sx SIGNALS
in
.Xr pubsubd 8 .
""",
                live=True,
            ),
        ),
    ),
    (
        "The hub port",
        (
            Setting(
                "hub_max_message",
                sizes(),
                _HUB.max_message,
                "Largest JSON message.",
                """\
Largest JSON message.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_max_pending",
                sizes(),
                _HUB.max_pending,
                "Most bytes that may wait for one consumer of the hub port.",
                """\
The same as
.Sy max_pending ,
for the hub port.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_rate",
                numbers(),
                _HUB.rate,
                "Most hub:* messages per minute from one connection; 0 for no limit.",
                """\
.Li hub:*
messages per minute that one connection may send, in the long run; 0 for no limit.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_burst",
                counts(),
                _HUB.burst,
                "Most hub:* messages at once from one connection.",
                """\
.Li hub:*
messages that one connection may send at once.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_heartbeat",
                times(),
                _HUB.heartbeat,
                "Silence after which a hub:* client is considered dead.",
                """\
Silence after which a
.Li hub:*
client that has introduced or registered itself is considered dead.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_ping",
                times(zero=True),
                _HUB.ping,
                "Time between two pings over a WebSocket; 0 for none.",
                """\
Time between two pings that are sent over each WebSocket, so that proxies do not take it
for idle; 0 for none.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_max_actors",
                counts(),
                _HUB.max_actors,
                "Registered actors.",
                """\
Most actors that may be registered.
""",
                live=True,
            ),
            Setting(
                "hub_ttl",
                times(),
                _HUB.ttl,
                "Lifetime of a registration that does not name one.",
                """\
Lifetime of a registration that does not name one.
""",
                live=True,
            ),
            Setting(
                "hub_max_ttl",
                times(),
                _HUB.max_ttl,
                "Longest lifetime of a registration.",
                """\
Longest lifetime that a registration may name.
""",
                live=True,
            ),
            Setting(
                "hub_page",
                counts(),
                _HUB.page,
                "Actors or topics in one answer.",
                """\
Most actors or topics in one answer.
""",
                live=True,
            ),
            Setting(
                "hub_topic_length",
                counts(),
                _HUB.topic_length,
                "Characters of a hub:* topic.",
                """\
Most characters of a
.Li hub:*
topic.
""",
                live=True,
            ),
            Setting(
                "hub_any_topic",
                switches(),
                _HUB.any_topic,
                "Let hub:* topics be any legal name.",
                """\
Let
.Li hub:*
topics be any legal name, not only letters, digits,
.Ql / ,
.Ql _
and
.Ql - .
""",
                live=True,
            ),
            Setting(
                "hub_max_topics",
                counts(),
                _HUB.max_topics,
                "Topics remembered with their counts.",
                """\
Most topics remembered with their counts.
The names of those without subscribers may take 128 bytes times this number in all.
""",
                live=True,
            ),
            Setting(
                "hub_topic_idle",
                times(),
                _HUB.topic_idle,
                "How long an unused topic is remembered.",
                """\
How long a topic is remembered that nobody publishes or subscribes to.
""",
                live=True,
            ),
            Setting(
                "hub_max_topic_subscribers",
                counts(),
                _HUB.max_topic_subscribers,
                "Subscribers of one topic on the hub port.",
                """\
Most subscribers of one topic on the hub port.
""",
                live=True,
            ),
            Setting(
                "hub_max_wildcards",
                counts(),
                _HUB.max_wildcards,
                "Wildcard subscriptions on the hub port.",
                """\
Most wildcard subscriptions on the hub port.
""",
                live=True,
            ),
            Setting(
                "hub_max_connection_wildcards",
                counts(),
                _HUB.max_connection_wildcards,
                "Wildcard subscriptions of one connection of the hub port.",
                """\
Most wildcard subscriptions of one connection of the hub port.
""",
                live=True,
            ),
            Setting(
                "hub_max_subscribers",
                counts(),
                _HUB.max_subscribers,
                "Synap subscribers in all.",
                """\
Most Synap subscribers, including those without a connection.
""",
                live=True,
            ),
            Setting(
                "hub_max_detached",
                counts(),
                _HUB.max_detached,
                "Synap subscribers without a connection.",
                """\
Most Synap subscribers without a connection, which
.Li POST /pubsub/subscribe
creates.
""",
                live=True,
            ),
            Setting(
                "hub_max_detached_topics",
                counts(),
                _HUB.max_detached_topics,
                "Topics of all Synap subscribers without a connection.",
                """\
Most topics of all Synap subscribers without a connection together.
""",
                live=True,
            ),
            Setting(
                "hub_detached_idle",
                times(),
                _HUB.detached_idle,
                "How long an unused Synap subscriber without a connection is kept.",
                """\
How long a Synap subscriber without a connection is kept while no request names it.
""",
                live=True,
            ),
        ),
    ),
    (
        "The mesh",
        (
            Setting(
                "peer",
                lists("HOST:PORT"),
                (),
                "Link to this daemon; may be repeated.",
                """\
Link to this daemon, and keep trying for ever.
IPv6 addresses are in brackets, link-local ones with their interface:
.Li [fe80::1%eth0]:9014 .
May be given several times.
""",
                live=True,
            ),
            Setting(
                "mesh",
                texts("NAME"),
                None,
                "Name of the mesh.  [default: default]",
                """\
Name of the mesh: 1 to 64 of the characters
.Li A-Z a-z 0-9 \\&. _ \\&: - .
If it is not set, the name is
.Li default .
""",
            ),
            Setting(
                "node",
                texts("ID"),
                None,
                "This daemon's id in the mesh.  [default: its address]",
                """\
This daemon's id in the mesh, in the same characters.
No two daemons may have the same.
The default is the address that the daemon advertises.
""",
            ),
            Setting(
                "site",
                texts("NAME"),
                None,
                "Site where this daemon runs, for the analysis of the mesh.",
                """\
Name of the site where this daemon runs, such as a data centre: 1 to 64 of the characters
.Li A-Z a-z 0-9 \\&. _ \\&: + ~ - .
The other daemons and edge lists name it, and
.Xr pubsubd-topology 1
tells which sites the mesh cannot lose.
""",
            ),
            Setting(
                "rack",
                texts("NAME"),
                None,
                "Rack within the site, likewise.",
                """\
Name of the rack within the site, in the same characters, or of whatever else fails as one.
""",
            ),
            Setting(
                "mesh_secret_file",
                texts("FILE"),
                None,
                "Link only to daemons that have the same secret.",
                """\
Link only to daemons that have the same secret.
The secret is the content of this file without surrounding white space, at least 16
bytes.
""",
            ),
            Setting(
                "hub_mesh",
                lists("TOPIC"),
                ("direct:",),
                "Carry hub topics that begin so to other daemons, # for all; may be repeated.",
                """\
Carry topics of the hub port that begin with this text to the other daemons of the mesh;
.Li #
is for all topics.
May be given several times.
The default,
.Li direct: ,
is for envelopes to one receiver.
Topics that begin with
.Li //
are carried anyway.
Set the same at all daemons; see
.Xr pubsubd-mesh 7 .
""",
            ),
            Setting(
                "mesh_tls",
                switches(),
                False,
                "Speak TLS to daemons that this one dials.",
                """\
Speak TLS on the links that this daemon dials.
For links that other daemons dial, set
.Sy tls_certificate .
""",
            ),
            Setting(
                "mesh_tls_ca",
                texts("FILE"),
                None,
                "Authorities to trust when dialling.  [default: those of the system]",
                """\
PEM file of authorities that are trusted to certify the daemons that this one dials.
This file, the certificate and the key below are read at the start and at each reload.
The default is the authorities that the system trusts.
""",
            ),
            Setting(
                "mesh_tls_certificate",
                texts("FILE"),
                None,
                "The certificate to show to daemons that this one dials.",
                """\
PEM file with the certificate to show to daemons that this one dials.
""",
            ),
            Setting(
                "mesh_tls_key",
                texts("FILE"),
                None,
                "Its private key.  [default: in the same file]",
                """\
Private key of that certificate.
The default is the same file.
""",
            ),
            Setting(
                "discover",
                choices("linked", "any", metavar="[any]"),
                None,
                "Link to daemons that linked daemons report, or with any, that any client reports.",
                """\
Link to daemons that others report:
.Cm linked
for those that linked daemons report,
.Cm any
for those that any client reports as well.
The flag without a value means
.Cm linked .
Where there are logins or access rules,
.Cm any
needs
.Sy mesh_secret_file .
""",
            ),
            Setting(
                "discover_allow",
                lists("NETWORK"),
                (),
                "A network that must contain discovered addresses; may be repeated.",
                """\
Network, such as
.Li 10.0.0.0/8 ,
that must contain an address for it to be discovered.
May be given several times.
""",
            ),
            Setting(
                "max_peers",
                counts(),
                8,
                "Number of links up to which discovered daemons are dialled.",
                """\
Discovered daemons are dialled until this daemon has this many links.
""",
            ),
            Setting(
                "advertise",
                texts("HOST:PORT"),
                None,
                "Where other daemons can dial this one.  [default: where it listens]",
                """\
Address at which other daemons can dial this one.
The default is where it listens, beyond loopback if it can, with the name of the machine
if it listens on all addresses or on a link-local one.
""",
            ),
            Setting(
                "mesh_heartbeat",
                times(),
                1.0,
                "Time between two heartbeats; a link silent for two of them is closed.",
                """\
Time between two heartbeats on a link.
A link that has been silent for two heartbeats and a round trip is closed.
""",
            ),
            Setting(
                "export_edges",
                texts("DIR"),
                None,
                "Write edge lists of the mesh to this directory.",
                """\
Write edge lists of the mesh to this directory;
.Xr pubsubd-mesh 7
describes its files.
""",
            ),
            Setting(
                "export_interval",
                times(),
                60.0,
                "Time between two edge lists.",
                """\
Time between two edge lists.
""",
                live=True,
            ),
            Setting(
                "export_detail",
                spans(),
                86_400.0,
                "Time for which every edge list is kept; of older days, one per hour.",
                """\
Time for which every edge list is kept, such as
.Li 12h
or
.Li 30d .
Of older days, one for each hour and what changed within the hour are kept.
""",
                live=True,
            ),
            Setting(
                "export_age",
                spans(),
                365 * 86_400.0,
                "Age at which edge lists are removed.",
                """\
Age at which edge lists are removed.
""",
                live=True,
            ),
            Setting(
                "export_size",
                sizes(),
                2**30,
                "Most bytes of all edge lists; the oldest are removed.",
                """\
Size of all files of edge lists together.
Above it, the oldest are removed.
""",
                live=True,
            ),
        ),
    ),
    (
        "Log",
        (
            Setting(
                "log_level",
                choices("debug", "info", "warning", "error"),
                "info",
                "Lowest level that is logged.",
                """\
Lowest level that is logged:
.Cm debug ,
.Cm info ,
.Cm warning
or
.Cm error .
""",
                live=True,
            ),
            Setting(
                "log_format",
                choices("text", "json"),
                "text",
                "One line an event: key=value pairs, or a JSON object.",
                """\
Form of an event, one per line:
.Cm text
for
.Ar key Ns = Ns Ar value
pairs, or
.Cm json
for a JSON object with the same keys.
""",
            ),
        ),
    ),
)
"""Titles of the manual page's sections, and the settings of each."""

SETTINGS: dict[str, Setting] = {one.name: one for _, section in SECTIONS for one in section}
"""Name -> setting."""
