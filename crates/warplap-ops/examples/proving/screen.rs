//! Times every setting of what may race for a problem. The fastest of ours and of the libraries are proved on the problem
//! itself and timed again in one interleaved race. `WARPLAP_SHOW` is how many lines are printed of each screen.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::erased::TypedProblem;
use warplap_core::measure::{Policy, Queueing};
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::space::Config;
use warplap_core::variant::{Fit, Kernel, Priority, Variant};
use warplap_core::verify::Case;
use warplap_cuda::Cuda;

use super::Outcome;

type Any<O> = Arc<dyn Variant<O, Cuda>>;

/// What may race for a problem.
pub(crate) fn entries<O: Op>(device: &Cuda, catalog: &Catalog<O, Cuda>, p: &O::Problem) -> Vec<(Any<O>, Config)> {
    let fits = |v: &&Any<O>| matches!(v.fit(p, device), Fit::Fits(f) if f >= Priority::Medium);
    let settings = |v: &Any<O>| v.space(p, device).configs().into_iter().map(|c| (v.clone(), c)).collect::<Vec<_>>();
    catalog.variants().iter().filter(fits).flat_map(settings).collect()
}

/// Times kernels in turn, by the clock of use, and gives the median seconds of each.
fn race<O: Op>(
    device: &Cuda,
    catalog: &Catalog<O, Cuda>,
    p: &O::Problem,
    kernels: &[&dyn Kernel<Cuda>],
    rounds: usize,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let policy = Policy { queueing: Queueing::Graph, ..Policy::default() };
    let card = TypedProblem::new(p, catalog);
    let first = Case::without_answer(&card, device, 1)?;
    let sets = device.sets(policy, first.footprint()).max(1);
    let mut cases = vec![first];
    for seed in 2..=sets as u64 {
        cases.push(Case::without_answer(&card, device, seed)?);
    }
    let cases = RefCell::new(cases);
    let mut laps = Vec::new();
    for kernel in kernels {
        let launch = |queue: &_, set: usize| cases.borrow_mut()[set].launch(*kernel, device, queue);
        laps.push(device.lap(policy, &vec![Vec::new(); sets], Box::new(launch)).ok());
    }
    let mut samples = vec![Vec::new(); kernels.len()];
    for round in 0..rounds {
        for i in 0..laps.len() {
            let i = if round % 2 == 0 { i } else { laps.len() - 1 - i };
            if let Some(lap) = &mut laps[i] {
                samples[i].push(lap.run().unwrap_or(f64::INFINITY));
            }
        }
    }
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied().unwrap_or(f64::INFINITY)
    };
    Ok(samples.into_iter().map(median).collect())
}

/// One screen; its line says the library's first choice beside its best.
pub(crate) fn screen<O: Op>(device: &Cuda, catalog: &Catalog<O, Cuda>, p: &O::Problem) -> Outcome {
    let started = Instant::now();
    let (mut names, mut libraries, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
    for (variant, config) in entries(device, catalog, p) {
        match variant.build(p, &config, device) {
            Ok(kernel) => {
                names.push(format!("{}[{config}]", variant.id()));
                libraries.push(variant.is_library());
                kernels.push(kernel);
            }
            // Its heuristic has fewer proposals than there are places for them.
            Err(_) if variant.is_library() => {}
            Err(why) => println!("WRONG {}: {}[{config}]: {why}", O::text(p), variant.id()),
        }
    }
    let all: Vec<&dyn Kernel<Cuda>> = kernels.iter().map(|k| &**k).collect();
    let mut times = race(device, catalog, p, &all, 5)?;
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    // The best of both sides once more, and the library's first choice.
    let first = (0..names.len()).find(|i| libraries[*i] && names[*i].ends_with("[choice=0]"));
    let mut few: Vec<usize> = order.iter().copied().filter(|i| !libraries[*i]).take(5).collect();
    few.extend(order.iter().copied().filter(|i| libraries[*i]).take(2));
    few.extend(first.filter(|first| !few.contains(first)));
    let mut case = Case::new(&TypedProblem::new(p, catalog), device, 5)?;
    few.retain(|i| match case.verify(all[*i], device) {
        Ok(_) => true,
        Err(why) => {
            println!("WRONG {}: {}: {why}", O::text(p), names[*i]);
            false
        }
    });
    drop(case);
    let again: Vec<&dyn Kernel<Cuda>> = few.iter().map(|i| all[*i]).collect();
    for (i, time) in few.iter().zip(race(device, catalog, p, &again, 31)?) {
        times[*i] = time;
    }
    few.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    let best = |library: bool| few.iter().copied().find(|i| libraries[*i] == library);
    let micros = |i: Option<usize>| i.map_or(f64::NAN, |i| times[i] * 1e6);
    let name = |i: Option<usize>| i.map_or("none", |i| &names[i]);
    let (own, library, first) = (micros(best(false)), micros(best(true)), micros(first));
    println!(
        "RATIO {:.3} (of the library's best {:.3}) {}: own {own:.2} us ({:.0} TFLOP/s) {}, library first {first:.2}, best \
         {library:.2} {}; {} tried, {:.1} s",
        first / own,
        library / own,
        O::text(p),
        p.work().flops / own * 1e-6,
        name(best(false)),
        name(best(true)),
        names.len(),
        started.elapsed().as_secs_f64()
    );
    let show = std::env::var("WARPLAP_SHOW").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    order.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
    order.iter().take(show).for_each(|i| println!("   {:9.2} us {}", times[*i] * 1e6, names[*i]));
    Ok(())
}
