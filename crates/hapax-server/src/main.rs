//! The binary `hapax`: reads the flags, loads the configuration, runs the command.
//!
//! It ends with 0 where all went well, 2 where flags or configuration are wrong, 1 otherwise, also where the proxy ended before
//! everything that ran was recorded; the operator's commands have more codes (`operate`). Left to others: everything else.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use hapax_server::cli::{Cli, Command, ConfigCommand, Flags, Output, RoutesArgs};
use hapax_server::config::{self, Config, ConfigErrors, Sources};
use hapax_server::ledger::LedgerError;
use hapax_server::ledger::args::LedgerArgs;
use hapax_server::run::signals::Reloads;
use hapax_server::run::{Ended, Prepared};
use hapax_server::store_files::StoreFileError;
use hapax_server::store_files::args::StoreCommand;
use hapax_server::{audit_routes, ledger, operate, run, store_files};

/// Requests are many small allocations, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Flags or configuration are wrong; also the code for flags that do not exist.
const EXIT_CONFIGURATION: u8 = 2;

/// How long the process waits for threads that are still at work when all is done.
const LAST_MOMENTS: Duration = Duration::from_millis(500);

/// Why a command failed.
enum Failure {
    Configuration(ConfigErrors),
    /// What was asked for cannot be done as asked.
    Usage(Box<dyn Error + Send + Sync>),
    Other(Box<dyn Error + Send + Sync>),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Proxy(flags) => proxy(&flags),
        Command::Config { command: ConfigCommand::Check(flags) } => check(&flags),
        Command::Config { command: ConfigCommand::Show { origin, flags } } => show(&flags, origin),
        Command::Config { command: ConfigCommand::Default } => print(config::DEFAULT_FILE),
        Command::Routes(args) => routes(&args),
        Command::Reconcile(args) => reconcile(&args),
        Command::Store { command } => store(&command),
        Command::Operate(operation) => Ok(operate::run(&operation, environment(), Cli::command())),
    };
    done.unwrap_or_else(|failure| report(&failure))
}

fn proxy(flags: &Flags) -> Result<ExitCode, Failure> {
    let sources = flags.sources(environment());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(error.into()))?;
    // Before the file is read: whoever changes it after that and says so is heard.
    let reloads = runtime.block_on(async { Reloads::install() }).map_err(|error| Failure::Other(error.into()))?;
    let (config, prepared) = prepared(&sources)?;
    let ended = runtime.block_on(run::proxy(config, prepared, sources, reloads));
    // Whoever was told to end while a store was being opened does not wait for that.
    runtime.shutdown_timeout(LAST_MOMENTS);
    Ok(match ended.map_err(|error| Failure::Other(error.into()))? {
        Ended::Complete => ExitCode::SUCCESS,
        Ended::Early => ExitCode::FAILURE,
    })
}

fn check(flags: &Flags) -> Result<ExitCode, Failure> {
    let (config, _) = prepared(&flags.sources(environment()))?;
    let mut text = String::new();
    for warning in config.warnings().into_iter().chain(config.warnings_without_store()) {
        text.push_str(&format!("note: {warning}\n"));
    }
    let file = config.file.as_ref().map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
    let (store, routes) = (config.store.backend.shown(), config.routes.len());
    let plural = if routes == 1 { "" } else { "s" };
    text.push_str(&format!("The configuration is sound ({file}; store {store}; {routes} route{plural}).\n"));
    print(&text)
}

/// Shows what could be read also where something is wrong: that is when people look.
fn show(flags: &Flags, origin: bool) -> Result<ExitCode, Failure> {
    let explained = config::explain(&flags.sources(environment()));
    print(&config::show(&explained.settings, origin))?;
    explained.config.map(|_| ExitCode::SUCCESS).map_err(Failure::Configuration)
}

fn routes(args: &RoutesArgs) -> Result<ExitCode, Failure> {
    let config = load(&args.sources(environment()))?;
    let report = audit_routes::command::audit(&config, args.log.as_deref()).map_err(Failure::Other)?;
    match args.output {
        Output::Text => print(&report.to_table())?,
        Output::Json => print(&format!("{}\n", report.to_json().map_err(|error| Failure::Other(error.into()))?))?,
    };
    Ok(ExitCode::from(report.exit_code()))
}

fn reconcile(args: &LedgerArgs) -> Result<ExitCode, Failure> {
    runtime()?.block_on(ledger::command::run(args, environment(), &mut std::io::stdout())).map(ExitCode::from).map_err(
        |error| match error {
            LedgerError::Configuration(errors) => Failure::Configuration(errors),
            error @ (LedgerError::Report(_) | LedgerError::ReportAfter(_)) => Failure::Other(error.into()),
            other => Failure::Usage(other.into()),
        },
    )
}

fn store(command: &StoreCommand) -> Result<ExitCode, Failure> {
    let done = runtime()?.block_on(store_files::command::run(command, environment()));
    let done = done.map_err(|error| match error {
        StoreFileError::Configuration(errors) => Failure::Configuration(errors),
        error @ (StoreFileError::Usage(_) | StoreFileError::Missing(_)) => Failure::Usage(error.into()),
        other => Failure::Other(other.into()),
    })?;
    print(&done).map_err(|failure| match failure {
        Failure::Other(error) => Failure::Other(format!("{error}; what was asked for is done").into()),
        other => other,
    })
}

/// For commands that do one thing and end.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failure::Other(error.into()))
}

/// A configuration, and all that a start makes of it before it opens the store.
fn prepared(sources: &Sources) -> Result<(Config, Prepared), Failure> {
    let explained = config::explain(sources);
    let config = explained.config.map_err(Failure::Configuration)?;
    let prepared = run::prepare(&config, &explained.settings).map_err(Failure::Configuration)?;
    Ok((config, prepared))
}

fn load(sources: &Sources) -> Result<Config, Failure> {
    config::load(sources).map_err(Failure::Configuration)
}

/// The environment as text. What is not UTF-8 becomes something that no setting accepts.
fn environment() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// A reader that has gone away, as `head` does, is no failure.
fn print(text: &str) -> Result<ExitCode, Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Other(format!("the output cannot be written: {error}").into()))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn report(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Configuration(errors) => {
            for problem in &errors.0 {
                eprintln!("error: {problem}");
            }
            ExitCode::from(EXIT_CONFIGURATION)
        }
        Failure::Usage(error) => {
            eprintln!("error: {error}");
            ExitCode::from(EXIT_CONFIGURATION)
        }
        Failure::Other(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
