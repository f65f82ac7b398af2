-- What a role needs to work with a store that another role owns: rows, not tables.

GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};
-- The record of migrations is the owner's.
REVOKE INSERT, UPDATE, DELETE ON {schema}.migrations FROM {role};
