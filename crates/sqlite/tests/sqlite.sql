CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        -- The session that it was forked from, and the number of entries inherited from it.
        parent INTEGER REFERENCES session (key),
        inherited INTEGER NOT NULL,
        -- The number of entries, including inherited ones.
        version INTEGER NOT NULL,
        -- Microseconds since 1970.
        updated INTEGER NOT NULL
    ) STRICT;
CREATE TABLE entry (
        session INTEGER NOT NULL REFERENCES session (key),
        number INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT;
CREATE TABLE lease (
        id TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
PRAGMA application_id = 1953854062;
PRAGMA user_version = 1;
