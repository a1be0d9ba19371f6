"""What phones and server say to one another, as JSON.

| FLSys | here         | who says it                                                             |
|-------|--------------|-------------------------------------------------------------------------|
| RTCm  | `Ready`      | phone: ready to train this model                                        |
| AFTm  | `Accepted`   | server: train from this version, send the update there, until then      |
| DFTm  | `Denied`     | server: not now, and why                                                |
|       | `Commit`     | phone: the update is there, and this is its digest                      |
|       | `Outcome`    | server: whether it counts                                               |

No message says how many records a phone has, nor of which classes: the server must not learn what a
user lacks. What a phone needs in order to decide is sent to it, and it decides by itself.

Fields that nobody knows are refused, and so is text without end.

An upload that was cut off goes on. `HEAD put_url` answers with `OFFSET_HEADER`: how many bytes are
there. `PUT put_url` has a part of the update and `Content-Range: bytes FIRST-LAST/ALL`; its answer
has `OFFSET_HEADER`, too. A part that does not begin where the last one ended is answered with 409.
Where `resumable` is false (a presigned URL of a store), the whole goes in one `PUT`.
"""

import json
from enum import StrEnum
from typing import Annotated, Final, Literal, final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

FORMAT: Final = 1
LONGEST_NAME: Final = 100
OFFSET_HEADER: Final = "Upload-Offset"  # bytes of an update that have arrived
SKEW_SECONDS: Final = 300.0  # by how much the clocks of phone and server may differ

Name = Annotated[
    str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[A-Za-z0-9][\w.\- ]*$")
]
Secret = Annotated[str, Field(min_length=16, max_length=128, pattern=r"^[\w\-]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]


def looks_like_a_secret(text: str) -> bool:
    """Whether it can be a key of an app, or a token."""
    try:
        TypeAdapter(Secret).validate_python(text)
    except ValidationError:
        return False
    return True


class Message(BaseModel):
    """The root of all messages: only known fields, and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Literal[1] = FORMAT


class Reason(StrEnum):
    """Why a phone is denied, or an update refused."""

    CLOSED = "the model is not trained now"
    STALE = "the version is too old"
    SPENT = "the device took part as often as it may"
    TOO_SOON = "the device took part a short while ago"
    UNASKED = "the device is not among those that were asked"
    STOPPED = "training is over"
    QUOTA = "enough devices are at work"
    UNSUBSCRIBED = "the device does not have this model"
    UNFIT = "this kind of device is not known to work"
    REPEATED = "an update of the device counts in this round already"
    LATE = "the deadline is over"
    UNKNOWN = "no such ticket"
    BROKEN = "the update does not arrive as it was sent"
    MALFORMED = "the update does not fit the model"
    TOO_LONG = "the update is longer than the plan allows"
    SUMMED = "updates of this model are taken in secure sums alone"
    TOO_FEW = "too few devices were left for a secure sum"


@final
class Register(Message):
    """A phone enters: the app's key, its own public key, and what it is.

    `signature` is by the device's key over `signed_text`: whoever registers a key has it.
    """

    app_key: Secret
    public_key: Annotated[str, Field(max_length=64)]
    phone: Name
    system: Name
    sent: Seconds
    nonce: Secret
    signature: Annotated[str, Field(max_length=128)]

    def signed_text(self) -> bytes:
        """What the signature is over; it never contains a line break of its own."""
        what = (self.app_key, self.public_key, self.phone, self.system)
        return "\n".join(("register", *what, f"{self.sent!r}", self.nonce)).encode()


@final
class AboutServer(Message):
    """GET /v1/server: its name, and the key (Ed25519, raw, base64) by which it signs manifests."""

    server: Name
    public_key: Annotated[str, Field(max_length=64)]


@final
class Registered(Message):
    """Its name from now on, and the models that its app has."""

    device: Name
    models: list[Name]


@final
class AskToken(Message):
    """A phone wants a token, signed by its own key."""

    device: Name
    sent: Seconds
    nonce: Secret
    signature: Annotated[str, Field(max_length=128)]

    def signed_text(self) -> bytes:
        """What the signature is over."""
        return "\n".join(("token", self.device, f"{self.sent!r}", self.nonce)).encode()


@final
class Token(Message):
    """Bears the device's name for a short while."""

    token: str
    expires_in: Seconds


@final
class Work(Message):
    """What a phone does in a round, and what it must have before it says it is ready."""

    epochs: Count
    batch: Count
    learning_rate: float
    optimizer: Literal["sgd", "adam"]
    proximal: float = 0.0
    least_records: Count = 1
    own_per_class: tuple[int, int] | None = None
    pool_per_class: tuple[int, int] | None = None


@final
class Sensing(Message):
    """What a model wants collected: a sensor, at which rate, kept for how long."""

    sensor: Name
    least_rate: Annotated[float, Field(gt=0, le=1000)]
    rate: Annotated[float, Field(gt=0, le=1000)]
    flush_seconds: Annotated[float, Field(gt=0)] = 60.0
    keep_days: Annotated[float, Field(gt=0)] = 30.0


@final
class Offer(Message):
    """A model that a device may have, and its newest version."""

    model: Name
    version: Count
    network: Name
    shape: list[Count]
    classes: list[Name]
    work: Work
    sensing: list[Sensing]
    tries: Count = 0  # held-out records on which a device tries a version; 0: it does not


@final
class Offers(Message):
    """All of them."""

    offers: list[Offer]


@final
class Ready(Message):
    """RTCm. `nonce` is new each time: a message that was heard is of no use to anybody else."""

    phone: Name
    system: Name
    sent: Seconds
    nonce: Secret


@final
class Accepted(Message):
    """AFTm: from where to where, until when.

    With `longest` the update is not put anywhere: shortened to this norm it goes into a secure sum.
    """

    status: Literal["AFT"] = "AFT"
    ticket: Secret
    round: Count
    base_version: Count
    get_url: str
    put_url: str
    resumable: bool
    seconds_left: Seconds
    most_bytes: Count
    work: Work
    longest: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


@final
class SumStep(Message):
    """Where a secure sum stands, to one device.

    `terms` and `question` are of `secure_sum`, as JSON; `answered`: there is nothing to say now.
    """

    stage: Name
    answered: bool = True
    terms: str | None = None
    question: str | None = None
    outcome: "Outcome | None" = None
    retry_after: Seconds


@final
class Denied(Message):
    """DFTm."""

    status: Literal["DFT"] = "DFT"
    reason: Reason
    retry_after: Seconds


@final
class Commit(Message):
    """The update lies at the put_url; this is the SHA-256 of its bytes."""

    sha256: Digest


@final
class Outcome(Message):
    """Whether the update counts. To ask again is to be told the same."""

    accepted: bool
    reason: Reason | None = None


@final
class Manifest(Message):
    """What a version is; the server signs the JSON of exactly these fields."""

    model: Name
    version: Count
    sha256: Digest
    weights: Count
    plan: Digest

    def signed_text(self) -> bytes:
        """What the server's signature is over."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":")).encode()


@final
class SignedManifest(Message):
    """GET /v1/models/{model}/manifest; `signature` is base64 over `manifest.signed_text()`."""

    manifest: Manifest
    signature: Annotated[str, Field(max_length=128)]


@final
class News(Message):
    """GET /v1/models/{model}/news?after=V: the newest version, once it is above V or time is up."""

    version: Count


@final
class Report(Message):
    """Federated evaluation: how many of a device's held-out records a version has right.

    The plan says how many are tried, the same for every device, so that the number says nothing.
    """

    version: Count
    tried: Count
    right: Count
    sent: Seconds
    nonce: Secret
