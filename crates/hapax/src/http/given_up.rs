//! The answer that is recorded where an operator gives a request up: a final failure, so that its client stops asking.

use hapax_core::record::{Body, Outcome};

use crate::http::refusal::{Problem, Refusal};

/// One cause and one next step.
const DETAIL: &str = "nobody can tell what became of this request, and an operator has given it up; ask the operator with \
                      this request's id before sending it with a new key";

/// What is replayed from now on. `request_id` finds the attempt in the logs.
#[must_use]
pub fn given_up(request_id: Option<&str>) -> Outcome {
    let response = Refusal::new(Problem::GivenUp, DETAIL).into_response(request_id);
    let fields = response.headers().iter();
    Outcome {
        status: response.status().as_u16(),
        headers: fields.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect(),
        body: Body::Kept(response.into_body().to_vec()),
    }
}
