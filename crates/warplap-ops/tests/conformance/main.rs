//! Every variant of every operation against the right answer: edge problems × sampled configs. A new variant is
//! covered by being listed.

use warplap_core::catalog::Catalog;
use warplap_core::op::Op;
use warplap_core::variant::Fit;
use warplap_core::verify::Case;
use warplap_cpu::Cpu;

mod attention;
mod bsr;
mod gemm;
mod sampled;

/// Configs tried per variant and problem; all of them where there are no more.
const SAMPLED: usize = 6;

fn conform<O: Op>(catalog: &Catalog<O, Cpu>, problems: &[&str]) {
    let cpu = Cpu::new();
    let mut rng = fastrand::Rng::with_seed(11);
    let mut wrong = Vec::new();
    for text in problems {
        let problem = O::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut cases: Vec<Case<O, Cpu>> =
            [1, 2].map(|seed| Case::new(&problem, &cpu, seed).unwrap_or_else(|e| panic!("{text}: {e}"))).into();
        for variant in catalog.variants() {
            if let Fit::Aside(_) = variant.fit(&problem, &cpu) {
                assert_ne!(variant.id(), catalog.reference().id(), "{text}: the reference fits everything");
                continue;
            }
            let mut configs = variant.space(&problem, &cpu).configs();
            rng.shuffle(&mut configs);
            configs.truncate(SAMPLED);
            assert!(!configs.is_empty(), "{text}: {} fits but has no legal config", variant.id());
            for config in configs {
                let outcome = variant
                    .build(&problem, &config, &cpu)
                    .and_then(|kernel| cases.iter_mut().try_for_each(|c| c.verify(&*kernel, &cpu).map(|_| ())));
                if let Err(rejection) = outcome {
                    wrong.push(format!("{text} {}[{config}]: {rejection}", variant.id()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}
