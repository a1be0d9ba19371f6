"""Artefacts in a bucket of any store that speaks S3; phones talk to it themselves.

The server hands out presigned addresses, which end with the ticket. What a phone has put there may
be replaced until then; so nothing that counts is read from there twice.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, final
from urllib.parse import parse_qs, urlsplit

from privet.errors import FaultyEnvironment, InputError
from privet.federation.server.home import is_here
from privet.federation.server.store import Bytes, Missing, Store, checked

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ModuleNotFoundError as missing:
    raise FaultyEnvironment(
        "S3 needs an extra package", got=str(missing), fix="pip install 'privet[s3]'"
    ) from None

LONGEST_SECONDS: Final = 7 * 86_400  # of a presigned address
GONE: Final = ("404", "NoSuchKey", "NotFound", "InvalidRange")


@final
class S3Store(Store):
    """Objects in a bucket.

    Args:
        url: s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME; prefix, endpoint and region may
            be left out. Credentials are found as every program finds them: in the environment, or
            in the user's or the machine's configuration.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = sorted(set(said) - {"endpoint", "region"})
        if parts.scheme != "s3" or not parts.netloc or unknown:
            raise InputError(
                "bad address of a store",
                got=url,
                expected="s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME",
            )
        endpoint = urlsplit(said.get("endpoint", ""))
        if endpoint.scheme == "http" and not is_here(endpoint.hostname or ""):
            raise InputError(
                "updates would go through the network unencrypted",
                got=said["endpoint"],
                expected="https://, except on this machine: phones send nothing there",
            )
        self.bucket, prefix = parts.netloc, parts.path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._s3: Any = boto3.client(
            "s3",
            endpoint_url=said.get("endpoint"),
            region_name=said.get("region", "us-east-1"),
            config=Config(
                signature_version="s3v4",
                retries={"mode": "standard", "max_attempts": 4},
                s3={"addressing_style": "path" if "endpoint" in said else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        self._call("head_bucket")

    def put(self, key: str, content: Bytes | Sequence[Bytes]) -> None:
        """One request; a store answers once the object is safe."""
        parts = [content] if isinstance(content, Bytes) else content
        self._call("put_object", Key=self._key(key), Body=b"".join(bytes(part) for part in parts))

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of the object."""
        if length == 0:
            return b""
        end = "" if length is None else str(start + length - 1)
        ranged = {"Range": f"bytes={start}-{end}"} if start or length is not None else {}
        found = self._call("get_object", Key=self._key(key), **ranged)
        return bytes(found["Body"].read())

    def size(self, key: str) -> int | None:
        """As the store has it."""
        try:
            return int(self._call("head_object", Key=self._key(key))["ContentLength"])
        except Missing:
            return None

    def delete(self, key: str) -> None:
        """One request."""
        self._call("delete_object", Key=self._key(key))

    def list(self, prefix: str) -> Iterator[str]:
        """Page after page."""
        start = self._key(prefix.rstrip("/")) + "/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=start)
        for page in pages:
            for item in page.get("Contents", ()):
                yield str(item["Key"]).removeprefix(self._prefix)

    def upload_url(self, key: str, *, seconds: float) -> str | None:
        """Presigned, for PUT."""
        return self._presigned("put_object", key, seconds)

    def download_url(self, key: str, *, seconds: float) -> str | None:
        """Presigned, for GET."""
        return self._presigned("get_object", key, seconds)

    def _presigned(self, what: str, key: str, seconds: float) -> str:
        place = {"Bucket": self.bucket, "Key": self._key(key)}
        lasts = max(1, min(int(seconds), LONGEST_SECONDS))
        return str(self._s3.generate_presigned_url(what, Params=place, ExpiresIn=lasts))

    def _key(self, key: str) -> str:
        return self._prefix + checked(key)

    def _call(self, what: str, **named: Any) -> Any:
        try:
            return getattr(self._s3, what)(Bucket=self.bucket, **named)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in GONE and "Key" in named:
                raise Missing("no such object", got=named["Key"]) from None
            raise FaultyEnvironment(
                f"the store refused {what}", got=f"bucket {self.bucket}: {code}"
            ) from None
        except BotoCoreError as error:
            raise FaultyEnvironment("cannot reach the store", got=str(error)) from None
