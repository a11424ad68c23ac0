-- One row per key. Times are milliseconds of the server's clock. See codec.rs in hapax-core for `data`.
-- Ids are digests: they spread evenly over pages, hash partitions and key ranges.
CREATE TABLE {schema}.record (
  id         bytea    PRIMARY KEY,
  version    bytea    NOT NULL,
  state      smallint NOT NULL,
  stamped_at bigint   NOT NULL,
  due_at     bigint,
  reap_at    bigint,
  scheme     text     NOT NULL,
  space      text     NOT NULL,
  scope      text     NOT NULL,
  key        text     NOT NULL,
  data       bytea    NOT NULL
);

-- Only what is unfinished (states 1 to 4) or due. A completed record leaves it.
CREATE INDEX record_due ON {schema}.record (coalesce(due_at, -1)) WHERE due_at IS NOT NULL OR state < 5;

-- Follows time: entries are added at its end and taken from its beginning.
CREATE INDEX record_reap ON {schema}.record (reap_at) WHERE reap_at IS NOT NULL;
