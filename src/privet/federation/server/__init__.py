"""FLSys as a server: models with plans, phones with keys, rounds that survive a crash.

Needs the extra `server`; nothing outside this room imports it at start.
"""
