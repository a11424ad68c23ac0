//! Where the proxy is killed, and how it gets there.

/// A place in hapax's code that a failpoint marks.
#[derive(Debug, PartialEq, Eq)]
pub struct Point {
    /// Its name in `FAILPOINT` and on the command line.
    pub name: &'static str,
    pub(super) way: Way,
}

/// How a process gets to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a request.
    Request,
    /// By a write to the store, which several requests may share: only the first is sure to come.
    Write,
    /// By itself, after another process was killed in the middle of a request.
    AfterCrash,
    /// By itself, after answers have expired.
    Expiry,
    /// By its first start.
    Start,
}

/// Every point, in the order of a request's life, and then those of the background roles.
pub const ALL: [Point; 17] = [
    Point { name: "headers-read", way: Way::Request },
    Point { name: "body-read", way: Way::Request },
    Point { name: "before-claim", way: Way::Request },
    Point { name: "claim-sent", way: Way::Write },
    Point { name: "claim-durable", way: Way::Request },
    Point { name: "before-connect", way: Way::Request },
    Point { name: "half-request-sent", way: Way::Request },
    Point { name: "request-sent", way: Way::Request },
    Point { name: "answer-headers-in", way: Way::Request },
    Point { name: "half-answer-in", way: Way::Request },
    Point { name: "completion-sent", way: Way::Write },
    Point { name: "completion-durable", way: Way::Request },
    Point { name: "half-answer-sent", way: Way::Request },
    Point { name: "lapse-sweep", way: Way::AfterCrash },
    Point { name: "probe", way: Way::AfterCrash },
    Point { name: "reap", way: Way::Expiry },
    Point { name: "migration", way: Way::Start },
];

/// Points in the middle of a request: a process killed there leaves a claim behind that nobody holds.
pub(super) const MIDDLE: [&str; 6] =
    ["claim-durable", "before-connect", "half-request-sent", "request-sent", "answer-headers-in", "half-answer-in"];

/// The point of that name.
pub fn named(name: &str) -> Option<&'static Point> {
    ALL.iter().find(|point| point.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_names_of_their_own() {
        for point in &ALL {
            assert_eq!(named(point.name), Some(point));
        }
        assert!(MIDDLE.iter().all(|name| named(name).is_some_and(|point| point.way == Way::Request)));
        assert_eq!(named("no-such-point"), None);
    }
}
