"""Rounds over Flower: a ServerApp around the coordinator, and a ClientApp that is our client.

    folder.py      a model's folder on the SuperLink's host: plan, keys of nodes, all that is kept
    starting.py    sets one up
    nodes.py       who a node is: its public key, which Flower has seen it sign with
    enrolling.py   the nodes in the server's memory
    arrays.py      weights as Flower's arrays by the network's names, and back
    messages.py    what nodes are asked and answer, in the two forms that ClientApps have
    rounds.py      the loop: push, pull, time to live; no state but the model's journal
    server_app.py  the ServerApp        client_app.py  the ClientApp

Nothing here imports Flower before a message is made; `privet[flower]` brings it.
"""
