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
talking.py      HTTP with the server; trusting.py: whose word is taken
model.py        one model on one phone: one short action after the other
hub.py          all models of a phone: turns, evaluation, answers for apps
virtual.py      a phone made of traces, on a clock that may run faster
fleet.py        many of them in one process
"""
