"""Where the daemon under test listens."""

from __future__ import annotations

import random
from dataclasses import dataclass

from soaklib.wires import Address


@dataclass(frozen=True)
class Doors:
    """Where the daemon under test listens, and who may come in.

    Attributes:
        line, secure, unix: the line port, with TLS, and on a Unix socket.
        known: with TLS and a certificate.
        guarded: the line port where a login is asked for.
        hub, secure_hub, guarded_hub: the same for the hub port.
        far_hub: the hub port of another daemon of its mesh.
        user, password: of the users file.
        token: a JSON Web Token that is good.
        rng: of all that is random.
    """

    line: Address
    secure: Address
    unix: Address
    known: Address
    guarded: Address
    hub: Address
    secure_hub: Address
    guarded_hub: Address
    far_hub: Address
    user: str
    password: str
    token: str
    rng: random.Random

    def any_line(self) -> Address:
        """One of the doors of the line port, plain ones more often."""
        return self.rng.choice((self.line, self.line, self.unix, self.secure))

    def any_hub(self) -> Address:
        """The same of the hub port."""
        return self.rng.choice((self.hub, self.hub, self.secure_hub))
