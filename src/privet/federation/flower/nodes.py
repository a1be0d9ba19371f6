"""Who a node is: its public key, as files NAME.pub say it.

Flower's SuperLink believes no request of a node that is not signed by its key, and tells the
ServerApp the key of each node. A number of a node (`node_id`) lasts only as long as the SuperLink's
database; a key, and so the name that stands for it here, lasts as long as the node keeps it. Caps
and charges go by the name: a node whose key is exchanged keeps what it has spent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)

from privet.errors import InputError

ENDING: Final = ".pub"


@final
@dataclass(frozen=True, kw_only=True)
class Roster:
    """The nodes that take part, by key; an open one takes whoever comes.

    Attributes:
        names: by key (DER).
        closed: whether others are left out. Under privacy it must be.
    """

    names: Mapping[bytes, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """All NAME.pub of a folder; open if there is none."""
        names: dict[bytes, str] = {}
        for path in sorted(folder.glob(f"*{ENDING}")):
            key = _key_in(path)
            if key in names:
                raise InputError(
                    "one key of two nodes",
                    got=f"{names[key]}{ENDING} and {path.name}",
                    fix="give every node a key of its own",
                )
            names[key] = _require_name(path.stem)
        return cls(names=names)

    @property
    def closed(self) -> bool:
        """Whether nodes that are not on it are left out."""
        return bool(self.names)

    def name_of(self, node: Any) -> str | None:
        """Of a node as Flower tells of it; None: it takes no part."""
        if not self.closed:
            return f"node-{node.node_id}"
        try:
            return self.names.get(_der(load_pem_public_key(node.public_key)))
        except (ValueError, UnsupportedAlgorithm):
            return None


def _key_in(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        load = load_pem_public_key if content.startswith(b"-----") else load_ssh_public_key
        return _der(load(content))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            "no public key of a SuperNode",
            got=f"{path}: {error}",
            expected="an elliptic curve's, OpenSSH or PEM",
            fix="ssh-keygen -t ecdsa -b 384 -N '' -f NAME, which makes NAME and NAME.pub",
        ) from None


def _der(key: object) -> bytes:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("not of an elliptic curve")
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _require_name(name: str) -> str:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum()):
        raise InputError(
            "bad name of a node", got=f"{name}{ENDING}", expected="letters, digits, -, _ and ."
        )
    return name
