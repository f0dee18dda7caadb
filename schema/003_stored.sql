-- Stored workspaces as GET /workspaces shows them: what a sweep measured, which are kept for good; and their snapshots.

ALTER TABLE workspace ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;              -- the TTL does not take it
ALTER TABLE workspace ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT -1;         -- on the disk; -1: not measured yet
ALTER TABLE workspace ADD COLUMN file_count INTEGER NOT NULL DEFAULT -1;         -- entries of any kind
ALTER TABLE workspace ADD COLUMN measured_at_unix_ms INTEGER NOT NULL DEFAULT 0;

-- A snapshot is a slot of its own that no session runs on.
CREATE TABLE snapshot (
    slot TEXT PRIMARY KEY,
    id TEXT NOT NULL,                         -- of the workspace
    name TEXT NOT NULL,
    created_at_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshot_of ON snapshot (id);
