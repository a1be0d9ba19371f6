"""A certificate of one's own, to try TLS on one's machines: phones are told to believe it."""

import datetime
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privet.files import make_folder, write_atomically

DAYS: Final = 825  # more are not believed by some systems
ALWAYS: Final = ("localhost", "127.0.0.1", "::1")


def self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """The certificate and its key; made if there is none for this host that still holds."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = _names(host)
    if not _holds(certificate, names) or not key.exists():
        make_folder(folder)
        _make(certificate, key, names)
    return certificate, key


def _names(host: str) -> tuple[str, ...]:
    """The hosts that it is for; one that listens everywhere is known by the machine's name."""
    own = os.uname().nodename if host in ("0.0.0.0", "::", "") else host
    return tuple(dict.fromkeys((own, *ALWAYS)))


def _make(certificate: Path, key: Path, names: tuple[str, ...]) -> None:
    secret = ec.generate_private_key(ec.SECP256R1())
    public = secret.public_key()
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False)
        .sign(secret, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_atomically(key, secret.private_bytes(pem, form, plain), private=True)
    write_atomically(certificate, made.public_bytes(pem))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _holds(certificate: Path, names: tuple[str, ...]) -> bool:
    """Whether it is for all these hosts, and for some days to come."""
    if not certificate.exists():
        return False
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=7)
    alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.not_valid_after_utc > soon and set(map(_general, names)) <= set(alternative)
