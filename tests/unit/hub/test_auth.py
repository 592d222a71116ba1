"""Tokens and keys: what is accepted, what is refused, and that neither is ever shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import traceback
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from pubsubd.access.identity import AuthError, Authority
from pubsubd.access.tokens import load_key
from pubsubd.hub.login import credentials
from pubsubd.protocol.errors import ConfigError

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_700_000_000.0
CLAIMS = {"iss": "signal-hub", "sub": "browser/ann", "iat": int(NOW), "exp": int(NOW) + 600}


def public_of(key: Any, encoding: str, form: str) -> bytes:
    public: bytes = key.public_key().public_bytes(
        getattr(serialization.Encoding, encoding), getattr(serialization.PublicFormat, form)
    )
    return public


def pem_of(key: Any) -> bytes:
    return public_of(key, "PEM", "SubjectPublicKeyInfo")


def private_of(key: Any, encoding: str = "PEM") -> bytes:
    private: bytes = key.private_bytes(
        getattr(serialization.Encoding, encoding),
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private


RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()


@pytest.fixture
def secret(tmp_path: Path) -> Authority:
    return load(tmp_path, SECRET)


def load(tmp_path: Path, content: bytes, *audiences: str, leeway: float = 0.0) -> Authority:
    path = tmp_path / "key"
    path.write_bytes(content)
    return load_key(path, audiences, leeway)


def sign(**claims: Any) -> str:
    whole = {key: value for key, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(whole, SECRET, algorithm="HS256")


def refused(authority: Authority, token: str) -> str:
    """Return why a token is refused; neither it nor the key may show anywhere."""
    with pytest.raises(AuthError) as caught:
        authority.verify(token, NOW)
    shown = "".join(traceback.format_exception(caught.value)) + repr(authority) + str(caught.value)
    if len(token) > 20:
        assert token not in shown
        assert token[-20:] not in shown
    assert SECRET.decode() not in shown
    assert caught.value.code == "unauthorized"
    return caught.value.text


def test_a_good_token_tells_who_it_is_for(secret: Authority) -> None:
    identity = secret.verify(sign(capabilities=["send", "discover"]), NOW)
    assert identity.actor == "browser/ann"
    assert identity.capabilities == {"send", "discover"}
    assert identity.expires_at == NOW + 600
    assert secret.verify("Bearer " + sign(), NOW).capabilities is None
    assert secret.verify(sign(sub=None, actorId="x/y"), NOW).actor == "x/y"
    assert secret.verify(sign(sub=None), NOW).actor is None
    null = jwt.encode(CLAIMS | {"sub": None, "actorId": "x/y"}, SECRET, algorithm="HS256")
    assert secret.verify(null, NOW).actor == "x/y"


@pytest.mark.parametrize(
    ("key", "other"),
    [
        (SECRET, SECRET + b"x"),
        (pem_of(RSA), pem_of(rsa.generate_private_key(65537, 2048))),
        (pem_of(ED), pem_of(ed25519.Ed25519PrivateKey.generate())),
    ],
)
def test_what_checks_with_the_same_key_is_equal(tmp_path: Path, key: bytes, other: bytes) -> None:
    assert load(tmp_path, key) == load(tmp_path, key)
    assert hash(load(tmp_path, key)) == hash(load(tmp_path, key))
    assert load(tmp_path, key) != load(tmp_path, other)
    assert load(tmp_path, key) != load(tmp_path, SECRET[::-1])
    assert load(tmp_path, key) is not None
    assert load(tmp_path, key) == load(tmp_path, key, leeway=60.0)
    assert load(tmp_path, key, "a", "b") == load(tmp_path, key, "b", "a")
    assert load(tmp_path, key) != load(tmp_path, key, "a")


@pytest.mark.parametrize(
    "around", ["{}", "Bearer {}", "bearer   {}", " \t{} \r\n", "\n Bearer {}\n"]
)
def test_a_token_may_have_blanks_around_it_and_a_word_before(
    secret: Authority, around: str
) -> None:
    assert secret.verify(around.format(sign()), NOW).actor == "browser/ann"


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"exp": int(NOW)}, "expired"),
        ({"exp": int(NOW) - 1}, "expired"),
        ({"exp": None}, "no exp"),
        ({"exp": "soon"}, "time"),
        ({"exp": True}, "time"),
        ({"exp": 10**400}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"nbf": 10**400}, "nbf is no time"),
        ({"iat": -(10**400)}, "iat is no time"),
        ({"iat": "now"}, "iat is no time"),
        ({"nbf": NOW + 0.5}, "not hold yet"),
        ({"sub": 7}, "subject"),
        ({"sub": None, "actorId": ["x/y"]}, "subject"),
        ({"nbf": int(NOW) + 5}, "not hold yet"),
        ({"iss": "somebody"}, "issuer"),
        ({"iss": None}, "no iss"),
        ({"capabilities": "send"}, "capabilities"),
        ({"capabilities": [1]}, "capabilities"),
        ({"capabilities": {"send": True}}, "capabilities"),
    ],
)
def test_a_token_that_does_not_hold_is_refused(
    secret: Authority, claims: dict[str, Any], text: str
) -> None:
    assert text in refused(secret, sign(**claims))


@pytest.mark.parametrize("aud", [None, "hub", "chat", ["chat", "hub"], ["chat"], [], "", 7, [7]])
@pytest.mark.parametrize("audiences", [(), ("hub",), ("x", "hub")])
def test_a_token_for_others_is_refused(
    tmp_path: Path, audiences: tuple[str, ...], aud: Any
) -> None:
    authority, token = load(tmp_path, SECRET, *audiences), sign(aud=aud)
    good = not audiences if aud is None else bool(audiences) and aud in ("hub", ["chat", "hub"])
    if good:
        assert authority.verify(token, NOW).actor == "browser/ann"
    else:
        assert "aud" in refused(authority, token)


def test_an_exchanged_token_is_for_whom_the_old_one_was(tmp_path: Path) -> None:
    authority = load(tmp_path, SECRET, "hub")
    new, _ = authority.refresh(sign(aud=["chat", "hub"]), NOW)
    assert jwt.decode(new, SECRET, ["HS256"], options={"verify_aud": False, "verify_exp": False})[
        "aud"
    ] == ["chat", "hub"]
    with pytest.raises(AuthError, match=r"invalid_token .*aud"):
        authority.refresh(sign(aud="chat"), NOW)


def test_clocks_may_differ_by_the_leeway(tmp_path: Path) -> None:
    authority = load(tmp_path, SECRET, leeway=60.0)
    assert authority.verify(sign(exp=NOW - 59), NOW).expires_at == NOW + 1
    assert authority.verify(sign(nbf=NOW + 60), NOW).actor == "browser/ann"
    assert "expired" in refused(authority, sign(exp=NOW - 60))
    assert "not hold yet" in refused(authority, sign(nbf=NOW + 61))


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(one).encode() for one in (header, CLAIMS)] + [signature]
    return ".".join(base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts)


@pytest.mark.parametrize(
    "token",
    [
        "",
        " ",
        "x",
        "a.b.c",
        "a.b.c.d",
        sign()[:-2],
        sign() + "x",
        sign().replace(".", ".."),
        sign().replace(".", " . "),
        sign()[:40] + "\n" + sign()[40:],
        "Bearer",
        "Bearer Bearer " + sign(),
        sign() * 400,
        sign(padding="x" * 20_000),
        "\ud800.x.y",
        unsigned({"alg": "HS256", "crit": ["x"], "x": 1}),
        unsigned({"alg": "HS256", "kid": "../../dev/null"}),
        ".".join(["[" * 4_000, sign().split(".")[1], ""]),
        "x" * 100_000,
        unsigned({"alg": "none"}),
        unsigned({"alg": "None"}),
        unsigned({"alg": "HS256"}),
        unsigned({"alg": ["HS256"]}),
        unsigned({}),
        jwt.encode(CLAIMS, SECRET * 2, algorithm="HS512"),
        jwt.encode(CLAIMS, b"another secret of thirty-two byte", algorithm="HS256"),
        "\u00e9.\u00e9.\u00e9",
    ],
)
def test_a_token_that_is_none_or_of_another_kind_is_refused(secret: Authority, token: str) -> None:
    refused(secret, token)


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (ED, "EdDSA")])
def test_the_key_decides_the_algorithm(tmp_path: Path, key: Any, algorithm: str) -> None:
    authority = load(tmp_path, pem_of(key))
    good = jwt.encode(CLAIMS, key, algorithm=algorithm)
    assert authority.verify(good, NOW).actor == "browser/ann"
    # The public key's bytes, which everybody knows, taken for a secret.
    signed = unsigned({"alg": "HS256", "typ": "JWT"}).rstrip(".")
    mac = hmac.new(pem_of(key), signed.encode(), hashlib.sha256).digest()
    refused(authority, f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")
    refused(authority, sign())
    refused(authority, unsigned({"alg": "none"}))
    with pytest.raises(AuthError) as caught:
        authority.refresh(good, NOW)
    assert caught.value.code == "invalid_token"


def test_a_refreshed_token_has_the_same_claims_and_life(secret: Authority) -> None:
    token, expires_at = secret.refresh(sign(capabilities=["send"]), NOW + 500)
    assert expires_at == (NOW + 500 + 600) * 1000
    identity = secret.verify(token, NOW + 1_000)
    assert (identity.actor, identity.capabilities) == ("browser/ann", {"send"})
    old = sign(nbf=int(NOW) - 9, jti="x", room=[1, {"a": None}])
    claims = jwt.decode(
        secret.refresh(old, NOW)[0], SECRET, ["HS256"], options={"verify_exp": False}
    )
    assert claims == CLAIMS | {"nbf": int(NOW) - 9, "jti": "x", "room": [1, {"a": None}]}


def test_no_refreshed_token_holds_longer_than_a_day(secret: Authority) -> None:
    _, expires_at = secret.refresh(sign(exp=int(NOW) + 10_000_000), NOW)
    assert expires_at == (NOW + 86_400) * 1000


def test_a_token_that_does_not_say_since_when_is_refreshed_for_as_long_as_is_left(
    secret: Authority,
) -> None:
    assert secret.refresh(sign(iat=None), NOW + 100)[1] == (NOW + 600) * 1000
    assert secret.refresh(sign(iat=None, nbf=int(NOW) + 50), NOW + 100)[1] == (NOW + 650) * 1000


@pytest.mark.parametrize(
    "token",
    ["", "x", sign(exp=int(NOW) - 1), sign(iss="x"), sign(capabilities="x"), sign(iat=10**400)],
)
def test_what_does_not_hold_cannot_be_refreshed(secret: Authority, token: str) -> None:
    with pytest.raises(AuthError) as caught:
        secret.refresh(token, NOW)
    assert caught.value.code == "invalid_token"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "0 bytes"),
        (b"short\n", "5 bytes"),
        (b"x" * 31, "31 bytes"),
        (private_of(RSA), "private key"),
        (private_of(ED), "private key"),
        (pem_of(rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "neither"),
        (b"-----BEGIN PUBLIC KEY-----\nbm8=\n-----END PUBLIC KEY-----\n", "no public key"),
        (b"-----BEGIN CERTIFICATE-----\n", "no public key"),
        (public_of(RSA, "DER", "SubjectPublicKeyInfo"), "key in DER"),
        (public_of(RSA, "DER", "PKCS1"), "key in DER"),
        (public_of(ED, "DER", "SubjectPublicKeyInfo"), "key in DER"),
        (private_of(RSA, "DER"), "key in DER"),
        (public_of(RSA, "OpenSSH", "OpenSSH"), "OpenSSH key"),
        (public_of(ED, "OpenSSH", "OpenSSH") + b" me@host\n", "OpenSSH key"),
        (b' {"kty": "RSA", "n": "' + b"A" * 342 + b'", "e": "AQAB"}', "JSON Web Key"),
        (b'{"keys":[{"kty":"OKP","crv":"Ed25519","x":"' + b"A" * 43 + b'"}]}', "JSON Web Key"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        load(tmp_path, content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("start", [b"0", b"{", b"ssh"])
def test_a_secret_may_begin_as_other_keys_do(tmp_path: Path, start: bytes) -> None:
    assert repr(load(tmp_path, start + SECRET)) == "<KeyAuthority HS256>"


def test_a_key_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_key(tmp_path / "none")


@pytest.mark.parametrize(
    ("header", "given"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer abc", (None, "abc")),
        ("bearer  abc ", (None, "abc")),
        ("Basic " + base64.b64encode(b"user:abc").decode(), ("user", "abc")),
        ("Basic " + base64.b64encode(b"user:a:b").decode(), ("user", "a:b")),
        ("Basic " + base64.b64encode(b"user").decode(), None),
        ("Basic " + base64.b64encode(b"user:").decode(), None),
        ("Basic !!", None),
        ("Basic /w==", None),
        ("Digest abc", None),
    ],
)
def test_a_header_holds_a_token_or_a_name_and_a_password(
    header: str | None, given: tuple[str | None, str] | None
) -> None:
    assert credentials(header) == given
