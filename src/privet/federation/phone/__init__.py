"""The phone's side of FLSys: one hub per phone, between apps, models and the server.

conditions.py   battery, charger, network, use: what a phone can know of its moment
policies.py     what it does under which conditions, and in which order
energy.py       how fast it computes in which mode, and what that takes from the battery
storage.py      files that are whole or absent; one process per folder
stages.py       the state machine of one model on one phone
standing.py     where a phone stands with a model, on disk
collecting.py   sensors: merged wishes, buffers, quotas, the user's switches
processing.py   raw samples to a model's windows
records.py      what a model is trained and tried on
training.py     one client's lesson, in slices
line.py         HTTP: what can go wrong, and which server is believed
talking.py      messages, versions, updates; trusting.py: keys and signatures
shared.py       what all models of a phone share; sending.py: an update in parts
at_hand.py      what a phone has of a model: versions, where it stands
model.py        one model on one phone: one short action after the other
hub.py          all models of a phone: turns, evaluation, answers for apps
clock.py        the wall's, or one that runs faster
virtual.py      a phone made of traces
given.py        records from data sets; recordings.py: streams that are played to collectors
starting.py     phones that are ready to go; fleet.py: many of them in one process
"""

from privet.errors import FaultyEnvironment

try:
    import httpx  # noqa: F401
    import pydantic  # noqa: F401
except ModuleNotFoundError as missing:
    raise FaultyEnvironment(
        "a phone needs packages of its own",
        got=f"no {missing.name}",
        fix="pip install 'privet[server]'",
    ) from None
