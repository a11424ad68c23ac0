//! Whose record is meant: asked of everybody who would change one, through the API or on a terminal.
//!
//! Callers choose keys and write labels, so that neither says whose record it is: two may have used the same key, and one may
//! have written the other's order into its body. The record's id covers its scope; else the scope itself must be named. The one
//! way around it is said out loud: that no two callers ever use the same key.

/// By what a record is named, or was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Its id, or the first digits of it.
    Id,
    /// Its whole key.
    Key,
    /// A label, `name=value` or the value alone.
    Label,
    /// Whatever holds the text: keys, scopes, labels.
    Text,
}

/// What else was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bond {
    /// The scope was named.
    pub(crate) scoped: bool,
    /// No two callers ever use the same key.
    pub(crate) keys_unique: bool,
    /// A body is to be recorded: whoever sends another's key must not get what is that caller's.
    pub(crate) has_body: bool,
}

/// Why that does not say whose record is meant; `None`: it does.
pub(crate) const fn unbound(by: By, bond: Bond) -> Option<&'static str> {
    match by {
        By::Id => None,
        _ if bond.scoped => None,
        By::Key if !bond.keys_unique => Some("another caller may have used the same key"),
        By::Key if bond.has_body => Some("a body is recorded for one caller only"),
        By::Key => None,
        By::Label => Some("any caller may write the same label"),
        By::Text => Some("any caller may choose a key, or write a label, that holds the same text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_or_a_scope_binds_and_a_unique_key_where_that_was_said() {
        let nothing = Bond::default();
        let unique = Bond { keys_unique: true, ..nothing };
        for by in [By::Key, By::Label, By::Text] {
            assert!(unbound(by, nothing).is_some(), "{by:?}");
            assert_eq!(unbound(by, Bond { scoped: true, has_body: true, ..nothing }), None, "{by:?}");
        }
        assert_eq!(unbound(By::Id, Bond { has_body: true, ..nothing }), None);
        assert_eq!(unbound(By::Key, unique), None);
        assert!(unbound(By::Key, Bond { has_body: true, ..unique }).is_some());
        assert!(unbound(By::Label, unique).is_some() && unbound(By::Text, unique).is_some());
    }
}
