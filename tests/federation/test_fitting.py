"""A federation from start to release: charged before it is used, resumed bit for bit, stated."""

import json
import math

import dp_accounting as dp
import numpy as np
import pytest
import torch

from privet.errors import BudgetExceeded, CheckFailed, InputError
from privet.federation.fitting import resume, simulate
from privet.federation.showing import described_rules, told
from privet.ledger import Ledger, OtherUnit
from privet.privacy.accounting import epsilon_of
from privet.release import Release
from privet.verification import verify


class Killed(Exception):  # noqa: N818
    """As if the process had been ended."""


def killed_after(rounds):
    def watch(federation):
        if federation.next_step == rounds:
            raise Killed

    return watch


def weights(release):
    return torch.cat([p.detach().reshape(-1) for p in release.model.parameters()])


def only_run(ledger, name="made-up/8-clients"):
    return ledger.account(name).runs[-1]


PRIVATE = {"epsilon": 2.0, "delta": 1e-4, "times": 3}


def test_a_private_federation_states_what_a_client_pays(make_data, book, quick, tmp_path):
    release = simulate(make_data(), out=tmp_path / "run", ledger=book, **quick, **PRIVATE)
    z = release.trust["mechanism"]["noise_multiplier"]
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 3)
    assert release.privacy.epsilon == pytest.approx(epsilon_of(event, 1e-4))
    assert 1.99 < release.privacy.epsilon <= 2.0
    assert (release.privacy.unit, release.privacy.adjacency) == (
        "client (of 8 made up of made-up: no skew, seed 0)",
        "add-remove",
    )
    run = only_run(book)
    assert (run.charged, run.planned, run.status) == (3, 3, "settled")
    assert run.step_event == dp.GaussianDpEvent(z)
    assert verify(tmp_path / "run", ledger=book).ok


def test_a_server_that_samples_is_charged_for_every_round(make_data, book, quick, tmp_path):
    options = quick | {"rule": "fedavg", "rate": 0.5, "epsilon": 2.0}
    release = simulate(make_data(), out=tmp_path / "run", ledger=book, **options)
    run = only_run(book)
    assert (run.charged, run.planned) == (6, 6)
    assert isinstance(run.step_event, dp.PoissonSampledDpEvent)
    assert release.trust["mechanism"]["normaliser"] == 4.0
    assert verify(tmp_path / "run", ledger=book).ok


def test_without_privacy_the_card_and_the_ledger_say_so(make_data, book, quick, tmp_path):
    release = simulate(make_data(), out=tmp_path / "run", ledger=book, **quick)
    assert release.privacy is None
    assert "without privacy" in release.trust["withheld"][0]
    assert only_run(book).step_event == dp.NonPrivateDpEvent()
    assert release.trust["utility"]["test_accuracy"] > 0.9
    assert verify(tmp_path / "run", ledger=book).ok


def test_the_sum_of_clipped_updates_is_divided_by_the_plans_constant(make_data, book, quick):
    """With next to no noise the released weights are those of a hand-made sum."""
    options = quick | {"rounds": 1, "clip": 1e-3, "epsilon": 1e6, "divisor": 2.0, "noise_seed": 1}
    seen = []
    release = simulate(make_data(), ledger=book, watch=seen.append, **options)
    federation = seen[0]
    simulator = federation.simulator
    start = torch.cat([p.detach().reshape(-1) for p in federation.model.parameters()])
    lessons = [simulator.work.teacher.lesson(client, 0) for client in range(8)]
    changes = simulator.work.engine.changes(start, lessons).double()
    shortened = changes * (1e-3 / changes.norm(dim=1, keepdim=True)).clamp_max(1.0)
    expected = start.double() + shortened.sum(0) / 2.0
    noise = federation.privacy.multiplier * 1e-3 / 2.0
    far = (weights(release).double() - expected).abs().max()
    assert changes.norm(dim=1).min() > 1e-3  # all are clipped
    assert far < 6 * noise + 1e-7
    # By how many came (8) it would be divided four times as much, and be found out.
    assert (shortened.sum(0).abs().max() * (1 / 2.0 - 1 / 8)) > 10 * noise


@pytest.mark.parametrize("privacy", [{}, {**PRIVATE, "noise_seed": 5, "apart": 2, "bands": 2}])
@pytest.mark.parametrize("every", [1, 4])
def test_a_killed_run_goes_on_to_the_same_weights(make_data, book, quick, tmp_path, privacy, every):
    """Also where rounds since the last checkpoint are lost."""
    options = quick | privacy | {"rule": "flsys", "traces": "phones", "seconds": 3e4}
    options |= {"rounds": 9, "checkpoint_every": every, "dropout": 0.2}
    whole = simulate(make_data(), out=tmp_path / "whole", ledger=book, **options)
    with pytest.raises(Killed):
        simulate(make_data(), out=tmp_path / "cut", ledger=book, watch=killed_after(6), **options)
    resumed = resume(tmp_path / "cut", make_data(), ledger=book)
    assert torch.equal(weights(whole), weights(resumed))
    assert told(tmp_path / "whole")["jobs"] == told(tmp_path / "cut")["jobs"]
    assert told(tmp_path / "whole")["rounds"] == told(tmp_path / "cut")["rounds"]


def test_a_killed_private_run_costs_what_was_planned(make_data, book, quick, tmp_path):
    options = quick | PRIVATE | {"checkpoint_every": 2}
    with pytest.raises(Killed):
        simulate(make_data(), out=tmp_path / "run", ledger=book, watch=killed_after(2), **options)
    assert only_run(book).charged == 2
    with pytest.raises(InputError, match="privet resume"):
        told(tmp_path / "run")
    release = resume(tmp_path / "run", make_data(), ledger=book)
    run = only_run(book)
    assert (run.charged, run.redone, run.status) == (3, 0, "settled")
    assert release.privacy.epsilon <= 2.0
    assert not (tmp_path / "run" / "internal" / "checkpoint.pt").exists()


def test_a_step_that_comes_out_different_ends_the_run(make_data, book, quick, tmp_path):
    """Whose updates are in a lost step was drawn before: a second draw is not accounted."""
    options = quick | PRIVATE | {"checkpoint_every": 100}
    with pytest.raises(Killed):
        simulate(make_data(), out=tmp_path / "run", ledger=book, watch=killed_after(3), **options)
    journal = tmp_path / "run" / "internal" / "steps.log"
    first, *rest = journal.read_text().splitlines()
    step, fingerprint = first.split()
    journal.write_text("\n".join([f"{step} {fingerprint[::-1]}", *rest, ""]))
    with pytest.raises(CheckFailed, match="came out different"):
        resume(tmp_path / "run", make_data(), ledger=book)


def test_no_noise_is_drawn_for_which_there_is_no_room(make_data, book, quick, tmp_path):
    simulate(make_data(), ledger=book, **quick | {"rounds": 1, "epsilon": 1.0})
    book.cap("made-up/8-clients", 1.5, 1e-5)
    seen = []
    with pytest.raises(BudgetExceeded):
        simulate(
            make_data(),
            out=tmp_path / "run",
            ledger=book,
            watch=seen.append,
            **quick | {"rounds": 1, "epsilon": 1.4},
        )
    assert seen == []
    assert not (tmp_path / "run").exists()
    assert len(book.account("made-up/8-clients").runs) == 1


def test_each_turn_is_charged_before_its_noise_is_drawn(make_data, book, quick, monkeypatch):
    from privet.federation.user_privacy import UserPrivacy

    charged, hidden = [], UserPrivacy.hidden

    def watched(self, total, **more):
        charged.append(only_run(book).charged)
        return hidden(self, total, **more)

    monkeypatch.setattr(UserPrivacy, "hidden", watched)
    simulate(make_data(), ledger=book, **quick | PRIVATE | {"times": 3, "apart": 2})
    assert charged == [1, 1, 2, 2, 3, 3]


def test_records_that_were_dealt_otherwise_are_refused(make_data, book, quick):
    simulate(make_data(), ledger=book, **quick)  # an access without privacy is no reason
    simulate(make_data(), ledger=book, **quick | PRIVATE | {"clients": 10})
    with pytest.raises(OtherUnit, match="deal them out as before"):
        simulate(make_data(), ledger=book, **quick | PRIVATE | {"clients": 9})


@pytest.mark.parametrize(
    "other",
    [
        lambda make, all_: (make(), {"skew": 0.3000000001}),
        lambda make, all_: (
            make(name="made-up/first", train=all_.part(np.arange(80) < 40), nominal_size=40),
            {},
        ),
        lambda make, all_: (make(train=all_.part(np.arange(80)[::-1])), {}),
        lambda make, all_: (make(train=all_.part(np.arange(79))), {}),
    ],
    ids=["nearly the same skew", "half of the records", "another order", "one record fewer"],
)
def test_no_two_deals_pass_for_one(make_data, book, quick, other):
    """A client of one deal is spread over many of the other: their epsilons do not add up."""
    first, private = make_data(), {"epsilon": 2.0, "skew": 0.3}
    simulate(first, ledger=book, **quick, **private)
    data, changed = other(make_data, first.train)
    before = {name: len(book.snapshots(name)) for name in book.names()}
    with pytest.raises(OtherUnit):
        simulate(data, ledger=book, **quick, **(private | changed))
    assert {name: len(book.snapshots(name)) for name in book.names()} == before
    simulate(first, ledger=book, **quick, **private)  # the same deal again adds up


def test_known_noise_earns_no_epsilon(make_data, book, quick, tmp_path):
    release = simulate(
        make_data(), out=tmp_path / "run", ledger=book, **quick, **PRIVATE, noise_seed=1
    )
    assert release.privacy is None
    assert only_run(book).step_event == dp.NonPrivateDpEvent()
    assert verify(tmp_path / "run", ledger=book).ok


def test_what_single_clients_spent_stays_inside(make_data, book, quick, tmp_path):
    simulate(make_data(), out=tmp_path / "run", ledger=book, **quick, **PRIVATE)
    found = told(tmp_path / "run")
    assert found["most_steps_of_a_client"] == 3
    assert found["spent_by_clients"]["most"] == pytest.approx(2.0, abs=0.01)
    both = found["epsilon"]
    assert both["self-selected"] == pytest.approx(2.0, abs=0.01)
    assert both["server-sampled"] != both["self-selected"]
    public = json.dumps(Release.load(tmp_path / "run").trust)
    assert "spent_by_clients" not in public
    assert "jobs" not in public


def test_the_privacy_of_a_cap_is_paid_by_the_noise_of_the_released_weights(make_data, book, quick):
    """Two seeds of noise: the last weights differ by what rounds of N(0, (zC/m)^2) leave."""
    options = quick | PRIVATE | {"clip": 1e-6, "rounds": 4, "times": 4}
    last = [
        weights(simulate(make_data(), ledger=book, **options | {"noise_seed": seed}))
        for seed in range(30)
    ]
    z = simulate(make_data(), ledger=book, **options).trust["mechanism"]["noise_multiplier"]
    spread = torch.stack(last).double()
    measured = float((spread - spread.mean(0)).square().sum() / (29 * spread.shape[1]))
    expected = 4 * (z * 1e-6 / 8.0) ** 2
    # A chi-square of 29 x 10 degrees of freedom is within 40 % but for one time in 100,000.
    assert math.isclose(measured, expected, rel_tol=0.4)


def test_settings_that_do_not_exist_are_bad_input(make_data, book):
    with pytest.raises(InputError, match="no such setting"):
        simulate(make_data(), ledger=book, learning_rate=1.0)


def test_all_rules_learn(make_data, tmp_path, quick):
    for rule in described_rules():
        own = {"fedadam": {"server_rate": 0.05}, "fedbuff": {"buffer": 5}}.get(rule["name"], {})
        release = simulate(
            make_data(),
            ledger=Ledger(tmp_path / f"{rule['name']}.db"),
            rule=rule["name"],
            **quick | own | {"rounds": 12, "client_rate": 1.0},
        )
        assert release.trust["utility"]["test_accuracy"] > 0.9, rule


def test_a_buffer_that_cannot_fill_is_refused(make_data, book, quick):
    with pytest.raises(InputError, match="a buffer of more clients than there are"):
        simulate(make_data(), ledger=book, **quick | {"rule": "fedbuff", "buffer": 9})
    assert book.names() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "krum", "attackers": 3}, "more updates than there are clients"),
        ({"quorum": 9}, "more updates than there are clients"),
        ({"rule": "fedbuff", "buffer": 3, "apart": 3, "epsilon": 2.0}, "one of 3 steps"),
        ({"quorum": 2, "apart": 2, "epsilon": 2.0}, "a quorum, and a separation"),
    ],
)
def test_steps_that_can_never_come_are_refused(make_data, book, quick, options, said):
    with pytest.raises(InputError, match=said):
        simulate(make_data(), ledger=book, **quick | options)
    assert book.names() == []


def test_units_of_the_data_are_clients_where_nothing_is_dealt(make_data, book, quick):
    from privet.data.dataset import Split

    split = make_data().train
    data = make_data(
        train=Split(x=split.x, y=split.y, units=np.arange(80) // 8), unit="user", nominal_size=10
    )
    release = simulate(data, ledger=book, **quick | PRIVATE | {"clients": None})
    assert release.privacy.unit == "user"
    assert release.trust["federation"]["made_up"] is False
    assert release.trust["mechanism"]["normaliser"] == 10 * 3 / 6


def own_network(outputs=2):
    torch.manual_seed(4)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, outputs)
    )


def test_any_network_will_do_and_is_left_as_it_was(make_data, book, quick, tmp_path):
    options = quick | PRIVATE | {"model": None, "noise_seed": 2, "checkpoint_every": 1}
    network = own_network()
    before = network[0].weight.detach().clone()
    whole = simulate(make_data(), ledger=book, network=network, **options)
    assert torch.equal(network[0].weight, before)
    with pytest.raises(Killed):
        simulate(
            make_data(),
            out=tmp_path / "run",
            ledger=book,
            network=network,
            watch=killed_after(3),
            **options,
        )
    with pytest.raises(InputError, match="network of the caller's own"):
        resume(tmp_path / "run", make_data(), ledger=book)
    resumed = resume(tmp_path / "run", make_data(), ledger=book, network=own_network())
    assert torch.equal(weights(whole), weights(resumed))
    # BatchNorm's running statistics travel with the weights, inside the clipped update.
    assert resumed.trust["federation"]["parameters_sent"] == 4 * 6 + 6 + 2 * 6 + 2 * 6 + 6 * 2 + 2
    assert verify(tmp_path / "run", ledger=book).ok
    loaded = Release.load(tmp_path / "run", model=own_network())
    assert torch.equal(weights(loaded), weights(whole))


def test_noise_on_running_variances_leaves_a_model_that_gives_scores(make_data, book, quick):
    data, options = make_data(), quick | PRIVATE | {"model": None, "noise_seed": 2}
    strong = options | {"epsilon": 0.05}  # of the noise
    release = simulate(data, ledger=book, network=own_network(), **strong)
    state = release.model.state_dict()
    assert state["1.running_var"].min() == 0.0  # noise took some of them below
    assert torch.isfinite(release.scores(data.test.x)).all()


def test_first_weights_of_ones_own_are_an_assumption(make_data, book, quick):
    release = simulate(
        make_data(), ledger=book, network=own_network(), **quick | PRIVATE | {"model": None}
    )
    assert any("first weights" in said for said in release.privacy.assumptions)


@pytest.mark.parametrize(
    ("network", "options", "said"),
    [
        (own_network(3), {"model": None}, "gives no scores"),
        (torch.nn.Linear(5, 2), {"model": None}, "does not take the examples"),
        (own_network(), {"model": "linear"}, "two models"),
    ],
)
def test_networks_that_do_not_fit_are_refused(make_data, book, quick, network, options, said):
    with pytest.raises(InputError, match=said):
        simulate(make_data(), ledger=book, network=network, **quick | options)
    assert book.names() == []
