//! What a record of ours and the ledger's rows about it mean together: one pure function.
//!
//! A row says what it says and no more. Rows that contradict each other, a row that several records could be about, one that
//! does not say whose key or label it names, and an absence that nobody vouches for decide nothing.

use hapax_core::clock::Timestamp;
use hapax_core::record::State;

use super::rows::Says;

/// What is wrong, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It happened there, and no record of it is here.
    NotHere,
    /// It is completed here, and the ledger lacks it.
    NotThere,
    /// Both know it and say the opposite.
    Contradicts,
    /// The ledger says more than once that it happened.
    TwiceThere,
    /// Nobody here knows, and the ledger decides it.
    Decidable,
    /// Nobody here knows, and the ledger does not say.
    Undecided,
    /// Decided by the ledger and resolved.
    Resolved,
    /// Decided by the ledger, but the record changed meanwhile.
    NotResolved,
}

impl Kind {
    /// In the order of the report.
    pub(super) const ALL: [Self; 8] = [
        Self::TwiceThere,
        Self::Contradicts,
        Self::NotHere,
        Self::NotThere,
        Self::Undecided,
        Self::NotResolved,
        Self::Decidable,
        Self::Resolved,
    ];

    pub(super) const fn number(self) -> i64 {
        match self {
            Self::NotHere => 1,
            Self::NotThere => 2,
            Self::Contradicts => 3,
            Self::TwiceThere => 4,
            Self::Decidable => 5,
            Self::Undecided => 6,
            Self::Resolved => 7,
            Self::NotResolved => 8,
        }
    }

    /// The word in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NotHere => "not-here",
            Self::NotThere => "not-there",
            Self::Contradicts => "contradicts",
            Self::TwiceThere => "twice-there",
            Self::Decidable => "decidable",
            Self::Undecided => "undecided",
            Self::Resolved => "resolved",
            Self::NotResolved => "not-resolved",
        }
    }

    /// The word, explained.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::NotHere => "in the ledger, not here",
            Self::NotThere => "completed here, not in the ledger",
            Self::Contradicts => "the ledger says the opposite",
            Self::TwiceThere => "more than once in the ledger",
            Self::Decidable => "unknown here, decided by the ledger; --apply resolves it",
            Self::Undecided => "unknown here, not decided by the ledger",
            Self::Resolved => "was unknown here, resolved by the ledger",
            Self::NotResolved => "changed here before it could be resolved",
        }
    }

    /// Whether it still has to be looked at.
    pub(super) const fn disagrees(self) -> bool {
        !matches!(self, Self::Resolved)
    }
}

/// A record of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ours {
    pub(super) state: State,
    /// The status of its answer.
    pub(super) status: Option<u16>,
    /// It was first seen within the window.
    pub(super) inside: bool,
    /// The window holds everything that its last attempt could have done.
    pub(super) covered: bool,
    /// Its last attempt can do nothing any more.
    pub(super) settled: bool,
    /// From when on a row can say of its last attempt that it did not happen.
    pub(super) denied_from: Timestamp,
    /// Its last attempt is its first one.
    pub(super) first: bool,
    /// Another record is matched by the same rows.
    pub(super) twin: bool,
    /// It has what the rows are matched by. A label that comes with the answer is missing after a crash.
    pub(super) named: bool,
    /// A row names something that is almost the same.
    pub(super) nearly: bool,
}

#[cfg(test)]
impl Ours {
    /// Nobody knows, and nothing is in the way of what the ledger says.
    pub(super) const UNKNOWN: Self = Self {
        state: State::Unknown,
        status: None,
        inside: true,
        covered: true,
        settled: true,
        denied_from: Timestamp::from_ms(0),
        first: true,
        twin: false,
        named: true,
        nearly: false,
    };
}

/// How many rows about it say what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) happened: u32,
    pub(super) declined: u32,
    pub(super) denied: u32,
    /// When the latest of those rows was that say that it did not happen, if they say when.
    pub(super) denied_at: Option<Timestamp>,
}

/// What is found about one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) says: Says,
    pub(super) note: &'static str,
}

/// Whether somebody vouches that what the ledger lacks did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    SaysNothing,
    /// Vouched for, but rows of the ledger could not be understood or name nothing: it may be one of those.
    HasMalformedRows,
    DidNotHappen,
}

/// What record and rows mean together; `None`: they agree, or there is nothing to say.
pub(super) fn judge(ours: Ours, said: Option<Said>, absence: Absence) -> Option<Finding> {
    match said {
        None => missing(ours, absence),
        Some(said) => match ours.state {
            State::Unknown | State::Dead => Some(undecided(ours, said)),
            State::Completed => completed(ours, said),
            State::Ready => ready(ours, said),
            // An attempt that runs is not over, and a tombstone knows no answer.
            State::Running | State::Expired => None,
        },
    }
}

/// What rows decide that do not say whose they are: nothing. Callers choose keys and labels, and another one may have chosen
/// the same.
pub(super) fn unless_bound(found: Finding, bound: bool) -> Finding {
    match found.kind {
        Kind::Decidable if !bound => {
            let note = "the ledger does not say whose it is; match by id, or by scope as well";
            Finding { kind: Kind::Undecided, says: Says::Nothing, note }
        }
        _ => found,
    }
}

fn missing(ours: Ours, absence: Absence) -> Option<Finding> {
    if !ours.inside {
        return None;
    }
    let undecided = |note| finding(Kind::Undecided, Says::Nothing, note);
    match ours.state {
        State::Completed if succeeded(ours) => {
            let note = if ours.nearly { "the ledger has only a row that is almost the same" } else { "" };
            finding(Kind::NotThere, Says::Nothing, note)
        }
        State::Unknown | State::Dead if ours.nearly => {
            undecided("the ledger has only a row that is almost the same: look whether it is about this one")
        }
        State::Unknown | State::Dead => match absence {
            Absence::SaysNothing => undecided("the ledger lacks it, which says nothing by itself"),
            Absence::DidNotHappen if !ours.named => {
                undecided("the record lacks the label, so the ledger cannot name it")
            }
            Absence::HasMalformedRows => {
                undecided("the ledger lacks it, or has it in a row that is malformed or has no key")
            }
            Absence::DidNotHappen if ours.covered => {
                finding(Kind::Decidable, Says::DidNotHappen, "the ledger lacks it, and the window covers it")
            }
            Absence::DidNotHappen => undecided("the ledger lacks it, but the window does not cover the whole attempt"),
        },
        _ => None,
    }
}

fn undecided(ours: Ours, said: Said) -> Finding {
    let open = |note| Finding { kind: Kind::Undecided, says: Says::Nothing, note };
    let decided = |says| Finding { kind: Kind::Decidable, says, note: "" };
    match one_voice(said) {
        _ if ours.twin => open("several records here match the row; match by scope as well"),
        Err(Discord) => open("the ledger's rows contradict each other"),
        Ok(Says::Nothing) => open("the ledger has it with a status that is in no list"),
        Ok(Says::DidNotHappen) if !ours.settled => open("did not happen so far, but its attempt may still be going on"),
        Ok(Says::DidNotHappen) => match said.denied_at {
            None if !ours.first => open("the row may be about an earlier attempt; give --time, or look"),
            Some(at) if at < ours.denied_from => open("the row is older than what it would decide"),
            _ => decided(Says::DidNotHappen),
        },
        Ok(says) => decided(says),
    }
}

fn completed(ours: Ours, said: Said) -> Option<Finding> {
    if ours.twin {
        return None;
    }
    match (succeeded(ours), said) {
        (false, Said { happened: 1.., .. }) => {
            finding(Kind::Contradicts, Says::Happened, "a failure is recorded here; there it happened")
        }
        (true, Said { happened: 0, declined: 1.., .. }) => {
            finding(Kind::Contradicts, Says::Declined, "a success is recorded here; there it was declined")
        }
        (true, Said { happened: 0, denied: 1.., .. }) => {
            finding(Kind::Contradicts, Says::DidNotHappen, "a success is recorded here; there it did not happen")
        }
        _ => None,
    }
}

fn ready(ours: Ours, said: Said) -> Option<Finding> {
    let note = "here it may run again; there it happened";
    if said.happened > 0 && !ours.twin { finding(Kind::Contradicts, Says::Happened, note) } else { None }
}

/// An answer that says it was done. Redirections do.
fn succeeded(ours: Ours) -> bool {
    ours.status.is_some_and(|status| status < 400)
}

struct Discord;

/// What all rows say together. Rows that say nothing, such as an earlier "pending", do not count.
fn one_voice(said: Said) -> Result<Says, Discord> {
    match (said.happened > 0, said.declined > 0, said.denied > 0) {
        (false, false, false) => Ok(Says::Nothing),
        (true, false, false) => Ok(Says::Happened),
        (false, true, false) => Ok(Says::Declined),
        (false, false, true) => Ok(Says::DidNotHappen),
        _ => Err(Discord),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "its callers return it as it is")]
fn finding(kind: Kind, says: Says, note: &'static str) -> Option<Finding> {
    Some(Finding { kind, says, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Ours = Ours::UNKNOWN;
    const PENDING: Said = Said { happened: 0, declined: 0, denied: 0, denied_at: None };
    const HAPPENED: Said = Said { happened: 1, ..PENDING };
    const DECLINED: Said = Said { declined: 1, ..PENDING };
    const DENIED: Said = Said { denied: 1, ..PENDING };

    fn of(ours: Ours, said: Option<Said>, absence: Absence) -> Option<(Kind, Says)> {
        judge(ours, said, absence).map(|finding| (finding.kind, finding.says))
    }

    #[test]
    fn what_nobody_knows_here_is_decided_by_one_voice_only() {
        for state in [State::Unknown, State::Dead] {
            let ours = Ours { state, ..OURS };
            let judged = |said| of(ours, Some(said), Absence::SaysNothing);
            assert_eq!(judged(HAPPENED), Some((Kind::Decidable, Says::Happened)));
            assert_eq!(judged(DECLINED), Some((Kind::Decidable, Says::Declined)));
            assert_eq!(judged(DENIED), Some((Kind::Decidable, Says::DidNotHappen)));
            assert_eq!(judged(PENDING), Some((Kind::Undecided, Says::Nothing)));
            let both = Said { denied: 1, ..HAPPENED };
            assert_eq!(judged(both), Some((Kind::Undecided, Says::Nothing)), "rows contradict each other");
            let twin = Ours { twin: true, ..ours };
            assert_eq!(of(twin, Some(HAPPENED), Absence::SaysNothing), Some((Kind::Undecided, Says::Nothing)));
        }
    }

    #[test]
    fn rows_that_do_not_say_whose_they_are_decide_nothing() {
        for said in [Some(HAPPENED), Some(DECLINED), Some(DENIED), None] {
            let found = judge(OURS, said, Absence::DidNotHappen).unwrap();
            assert_eq!(found.kind, Kind::Decidable);
            assert_eq!(unless_bound(found, true), found);
            assert_eq!(unless_bound(found, false).kind, Kind::Undecided);
        }
        let ready = Ours { state: State::Ready, ..OURS };
        let found = judge(ready, Some(HAPPENED), Absence::SaysNothing).unwrap();
        assert_eq!(unless_bound(found, false), found, "what disagrees is still told");
    }

    #[test]
    fn did_not_happen_counts_only_once_the_attempt_can_do_nothing_any_more() {
        let moving = Ours { settled: false, ..OURS };
        assert_eq!(of(moving, Some(DENIED), Absence::SaysNothing), Some((Kind::Undecided, Says::Nothing)));
        assert_eq!(of(moving, Some(HAPPENED), Absence::SaysNothing), Some((Kind::Decidable, Says::Happened)));
    }

    #[test]
    fn did_not_happen_counts_only_of_the_attempt_that_it_is_about() {
        let at = |ms| Said { denied_at: Some(Timestamp::from_ms(ms)), ..DENIED };
        let judged = |ours, said| of(ours, Some(said), Absence::SaysNothing).map(|(kind, _)| kind);
        let later = Ours { first: false, denied_from: Timestamp::from_ms(100), ..OURS };
        assert_eq!(judged(later, DENIED), Some(Kind::Undecided), "nobody knows which attempt is meant");
        assert_eq!(judged(later, at(99)), Some(Kind::Undecided), "an earlier one may be meant");
        assert_eq!(judged(later, at(100)), Some(Kind::Decidable));
        let first = Ours { denied_from: Timestamp::from_ms(100), ..OURS };
        assert_eq!(judged(first, DENIED), Some(Kind::Decidable), "there was no other");
        assert_eq!(judged(first, at(99)), Some(Kind::Undecided), "it was not even sent by then");
        assert_eq!(judged(later, HAPPENED), Some(Kind::Decidable), "what happened is not undone by an attempt");
    }

    #[test]
    fn what_is_almost_there_is_not_absent() {
        let nearly = Ours { nearly: true, ..OURS };
        for absence in [Absence::SaysNothing, Absence::DidNotHappen, Absence::HasMalformedRows] {
            assert_eq!(of(nearly, None, absence), Some((Kind::Undecided, Says::Nothing)));
        }
        let completed = Ours { state: State::Completed, status: Some(201), ..nearly };
        assert_eq!(of(completed, None, Absence::DidNotHappen), Some((Kind::NotThere, Says::Nothing)));
    }

    #[test]
    fn absence_decides_only_where_somebody_vouches_for_it_and_the_window_covers_the_attempt() {
        let judged = |ours, absence| of(ours, None, absence).map(|(kind, _)| kind);
        assert_eq!(judged(OURS, Absence::SaysNothing), Some(Kind::Undecided));
        assert_eq!(judged(OURS, Absence::HasMalformedRows), Some(Kind::Undecided));
        assert_eq!(judged(OURS, Absence::DidNotHappen), Some(Kind::Decidable));
        assert_eq!(judged(Ours { covered: false, ..OURS }, Absence::DidNotHappen), Some(Kind::Undecided));
        assert_eq!(judged(Ours { inside: false, ..OURS }, Absence::DidNotHappen), None);
    }

    #[test]
    fn what_is_completed_here_is_compared_by_what_its_answer_means() {
        let ours = |status| Ours { state: State::Completed, status: Some(status), ..OURS };
        let judged = |status, said| of(ours(status), said, Absence::DidNotHappen).map(|(kind, _)| kind);
        assert_eq!(judged(201, None), Some(Kind::NotThere));
        assert_eq!(judged(402, None), None, "a refusal leaves nothing there");
        assert_eq!(judged(201, Some(HAPPENED)), None);
        assert_eq!(judged(201, Some(PENDING)), None);
        assert_eq!(judged(402, Some(HAPPENED)), Some(Kind::Contradicts));
        assert_eq!(judged(201, Some(DECLINED)), Some(Kind::Contradicts));
        assert_eq!(judged(201, Some(DENIED)), Some(Kind::Contradicts));
        assert_eq!(judged(402, Some(DECLINED)), None);
        let outside = Ours { inside: false, ..ours(201) };
        assert_eq!(of(outside, None, Absence::SaysNothing), None);
    }

    #[test]
    fn what_may_run_again_here_and_happened_there_is_found() {
        let ready = Ours { state: State::Ready, ..OURS };
        assert_eq!(of(ready, Some(HAPPENED), Absence::SaysNothing), Some((Kind::Contradicts, Says::Happened)));
        assert_eq!(of(ready, Some(DENIED), Absence::SaysNothing), None);
        assert_eq!(of(Ours { state: State::Running, ..OURS }, Some(HAPPENED), Absence::SaysNothing), None);
    }
}
