-- Who changed what by hand, and why. Rows are added and never changed. Numbers are given in order and never used again.
CREATE TABLE {schema}.note (
  number  bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      bigint   NOT NULL,
  who     text     NOT NULL,
  what    text     NOT NULL,
  id      bytea,
  scope   text,
  key     text,
  attempt bigint,
  before  smallint,
  after   smallint,
  reason  text     NOT NULL,
  detail  text     NOT NULL
);

CREATE INDEX note_about ON {schema}.note (id, number) WHERE id IS NOT NULL;
