"""Attacks against their peers: the same network, images and budget; one judge for all.

| file       | what                                                                            |
|------------|---------------------------------------------------------------------------------|
| `contests` | which attacks, in which norm, at which size and budget                          |
| `network`  | the small network that all of them attack, trained here without privacy         |
| `worker`   | runs a peer's attack in an environment of its own; a script without Privet      |
| `peers`    | starts the worker and talks to it                                               |
| `judging`  | inside ball and box? then who is fooled, and from how near                      |
| `study`    | rounds in turns, and what is kept                                               |
| `results`  | table, plot and record                                                          |
"""
