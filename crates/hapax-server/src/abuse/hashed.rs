//! Maps by keys that are random hashes already, and are not hashed once more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By a hash that nobody can foresee.
pub(super) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// See the module.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    /// Its lower bits have chosen a shard, so within that one they are all alike.
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
