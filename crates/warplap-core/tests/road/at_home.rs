//! Operations whose candidates prove themselves in the caller's process, on a device that sends all others to a worker.

use std::sync::Arc;

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::candidate::SourceHash;
use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::engine::Tuner;
use warplap_core::op::{Answer, Op};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::progress::Silent;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Work;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::slot::Signature;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};

use crate::fake::{Act, Fake, Row, Scale, ScaleProblem, problem, row};
use crate::support::*;

struct Home;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HomeProblem(ScaleProblem);

impl Problem for HomeProblem {
    type Op = Home;
    const FIELDS: &'static [&'static str] = ScaleProblem::FIELDS;
    fn fields(&self) -> Fields {
        self.0.fields()
    }
    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        ScaleProblem::read(fields).map(HomeProblem)
    }
    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.0.key_fields(bucket)
    }
    fn representative(&self, bucket: &Bucket) -> Self {
        HomeProblem(self.0.representative(bucket))
    }
    fn work(&self) -> Work {
        self.0.work()
    }
    fn dtype(&self) -> DType {
        self.0.dtype
    }
}

impl Op for Home {
    const NAME: &'static str = "home";
    const AT_HOME: bool = true;
    type Problem = HomeProblem;
    fn signature(p: &HomeProblem) -> Signature {
        Scale::signature(&p.0)
    }
    fn answer(p: &HomeProblem, inputs: &[Array]) -> Vec<Answer> {
        Scale::answer(&p.0, inputs)
    }
}

struct Housed(Row);

impl Variant<Home, Fake> for Housed {
    fn id(&self) -> &str {
        &self.0.id
    }
    fn source(&self) -> SourceHash {
        Variant::<Scale, Fake>::source(&self.0)
    }
    fn fit(&self, p: &HomeProblem, fake: &Fake) -> Fit {
        Variant::<Scale, Fake>::fit(&self.0, &p.0, fake)
    }
    fn space(&self, p: &HomeProblem, fake: &Fake) -> Space {
        self.0.space(&p.0, fake)
    }
    fn build(&self, p: &HomeProblem, config: &Config, fake: &Fake) -> Result<Box<dyn Kernel<Fake>>, Rejection> {
        self.0.build(&p.0, config, fake)
    }
}

#[test]
fn nobody_is_sent_to_a_worker_and_who_is_wrong_is_rejected_here() {
    fn never(request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        panic!("{} is sent to a worker", request.candidate)
    }
    let fake = Fake::new();
    *fake.worker.lock().unwrap() = Some(never);
    assert!(fake.sandboxes());
    let rows = [row("good", 2e-3), row("wrong", 1e-3).act(Act::OffBy(1.0))];
    let first = Catalog::new(Arc::new(Housed(row("reference", 9e-3))));
    let catalog = rows.into_iter().fold(first, |catalog, row| catalog.with(Arc::new(Housed(row))));
    let store = memory();
    let tuner: Tuner<Home, Fake> = Tuner::new(Arc::new(fake), catalog, store.clone(), settings());
    let edition = tuner.tune(&HomeProblem(problem(50)), &Silent).unwrap().edition;
    assert_eq!((edition.verdict.winner.variant.as_str(), fate(&edition, "wrong")), ("good", "wrong_answer"));
    // What was decided answers, and is built here.
    assert_eq!(tuner.choose(&HomeProblem(problem(50))).unwrap().candidate.variant, "good");
}
