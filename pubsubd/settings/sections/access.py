"""Where the daemon listens, who may connect, and encryption."""

from __future__ import annotations

from pubsubd.protocol.limits import Limits
from pubsubd.settings.kinds import choices, counts, lists, networks, switches, texts, times, workers
from pubsubd.settings.setting import Section, Setting

_LIMITS = Limits()
_PORT = counts(0, 65_535, "PORT")

LISTENING: Section = (
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
for one per core that the daemon may use: those that it may run on, but no more than
.Li CPUQuota=
of systemd or
.Ql docker --cpus
give it, rounded up.
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
)

CLIENTS: Section = (
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
)

ENCRYPTION: Section = (
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
)
