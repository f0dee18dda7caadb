-- Whose the files of a slot are, also while it has no container: the user of the last one; -1: never told.
ALTER TABLE slot ADD COLUMN files_uid INTEGER NOT NULL DEFAULT -1;
ALTER TABLE slot ADD COLUMN files_gid INTEGER NOT NULL DEFAULT -1;
UPDATE slot SET files_uid = uid, files_gid = gid;
