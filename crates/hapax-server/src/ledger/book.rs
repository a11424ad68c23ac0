//! The temporary database of one comparison: what the ledger says, what the store has, what was found.
//!
//! SQLite keeps it in a nameless file that is gone when the process is, and in memory only as much as its page cache. Rows
//! are matched by a digest of scope and key (or label), so that every index entry has the same small size. A row is about
//! the record with just its name; only where there is none, about the one without padding and quotation marks.

use hapax_core::address::{Address, AddressScheme, InvalidPart, Key, Scope, Space};
use hapax_core::clock::Timestamp;
use hapax_core::record::State;
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::LedgerError;
use super::judge::{Finding, Kind, Ours, Said};
use super::rows::{Name, Row, Says, almost};

/// Page cache in memory; more is on disk.
const CACHE_KIB: i64 = 32 * 1024;

const TABLES: &str = "
    CREATE TABLE theirs (line INTEGER, m BLOB, second BLOB, near BLOB, scope TEXT, value TEXT, says INTEGER, at INTEGER,
        inside INTEGER, body TEXT);
    CREATE TABLE ours (n INTEGER PRIMARY KEY, m BLOB, near BLOB, scheme TEXT, space TEXT, scope TEXT, key TEXT, value TEXT,
        attempt INTEGER, state INTEGER, status INTEGER, inside INTEGER, covered INTEGER, settled INTEGER,
        denied_from INTEGER, first INTEGER);
    CREATE TABLE finding (n INTEGER PRIMARY KEY, kind INTEGER, line INTEGER, ours INTEGER, scope TEXT, key TEXT,
        state INTEGER, says INTEGER, note TEXT);
    CREATE TABLE malformed (n INTEGER PRIMARY KEY, line INTEGER, cause TEXT);";

/// Indexes are made after the rows are in: sorting once is cheaper than keeping order.
const SORTED: &str = "
    CREATE INDEX ours_m ON ours (m) WHERE m IS NOT NULL;
    UPDATE theirs SET m = second WHERE second IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM ours WHERE ours.m = theirs.m)
        AND EXISTS (SELECT 1 FROM ours WHERE ours.m = theirs.second);
    CREATE INDEX theirs_m ON theirs (m);
    CREATE INDEX theirs_near ON theirs (near, line);
    CREATE TABLE said (m BLOB PRIMARY KEY, line INTEGER, happened INTEGER, declined INTEGER, denied INTEGER,
        denied_at INTEGER, inside INTEGER) WITHOUT ROWID;
    INSERT INTO said SELECT m, min(line), sum(says = 1), sum(says = 2), sum(says = 3), max(iif(says = 3, at, NULL)),
            max(inside)
        FROM theirs GROUP BY m;
    CREATE TABLE twins (m BLOB PRIMARY KEY) WITHOUT ROWID;
    INSERT INTO twins SELECT m FROM ours WHERE m IS NOT NULL GROUP BY m HAVING count(*) > 1;";

/// The temporary database.
pub(super) struct Book {
    connection: Connection,
}

/// A record of ours, as it is put in.
pub(super) struct OurRow<'a> {
    pub(super) address: &'a Address,
    /// What it is matched by; `None` where it lacks the label.
    pub(super) value: Option<&'a str>,
    pub(super) by_scope: bool,
    pub(super) attempt: u32,
    pub(super) ours: Ours,
}

/// A finding as it comes out.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) n: i64,
    pub(super) kind: Kind,
    pub(super) line: Option<i64>,
    pub(super) ours: Option<i64>,
    pub(super) scope: Option<String>,
    pub(super) key: String,
    pub(super) state: Option<State>,
    pub(super) says: Says,
    pub(super) note: String,
}

impl Book {
    pub(super) fn open() -> Result<Self, LedgerError> {
        // An empty name: a private file that SQLite deletes.
        let connection = Connection::open("")?;
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        connection.execute_batch(TABLES)?;
        connection.execute_batch("BEGIN")?;
        Ok(Self { connection })
    }

    pub(super) fn put_row(&self, row: &Row, inside: bool) -> Result<(), LedgerError> {
        let digest = |name: &Name| matched_by(name.scope.as_deref(), &name.value);
        let (m, second) = (digest(&row.name), row.second.as_ref().map(digest));
        let Name { scope, value } = &row.name;
        let near = nearly_by(scope.as_deref(), value);
        let mut insert =
            self.connection.prepare_cached("INSERT INTO theirs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
        let (line, at) = (i64::try_from(row.line).unwrap_or(i64::MAX), row.at.map(ms));
        insert.execute(params![line, m, second, near, scope, value, row.says.number(), at, inside, row.body])?;
        Ok(())
    }

    pub(super) fn put_malformed(&self, line: u64, cause: &str) -> Result<(), LedgerError> {
        let mut insert = self.connection.prepare_cached("INSERT INTO malformed (line, cause) VALUES (?1, ?2)")?;
        insert.execute(params![i64::try_from(line).unwrap_or(i64::MAX), cause])?;
        Ok(())
    }

    pub(super) fn put_record(&self, row: &OurRow<'_>) -> Result<(), LedgerError> {
        let (at, ours) = (row.address, row.ours);
        let scope = row.by_scope.then(|| at.scope().as_str());
        let m = row.value.map(|value| matched_by(scope, value));
        let near = row.value.map(|value| nearly_by(scope, value));
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO ours (m, near, scheme, space, scope, key, value, attempt, state, status, inside, covered,
                 settled, denied_from, first)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        let [scheme, space] = [at.scheme().as_str(), at.space().as_str()];
        let [scope, key] = [at.scope().as_str(), at.key().as_str()];
        let (attempt, state) = (row.attempt, ours.state.number());
        let Ours { status, inside, covered, settled, first, .. } = ours;
        let denied_from = ms(ours.denied_from);
        insert.execute(params![
            m,
            near,
            scheme,
            space,
            scope,
            key,
            row.value,
            attempt,
            state,
            status,
            inside,
            covered,
            settled,
            denied_from,
            first
        ])?;
        Ok(())
    }

    /// Everything is in: make it searchable.
    pub(super) fn sort(&self) -> Result<(), LedgerError> {
        Ok(self.connection.execute_batch(SORTED)?)
    }

    /// Judges every record of ours with what the ledger says of it, and keeps what is found. Returns how many agree.
    pub(super) fn judge(&self, judge: impl Fn(Ours, Option<Said>) -> Option<Finding>) -> Result<u64, LedgerError> {
        let mut select = self.connection.prepare(
            "SELECT ours.n, state, status, ours.inside, covered, settled, said.line, happened, declined, denied,
                 twins.m IS NOT NULL, scope, key, ours.m IS NOT NULL, denied_at, denied_from, first,
                 CASE WHEN said.line IS NULL THEN (SELECT min(line) FROM theirs WHERE theirs.near = ours.near) END
             FROM ours LEFT JOIN said USING (m) LEFT JOIN twins USING (m)",
        )?;
        let mut rows = select.query([])?;
        let mut agreeing = 0;
        while let Some(row) = rows.next()? {
            let ours = Ours {
                state: state_of(row.get(1)?),
                status: row.get(2)?,
                inside: row.get(3)?,
                covered: row.get(4)?,
                settled: row.get(5)?,
                denied_from: moment(row.get(15)?),
                first: row.get(16)?,
                twin: row.get(10)?,
                named: row.get(13)?,
                nearly: row.get::<_, Option<i64>>(17)?.is_some(),
            };
            let line: Option<i64> = row.get(6)?;
            let said = match line {
                None => None,
                Some(_) => Some(Said {
                    happened: row.get(7)?,
                    declined: row.get(8)?,
                    denied: row.get(9)?,
                    denied_at: row.get::<_, Option<i64>>(14)?.map(moment),
                }),
            };
            match judge(ours, said) {
                Some(finding) => {
                    let about = Listed {
                        n: 0,
                        kind: finding.kind,
                        line: line.or(row.get(17)?),
                        ours: row.get(0)?,
                        scope: row.get(11)?,
                        key: row.get(12)?,
                        state: Some(ours.state),
                        says: finding.says,
                        note: finding.note.to_owned(),
                    };
                    self.put_finding(&about)?;
                }
                None => agreeing += u64::from(ours.inside || said.is_some()),
            }
        }
        Ok(agreeing)
    }

    /// What the ledger has and the store has not, and what it has twice.
    pub(super) fn find_in_theirs(&self) -> Result<(), LedgerError> {
        // A cross join is made in the order written: rows are looked up for what is found only.
        let insert = "INSERT INTO finding (kind, line, scope, key, says, note)
                      SELECT ?1, said.line, theirs.scope, theirs.value, 1, ?2 FROM said
                      CROSS JOIN theirs ON theirs.m = said.m AND theirs.line = said.line";
        let by_line = "ORDER BY said.line";
        let missing = "WHERE happened > 0 AND said.inside AND NOT EXISTS (SELECT 1 FROM ours WHERE ours.m = said.m)";
        self.connection.execute(&format!("{insert} {missing} {by_line}"), params![Kind::NotHere.number(), ""])?;
        let note = "the ledger has it more than once: look at its rows";
        self.connection
            .execute(&format!("{insert} WHERE happened > 1 {by_line}"), params![Kind::TwiceThere.number(), note])?;
        Ok(())
    }

    fn put_finding(&self, found: &Listed) -> Result<(), LedgerError> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO finding (kind, line, ours, scope, key, state, says, note)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        insert.execute(params![
            found.kind.number(),
            found.line,
            found.ours,
            found.scope,
            found.key,
            found.state.map(State::number),
            found.says.number(),
            found.note,
        ])?;
        Ok(())
    }

    /// Up to `limit` findings of a kind after the one with that number, in their order.
    pub(super) fn page(&self, kind: Kind, after: i64, limit: u32) -> Result<Vec<Listed>, LedgerError> {
        let mut select = self.connection.prepare_cached(
            "SELECT n, kind, line, ours, scope, key, state, says, note FROM finding
             WHERE kind = ?1 AND n > ?2 ORDER BY n LIMIT ?3",
        )?;
        let listed = select.query_map(params![kind.number(), after, limit], |row| {
            Ok(Listed {
                n: row.get(0)?,
                kind,
                line: row.get(2)?,
                ours: row.get(3)?,
                scope: row.get(4)?,
                key: row.get(5)?,
                state: row.get::<_, Option<u8>>(6)?.map(state_of),
                says: Says::from_number(row.get(7)?),
                note: row.get(8)?,
            })
        })?;
        Ok(listed.collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn count(&self, kind: Kind) -> Result<u64, LedgerError> {
        let mut select = self.connection.prepare_cached("SELECT count(*) FROM finding WHERE kind = ?1")?;
        let count: i64 = select.query_row([kind.number()], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Up to `limit` malformed rows after the one with that number: number, line, cause.
    pub(super) fn malformed(&self, after: i64, limit: u32) -> Result<Vec<(i64, i64, String)>, LedgerError> {
        let sql = "SELECT n, line, cause FROM malformed WHERE n > ?1 ORDER BY n LIMIT ?2";
        let mut select = self.connection.prepare_cached(sql)?;
        let rows = select.query_map(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The address of a record of ours, and the attempt it was at when it was read.
    pub(super) fn address(&self, n: i64) -> Result<Option<(Address, u32)>, LedgerError> {
        let mut select =
            self.connection.prepare_cached("SELECT scheme, space, scope, key, attempt FROM ours WHERE n = ?1")?;
        let parts: Option<([String; 4], u32)> = select
            .query_row([n], |row| Ok(([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?], row.get(4)?)))
            .optional()?;
        Ok(parts.and_then(|(parts, attempt)| Some((address_of(&parts).ok()?, attempt))))
    }

    /// The body that the ledger gives for a record of ours that happened.
    pub(super) fn body(&self, ours: i64) -> Result<Option<String>, LedgerError> {
        let mut select = self.connection.prepare_cached(
            "SELECT body FROM theirs WHERE m = (SELECT m FROM ours WHERE n = ?1) AND body IS NOT NULL AND says > 0
             ORDER BY line DESC LIMIT 1",
        )?;
        Ok(select.query_row([ours], |row| row.get(0)).optional()?)
    }

    /// What became of a finding that was to be resolved.
    pub(super) fn settle(&self, n: i64, kind: Kind, note: &str) -> Result<(), LedgerError> {
        let mut update = self.connection.prepare_cached("UPDATE finding SET kind = ?2, note = ?3 WHERE n = ?1")?;
        update.execute(params![n, kind.number(), note])?;
        Ok(())
    }
}

fn address_of([scheme, space, scope, key]: &[String; 4]) -> Result<Address, InvalidPart> {
    Ok(Address::new(&AddressScheme::new(scheme)?, &Space::new(space)?, &Scope::new(scope)?, &Key::new(key)?))
}

/// A digest of what is compared; none runs into the other.
fn matched_by(scope: Option<&str>, value: &str) -> [u8; 16] {
    let mut hash = Sha256::new();
    let scope = scope.unwrap_or_default();
    hash.update((scope.len() as u64).to_le_bytes());
    hash.update(scope);
    hash.update(value);
    let digest: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

/// The same for what is almost that.
fn nearly_by(scope: Option<&str>, value: &str) -> [u8; 16] {
    matched_by(scope.map(almost).as_deref(), &almost(value))
}

fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.as_ms()).unwrap_or(i64::MAX)
}

fn moment(ms: i64) -> Timestamp {
    Timestamp::from_ms(u64::try_from(ms).unwrap_or(0))
}

/// Numbers were written by this process.
fn state_of(number: u8) -> State {
    State::from_number(number).unwrap_or(State::Unknown)
}
