//! An edition on its way: a tuning comes in; a short answer, a long body and a signature over both go out, and back.
//!
//! The answer (winner, ties and the libraries they beat) is all a program needs: about a kilobyte. The body, with every
//! trial, travels on demand.

use serde::{Deserialize, Serialize};
use warplap_core::candidate::{Candidate, Trial};
use warplap_core::record::{Record, Skipped, TuningRun};
use warplap_core::store::{Place, PublicKey, SecretKey, read_record};

/// The largest answer and body, in bytes.
pub const MAX_ANSWER: usize = 64 << 10;
/// The largest body.
pub const MAX_BODY: usize = 16 << 20;

/// How hard bodies are pressed: more gives the same size here.
const LEVEL: i32 = 3;

/// Why a trial stayed behind.
const LOST: &str = "it lost where it was measured";

/// An edition as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Folder name of the device.
    pub device: String,
    /// The operation.
    pub op: String,
    /// The key's hash.
    pub hash: String,
    /// Identity of the soft fingerprint.
    pub soft: String,
    /// Who measured: the hash of a public key.
    pub origin: String,
    /// Seconds since 1970.
    pub tuned_at: i64,
    /// The better, the higher.
    pub grade: i16,
    /// A record with this edition alone, and of its trials those that matter.
    pub answer: String,
    /// The hash of the whole record's text.
    pub digest: String,
    /// The signature.
    pub signature: String,
}

impl Sealed {
    /// Seals an edition of a record under a key's name; with it the compressed body.
    pub fn seal(record: &Record, edition: &TuningRun, key: &SecretKey) -> Result<(Sealed, Vec<u8>), String> {
        let mut whole = Record { editions: vec![edition.clone()], ..record.clone() };
        let origin = key.public().origin();
        whole.editions[0].origin = origin.clone();
        let body = serde_json::to_string(&whole).map_err(|e| e.to_string())?;
        let mut short = whole;
        shorten(&mut short.editions[0]);
        let answer = serde_json::to_string(&short).map_err(|e| e.to_string())?;
        if answer.len() > MAX_ANSWER || body.len() > MAX_BODY {
            return Err(format!("its answer has {} bytes, its body {}", answer.len(), body.len()));
        }
        let place = Place::of_record(record).map_err(|e| e.to_string())?;
        let (op, hash) = place.name().split_once('/').unwrap_or_default();
        let mut sealed = Sealed {
            device: place.device().into(),
            op: op.into(),
            hash: hash.into(),
            soft: warplap_core::fingerprint::soft_id(&edition.soft),
            origin,
            tuned_at: i64::try_from(edition.tuned_at).unwrap_or(i64::MAX),
            grade: edition.verdict.grade.rank().into(),
            answer,
            digest: blake3::hash(body.as_bytes()).to_hex().to_string(),
            signature: String::new(),
        };
        sealed.signature = digits(&key.sign(sealed.message().as_bytes()));
        Ok((sealed, zstd::bulk::compress(body.as_bytes(), LEVEL).map_err(|e| e.to_string())?))
    }

    /// The record of an answer, once everything it claims holds: the signature is the key's, the key the origin's, and
    /// what is inside says the same as the outside.
    pub fn open(&self, key: &PublicKey) -> Result<Record, String> {
        if key.origin() != self.origin {
            return Err("its key is not its origin's".into());
        }
        if !bytes(&self.signature).is_some_and(|signature| key.signed(self.message().as_bytes(), &signature)) {
            return Err("its signature does not fit".into());
        }
        if self.answer.len() > MAX_ANSWER {
            return Err(format!("its answer has {} bytes, more than {MAX_ANSWER}", self.answer.len()));
        }
        self.fitting(read_record(&self.answer)?)
    }

    /// The record of a body that belongs to an answer which was opened.
    pub fn open_body(&self, body: &[u8]) -> Result<Record, String> {
        let text = zstd::bulk::decompress(body, MAX_BODY).map_err(|e| format!("its body cannot be unpacked: {e}"))?;
        if blake3::hash(&text).to_hex().as_str() != self.digest {
            return Err("its body is another one".into());
        }
        self.fitting(read_record(std::str::from_utf8(&text).map_err(|e| e.to_string())?)?)
    }

    /// A record that says the same as the outside.
    fn fitting(&self, record: Record) -> Result<Record, String> {
        let place = Place::of_record(&record).map_err(|e| e.to_string())?;
        let [edition] = record.editions.as_slice() else { return Err("it does not hold one edition".into()) };
        let inside = (place.device(), place.name(), edition.origin.as_str(), i64::try_from(edition.tuned_at));
        let name = format!("{}/{}", self.op, self.hash);
        if inside != (&self.device, &name, &self.origin, Ok(self.tuned_at))
            || warplap_core::fingerprint::soft_id(&edition.soft) != self.soft
        {
            return Err("its inside is of another key, device, origin or time".into());
        }
        Ok(record)
    }

    /// What is signed. No field can hold an end of line but the answer, which is hashed.
    fn message(&self) -> String {
        let answer = blake3::hash(self.answer.as_bytes()).to_hex();
        let Sealed { device, op, hash, soft, origin, tuned_at, digest, .. } = self;
        format!("warplap edition 1\n{device}\n{op}\n{hash}\n{soft}\n{origin}\n{tuned_at}\n{answer}\n{digest}\n")
    }
}

/// A signature in hexadecimal digits.
pub(crate) fn digits(signature: &[u8; 64]) -> String {
    signature.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a signature that is written in hexadecimal digits.
pub(crate) fn bytes(text: &str) -> Option<[u8; 64]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|two| two[0] * 16 + two[1]).collect();
    bytes.try_into().ok().filter(|_| text.len() == 128)
}

/// Leaves the trials that matter to whoever uses the winner: itself, those as fast, and the libraries.
fn shorten(edition: &mut TuningRun) {
    let matters: Vec<_> =
        edition.ranked().iter().filter(|r| r.won || r.tie).map(|r| r.trial.candidate.clone()).collect();
    let contest: Vec<_> = edition.end_to_end_race.iter().flat_map(|h| [h.winner.clone(), h.other.clone()]).collect();
    let kept = |t: &Trial| matters.contains(&t.candidate) || contest.contains(&t.candidate);
    let (kept, left): (Vec<Trial>, Vec<Trial>) = edition.trials.drain(..).partition(kept);
    edition.trials = kept;
    edition.trials.iter_mut().for_each(Trial::forget_samples);
    // Who was met there is no newcomer here.
    for Candidate { variant, source, .. } in left.into_iter().map(|t| t.candidate) {
        match edition.skipped.iter_mut().find(|s| s.variant == variant && s.source == source && s.reason == LOST) {
            Some(known) => known.configs += 1,
            None => edition.skipped.push(Skipped { variant, source, configs: 1, reason: LOST.into() }),
        }
    }
}
