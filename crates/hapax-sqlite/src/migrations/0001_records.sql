-- A record is found by its id and kept in the order in which keys first came: random ids touch only the small table,
-- and the large one grows at its end.
CREATE TABLE hapax_place (
  id  BLOB PRIMARY KEY,
  seq INTEGER NOT NULL
) WITHOUT ROWID;

-- Times are milliseconds of store time. See codec.rs for `data`.
CREATE TABLE hapax_record (
  seq        INTEGER PRIMARY KEY,
  version    BLOB    NOT NULL,
  state      INTEGER NOT NULL,
  stamped_at INTEGER NOT NULL,
  due_at     INTEGER,
  reap_at    INTEGER,
  id         BLOB    NOT NULL,
  scheme     TEXT    NOT NULL,
  space      TEXT    NOT NULL,
  scope      TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  data       BLOB    NOT NULL
);

-- Only what is unfinished (states 1 to 4) or due. A completed record leaves it.
CREATE INDEX hapax_due ON hapax_record (coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5;

-- Follows time: entries are added at its end and taken from its beginning.
CREATE INDEX hapax_reap ON hapax_record (reap_at) WHERE reap_at IS NOT NULL;
