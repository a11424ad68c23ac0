//! Environment variables: `server.from` is set by `HAPAX_SERVER_FROM`.
//!
//! A variable that begins with `HAPAX_` and names no key is refused: a misspelt limit would otherwise be no limit. The
//! ones a container platform makes for a service called `hapax` are passed over. Left to others: what values mean.

use super::problem::{Origin, Problem, by_other_name, nearest};
use super::source::{FILE_VARIABLE, Override};

/// What the variables of hapax begin with.
const PREFIX: &str = "HAPAX_";

/// The variable that sets a key.
pub(super) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// The settings among the variables.
pub(super) fn read(environment: &[(String, String)], keys: &[String], problems: &mut Vec<Problem>) -> Vec<Override> {
    let mut known: Vec<(String, Option<&String>)> = keys.iter().map(|key| (variable_of(key), Some(key))).collect();
    known.push((FILE_VARIABLE.to_owned(), None));
    let mut found = Vec::new();
    for (name, text) in environment.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let origin = Origin::Environment(name.clone());
        let mut refuse = |message: String| problems.push(Problem { origin: origin.clone(), message });
        match known.iter().find(|(variable, _)| variable == name) {
            Some(_) if text.is_empty() => refuse("is set but empty; give it a value or unset it".to_owned()),
            Some((_, Some(key))) => found.push(Override { key: (*key).clone(), text: text.clone(), origin }),
            // The variable that names the file was read before.
            Some((_, None)) => {}
            None if is_of_a_platform(name, text) => {}
            None => {
                let next = meant(name, &known).map_or("unset it".to_owned(), |name| format!("did you mean `{name}`?"));
                refuse(format!("there is no such setting; {next}"));
            }
        }
    }
    found
}

/// The variable that was most likely meant. What all begin with is left aside: it would make all look alike.
fn meant(name: &str, known: &[(String, Option<&String>)]) -> Option<String> {
    let bare = name.trim_start_matches(PREFIX);
    let all = known.iter().map(|(name, _)| name.trim_start_matches(PREFIX));
    let by_name = by_other_name(&bare.to_lowercase()).map(variable_of);
    by_name.or_else(|| nearest(bare, all).map(|bare| format!("{PREFIX}{bare}")))
}

/// Kubernetes gives every container variables that describe the services beside it. A service called `hapax` or
/// `hapax-admin` makes `HAPAX_SERVICE_HOST`, `HAPAX_PORT=tcp://…`, `HAPAX_ADMIN_PORT_9180_TCP_ADDR` and the like.
fn is_of_a_platform(name: &str, text: &str) -> bool {
    let of_port = |rest: &str| {
        let (number, rest) = rest.split_at(rest.find('_').unwrap_or(rest.len()));
        number.parse::<u16>().is_ok()
            && ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| {
                rest.strip_prefix(protocol).is_some_and(|rest| matches!(rest, "" | "_PROTO" | "_PORT" | "_ADDR"))
            })
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && text.contains("://"))
        || name.match_indices("_PORT_").any(|(at, found)| of_port(&name[at + found.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(name: &str, text: &str) -> Vec<String> {
        let keys = ["server.from".to_owned(), "admin.token_file".to_owned()];
        let mut problems = Vec::new();
        read(&[(name.to_owned(), text.to_owned())], &keys, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_variable_sets_the_key_of_its_name() {
        let keys = ["admin.token_file".to_owned()];
        let found = read(&[("HAPAX_ADMIN_TOKEN_FILE".into(), "x".into())], &keys, &mut Vec::new());
        assert_eq!(
            found.iter().map(|o| (o.key.as_str(), o.text.as_str())).collect::<Vec<_>>(),
            [("admin.token_file", "x")]
        );
    }

    #[test]
    fn variables_that_a_platform_makes_for_a_service_are_passed_over() {
        for (name, text) in [
            ("HAPAX_SERVICE_HOST", "10.0.0.1"),
            ("HAPAX_SERVICE_PORT", "8080"),
            ("HAPAX_SERVICE_PORT_HTTP", "8080"),
            ("HAPAX_PORT", "tcp://10.0.0.1:8080"),
            ("HAPAX_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("HAPAX_ADMIN_PORT_9180_TCP_ADDR", "10.0.0.1"),
            ("PATH", "/bin"),
            ("HAPAX_CONFIG", "hapax.toml"),
        ] {
            assert_eq!(problems_of(name, text), [""; 0], "{name}");
        }
    }

    #[test]
    fn other_unknown_variables_are_refused() {
        assert_eq!(problems_of("HAPAX_COLOUR", "8080"), ["HAPAX_COLOUR: there is no such setting; unset it"]);
        for name in ["HAPAX_PORT", "HAPAX_FROM", "HAPAX_LISTEN"] {
            let why = "there is no such setting; did you mean `HAPAX_SERVER_FROM`?";
            assert_eq!(problems_of(name, "8080"), [format!("{name}: {why}")]);
        }
        assert_eq!(
            problems_of("HAPAX_SERVER_FORM", "x"),
            ["HAPAX_SERVER_FORM: there is no such setting; did you mean `HAPAX_SERVER_FROM`?"]
        );
        assert_eq!(
            problems_of("HAPAX_SERVER_FROM", ""),
            ["HAPAX_SERVER_FROM: is set but empty; give it a value or unset it"]
        );
        assert_eq!(problems_of("HAPAX_CONFIG", ""), ["HAPAX_CONFIG: is set but empty; give it a value or unset it"]);
    }
}
