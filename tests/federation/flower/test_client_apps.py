"""ClientApps as users write them, unchanged, and ours."""

import numpy as np
import pytest
import torch
from flower_table import FLSYS, NAMES, PRIVACY
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from safetensors.torch import load_file

import privet
from privet.errors import InputError
from privet.federation.coordinator import Coordinator
from privet.federation.flat import flat, load_flat
from privet.federation.flower.client_app import app as our_app
from privet.federation.flower.client_app import records_of
from privet.federation.local_work import Teacher
from privet.federation.one_by_one import OneByOne
from privet.federation.population import population_of
from privet.federation.server.model_keys import ModelKeys
from privet.federation.server.plan import ModelPlan
from privet.federation.settings import FederationSettings
from privet.federation.simulator import Simulator, Weather
from privet.federation.traces import always
from privet.models import create


def context(**node):
    return Context(run_id=7, node_id=1, node_config=node, state=RecordDict(), run_config={})


def called(app, **node):
    return lambda message: app(message, context(**node))


@pytest.fixture
def in_words():
    """As Flower's examples are written for PyTorch."""
    app = ClientApp()

    @app.train()
    def train(message, _):
        network = create("linear", (4,), 2)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        assert message.content["config"]["lr"] == 0.05
        assert message.content["config"]["server-round"] >= 1
        load_flat(network, flat(network) + 0.5)
        reply = {
            "model": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"train_loss": 1.0, "num-examples": 3}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


@pytest.fixture
def in_arrays():
    """As those are that know lists of arrays alone."""
    app = ClientApp()

    @app.train()
    def train(message, _):
        arrays = message.content["arrays"].to_numpy_ndarrays()
        reply = ArrayRecord([part + np.float32(0.5) for part in arrays])
        return Message(content=RecordDict({"arrays": reply}), reply_to=message)

    return app


@pytest.fixture
def numpy_client():
    """As apps were written before messages had a form of their own."""

    class Client(NumPyClient):
        def fit(self, parameters, config):
            assert config["lr"] == 0.05
            return [part + np.float32(0.5) for part in parameters], 3, {"loss": 1.0}

    return ClientApp(client_fn=lambda context: Client().to_client())


@pytest.mark.parametrize(
    ("fixture", "form"),
    [("in_words", "message"), ("in_arrays", "message"), ("numpy_client", "numpy-client")],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_existing_client_apps_run_unchanged(world, request, fixture, form):
    app = request.getfixturevalue(fixture)
    for node in world.nodes:
        node.answers = called(app)
    folder = world.folder(FLSYS.replace("rounds = 4", "rounds = 1"))
    _, release = world.run(folder, **{"privet-form": form})
    assert len(world.events(folder)) == 3
    first = create("linear", (4,), 2, init_seed=0).state_dict()
    for name, part in load_file(release / "weights.safetensors").items():
        assert torch.allclose(part, first[name] + 0.5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_wrong_form_is_counted_as_a_failure(world, numpy_client, in_words):
    def failing(message):
        with pytest.raises(Exception):  # noqa: B017, PT011 - a ClientApp's own
            called(numpy_client)(message)

    world.nodes[0].answers = failing
    world.nodes[1].answers = called(in_words)
    folder = world.folder(FLSYS)
    world.run(folder)
    assert "ada" not in {event.fields["device"] for event in world.events(folder)}


DIGITS = """
[model]
name = "har"
network = "linear"
shape = [1, 8, 8]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
bounds = [0, 16]
[rounds]
rule = "flsys"
rounds = 3
seconds = 5.0
quorum = 0
[work]
epochs = 1
batch = 32
learning_rate = 0.5
"""


@pytest.mark.parametrize("privacy", ["", PRIVACY], ids=["plain", "private"])
def test_our_nodes_and_the_simulator_end_with_the_same_weights(world, privacy):
    """Everybody is there at once, so updates arrive in the simulator's order: that of clients."""
    for place, node in enumerate(world.nodes):
        node.answers = called(
            our_app, **{"data": "digits", "num-partitions": 3, "partition-id": place}
        )
    folder = world.folder(plan=DIGITS, privacy=privacy.replace("times = 4", "times = 3"))
    _, release = world.run(folder)
    plan = ModelPlan.load(folder.plan)
    settings = plan.settings
    population = population_of(privet.data.load("digits"), FederationSettings(clients=len(NAMES)))
    material = population.material(torch.device("cpu"))
    network = create("linear", plan.shape, 10, init_seed=0)
    noise = ModelKeys.of(plan, folder.home / "secrets", begun=True).randomness.noise
    coordinator = Coordinator(
        flat(network),
        plan.rule,
        rounds=settings.rounds,
        privacy=plan.privacy,
        stream=noise if privacy else None,
    )
    simulator = Simulator(
        coordinator,
        OneByOne(network, material, settings.work()),
        Teacher(material, settings.work(), seed=0),
        always(3),
        seed=0,
        weather=Weather(late=0.0),
    )
    while not coordinator.stopped:
        simulator.next_round()
    load_flat(network, coordinator.weights)
    got = load_file(release / "weights.safetensors")
    for name, part in network.state_dict().items():
        assert torch.equal(part, got[name])


def test_a_node_has_all_records_of_its_file_or_those_of_one_user():
    offer = ModelPlan.from_json(
        {
            "model": {
                "name": "har",
                "network": "har-wild-32",
                "shape": [3, 100],
                "classes": list("abcde"),
            },
            "rounds": {"rule": "flsys", "rounds": 2},
        }
    ).offer(0)
    data = privet.data.load("activities")
    everything, client = records_of({"data": "activities"}, offer, seed=0)
    assert client == 0
    assert len(everything.clients[0]) == len(data.train)
    of_one, client = records_of({"data": "activities", "user": 3}, offer, seed=0)
    assert client == 3
    assert len(of_one.clients[3]) == int((data.train.units == 3).sum())


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({}, "a node without data"),
        ({"data": "digits"}, "does not fit the model"),
        ({"data": "activities", "user": 10_000}, "no such client"),
    ],
)
def test_a_node_that_cannot_train_says_why(node, says):
    plan = {
        "model": {"name": "har", "shape": [3, 100], "classes": list("abcde")},
        "rounds": {"rule": "flsys", "rounds": 2},
    }
    with pytest.raises(InputError, match=says):
        records_of(node, ModelPlan.from_json(plan).offer(0), seed=0)


def test_our_answer_says_nothing_but_the_weights(world):
    seen = []

    def watched(message):
        node = {"data": "digits", "num-partitions": 3, "partition-id": 0}
        reply = called(our_app, **node)(message)
        seen.append(reply)
        return reply

    world.nodes[:] = world.nodes[:1]
    world.nodes[0].answers = watched
    world.run(world.folder(plan=DIGITS.replace("rounds = 3", "rounds = 1")))
    assert list(seen[0].content) == ["arrays"]
