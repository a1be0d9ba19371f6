"""What a private training step costs: beside plain SGD, beside peers, and as sizes grow.

| file          | what                                                                  |
|---------------|-----------------------------------------------------------------------|
| `workloads`   | the models, with made-up public inputs of their shapes                |
| `contestants` | one whole optimiser step each: plain SGD, Privet, Opacus, vmap        |
| `parity`      | who does not compute the right sum is not timed                       |
| `timing`      | alternating rounds in one process                                     |
| `growth`      | time and memory against batch, parameters and length                  |
| `machine`     | threads, precision, memory: what is set, measured and written down    |
| `results`     | table, plot and record                                                |
"""
