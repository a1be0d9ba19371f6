"""A model in the form in which a phone's own program trains it: ExecuTorch; ONNX for scores.

networks.py      the network in operators that ExecuTorch can train, on the same parameters
programs.py      the programs, as bytes
handed.py        what is handed over: a release, or the model of a plan
writing.py       the folder: programs, manifest, a text for the phone's team
instructions.py  that text
running.py       a folder at work on this machine, as a phone runs it
"""
