//! Connections: a pool whose every member was checked, and statements with a time limit.
//!
//! A statement that is not answered in time, or whose caller has gone, takes its connection with it: the next statement
//! would wait behind it. Connections that the server closed are replaced when the next one is needed.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool::managed::{self, Metrics, PoolError, QueueMode, RecycleError, RecycleResult};
use deadpool_postgres::{ClientWrapper, Connect};
use hapax_core::store::StoreError;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Error, Row};

use crate::hosts::{Hosts, Session, Unusable};
use crate::options::Options;
use crate::rows::Question;
use crate::{failure, suitable};

type Pool = managed::Pool<Hosts>;
type Object = managed::Object<Hosts>;

/// Hosts keep to the time limit by themselves, and then say which of them did what; this is for what they cannot limit.
const BACKSTOP: Duration = Duration::from_millis(250);

/// The server's own timeout comes first, so that its answer, that nothing was written, still arrives.
const GRACE: Duration = Duration::from_millis(500);

/// Settings of a session of our own. Plans must not depend on statistics: they are made when the table is empty and
/// used when it is not. Settings that an engine does not have are left out.
const SETTINGS: &str = "SELECT set_config(s.name, w.value, false)
     FROM pg_settings s JOIN (VALUES
       ('statement_timeout', $1::text), ('synchronous_commit', 'on'), ('default_transaction_isolation', 'read committed'),
       ('plan_cache_mode', 'force_generic_plan'), ('jit', 'off'),
       ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off')
     ) w (name, value) ON w.name = s.name
     WHERE s.name <> 'synchronous_commit' OR s.setting = 'off'";

/// What every connection of a store must be like.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    schema: String,
    /// Known once the store is open.
    store_name: OnceLock<String>,
    /// For sessions of our own; none behind a pooler.
    statement_timeout: Option<String>,
    standby_required: bool,
}

/// A pool of checked connections.
pub(crate) struct Connections {
    pool: Pool,
    terms: Arc<Terms>,
    target: String,
    prepares: bool,
    connect_timeout: Duration,
    statement_timeout: Duration,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Connections {
    /// A pool of at most `count` connections, none of them open yet.
    pub(crate) fn new(
        config: Config,
        connect: Box<dyn Connect>,
        target: String,
        options: &Options,
        count: usize,
    ) -> Result<Self, StoreError> {
        let timeout = (!options.pooler).then(|| setting_of(options.statement_timeout));
        let terms = Arc::new(Terms {
            schema: options.schema.clone(),
            store_name: OnceLock::new(),
            statement_timeout: timeout,
            standby_required: options.standby_required,
        });
        let hosts = Hosts::new(config, connect, Arc::clone(&terms), options.connect_timeout);
        // The one used last has its statements prepared and its pages at hand.
        let pool = Pool::builder(hosts).max_size(count).queue_mode(QueueMode::Lifo).build();
        Ok(Self {
            pool: pool.map_err(|_| failure::stopped("open"))?,
            terms,
            target,
            prepares: !options.pooler,
            connect_timeout: options.connect_timeout,
            statement_timeout: options.statement_timeout,
        })
    }

    /// From now on every new connection must lead to the store of that name.
    pub(crate) fn expect_store(&self, name: String) {
        // Said once, when the store is opened.
        let _ = self.terms.store_name.set(name);
    }

    /// The name of the store, once it is open.
    pub(crate) fn store_name(&self) -> &str {
        self.terms.store_name.get().map_or("", String::as_str)
    }

    /// Refuses a server that cannot keep the promises, with the reason.
    pub(crate) fn check(&self, server: &suitable::Server) -> Result<(), String> {
        server.check(self.terms.standby_required)
    }

    /// Whether prepared statements last: not behind a pooler.
    #[cfg(feature = "sqlx")]
    pub(crate) fn prepares(&self) -> bool {
        self.prepares
    }

    /// Where the connections lead to, for people.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// How many hosts they may lead to.
    pub(crate) fn host_count(&self) -> usize {
        self.pool.manager().count()
    }

    /// A connection, new or used before, that was checked.
    pub(crate) async fn get(&self, op: &'static str) -> Result<Connection, StoreError> {
        let got = timeout(self.connect_timeout.saturating_add(BACKSTOP), self.pool.get()).await;
        let object = match got {
            Ok(Ok(object)) => object,
            Ok(Err(error)) => return Err(self.named(no_connection(op, error))),
            Err(_) => return Err(self.named(failure::no_connection(op))),
        };
        let (prepares, limit) = (self.prepares, self.statement_timeout + GRACE);
        Ok(Connection { object: Some(object), prepares, limit, first_by: None, owed: None })
    }

    /// The same by that time at the latest, and its first statement is answered soon after.
    pub(crate) async fn get_by(&self, op: &'static str, deadline: Instant) -> Result<Connection, StoreError> {
        let deadline = deadline + GRACE;
        let got = timeout_at(deadline, self.get(op)).await;
        let mut connection = got.map_err(|_| self.named(failure::no_connection(op)))??;
        connection.first_by = Some(deadline);
        Ok(connection)
    }

    /// Closes the connections that nobody uses: the next ones are checked anew.
    pub(crate) fn close_idle(&self) {
        self.pool.retain(|_, _| false);
    }

    fn named(&self, error: StoreError) -> StoreError {
        StoreError { message: format!("{}: {}", self.target, error.message), ..error }
    }
}

/// A duration as PostgreSQL's settings want it. Zero would mean no limit.
pub(crate) fn setting_of(duration: Duration) -> String {
    format!("{}ms", duration.as_millis().max(1))
}

impl managed::Manager for Hosts {
    type Type = Session;
    type Error = Vec<(String, Unusable)>;

    async fn create(&self) -> Result<Session, Self::Error> {
        self.session().await
    }

    /// A connection is checked by what it is asked anyway; the driver notices when the server has closed it.
    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Self::Error> {
        if session.is_current() { Ok(()) } else { Err(RecycleError::message("closed, or of a host that was left")) }
    }
}

/// Checks a new connection, and sets up its session where it is ours.
pub(crate) async fn admit(client: &ClientWrapper, terms: &Terms) -> Result<(), Unusable> {
    let answer = client.query_typed(suitable::LOOK, &[]).await.map_err(Unusable::Refused)?;
    suitable::read(&answer).check(terms.standby_required).map_err(Unusable::Unsuitable)?;
    if let Some(name) = terms.store_name.get() {
        let answer = client.query_typed(&suitable::name_of_store(&terms.schema), &[]).await;
        suitable::check_store(&answer.map_err(Unusable::Refused)?, name)
            .map_err(|reason| Unusable::Unsuitable(reason.to_owned()))?;
    }
    if let Some(timeout) = &terms.statement_timeout {
        client.query_typed(SETTINGS, &[(timeout, Type::TEXT)]).await.map_err(Unusable::Refused)?;
    }
    Ok(())
}

fn no_connection(op: &'static str, error: PoolError<Vec<(String, Unusable)>>) -> StoreError {
    match error {
        PoolError::Backend(reasons) => failure::of_hosts(op, reasons),
        PoolError::PostCreateHook(_) | PoolError::Timeout(_) | PoolError::Closed | PoolError::NoRuntimeSpecified => {
            failure::no_connection(op)
        }
    }
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The statement did not get as far as being run.
    Unprepared(Error),
    /// The server or the driver said no.
    Failed(Error),
    /// Nobody said anything.
    Unanswered,
}

impl Refusal {
    /// For a statement that writes.
    pub(crate) fn of_write(self, op: &'static str) -> StoreError {
        match self {
            Self::Unprepared(error) => failure::of_read(op, error),
            Self::Failed(error) => failure::of_write(op, error),
            Self::Unanswered => failure::unanswered_write(op),
        }
    }

    /// Whether the connection was lost before the statement could be run.
    pub(crate) fn is_before_anything(&self) -> bool {
        matches!(self, Self::Unprepared(error) if failure::is_last_word(error))
    }

    /// For a statement that only reads.
    pub(crate) fn of_read(self, op: &'static str) -> StoreError {
        match self {
            Self::Unprepared(error) | Self::Failed(error) => failure::of_read(op, error),
            Self::Unanswered => failure::unanswered_read(op),
        }
    }
}

/// A connection in use. It goes back to the pool, unless an answer is still owed on it or none will come any more.
pub(crate) struct Connection {
    object: Option<Object>,
    prepares: bool,
    limit: Duration,
    /// What came before the first statement is a part of its time.
    first_by: Option<Instant>,
    /// Since when: a statement was sent and not answered, or the answer was the session's last word.
    owed: Option<Instant>,
}

impl Connection {
    /// Runs one statement as a transaction by itself.
    pub(crate) async fn query(&mut self, question: &Question<'_>) -> Result<Vec<Row>, Refusal> {
        let Some(object) = self.object.as_ref().filter(|_| self.owed.is_none()) else {
            return Err(Refusal::Unanswered);
        };
        let sent = Instant::now();
        self.owed = Some(sent);
        let deadline = self.first_by.take().unwrap_or(sent + self.limit);
        let answer = timeout_at(deadline, ask(&object.client, self.prepares, question)).await;
        let is_over = match &answer {
            Ok(Ok(_)) => false,
            Ok(Err(Refusal::Failed(error) | Refusal::Unprepared(error))) => {
                failure::is_last_word(error) || failure::is_read_only(error)
            }
            Ok(Err(Refusal::Unanswered)) | Err(_) => {
                // At once: whoever hears of it next must not get a connection to the same silence.
                if sent.elapsed() >= self.limit / 2 {
                    object.was_silent();
                }
                true
            }
        };
        if !is_over {
            self.owed = None;
        }
        answer.unwrap_or(Err(Refusal::Unanswered))
    }

    /// How long a statement may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// The driver's client, for whoever needs more than one statement. Until [`settled`](Self::settled) an answer may be owed.
    pub(crate) fn client(&mut self) -> Option<&mut ClientWrapper> {
        self.owed = Some(Instant::now());
        self.object.as_mut().map(|object| &mut object.client)
    }

    /// Does not go back to the pool.
    pub(crate) fn close(mut self) {
        self.owed = Some(Instant::now());
    }

    /// Everything that was sent to the client has been answered.
    pub(crate) fn settled(&mut self) {
        self.owed = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (Some(object), Some(since)) = (self.object.take(), self.owed) else { return };
        // Whoever gave up may have had less patience than a statement has.
        if since.elapsed() >= self.limit / 2 {
            object.was_silent();
        }
        drop(Object::take(object));
    }
}

async fn ask(client: &ClientWrapper, prepares: bool, question: &Question<'_>) -> Result<Vec<Row>, Refusal> {
    let Question { sql, parameters } = question;
    if !prepares {
        return client.query_typed(sql, parameters).await.map_err(Refusal::Failed);
    }
    let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
    let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
    let statement = client.prepare_typed_cached(sql, &types).await.map_err(Refusal::Unprepared)?;
    client.query(&statement, &values).await.map_err(Refusal::Failed)
}
