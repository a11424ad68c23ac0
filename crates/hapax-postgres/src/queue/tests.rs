//! The queue by itself: who is taken when, and with whom.

use std::sync::Arc;

use hapax_core::address::{Address, AddressScheme, Key, Scope, Space};
use hapax_core::clock::Now;
use hapax_core::record::Version;
use hapax_core::store::StoreError;
use tokio::sync::oneshot::Receiver;

use super::*;

const ANY_VERSION: Version = Version::from_bytes([7; 16]);

fn address(key: &str) -> Address {
    let (space, scope) = (Space::new("http").unwrap(), Scope::new("alice").unwrap());
    Address::new(&AddressScheme::default(), &space, &scope, &Key::new(key).unwrap())
}

fn write(key: &str, expect: Option<Version>, bytes: usize) -> Write {
    let data = vec![0; bytes];
    Write { at: address(key), expect, version: ANY_VERSION, state: 1, due_in: None, reap_in: None, data }
}

fn join(queue: &Queue, key: &str) -> (u64, Receiver<Answer>) {
    queue.join(write(key, None, 1))
}

/// The batch that may begin now, if one may.
fn take(queue: &Arc<Queue>) -> Option<Batch> {
    match queue.take() {
        Taken::Batch(batch) => Some(batch),
        Taken::Nothing | Taken::End => None,
    }
}

fn keys(batch: &Batch) -> Vec<&str> {
    let mut keys: Vec<_> = batch.flights.iter().map(|flight| flight.write.at.key().as_str()).collect();
    keys.sort_unstable();
    keys
}

fn land_all(batch: Batch) {
    batch.flights.into_iter().for_each(|flight| flight.land(Ok(Written::Applied(Now::default()))));
}

fn failed() -> StoreError {
    StoreError::new("swap", hapax_core::store::ErrorKind::Unavailable, "for a test")
}

#[test]
fn a_lonely_swap_is_taken_at_once() {
    let queue = Arc::new(Queue::default());
    let (_, mut answer) = join(&queue, "a");
    let batch = take(&queue).unwrap();
    assert_eq!(keys(&batch), ["a"]);
    land_all(batch);
    assert!(matches!(answer.try_recv(), Ok(Ok(Written::Applied(_)))));
}

#[test]
fn what_waits_is_taken_together_by_kind_and_in_the_order_of_ids() {
    let queue = Arc::new(Queue::default());
    let _answers: Vec<_> = ["a", "b", "c"].map(|key| queue.join(write(key, None, 1))).into();
    let _answers_too: Vec<_> = ["x", "y"].map(|key| queue.join(write(key, Some(ANY_VERSION), 1))).into();
    let new = take(&queue).unwrap();
    assert_eq!(keys(&new), ["a", "b", "c"]);
    assert!(new.flights.is_sorted_by_key(|flight| *flight.write.at.id()));
    land_all(new);
    assert_eq!(keys(&take(&queue).unwrap()), ["x", "y"]);
}

#[test]
fn beside_another_batch_one_begins_when_enough_wait_or_the_other_is_slow() {
    let queue = Arc::new(Queue::default());
    let _first = join(&queue, "first");
    let first = take(&queue).unwrap();
    let mut answers = Vec::new();
    for number in 1..BATCH_WORTH {
        answers.push(join(&queue, &number.to_string()));
    }
    assert!(take(&queue).is_none(), "the first will be done before they would be");
    answers.push(join(&queue, "enough"));
    let second = take(&queue).unwrap();
    assert_eq!(second.flights.len(), BATCH_WORTH);
    answers.push(join(&queue, "one more"));
    assert!(take(&queue).is_none());
    first.seat.give_up();
    second.seat.give_up();
    assert_eq!(keys(&take(&queue).unwrap()), ["one more"]);
}

#[test]
fn the_same_id_steps_aside_until_its_predecessor_is_answered() {
    let queue = Arc::new(Queue::default());
    let (_, mut first) = join(&queue, "a");
    let (_, mut second) = join(&queue, "a");
    let (_, mut third) = join(&queue, "a");
    let _other = join(&queue, "b");
    let batch = take(&queue).unwrap();
    assert_eq!(keys(&batch), ["a", "b"]);
    batch.seat.give_up();
    assert!(take(&queue).is_none(), "both others have to wait for the first");
    for flight in batch.flights {
        flight.land(Ok(Written::Applied(Now::default())));
    }
    assert!(first.try_recv().is_ok());
    for answer in [&mut second, &mut third] {
        assert!(answer.try_recv().is_err());
        let batch = take(&queue).unwrap();
        assert_eq!(batch.flights.len(), 1, "in the order in which they came");
        land_all(batch);
        assert!(answer.try_recv().is_ok());
    }
    assert!(queue.state().under_way.is_empty());
}

#[test]
fn a_swap_may_step_out_of_line_as_long_as_it_waits() {
    let queue = Arc::new(Queue::default());
    let (first, _first_answer) = join(&queue, "a");
    let batch = take(&queue).unwrap();
    let (second, _second_answer) = join(&queue, "a");
    let (third, _third_answer) = join(&queue, "a");
    assert!(!queue.withdraw(first, address("a").id()), "it is under way");
    batch.seat.give_up();
    assert!(take(&queue).is_none());
    for flight in batch.flights {
        flight.land(Err(failed()));
    }
    assert!(queue.withdraw(second, address("a").id()), "the id was kept for it");
    assert!(!queue.withdraw(second, address("a").id()));
    assert_eq!(take(&queue).unwrap().flights.len(), 1, "the one behind it has moved up");
    assert!(!queue.withdraw(third, address("a").id()));
}

#[test]
fn a_flight_that_is_dropped_frees_its_id_and_leaves_its_caller_without_an_answer() {
    let queue = Arc::new(Queue::default());
    let (_, mut answer) = join(&queue, "a");
    drop(take(&queue).unwrap());
    assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    let _again = join(&queue, "a");
    assert_eq!(keys(&take(&queue).unwrap()), ["a"]);
}

#[test]
fn a_batch_is_limited_in_rows_and_in_bytes() {
    let queue = Arc::new(Queue::default());
    let _many: Vec<_> = (0..BATCH_MAX + 10).map(|number| join(&queue, &number.to_string())).collect();
    let batch = take(&queue).unwrap();
    assert_eq!(batch.flights.len(), BATCH_MAX);
    batch.seat.give_up();
    assert_eq!(take(&queue).unwrap().flights.len(), 10);
    let queue = Arc::new(Queue::default());
    let large = |number: usize| queue.join(write(&number.to_string(), None, BATCH_BYTES_MAX / 2));
    let _large: Vec<_> = (0..5).map(large).collect();
    let sizes: Vec<usize> = std::iter::from_fn(|| {
        let batch = take(&queue)?;
        batch.seat.give_up();
        Some(batch.flights.len())
    })
    .collect();
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test]
async fn writers_end_when_the_store_is_closed_and_all_is_written() {
    let queue = Arc::new(Queue::default());
    let _answer = join(&queue, "a");
    let batch = queue.next(false).await.unwrap();
    let _behind = join(&queue, "a");
    queue.close();
    let writer = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.next(true).await.map(|batch| batch.flights.len()) }
    });
    tokio::task::yield_now().await;
    assert!(!writer.is_finished(), "somebody still waits behind what is under way");
    land_all(batch);
    assert_eq!(writer.await.unwrap(), Some(1));
    assert!(queue.next(false).await.is_none());
    assert!(queue.next(false).await.is_none(), "for every writer");
}
