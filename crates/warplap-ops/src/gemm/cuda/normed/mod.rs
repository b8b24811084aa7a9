//! Norms in front, for kernels that take a factor for each row: a launch more.
//!
//! What comes in is a twin that was planned with given factors; what goes out is one whose factors are 1/√(mean(x²) + eps)
//! of A's rows, left in its scratch by a small kernel in front. Plans that find their factors themselves stay as they are.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, ROWS, Source, dtype_code};

use super::plan::{Side, pointer, vector};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches, int};
use crate::cuda::scratch::Need;
use crate::gemm::{GemmProblem, Rms, slot};

/// A twin that also does products behind a norm.
pub(super) struct Normed<T>(pub(super) T);

/// Words of the scratch of a plan with factors behind its own.
fn own_words(plan: &Plan) -> u64 {
    plan.scratch().words
}

/// The plan with its factors in scratch, behind what it needs itself.
fn in_scratch(mut plan: Plan, rows: u64) -> Plan {
    let own = own_words(&plan);
    for argument in &mut plan.arguments {
        match argument {
            Argument::Scratch(need) => need.words += rows,
            Argument::Pointer(slot::SCALE) if own == 0 => *argument = Argument::Scratch(Need { words: rows, zeros: 0 }),
            Argument::Pointer(slot::SCALE) => *argument = Argument::Room(own),
            _ => (),
        }
    }
    plan
}

fn takes_factors(plan: &Plan) -> bool {
    plan.arguments.contains(&Argument::Pointer(slot::SCALE))
}

/// The kernel in front: a block a row.
fn factors(p: &GemmProblem, rms: Rms, at: u64, chip: &Chip) -> Plan {
    let vec = vector(p, p.lda) / p.dtype.bytes() as u64;
    let warps = p.k.div_ceil(32 * vec.max(1) * 2).next_power_of_two().clamp(1, 8);
    let defines = vec![("DTYPE", dtype_code(p.dtype)), ("WARPS", warps as i64), ("VEC", vec.max(1) as i64)];
    let source =
        Source { entry: "factors", text: include_str!("factors.cu"), headers: &[AMPERE, ELEMENT, ROWS], defines };
    let eps = Argument::Int(rms.eps().to_bits() as i32);
    let arguments = vec![pointer(Side::A), Argument::Room(at), int(p.k), Argument::Long(p.lda), eps];
    let overlap = chip.capability.0 >= 9;
    Plan { source, threads: 32 * warps as u32, shared: 0, grid: Grid::Blocks(p.rows()), arguments, overlap }
}

impl<T: CudaKernelSpec<GemmProblem>> CudaKernelSpec<GemmProblem> for Normed<T> {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        self.0.fit(p, chip)
    }

    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space {
        self.0.space(p, chip)
    }

    fn plan(&self, p: &GemmProblem, config: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let plan = self.0.plan(p, config, chip)?;
        Ok(if p.rms.is_some() && takes_factors(&plan) { in_scratch(plan, p.rows()) } else { plan })
    }

    fn beside(&self, p: &GemmProblem, config: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        let mut beside = self.0.beside(p, config, chip)?;
        let Some(rms) = p.rms else { return Ok(beside) };
        // Where the twin has its factors is not to be seen in a plan that has them in scratch.
        let plan = self.0.plan(p, config, chip)?;
        if takes_factors(&plan) {
            // Whoever is beside the plan has its factors where the plan has them.
            let at = own_words(&plan);
            for argument in beside.first.iter_mut().chain(&mut beside.last).flat_map(|one| &mut one.arguments) {
                if *argument == Argument::Pointer(slot::SCALE) {
                    *argument = Argument::Room(at);
                }
            }
            beside.first.insert(0, factors(p, rms, at, chip));
        }
        Ok(beside)
    }
}
