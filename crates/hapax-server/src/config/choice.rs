//! Settings that are one of a few words.
//!
//! Each is an enum with its words beside it; a wrong word is refused with those that exist and the one that was
//! probably meant. Left to others: what the choices do.

use hapax_core::record::OnLapse;

use super::problem::did_you_mean;
use super::value::{Fault, Value, quoted};

/// Gives an enum its words.
macro_rules! words {
    ($type:ident { $($word:literal => $variant:ident,)+ }) => {
        impl Value for $type {
            fn expected() -> String {
                one_of(&[$($word),+])
            }
            fn parse(text: &str) -> Result<Self, Fault> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    other => Err(Fault::not_but(other, &did_you_mean(other, [$($word),+]))),
                }
            }
            fn show(&self) -> String {
                quoted(match self { $(Self::$variant => $word,)+ })
            }
        }
    };
}

/// Declares an enum whose variants have a word each; the first is the default.
macro_rules! choice {
    ($(#[$doc:meta])+ $name:ident { $(#[$first_doc:meta])+ $first:literal => $first_variant:ident,
        $($(#[$variant_doc:meta])+ $word:literal => $variant:ident,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[$first_doc])+
            #[default]
            $first_variant,
            $($(#[$variant_doc])+ $variant,)+
        }
        words!($name { $first => $first_variant, $($word => $variant,)+ });
    };
}

choice! {
    /// Whether hapax acts or only looks.
    Mode {
        /// Duplicates are answered from the record, and what breaks a rule is refused.
        "enforce" => Enforce,
        /// Nothing is refused or replayed; what would have been is counted and logged.
        "observe" => Observe,
    }
}

choice! {
    /// Whose habits answers follow.
    Dialect {
        /// The IETF draft: a mismatch is 422.
        "ietf" => Ietf,
        /// Stripe: a mismatch is 400, and 5xx answers are stored.
        "stripe" => Stripe,
    }
}

choice! {
    /// What a token of the admin listener allows.
    Role {
        /// To look, but not at bodies.
        "viewer" => Viewer,
        /// To look and to change.
        "operator" => Operator,
    }
}

choice! {
    /// How a key may be spelled.
    KeySyntax {
        /// A bare key equals the quoted one.
        "lenient" => Lenient,
        /// Only a structured-field string, as in RFC 9651.
        "strict" => Strict,
    }
}

choice! {
    /// What an answer means for the key.
    Meaning {
        /// Nothing happened: a retry runs again.
        "ready" => Ready,
        /// It is final: a retry gets the same answer.
        "completed" => Completed,
        /// Nobody can tell: a retry gets 409.
        "unknown" => Unknown,
    }
}

choice! {
    /// What a retry gets while the first request runs.
    InFlight {
        /// 409 with `Retry-After`.
        "conflict" => Conflict,
        /// 202 with `Retry-After`.
        "accepted" => Accepted,
        /// It waits for the answer up to `wait_max`, and then gets 409.
        "wait" => Wait,
    }
}

choice! {
    /// Within what a key is unique.
    KeyPer {
        /// The caller: the same key on another route is a mismatch.
        "caller" => Caller,
        /// The caller and the route.
        "route" => Route,
    }
}

choice! {
    /// What of a body counts when two requests are compared.
    Counted {
        /// All of it.
        "whole" => Whole,
        /// Nothing.
        "ignored" => Ignored,
        /// What the pointers name.
        "only" => Only,
        /// All but what the pointers name.
        "except" => Except,
    }
}

choice! {
    /// What keys look like.
    KeyFormat {
        /// Anything printable.
        "any" => Any,
        /// A UUID of any version.
        "uuid" => Uuid,
        /// A UUID of version 7, whose time can be checked.
        "uuidv7" => Uuidv7,
    }
}

choice! {
    /// Who is asked before a recorded answer is sent.
    ReplayCheck {
        /// Nobody.
        "none" => None,
        /// The endpoint of `[ask]`: may this caller still see it?
        "ask" => Ask,
    }
}

choice! {
    /// How logs are written.
    LogFormat {
        /// Pretty on a terminal, JSON otherwise.
        "auto" => Auto,
        /// For people.
        "pretty" => Pretty,
        /// One JSON object per line.
        "json" => Json,
    }
}

choice! {
    /// How a token is signed.
    JwtAlgorithm {
        /// HMAC with SHA-256: a shared secret.
        "HS256" => Hs256,
        /// RSA with SHA-256.
        "RS256" => Rs256,
        /// ECDSA on P-256 with SHA-256.
        "ES256" => Es256,
        /// Ed25519.
        "EdDSA" => EdDsa,
    }
}

impl Value for OnLapse {
    fn expected() -> String {
        one_of(&["unknown", "rerun"])
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "unknown" => Ok(Self::Unknown),
            "rerun" => Ok(Self::Rerun),
            "resume" => Err(Fault::not_but(text, NO_CHECKPOINT)),
            other => Err(Fault::not_but(other, &did_you_mean(other, ["unknown", "rerun"]))),
        }
    }

    fn show(&self) -> String {
        quoted(match self {
            Self::Unknown => "unknown",
            Self::Rerun => "rerun",
            Self::Resume => "resume",
        })
    }
}

/// Why a proxy cannot resume: that is for services with the library in them.
const NO_CHECKPOINT: &str = ": nothing behind a proxy can write the checkpoint from which it would go on";

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    match quoted.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_is_refused_with_the_one_that_was_meant() {
        assert_eq!(InFlight::expected(), r#""conflict", "accepted" or "wait""#);
        assert_eq!(InFlight::parse("acepted"), Err(Fault::Not("\"acepted\"; did you mean `accepted`?".to_owned())));
        assert_eq!(Mode::parse("Observe"), Err(Fault::Not("\"Observe\"; did you mean `observe`?".to_owned())));
        assert_eq!(Mode::parse("x"), Err(Fault::Not("\"x\"".to_owned())));
    }
}
