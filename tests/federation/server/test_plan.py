"""A plan says what is trained, and nothing that it cannot keep."""

import tomllib
from pathlib import Path

import pytest

import privet
from privet.errors import InputError
from privet.federation.clients import users_of
from privet.federation.server.plan import ModelPlan

WHOLE = """
[model]
name = "har-wild"
network = "linear"
shape = [9, 16]
classes = ["walking", "sitting"]
bounds = [-20.0, 20.0]
seed = 3
[rounds]
rule = "flsys"
rounds = 30
seconds = 360
[work]
epochs = 5
batch = 64
learning_rate = 0.005
sample = true
pool = 20
public_pool = "given by volunteers"
least_records = 50
[privacy]
epsilon = 4.0
delta = 1e-6
clip = 0.5
times = 6
apart = 3
bands = 2
population = 500
[phones]
kinds = ["Pixel 3", "Pixel 3a"]
retry_seconds = 600
[[sensing]]
sensor = "accelerometer"
least_rate = 10
rate = 50
"""


def _said(**sections):
    said = {
        "model": {"name": "m", "network": "linear", "shape": [4], "classes": ["a", "b"]},
        "rounds": {"rounds": 5},
    }
    for section, fields in sections.items():
        if isinstance(fields, dict):
            said[section] = {**said.get(section, {}), **fields}
        else:
            said[section] = fields
    return said


def test_a_plan_is_what_its_file_says(tmp_path):
    (tmp_path / "plan.toml").write_text(WHOLE)
    plan = ModelPlan.load(tmp_path / "plan.toml")
    assert (plan.name, plan.shape, plan.low, plan.high) == ("har-wild", (9, 16), (-20.0,), (20.0,))
    assert (plan.settings.client_rate, plan.settings.local_epochs) == (0.005, 5)
    assert plan.settings.init_seed == 3
    assert plan.privacy.participation.times == 6
    assert plan.settings.divisor == 500 * 6 / 30
    assert plan.rule.pacing.least == 0  # under privacy nobody's coming decides on a step
    assert plan.phones.fits("Pixel 3", "android-10")
    assert not plan.phones.fits("Pixel 2", "android-10")
    assert (plan.work().own_per_class, plan.work().pool_per_class) == ((50, 100), (15, 30))
    assert plan.offer(7).sensing[0].sensor == "accelerometer"
    plan.require_runnable()


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"rounds": {"rule": "fedavg", "rate": 0.1}, "privacy": {"epsilon": 2.0, "population": 90}},
        {"rounds": {"rule": "fedbuff", "buffer": 4}},
        {"rounds": {"rule": "krum", "attackers": 1}, "phones": {"quota": 3}},
    ],
)
def test_what_a_plan_says_of_itself_makes_the_same_plan(sections):
    plan = ModelPlan.from_json(_said(**sections))
    again = ModelPlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest
    whole = ModelPlan.from_json(tomllib.loads(WHOLE))
    assert ModelPlan.from_json(whole.to_json()).digest == whole.digest != plan.digest


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": {"name": "../x"}}, "bad name of a model"),
        ({"model": {"name": ""}}, "bad name of a model"),
        ({"model": {"shape": []}}, "bad \\[model\\] shape"),
        ({"model": {"shape": [True]}}, "bad \\[model\\] shape"),
        ({"model": {"classes": []}}, "no shape"),
        ({"model": {"classes": "walking"}}, "bad \\[model\\] classes"),
        ({"model": {"classes": 3}}, "bad \\[model\\] classes"),
        ({"model": {"classes": ["a", "a"]}}, "'a' twice"),
        ({"model": {"classes": ["a", "walking/running"]}}, "bad name of a class"),
        ({"model": {"release": 3}}, "bad \\[model\\] release"),
        ({"model": {"keep_versions": "all"}}, "bad \\[model\\] keep_versions"),
        ({"model": {"bounds": [1, 0]}}, "low below high"),
        ({"model": {"bounds": ["a", "b"]}}, "finite numbers"),
        ({"model": {"colour": "red"}}, "unknown field of \\[model\\]"),
        ({"model": {"network": "custom"}}, "network by name"),
        ({"rounds": {"roundz": 3}}, "unknown field of \\[rounds\\]"),
        ({"rounds": {"rule": "nope"}}, "unknown rule"),
        ({"rounds": {"rounds": "three"}}, "bad rounds"),
        ({"work": {"optimizer": "lbfgs"}}, "optimizer"),
        ({"rounds": {"secure_sum": "no"}}, "bad \\[rounds\\] secure_sum"),
        ({"work": {"least_records": 1.5}}, "bad \\[work\\] least_records"),
        ({"phones": {"quota": 0}}, "bad quota"),
        ({"phones": {"quota": "many"}}, "bad \\[phones\\] quota"),
        ({"phones": {"quota": True}}, "bad \\[phones\\] quota"),
        ({"phones": {"longest": "long"}}, "bad \\[phones\\] longest"),
        ({"phones": {"kinds": 3}}, "list of names"),
        ({"phones": {"longest": float("nan")}}, "bad longest"),
        ({"sensing": [{"sensor": "gps"}]}, "bad \\[\\[sensing\\]\\] least_rate"),
        ({"sensing": [{"sensor": "gps", "least_rate": 9, "rate": 5}]}, "at most rate: 5"),
        ({"sensing": {}}, "bad section"),
        ({"evaluation": {"records": "few"}}, "bad \\[evaluation\\] records"),
        ({"evaluation": {"records": -1}}, "bad \\[evaluation\\] records"),
        ({"nonsense": {}}, "unknown section"),
        ({"rounds": 5}, "bad section"),
        ({"privacy": {"epsilon": 1.0}}, "bad \\[privacy\\] population"),
        ({"privacy": {"clip": 2.0}}, "details of privacy without a target"),
    ],
)
def test_what_nobody_can_keep_is_refused(sections, words):
    with pytest.raises(InputError, match=words):
        ModelPlan.from_json(_said(**sections))


PRIVATE = {"epsilon": 2.0, "population": 100}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"phones": {"quota": 10}}, "a quota"),
        ({"phones": {"longest": 1.0}}, "a longest update under privacy"),
        ({"evaluation": {"records": 20}}, "federated evaluation of a private model"),
        ({"model": {"release": "runs/x"}}, "no statement that it is public"),
    ],
)
def test_under_privacy_no_device_decides_on_another(sections, words):
    with pytest.raises(InputError, match=words):
        ModelPlan.from_json(_said(privacy=PRIVATE, **sections))


def test_where_times_are_shown_anyway_a_quota_is_allowed():
    buffer = {"rule": "fedbuff", "buffer": 4}
    ModelPlan.from_json(_said(privacy=PRIVATE, rounds=buffer, phones={"quota": 10}))


def test_a_rule_that_cannot_be_private_is_refused_before_it_runs():
    plan = ModelPlan.from_json(_said(rounds={"rule": "median"}, privacy=PRIVATE))
    with pytest.raises(InputError, match="privacy for the user with 'median'"):
        plan.require_runnable()


def test_secure_sums_of_a_rule_that_looks_at_updates_are_refused():
    with pytest.raises(InputError, match="with 'krum'"):
        ModelPlan.from_json(_said(rounds={"rule": "krum", "secure_sum": True}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("times", 3),
        ("apart", 2),
        ("delta", 1e-7),
        ("clip", 2.0),
        ("divisor", 9.0),
        ("epsilon", 3.0),
    ],
)
def test_each_part_of_the_proof_is_fixed_by_itself(name, value):
    """Where no other follows from it: the divisor is given."""
    private = {**PRIVATE, "times": 2, "divisor": 5.0}
    old, new = (
        ModelPlan.from_json(_said(privacy=said)) for said in (private, {**private, name: value})
    )
    with pytest.raises(InputError, match=rf"cannot change in this: got privacy\.{name}, expected"):
        old.require_successor(new)


@pytest.mark.parametrize(
    ("private", "change", "allowed"),
    [
        (False, {"rounds": {"seconds": 60}}, True),
        (False, {"rounds": {"rounds": 50}}, True),
        (False, {"work": {"epochs": 1}}, True),
        (False, {"phones": {"quota": 4}}, True),
        (False, {"model": {"keep_versions": 3}}, True),
        (False, {"rounds": {"rule": "fedbuff"}}, False),
        (False, {"model": {"network": "mlp"}}, False),
        (False, {"model": {"classes": ["a", "b", "c"]}}, False),
        (False, {"privacy": PRIVATE}, False),
        (True, {"rounds": {"seconds": 60}}, True),
        (True, {"work": {"learning_rate": 0.1}}, True),
        (True, {"rounds": {"rounds": 6}}, False),
        (True, {"rounds": {"quorum": 2}}, False),
        (True, {"privacy": {"clip": 2.0}}, False),
        (True, {"privacy": {"epsilon": 3.0}}, False),
        (True, {"privacy": {"times": 2}}, False),
        (True, {"privacy": {"population": 99}}, False),
        (True, {"work": {"pool": 3, "public_pool": "yes"}}, False),
    ],
)
def test_a_revision_changes_nothing_that_the_proof_rests_on(private, change, allowed):
    first = _said(**({"privacy": PRIVATE} if private else {}))
    second = {name: dict(part) for name, part in first.items()}
    for section, fields in change.items():
        second[section] = {**second.get(section, {}), **fields}
    old, new = ModelPlan.from_json(first), ModelPlan.from_json(second)
    if allowed:
        old.require_successor(new)
    else:
        with pytest.raises(InputError, match="cannot change in this"):
            old.require_successor(new)


def test_the_plan_to_try_fits_the_phones_to_try_it_with():
    """The one that README and documentation name: for users of 'activities', whoever comes."""
    root = Path(__file__).parents[3]
    plan = ModelPlan.load(root / "examples" / "har.toml")
    plan.require_runnable()
    data = privet.data.load("activities")
    assert (plan.shape, plan.classes) == (tuple(data.shape), tuple(data.classes))
    least = min(len(rows) for rows in users_of(data))
    assert plan.least_records <= least
    page = (root / "docs" / "verbs" / "federate-server.md").read_text()
    assert (root / "examples" / "har.toml").read_text().partition("\n")[2] in page
