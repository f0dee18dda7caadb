-- The life of sessions: renewed expiries, the journal of openings and purges, ceilings of tenants, the clock.

ALTER TABLE session ADD COLUMN keep_until_unix_ms INTEGER NOT NULL DEFAULT 0; -- not closed for idleness before; 0: none
ALTER TABLE session ADD COLUMN fresh INTEGER NOT NULL DEFAULT 0;              -- this opening made its slot: undoing it takes the slot along
ALTER TABLE workspace ADD COLUMN purging INTEGER NOT NULL DEFAULT 0;          -- to be removed: a purge that was begun is finished

-- Ceilings of one tenant; NULL: none of its own.
CREATE TABLE tenant (
    tenant TEXT PRIMARY KEY,
    max_open_sessions INTEGER,
    max_resident_sessions INTEGER,
    max_running_commands INTEGER,
    max_disk_bytes INTEGER
) STRICT, WITHOUT ROWID;

-- By how much the wall clock was ahead of the boot's when times were last written: a jump is told from time that passed.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    ahead_ms INTEGER NOT NULL
) STRICT;
