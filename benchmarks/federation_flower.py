"""Flower's simulation of idle clients: a worker for a Python that has `flwr[simulation]`.

    python federation_flower.py CLIENTS ROUNDS WEIGHTS API

API is 'message' (`ClientApp`, `ServerApp` and `flwr.serverapp.strategy.FedAvg`) or 'numpy'
(`NumPyClient` and `flwr.server.strategy.FedAvg`). Every client returns the parameters that it was
given. A round begins when a line comes on stdin; its answer is a line with its seconds, from the
choice of clients to the end of the mean. Starting Flower and Ray is in none of them.
"""

import json
import os
import sys
import time
from importlib.metadata import version

import numpy as np
from flwr.simulation import run_simulation

CLIENTS, ROUNDS, WEIGHTS = (int(argument) for argument in sys.argv[1:4])
CHANNEL = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Flower prints must not get between the answers


class Clock:
    """Waits for the word, and answers with the seconds since."""

    def __init__(self) -> None:
        self.started = 0.0

    def begin(self) -> None:
        """A round may begin."""
        if not sys.stdin.readline():
            os._exit(0)  # nobody asks any more
        self.started = time.perf_counter()

    def end(self, answers: int) -> None:
        """It is over."""
        seconds = time.perf_counter() - self.started
        say({"seconds": seconds, "answers": answers})


def say(what: dict) -> None:
    """One line."""
    CHANNEL.write(json.dumps(what) + "\n")
    CHANNEL.flush()


def by_numpy(clock: Clock):
    """The interface of parameters as lists of arrays."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg

    class Idle(NumPyClient):
        def fit(self, parameters, config):
            return parameters, 1, {}

    class Timed(FedAvg):
        def configure_fit(self, *arguments, **named):
            clock.begin()
            return super().configure_fit(*arguments, **named)

        def aggregate_fit(self, server_round, results, failures):
            mean = super().aggregate_fit(server_round, results, failures)
            clock.end(len(results))
            return mean

    strategy = Timed(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=CLIENTS,
        min_available_clients=CLIENTS,
        initial_parameters=ndarrays_to_parameters([np.zeros(WEIGHTS, np.float32)]),
    )
    parts = ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))
    return ServerApp(server_fn=lambda _: parts), ClientApp(client_fn=lambda _: Idle().to_client())


def by_message(clock: Clock):
    """The interface of messages and records."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    client, server = ClientApp(), ServerApp()

    @client.train()
    def idle(message, context):
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
        return Message(content=content, reply_to=message)

    class Timed(FedAvg):
        def configure_train(self, *arguments, **named):
            clock.begin()
            return super().configure_train(*arguments, **named)

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            mean = super().aggregate_train(server_round, replies)
            clock.end(len(replies))
            return mean

    @server.main()
    def main(grid, context):
        strategy = Timed(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=CLIENTS,
            min_available_nodes=CLIENTS,
        )
        first = ArrayRecord([np.zeros(WEIGHTS, np.float32)])
        strategy.start(grid=grid, initial_arrays=first, num_rounds=ROUNDS)

    return server, client


def main() -> None:
    """Answer until stdin ends."""
    say({"versions": {name: version(name) for name in ("flwr", "ray", "numpy")}})
    server, client = {"numpy": by_numpy, "message": by_message}[sys.argv[4]](Clock())
    cores = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=cores)


if __name__ == "__main__":
    main()
