"""What must hold outside the code for a proof to cover a release, read off its trust card.

One list for both sides: the hand-over states it, and verification asks for no less. So every
condition must be a fact that the card itself states.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from privet.data.dataset import EXAMPLE
from privet.engine.fixed_parts import assumed_of_parts
from privet.engine.generators import TORCH_DRAWS
from privet.engine.tuned import Tuning
from privet.guarantee import Adjacency
from privet.privacy.events import LIFELONG
from privet.privacy.local import LOCAL
from privet.privacy.participation import FEDERATED, FEDERATION
from privet.privacy.sampling import sampler_of

SECRET: Final = (
    "the sampling and noise keys stay secret",
    "AES-256, keyed BLAKE2b and (for noise drawn on a GPU) ChaCha20 are pseudo-random",
)
ROUNDED: Final = "sums and noise in floating point behave as the real numbers they round"
UNWATCHED: Final = "what the weights do is released, not the time or memory that training took"
ALWAYS: Final = (
    *SECRET,
    "the model (and an augmentation or adversary of one's own) treats every example apart and keeps"
    " rows in their places (probed on made-up batches)",
    ROUNDED,
    UNWATCHED,
)
PUBLIC_START: Final = (
    "the first weights, and all that is frozen, were not learned from these records"
)
OWN_LOOP: Final = "nothing that reads these records changed the weights between the private steps"
WHEN_REDONE: Final = "when the run was interrupted did not depend on the records"
SIZE_IS_PUBLIC: Final = "the number of units is public: shuffled batches depend on it"
SIZE_IS_ENOUGH: Final = (
    "the data have at most as many units as their nominal size says (more are refused)"
)

ONE_TASK: Final = "every {unit} of the stream is in one task"
ONE_IDENTITY: Final = "a {unit} has the same identity in all tasks of the stream"
UNKNOWN_MEMORY: Final = "nobody knows which of them the memory holds, and it stays secret"

TRUSTED_SERVER: Final = "the server sees every update; what it publishes is protected"
KEPT_TRACES: Final = (
    "clients keep their numbers, and so their rows in the file of traces, when one of them comes or"
    " goes; these rows follow from no record"
)
OWN_RECORDS_ALONE: Final = (
    "what a client sends follows from its own records, from what was published and from public"
    " draws"
)
TIMES_ARE_SHOWN: Final = (
    "when a client takes part, and what that tells of how many records it has, is not protected:"
    " neighbours differ in what is sent alone"
)
MADE_UP_CLIENTS: Final = "records were dealt out to clients; a client is protected as it was dealt"
PUBLIC_POOL: Final = "the records that all clients are given are public: {statement}"

SERVED: Final = "served"  # the field of a federation that was no simulation, but a server
NODE: Final = "node"  # the unit where the server is behind Flower's SuperLink
SUMS_ARE_SEEN: Final = (
    "the server sees sums of cohorts without noise, and adds it; every device clips its update"
)
ONE_DEVICE: Final = (
    "every device is one person, and no person has two: what is protected is a device"
)
WORLD_APART: Final = (
    "when the server was up, whom it let in, and what its operator did followed from no record and"
    " from no device's coming, or from what was published alone"
)
APART_FROM_NODES: Final = (
    "when SuperLink and ServerApp were up, which nodes they let in, and what the operator did"
    " followed from no record and from no node's coming, or from what was published alone"
)
ONE_NODE: Final = (
    "no person has records at two nodes: what is protected is a node, with all its records"
)
NODE_KEYS: Final = (
    "the SuperLink lets nobody answer for a node without the node's key; who has it is that node"
)
SUPERLINK: Final = (
    "the host of the SuperLink sees and keeps messages as the server does, and is trusted like it"
)
OWN_KEYS: Final = "every device keeps its key: nobody takes part in another's name"

SMALLER_TASKS: Final = "how large tasks are, and that there are more, does not depend on records"


def assumptions_of(trust: Mapping[str, Any]) -> tuple[str, ...]:
    """The least that every proved statement of this card rests on."""
    if trust["mechanism"]["sampler"] == LOCAL:
        # What learns sees no record, and the noise is whole numbers: neither is assumed anything.
        return (*SECRET, UNWATCHED, *_of_these_data(trust), SIZE_IS_ENOUGH)
    if trust["mechanism"]["sampler"] in FEDERATED:
        return (*SECRET, ROUNDED, UNWATCHED, *_of_these_data(trust), *_of_a_federation(trust))
    own = (*ALWAYS, *_of_these_data(trust), *_of_this_one(trust))
    return (*own, *assumed_of_parts(trust, own))


def _of_these_data(trust: Mapping[str, Any]) -> Iterator[str]:
    data = trust["data"]
    yield Tuning.from_json(trust["tuning"]).assumption
    if data["unit"] != EXAMPLE and not data["grouped"]:
        yield f"no {data['unit']} has more than one record: no column says whose each is"


def _of_this_one(trust: Mapping[str, Any]) -> Iterator[str]:
    mechanism = trust["mechanism"]
    if trust["provenance"]["init_seed"] is None:
        yield PUBLIC_START
        yield OWN_LOOP
    if mechanism["redone_steps"] > 0:
        yield WHEN_REDONE
    if mechanism["torch_draws"]:
        yield TORCH_DRAWS
    if Adjacency.ADD_REMOVE not in sampler_of(mechanism).adjacencies:
        yield SIZE_IS_PUBLIC
    if LIFELONG in trust:
        yield from _of_a_stream(trust[LIFELONG], trust["data"]["unit"])


def _of_a_federation(trust: Mapping[str, Any]) -> Iterator[str]:
    facts = trust[FEDERATION]
    served = facts.get(SERVED, {})
    yield SUMS_ARE_SEEN if served.get("secure_sum") else TRUSTED_SERVER
    yield OWN_RECORDS_ALONE
    if facts.get("trace_file"):
        yield KEPT_TRACES
    if SERVED in facts:
        nodes = trust["data"]["unit"] == NODE
        own = (ONE_NODE, APART_FROM_NODES, NODE_KEYS, SUPERLINK)
        yield from own if nodes else (ONE_DEVICE, WORLD_APART, OWN_KEYS)
    if not facts["by_clock"]:
        yield TIMES_ARE_SHOWN
    if trust["provenance"]["init_seed"] is None:
        yield PUBLIC_START
    if facts["made_up"]:
        yield MADE_UP_CLIENTS
    if "pool" in facts:
        yield PUBLIC_POOL.format(statement=facts["pool"])


def _of_a_stream(stream: Mapping[str, Any], unit: str) -> Iterator[str]:
    yield (ONE_IDENTITY if stream["shared"] else ONE_TASK).format(unit=unit)
    yield SMALLER_TASKS
    if stream["recall"] is not None:
        yield UNKNOWN_MEMORY
