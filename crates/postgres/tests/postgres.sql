BEGIN;
CREATE SCHEMA IF NOT EXISTS "turnstream";

    CREATE TABLE "turnstream".schema_version (
        version integer PRIMARY KEY,
        applied timestamptz NOT NULL DEFAULT now()
    );
    -- Shared by all sessions, so that a session that was deleted and recreated gets a higher lease.
    CREATE SEQUENCE "turnstream".lease_epoch AS bigint;
    CREATE TABLE "turnstream".session (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- UTF-8. Not `text`, which cannot contain NUL, and whose order depends on the database.
        id bytea NOT NULL,
        -- The session that it was forked from, and the number of entries inherited from it.
        parent bigint REFERENCES "turnstream".session (key),
        inherited bigint NOT NULL,
        -- The number of entries, including inherited ones.
        version bigint NOT NULL,
        updated timestamptz NOT NULL,
        -- The epoch of the last lease that was taken.
        lease bigint NOT NULL DEFAULT 0,
        -- The row exists only for its lease: the session does not exist yet.
        reserved boolean NOT NULL DEFAULT false,
        -- Identifies the fork operation that created the session.
        forked_by uuid
    -- Each append writes a new row. With free space on its page, no index needs an update.
    ) WITH (fillfactor = 60);
    -- An index entry has at most 2,700 bytes, and an id may be longer.
    CREATE UNIQUE INDEX session_id ON "turnstream".session (sha256(id));
    CREATE INDEX session_parent ON "turnstream".session (parent) WHERE parent IS NOT NULL;
    CREATE TABLE "turnstream".entry (
        -- Without a foreign key, whose check would cost each append a query: entries are only written and
        -- removed by statements that have locked the row of its session.
        session bigint NOT NULL,
        number bigint NOT NULL,
        -- Identifies the append; only set for its first entry.
        append uuid,
        json text NOT NULL,
        PRIMARY KEY (session, number)
    );

INSERT INTO "turnstream".schema_version (version) VALUES (1);
COMMIT;
