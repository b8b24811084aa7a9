//! From problems to jobs: what is asked for and the classes there are come in; jobs, each with its key, go out.

use std::collections::BTreeSet;

use warplap::any::{AnyDevice, Wanted};
use warplap::core::fingerprint::is_under;
use warplap::core::key::Key;
use warplap::core::store::Store;
use warplap::{Bucket, Settings};
use warplap_fleet::jobs::{Class, Job, policy};

use super::shared::Open;
use crate::failure::Failure;
use crate::suite::{self, Asked};

/// Digits of a job's id.
const ID: usize = 16;

/// How every job is to be run.
pub(super) struct Manner {
    pub(super) budget: f64,
    pub(super) search: String,
    pub(super) bucket: Bucket,
}

/// A job, and the key that its answer is found by.
pub(super) struct Planned {
    pub(super) job: Job,
    pub(super) key: Key,
}

impl Planned {
    /// Whether the store has its answer.
    pub(super) fn is_done(&self, store: &Store) -> bool {
        let record = store.read(&self.key, &self.job.device);
        record.is_some_and(|record| record.editions.iter().any(|e| is_under(&e.soft, &self.job.soft)))
    }
}

/// The classes among devices, each once, as far as they are wanted: by folder name, or by kind.
pub(super) fn classes(result: Vec<Class>, wanted: &[String]) -> Result<Vec<Class>, Failure> {
    let mut seen = BTreeSet::new();
    let all: Vec<Class> = result.into_iter().filter(|c| seen.insert((c.device.clone(), c.soft.clone()))).collect();
    let names: Vec<&str> = all.iter().map(|c| c.device.as_str()).collect();
    let is = |class: &Class, word: &String| *word == class.device || *word == class.kind;
    if let Some(unknown) = wanted.iter().find(|word| !all.iter().any(|class| is(class, word))) {
        let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        return Err(Failure::input(format!(
            "--device {unknown}: expected a class that is there ({there}), cpu or cuda"
        )));
    }
    Ok(all.into_iter().filter(|class| wanted.is_empty() || wanted.iter().any(|word| is(class, word))).collect())
}

/// The jobs of some problems for a class.
pub(super) fn plan(asked: &[Asked], class: &Class, manner: &Manner) -> Result<Vec<Planned>, Failure> {
    asked.iter().map(|one| planned(one, class, manner, &class.policy, manner.bucket.clone())).collect()
}

/// The jobs of what programs asked for on a class and did not find, here or anywhere in the fleet.
pub(super) fn missed(store: &Store, wants: &[Open], class: &Class, manner: &Manner) -> Result<Vec<Planned>, Failure> {
    let mut plans = Vec::new();
    let here = store.misses().into_iter().filter(|m| m.device_slug() == class.device).map(|m| (m.key(), m.problem));
    let there = wants.iter().filter(|w| w.device == class.device).map(|w| (w.key.clone(), w.problem.clone()));
    for (key, problem) in here.chain(there) {
        // A record is data: one that is no problem to us is passed over.
        let Ok(asked) = suite::asked(&problem, None) else { continue };
        let how = if policy(&key.policy).is_ok() { key.policy.clone() } else { class.policy.clone() };
        let bucket = Bucket::named(&key.bucket).unwrap_or_else(|_| manner.bucket.clone());
        plans.push(planned(&asked, class, manner, &how, bucket)?);
    }
    Ok(plans)
}

fn planned(asked: &Asked, class: &Class, manner: &Manner, how: &str, bucket: Bucket) -> Result<Planned, Failure> {
    let settings =
        Settings { policy: policy(how).map_err(Failure::input)?, bucket: bucket.clone(), ..Settings::default() };
    // A key knows no device: any will do to ask for it.
    let device = AnyDevice::open(Wanted::CPU, None).map_err(Failure::from)?;
    let key = asked.open(&device, Store::memory(), settings)?.key(&asked.problem)?;
    let id = Key::new("job", format!("{};{};{}", key.text, class.device, class.soft)).hash();
    let job = Job {
        id: id[..ID].to_string(),
        op: asked.op().to_string(),
        problem: asked.problem.clone(),
        policy: how.to_string(),
        bucket: bucket.name().to_string(),
        device: class.device.clone(),
        soft: class.soft.clone(),
        budget: manner.budget,
        search: manner.search.clone(),
        attempt: 1,
        cards: Vec::new(),
        part: None,
    };
    Ok(Planned { job, key })
}
