"""The groups of commands under `privet data` and `privet ledger`, and what all verbs share."""
