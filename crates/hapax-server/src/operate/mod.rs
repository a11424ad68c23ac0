//! The operator's commands: one file each, on the [`Desk`](crate::desk::Desk), in the terminal's terms.
//!
//! | module | what it is |
//! |---|---|
//! | [`args`] | the commands and their flags |
//! | `open` | which desk: the store itself, or a running node |
//! | `status`, `list`, `show`, `tail`, `resolve`, `purge`, `audit` | a command each |
//! | `completions` | completions and manual pages |
//! | `locate` | the one record that a person means |
//! | `table`, `csv`, `terminal` | how things are printed, and what the terminal can |
//! | `failure` | how a command ends that failed |
//!
//! Exit codes: 0 done, 1 something needs a person, the person who was asked said no, or the output cannot be written, 2 the
//! command makes no sense, 3 not found, 4 not possible in the state the record is in, or several fit, 5 not allowed, 6 the
//! store or the node cannot be reached.

pub mod args;
mod audit;
mod completions;
mod csv;
mod failure;
mod list;
mod locate;
mod open;
mod purge;
mod resolve;
mod show;
mod status;
mod table;
mod tail;
mod terminal;

use std::process::ExitCode;

use args::{KeysCommand, Operation};
use failure::Failure;

/// Something needs a person.
const EXIT_ATTENTION: u8 = 1;

/// The person who was asked said no: nothing was changed.
const EXIT_DECLINED: u8 = 1;

/// Runs a command to its end.
#[must_use]
pub fn run(operation: &Operation, environment: Vec<(String, String)>, commands: clap::Command) -> ExitCode {
    let done = match operation {
        Operation::Completions { shell } => completions::completions(*shell, commands),
        Operation::Man { directory } => completions::man(directory.as_deref(), commands),
        _ => on_a_desk(operation, environment),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn on_a_desk(operation: &Operation, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match operation {
            Operation::Status(args) => status::run(args, environment).await,
            Operation::Audit(args) => audit::run(args, environment).await,
            Operation::Keys { command } => match command {
                KeysCommand::List(args) => list::run(args, environment).await,
                KeysCommand::Show(args) => show::run(args, environment).await,
                KeysCommand::Tail(args) => tail::run(args, environment).await,
                KeysCommand::Resolve(args) => resolve::run(args, environment).await,
                KeysCommand::Purge(args) => purge::run(args, environment).await,
            },
            Operation::Completions { .. } | Operation::Man { .. } => Ok(0),
        }
    })
}
