-- Workers of older versions may still run when a newer version migrates the schema.
--
-- A migration says in its file which of them may go on: `-- Workers from version 19 on may go on.` That stands here as
-- `oldest`. It is NULL for a migration that says nothing: then only workers that know the migration may go on. With
-- every heartbeat a worker reads the highest of these versions; one that is older claims no more tasks.
ALTER TABLE {schema}.migrations ADD COLUMN oldest integer CHECK (oldest BETWEEN 1 AND version);
