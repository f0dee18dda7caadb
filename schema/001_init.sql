-- What Berth remembers. Migrations are numbered by file name, applied once each in one transaction, never edited after a
-- release. Times are integers in the unit their name tells; booleans are 0 or 1; '' stands for "none".

CREATE TABLE broker (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    install TEXT NOT NULL,                    -- uuid: the label of what is ours
    epoch INTEGER NOT NULL,                   -- starts of berthd on this store
    key_fingerprint TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE policy (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    json TEXT NOT NULL
) STRICT;

CREATE TABLE slot (
    slot TEXT PRIMARY KEY,
    ref TEXT NOT NULL,                        -- container
    runtime TEXT NOT NULL,
    uid INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    last_run INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row an open session. `key` is never used twice, so it orders the list and names the events of one opening.
CREATE TABLE session (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    opening INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    tenant TEXT NOT NULL,
    runtime TEXT NOT NULL,
    slot TEXT NOT NULL,
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2),
    created_at_unix_ms INTEGER NOT NULL,
    last_activity_unix_ms INTEGER NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0       -- number of the last event
) STRICT;

-- How often an id was opened; outlives the session, its files and its purge.
CREATE TABLE opening (
    id TEXT PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Nonces of closed openings, so that their tokens are told "gone".
CREATE TABLE tombstone (
    id TEXT NOT NULL,
    opening INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (id, opening)
) STRICT, WITHOUT ROWID;

CREATE TABLE workspace (
    id TEXT PRIMARY KEY,
    slot TEXT NOT NULL,
    tenant TEXT NOT NULL,
    runtime TEXT NOT NULL,
    created_at_unix_ms INTEGER NOT NULL,
    last_use_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A ring of 200 places a session: event n lies in place n % 200 and replaces the one that was there. Nothing to trim.
CREATE TABLE event (
    session_key INTEGER NOT NULL,
    place INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at_unix_us INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    ok INTEGER NOT NULL,
    op TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (session_key, place)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: numbers go on even when everything was trimmed.
CREATE TABLE feed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_unix_us INTEGER NOT NULL,
    op TEXT NOT NULL,
    session TEXT NOT NULL,
    tenant TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

-- Runs of the containers that lived on a slot; the numbers are the agent's. The end's columns: see run_types.h.
CREATE TABLE run (
    slot TEXT NOT NULL,
    number INTEGER NOT NULL,
    id TEXT NOT NULL,                         -- of the session
    run_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    keep INTEGER NOT NULL,                    -- outlives the broker that started it
    started_at_unix_ms INTEGER NOT NULL,
    ended_at_unix_ms INTEGER,                 -- NULL: its end was not seen yet
    lost INTEGER,
    timed_out INTEGER,
    stopped INTEGER,
    oom INTEGER,
    spawn_failed INTEGER,
    spawn_errno INTEGER,
    exit_code INTEGER,
    signal INTEGER,
    wall_ms INTEGER,
    cpu_ms INTEGER,
    peak_bytes INTEGER,
    stdout_bytes INTEGER,
    stderr_bytes INTEGER,
    PRIMARY KEY (slot, number)
) STRICT, WITHOUT ROWID;
