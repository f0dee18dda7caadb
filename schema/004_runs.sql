-- Runs that are watched: what is shown of them, why they ended, whether they may run for ever.
ALTER TABLE run ADD COLUMN command TEXT NOT NULL DEFAULT '';      -- shell-quoted, cut
ALTER TABLE run ADD COLUMN tty INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN has_deadline INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN spawn_cwd INTEGER;
ALTER TABLE run ADD COLUMN cause TEXT NOT NULL DEFAULT '';        -- of an end that was not the command's own
ALTER TABLE run ADD COLUMN output_limited INTEGER;
