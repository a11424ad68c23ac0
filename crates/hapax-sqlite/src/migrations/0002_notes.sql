-- Who changed what by hand, and why. Rows are added and never changed; numbers are never used again.
CREATE TABLE hapax_note (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  who     TEXT    NOT NULL,
  what    TEXT    NOT NULL,
  id      BLOB,
  scope   TEXT,
  key     TEXT,
  attempt INTEGER,
  before  INTEGER,
  after   INTEGER,
  reason  TEXT    NOT NULL,
  detail  TEXT    NOT NULL
);

CREATE INDEX hapax_note_about ON hapax_note (id) WHERE id IS NOT NULL;

-- Nobody rewrites what people did, not even by a slip of the hand.
CREATE TRIGGER hapax_note_kept BEFORE UPDATE ON hapax_note BEGIN SELECT raise(ABORT, 'notes are not changed'); END;
CREATE TRIGGER hapax_note_stays BEFORE DELETE ON hapax_note BEGIN SELECT raise(ABORT, 'notes are not deleted'); END;
