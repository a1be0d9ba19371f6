"""The state machine of one model on one phone; FLSys, section 4.4.

    IDLE --ready--> REQUESTING --denied--> BACKOFF --time is over--> IDLE
    REQUESTING --accepted--> ACCEPTED --not enough time--> IDLE
    ACCEPTED --enough--> QUEUED --its turn--> DOWNLOADING --> TRAINING
    TRAINING --done--> STORED --may send--> UPLOADING --answered--> IDLE
    TRAINING --unplugged, hot, stopped--> PAUSED --> TRAINING
    any of a round --deadline over--> DISCARD --> IDLE
    any --no network--> the same, tried again later

Only these arrows exist: any other is a bug, and is refused.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Stage(StrEnum):
    """Where a phone stands with a model."""

    IDLE = "idle"
    REQUESTING = "requesting"
    BACKOFF = "backoff"
    ACCEPTED = "accepted"
    QUEUED = "queued"
    DOWNLOADING = "downloading"
    TRAINING = "training"
    PAUSED = "paused"
    STORED = "stored"
    UPLOADING = "uploading"
    DISCARD = "discard"


IN_A_ROUND: Final = frozenset(
    {
        Stage.ACCEPTED,
        Stage.QUEUED,
        Stage.DOWNLOADING,
        Stage.TRAINING,
        Stage.PAUSED,
        Stage.STORED,
        Stage.UPLOADING,
    }
)
AT_WORK: Final = frozenset({Stage.DOWNLOADING, Stage.TRAINING, Stage.PAUSED})
"""One model at a time: training side by side is slow on a phone and hurts its user."""

_ONWARD: Final = {
    Stage.IDLE: {Stage.REQUESTING},
    Stage.REQUESTING: {Stage.BACKOFF, Stage.ACCEPTED},
    Stage.BACKOFF: {Stage.IDLE},
    Stage.ACCEPTED: {Stage.QUEUED, Stage.IDLE},
    Stage.QUEUED: {Stage.DOWNLOADING},
    Stage.DOWNLOADING: {Stage.TRAINING},
    Stage.TRAINING: {Stage.STORED, Stage.PAUSED},
    Stage.PAUSED: {Stage.TRAINING},
    Stage.STORED: {Stage.UPLOADING},
    Stage.UPLOADING: {Stage.IDLE},
    Stage.DISCARD: {Stage.IDLE},
}
ARROWS: Final = MappingProxyType(
    {
        stage: frozenset(onward | ({Stage.DISCARD} if stage in IN_A_ROUND else set()))
        for stage, onward in _ONWARD.items()
    }
)
