//! Changing: texts that are understood come in; others that are nearly understood go out.
//!
//! Nothing here knows a form. What it has instead are the words of the corpus, and values that are seldom thought of.

use fastrand::Rng;

/// The most bytes of an input.
pub(crate) const LONGEST: usize = 64 << 10;

/// Values that readers trip over.
const HARD: [&str; 40] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e400",
    "-0.0",
    "5e-324",
    "NaN",
    "inf",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "[[",
    "{\"",
    "((",
    "**",
    "//",
    "../",
    "%00",
    "\0",
    "\n",
    "\r\n",
    "\\u0000",
    "\\ud800",
    "\u{9b}",
    "\u{202e}",
    "\u{feff}",
    "é",
    "not ",
    " and ",
];

/// Where inputs come from.
pub(crate) struct Mutator {
    /// What inputs are made of: the corpus, and inputs that were answered in a way not heard before.
    pool: Vec<Vec<u8>>,
    /// The words of the corpus.
    words: Vec<Vec<u8>>,
    random: Rng,
}

impl Mutator {
    /// Begins with a corpus.
    pub(crate) fn new(corpus: &[Vec<u8>], seed: u64) -> Self {
        let mut words: Vec<Vec<u8>> = HARD.iter().map(|word| word.as_bytes().to_vec()).collect();
        for text in corpus {
            let parts = text.split(|b| !b.is_ascii_alphanumeric() && *b != b'_');
            words.extend(parts.filter(|part| (1..40).contains(&part.len())).map(<[u8]>::to_vec));
        }
        words.sort();
        words.dedup();
        Mutator { pool: corpus.to_vec(), words, random: Rng::with_seed(seed) }
    }

    /// An input that was answered in a new way: more will be made of it.
    pub(crate) fn keep(&mut self, input: &[u8]) {
        if self.pool.len() < 2000 && input.len() <= LONGEST {
            self.pool.push(input.to_vec());
        }
    }

    /// The next input.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut input = self.pool.get(self.random.usize(..self.pool.len().max(1))).cloned().unwrap_or_default();
        // Mostly one change: of many, one alone decides what is said.
        let changes = 1 << self.random.u32(..4);
        for _ in 0..self.random.u32(1..=changes) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..=input.len());
        let to = (at + self.short()).min(input.len());
        match self.random.u8(..10) {
            0 if at < input.len() => input[at] ^= 1 << self.random.u8(..8),
            1 if at < input.len() => input[at] = self.random.u8(..),
            2 => drop(input.drain(at..to)),
            3 => input.truncate(at),
            // A stretch of itself again, once or many times.
            4 => {
                let times = if self.random.u8(..20) == 0 { 1000 } else { self.random.usize(1..4) };
                let stretch = input[at..to].repeat(times);
                put(input, at, at, &stretch);
            }
            // A stretch of another.
            5 => {
                let other = &self.pool[self.random.usize(..self.pool.len())];
                let from = self.random.usize(..=other.len());
                let stretch = other[from..(from + 64).min(other.len())].to_vec();
                put(input, at, to, &stretch);
            }
            // A word in place of a word.
            6 | 7 => {
                let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let start = input[..at].iter().rposition(|b| !is_word(b)).map_or(0, |p| p + 1);
                let end = at + input[at..].iter().position(|b| !is_word(b)).unwrap_or(input.len() - at);
                let word = self.word();
                put(input, start, end, &word);
            }
            8 => {
                let word = self.word();
                put(input, at, at, &word);
            }
            _ => {
                let bytes: Vec<u8> = (0..self.short().min(9)).map(|_| self.random.u8(..)).collect();
                put(input, at, at, &bytes);
            }
        }
    }

    fn word(&mut self) -> Vec<u8> {
        self.words[self.random.usize(..self.words.len())].clone()
    }

    /// A length, short ones more often.
    fn short(&mut self) -> usize {
        let most = 1 << self.random.u32(1..8);
        self.random.usize(1..=most)
    }
}

fn put(input: &mut Vec<u8>, from: usize, to: usize, bytes: &[u8]) {
    if input.len() + bytes.len() <= LONGEST {
        input.splice(from..to, bytes.iter().copied());
    }
}
