-- How far the operator's receiver has been told, and the traces that events belong to.

ALTER TABLE feed ADD COLUMN trace TEXT NOT NULL DEFAULT ''; -- of the request that caused it (W3C trace id)

CREATE TABLE webhook (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    place INTEGER NOT NULL                    -- feed.seq: everything up to here is delivered
) STRICT;
