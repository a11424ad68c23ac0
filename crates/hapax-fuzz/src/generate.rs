//! A seeded generator: mutates what is in the corpus with the target's own words. The same seed gives the same inputs.

use crate::Target;

/// Longer inputs only cost time.
const INPUT_BYTES_MAX: usize = 4096;

/// A small generator of random numbers (splitmix64): everything here must be repeatable by its seed.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
}

impl Generator {
    /// The generator of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below that one.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    /// Changes an input in one to eight places.
    fn mutate(&mut self, input: &mut Vec<u8>, corpus: &[(String, Vec<u8>)], words: &[&str]) {
        for _ in 0..=self.below(8) {
            let at = self.below(input.len() + 1);
            match self.below(7) {
                0 if at < input.len() => input[at] ^= 1 << self.below(8),
                1 if at < input.len() => input[at] = self.next().to_le_bytes()[0],
                2 => {
                    let end = (at + self.below(16)).min(input.len());
                    input.drain(at..end);
                }
                3 => {
                    let end = (at + self.below(32)).min(input.len());
                    let again: Vec<u8> = input[at..end].to_vec();
                    input.splice(at..at, again);
                }
                4 if !corpus.is_empty() => {
                    let (_, other) = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                _ if !words.is_empty() => {
                    let word = words[self.below(words.len())].as_bytes();
                    let end = if self.below(2) == 0 { at } else { (at + word.len()).min(input.len()) };
                    input.splice(at..end, word.iter().copied());
                }
                _ => {}
            }
            input.truncate(INPUT_BYTES_MAX);
        }
    }
}

/// The inputs of a seed, without an end.
pub fn generate(target: &Target, seed: u64) -> impl Iterator<Item = Vec<u8>> + use<> {
    let (corpus, words) = (target.corpus(), target.words);
    let mut generator = Generator::new(seed);
    std::iter::from_fn(move || {
        let mut input = match corpus.len() {
            0 => Vec::new(),
            count => corpus[generator.below(count)].1.clone(),
        };
        generator.mutate(&mut input, &corpus, words);
        Some(input)
    })
}
