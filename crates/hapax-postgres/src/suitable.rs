//! Whether a server can keep the promises, asked on every connection.
//!
//! A primary, not a standby, and with one where that was asked for; PostgreSQL 13 or newer; commits that wait for the disk; text that can hold every scope. And
//! the same store as when it was opened: after a failover or a restore the same address may lead to another one.

use hapax_core::store::Durability;
use tokio_postgres::Row;

use crate::statements::in_schema;

/// The oldest server whose behaviour is known here.
const VERSION_MIN: i32 = 130_000;

/// Everything that is looked at, in one row. Settings that an engine does not have are null.
pub(crate) const LOOK: &str = "SELECT pg_is_in_recovery(), current_setting('server_version_num')::int,
       current_setting('server_encoding', true), current_setting('fsync', true),
       current_setting('synchronous_commit', true), current_setting('synchronous_standby_names', true),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    in_recovery: bool,
    version: i32,
    encoding: Option<String>,
    fsync: Option<String>,
    synchronous_commit: Option<String>,
    standby_names: Option<String>,
    /// Its clock.
    pub(crate) now_ms: i64,
}

/// What it answered to [`LOOK`].
pub(crate) fn read(rows: &[Row]) -> Server {
    let Some(row) = rows.first() else { return Server { in_recovery: true, ..Server::default() } };
    let text = |at: usize| row.try_get::<_, Option<String>>(at).ok().flatten();
    Server {
        in_recovery: row.try_get(0).unwrap_or(true),
        version: row.try_get(1).unwrap_or(0),
        encoding: text(2),
        fsync: text(3),
        synchronous_commit: text(4),
        standby_names: text(5),
        now_ms: row.try_get(6).unwrap_or(0),
    }
}

impl Server {
    /// Refuses what cannot keep the promises, with the reason.
    pub(crate) fn check(&self, standby_required: bool) -> Result<(), String> {
        if self.in_recovery {
            return Err("the server is a standby; connect to the primary".to_owned());
        }
        if self.version < VERSION_MIN {
            let (major, minor) = (self.version / 10_000, self.version % 10_000);
            return Err(format!("the server is PostgreSQL {major}.{minor}; use 13 or newer"));
        }
        if let Some(other) = self.encoding.as_deref().filter(|encoding| *encoding != "UTF8") {
            return Err(format!("the database's encoding is {other}; create one with encoding UTF8"));
        }
        if self.fsync.as_deref() == Some("off") {
            return Err("fsync is off: what was acknowledged would not survive a crash; set fsync = on".to_owned());
        }
        if standby_required && self.durability() != Durability::Replicated {
            return Err(
                "no standby confirms what is committed, and one is required; set synchronous_standby_names, or \
                        say that this is a single node (`store.single_node`)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// What of an acknowledged write survives. An `off` counts as `on`, because every write raises it.
    pub(crate) fn durability(&self) -> Durability {
        let has_standby = self.standby_names.as_deref().is_some_and(|names| !names.trim().is_empty());
        if has_standby && self.synchronous_commit.as_deref() != Some("local") {
            Durability::Replicated
        } else {
            Durability::Disk
        }
    }
}

/// For a caller's transaction that is not on the store's database.
pub(crate) const OTHER_TRANSACTION: &str =
    "the transaction is not on this store's database; begin it on the database the store was opened on";

/// Asks for the name of the store in that schema.
pub(crate) fn name_of_store(schema: &str) -> String {
    in_schema(schema, "SELECT value FROM {schema}.meta WHERE name = 'store'")
}

/// Refuses another store than the one that was opened.
pub(crate) fn check_store(rows: &[Row], name: &str) -> Result<(), &'static str> {
    match rows.first().map(|row| row.try_get::<_, &str>(0)) {
        Some(Ok(found)) if found == name => Ok(()),
        _ => Err("this is not the database the store was opened on; connect to that one, or open the store again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Server {
        let text = |text: &str| Some(text.to_owned());
        Server {
            in_recovery: false,
            version: 150_004,
            encoding: text("UTF8"),
            fsync: text("on"),
            synchronous_commit: text("on"),
            standby_names: text(""),
            now_ms: 0,
        }
    }

    #[test]
    fn a_good_server_is_accepted_and_a_standby_makes_it_better() {
        assert_eq!(good().check(false), Ok(()));
        assert_eq!(good().durability(), Durability::Disk);
        let replicated = Server { standby_names: Some("ANY 1 (*)".to_owned()), ..good() };
        assert_eq!(replicated.durability(), Durability::Replicated);
        let local = Server { synchronous_commit: Some("local".to_owned()), ..replicated };
        assert_eq!(local.durability(), Durability::Disk);
        assert_eq!(Server { standby_names: Some("ANY 1 (*)".to_owned()), ..good() }.check(true), Ok(()));
        for alone in [good(), local] {
            assert!(alone.check(true).unwrap_err().starts_with("no standby confirms what is committed"), "{alone:?}");
        }
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let text = |text: &str| Some(text.to_owned());
        for (server, reason) in [
            (Server { in_recovery: true, ..good() }, "the server is a standby; connect to the primary"),
            (Server { version: 120_017, ..good() }, "the server is PostgreSQL 12.17; use 13 or newer"),
            (
                Server { encoding: text("LATIN1"), ..good() },
                "the database's encoding is LATIN1; create one with encoding UTF8",
            ),
            (
                Server { fsync: text("off"), ..good() },
                "fsync is off: what was acknowledged would not survive a crash; set fsync = on",
            ),
        ] {
            assert_eq!(server.check(false), Err(reason.to_owned()));
        }
    }
}
