"""The tables, in words that SQLite and PostgreSQL both know."""

from typing import Final

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS apps (
        name TEXT PRIMARY KEY, key_digest TEXT NOT NULL UNIQUE, since DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS app_models (
        app TEXT NOT NULL, model TEXT NOT NULL, PRIMARY KEY (app, model))""",
    """CREATE TABLE IF NOT EXISTS devices (
        name TEXT PRIMARY KEY, public_key TEXT NOT NULL UNIQUE, phone TEXT NOT NULL,
        system TEXT NOT NULL, since DOUBLE PRECISION NOT NULL, blocked BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS device_apps (
        device TEXT NOT NULL, app TEXT NOT NULL, PRIMARY KEY (device, app))""",
    """CREATE TABLE IF NOT EXISTS nonces (
        nonce TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS plans (
        model TEXT NOT NULL, revision BIGINT NOT NULL, digest TEXT NOT NULL, text TEXT NOT NULL,
        from_round BIGINT NOT NULL, PRIMARY KEY (model, revision))""",
    """CREATE TABLE IF NOT EXISTS tickets (
        ticket TEXT PRIMARY KEY, model TEXT NOT NULL, device TEXT NOT NULL, round BIGINT NOT NULL,
        base_version BIGINT NOT NULL, until DOUBLE PRECISION NOT NULL, fate TEXT NOT NULL,
        reason TEXT, UNIQUE (model, round, device))""",
    "CREATE INDEX IF NOT EXISTS tickets_by_fate ON tickets (model, fate)",
    """CREATE TABLE IF NOT EXISTS events (
        model TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
        fields TEXT NOT NULL, PRIMARY KEY (model, seq))""",
    """CREATE TABLE IF NOT EXISTS versions (
        model TEXT NOT NULL, version BIGINT NOT NULL, key TEXT NOT NULL, sha256 TEXT NOT NULL,
        plan TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (model, version))""",
    """CREATE TABLE IF NOT EXISTS rounds (
        model TEXT NOT NULL, round BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, how TEXT NOT NULL,
        updates BIGINT NOT NULL, version BIGINT NOT NULL, staleness DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (model, round))""",
    """CREATE TABLE IF NOT EXISTS snapshots (
        model TEXT PRIMARY KEY, seq BIGINT NOT NULL, key TEXT NOT NULL, sha256 TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS reports (
        model TEXT NOT NULL, version BIGINT NOT NULL, device TEXT NOT NULL, tried BIGINT NOT NULL,
        hits BIGINT NOT NULL, PRIMARY KEY (model, version, device))""",
    """CREATE TABLE IF NOT EXISTS counts (
        model TEXT NOT NULL, what TEXT NOT NULL, reason TEXT NOT NULL, n BIGINT NOT NULL,
        PRIMARY KEY (model, what, reason))""",
)
