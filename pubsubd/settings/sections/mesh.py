"""Settings of the mesh, and of the edge lists of it."""

from __future__ import annotations

from pubsubd.settings.kinds import choices, counts, lists, sizes, spans, switches, texts, times
from pubsubd.settings.setting import Section, Setting

MESH: Section = (
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
)
