//! `hapax keys purge`: takes answers away, one or many. Many only after the count was shown.

use super::args::{PurgeArgs, Shape};
use super::failure::Failure;
use super::list::Times;
use super::locate::{Among, ToChange, locate_to_change};
use super::open;
use super::terminal::{agrees, print, print_declined, print_json, someone_is_there};
use crate::desk::Desk as _;
use crate::desk::bound::{self, Bond, By};
use crate::desk::view::{Filter, PurgeRequest, PurgeView};
use crate::flags;

pub(super) async fn run(args: &PurgeArgs, environment: Vec<(String, String)>) -> Result<u8, Failure> {
    let times = Times::of(&args.which)?;
    let who = flags::who(&args.change.actor, &environment);
    let desk = open::desk(&args.change.place, environment).await?;
    let which = times.filter(&desk, &args.which).await?;
    let id = match &args.key {
        Some(key) => {
            let only_scope = Filter { scope: which.scope.clone(), ..Filter::default() };
            if which != only_scope {
                return Err(Failure::usage("name one record (with its --scope), or filters, not both"));
            }
            let named = ToChange {
                command: "purge",
                text: key,
                scope: which.scope.as_deref(),
                among: Among::All,
                keys_unique: args.keys_unique,
                has_body: false,
            };
            Some(locate_to_change(&desk, &named).await?.id)
        }
        None => {
            check_bound(&which)?;
            None
        }
    };
    let filter = id.is_none().then_some(which);
    let reason = args.reason.clone().unwrap_or_else(|| "dry run".to_owned());
    let request =
        PurgeRequest { id, filter, allow_rerun: args.allow_rerun, dry_run: args.dry_run, expect: None, reason };
    if request.id.is_some() || request.dry_run {
        return show(args, &desk.purge(&request, &who).await?);
    }
    let preview = desk.purge(&PurgeRequest { dry_run: true, ..request.clone() }, &who).await?;
    if preview.matched > 0 && !args.change.yes && !agreed(args, &preview)? {
        return print_declined(args.change.output, &preview);
    }
    let expect = Some(preview.matched);
    show(args, &desk.purge(&PurgeRequest { expect, ..request }, &who).await?)
}

/// The desk refuses it as well; here it is said in flags.
fn check_bound(which: &Filter) -> Result<(), Failure> {
    let Some(label) = &which.label else { return Ok(()) };
    let bond = Bond { scoped: which.scope.is_some(), ..Bond::default() };
    let Some(why) = bound::unbound(By::Label, bond) else { return Ok(()) };
    let label = label.replace('\'', r"'\''");
    Err(Failure::usage(format!("{why}; add --scope; `hapax keys list --label '{label}'` shows whose they are")))
}

fn agreed(args: &PurgeArgs, preview: &PurgeView) -> Result<bool, Failure> {
    let matched = preview.matched;
    if !someone_is_there() {
        return Err(Failure::usage(format!("{matched} records match, and nobody is there to ask; repeat with --yes")));
    }
    let then = if args.allow_rerun { "Their requests may RUN AGAIN." } else { "Their keys stay taken." };
    agrees(&format!("{matched} records match. {then} Take their answers away?"))
}

fn show(args: &PurgeArgs, view: &PurgeView) -> Result<u8, Failure> {
    let printed = match args.change.output {
        Shape::Text => print(&text(view)),
        Shape::Json => print_json(view),
    };
    let changed = !view.dry_run && view.freed + view.tombstones > 0;
    printed.map_err(|failure| if changed { failure.after_a_change() } else { failure })?;
    Ok(0)
}

fn text(view: &PurgeView) -> String {
    let PurgeView { matched, freed, tombstones, left, dry_run } = view;
    let would = if *dry_run { "would be " } else { "" };
    format!(
        "{matched} matched: {freed} {would}freed, {tombstones} {would}made a tombstone, {left} {would}left as they are\n"
    )
}
