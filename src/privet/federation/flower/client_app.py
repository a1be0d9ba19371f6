"""The ClientApp: a node of ours, which trains as the simulator's clients do, bit for bit.

What it trains on stands in the node's own configuration (`flower-supernode --node-config`):

    data             a name of `privet data list`, or a description file (.toml)
    data-dir         where the files of a named data set are
    user             which user of the data the node is; default: the node has all of them
    num-partitions   instead, to try: to how many clients the records are dealt out,
    partition-id     and which of them the node is
    skew             of that deal

An answer has the weights and nothing else: no number of records, no loss.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from pydantic import ValidationError
from torch import Tensor

import privet
from privet.data.dataset import Dataset, Split
from privet.errors import InputError
from privet.federation import wire
from privet.federation.flat import flat
from privet.federation.flower.arrays import Arrays, Layout
from privet.federation.flower.messages import ARRAYS, CONFIG, OFFER, SEED, TURN
from privet.federation.local_work import Material, Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.phone.training import local_work, network_of
from privet.federation.population import Population, population_of
from privet.federation.settings import FederationSettings

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One lesson, from the version that was sent."""
    config = message.content.config_records[CONFIG]
    given = {name: array.numpy() for name, array in message.content.array_records[ARRAYS].items()}
    answer = trained(given, config, context.node_config)
    record = ArrayRecord({name: Array(part) for name, part in answer.items()})
    return Message(RecordDict({ARRAYS: record}), reply_to=message)


def trained(given: Arrays, config: Mapping[str, Any], node: Mapping[str, Any]) -> Arrays:
    """The arrays after the lesson; `node`: of this node, see the module."""
    offer = _offer(config)
    seed, turn = int(config[SEED]), int(config[TURN])
    material, client = records_of(node, offer, seed=seed)
    network, work = copy.deepcopy(network_of(offer)), local_work(offer.work)
    layout = Layout(copy.deepcopy(network))
    network.load_state_dict({name: torch.from_numpy(part.copy()) for name, part in given.items()})
    start: Tensor = flat(network)
    lesson = Teacher(material, work, seed=seed).lesson(client, turn)
    engine = OneByOne(network, material, work, proximal=offer.work.proximal)
    pupil = engine.pupil(start, lesson)
    with work.products(torch.device("cpu")):
        pupil.go_on()
    return layout.arrays(pupil.weights())


def records_of(node: Mapping[str, Any], offer: wire.Offer, *, seed: int) -> tuple[Material, int]:
    """The node's records, and its place among them."""
    if "data" not in node:
        raise InputError(
            "a node without data",
            got=f"--node-config with {', '.join(sorted(node)) or 'nothing'}",
            fix="--node-config 'data=\"/srv/records.toml\"'",
        )
    folder = Path(str(node["data-dir"])) if "data-dir" in node else None
    data = privet.data.load(str(node["data"]), folder)
    _require_fit(data, offer)
    if "num-partitions" in node:
        return _of_deal(data, node, seed)
    if "user" in node:
        population = population_of(data, FederationSettings(init_seed=seed))
        return _one(population.material(torch.device("cpu")), int(node["user"]))
    return _all_of(data), 0


def _of_deal(data: Dataset, node: Mapping[str, Any], seed: int) -> tuple[Material, int]:
    """As `privet federate simulate --clients N` deals."""
    settings = FederationSettings(
        clients=int(node["num-partitions"]),
        skew=float(node["skew"]) if "skew" in node else None,
        init_seed=seed,
    )
    population = population_of(data, settings)
    return _one(population.material(torch.device("cpu")), int(node.get("partition-id", 0)))


def _one(material: Material, client: int) -> tuple[Material, int]:
    if not 0 <= client < len(material.clients):
        raise InputError("no such client", got=client, expected=f"0..{len(material.clients) - 1}")
    return material, client


def _all_of(data: Dataset) -> Material:
    """One client, whoever the records are of."""
    train = data.train
    one = Split(x=train.x, y=train.y, units=np.zeros(len(train), dtype=np.int64))
    population = Population(data=replace(data, train=one, nominal_size=1), pool=None)
    return population.material(torch.device("cpu"))


def _offer(config: Mapping[str, Any]) -> wire.Offer:
    try:
        return wire.Offer.model_validate_json(str(config.get(OFFER, "")))
    except ValidationError:
        raise InputError(
            "a message that says nothing of the work",
            expected="one of privet's ServerApp, for a network of `privet models`",
            fix="a ClientApp of your own trains a network of your own",
        ) from None


def _require_fit(data: Dataset, offer: wire.Offer) -> None:
    got = (tuple(data.shape), len(data.classes))
    expected = (tuple(offer.shape), len(offer.classes))
    if got != expected:
        raise InputError(
            f"'{data.name}' does not fit the model",
            got=f"examples of shape {got[0]}, {got[1]} classes",
            expected=f"shape {expected[0]}, {expected[1]} classes",
        )
