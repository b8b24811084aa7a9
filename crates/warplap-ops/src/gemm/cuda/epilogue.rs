//! The epilogue: bias and activation in the same kernel as the product. A plan of a product comes in; the plan of the
//! product with its epilogue goes out. Twin of `epilogue.cuh`.

use warplap_core::arg::Arg;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::slot::Signature;
use warplap_core::space::Config;
use warplap_cuda::{Cuda, Stream, View};

use super::TWINS;
use crate::cuda::launch::Loaded;
use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::{Argument, Plan};
use crate::gemm::{Gemm, GemmProblem};

/// What is done to every element of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(x, 0).
    Relu,
    /// GELU in its tanh form.
    GeluTanh,
    /// GELU by the error function.
    GeluErf,
    /// x · sigmoid(x).
    Silu,
}

impl Activation {
    /// All there are.
    pub const ALL: [Activation; 5] =
        [Activation::None, Activation::Relu, Activation::GeluTanh, Activation::GeluErf, Activation::Silu];
}

/// What happens between a product and its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Whether a bias is added, one value for each column of C.
    pub bias: bool,
    /// What is done then.
    pub activation: Activation,
}

/// The bias's place among the buffers, behind A, B and C.
const BIAS: usize = 3;

impl Epilogue {
    /// The plan of a product with this epilogue: constants for the kernel, and the bias as its last parameter.
    pub(super) fn onto(self, mut plan: Plan) -> Plan {
        if self.bias {
            plan.source.defines.push(("BIAS", 1));
            plan.arguments.push(Argument::Pointer(BIAS));
        }
        if self.activation != Activation::None {
            plan.source.defines.push(("ACT", self.activation as i64));
        }
        plan
    }
}

/// A product with its epilogue, built.
pub struct Fused {
    problem: GemmProblem,
    signature: Signature,
    aligns: Aligns<3>,
    loaded: Loaded<4>,
}

impl Fused {
    /// Builds an own kernel by its id with an epilogue.
    pub fn build(
        id: &str,
        p: &GemmProblem,
        config: &Config,
        epilogue: Epilogue,
        cuda: &Cuda,
    ) -> Result<Self, Rejection> {
        let unknown = || Rejection::DoesNotBuild { reason: format!("{id} is no kernel that takes an epilogue") };
        let twin = TWINS.iter().find(|t| t.id() == id).ok_or_else(unknown)?;
        let plan = epilogue.onto(twin.plan(p, config, cuda.chip())?);
        let signature = Gemm::signature(p);
        let aligns = Aligns::of(&signature)?;
        Ok(Fused { problem: *p, signature, aligns, loaded: Loaded::new(plan, cuda)? })
    }

    /// Queues one run. The bias holds N elements of the problem's type; without one in the epilogue it is not read.
    pub fn launch(&self, args: &mut [Arg<'_, Cuda>], bias: View<'_>, queue: &Stream) -> Result<(), Rejection> {
        let p = &self.problem;
        let refused = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        self.signature.check(args).map_err(refused)?;
        let [a, b, c] = addresses(args, &self.aligns)?;
        if bias.dtype() != p.dtype || (bias.len() as u64) < p.n {
            let reason =
                format!("bias holds {} {}, the problem asks for {} {}", bias.len(), bias.dtype(), p.n, p.dtype);
            return Err(Rejection::LaunchFailed { reason });
        }
        // SAFETY: the plan is the twin's, which lists the entry's parameters, and `onto` adds the last; all buffers were
        // checked to hold what the kernel reads and writes, and the views borrow them.
        unsafe { self.loaded.launch(&[a, b, c, bias.address()], queue) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_cuda::Chip;

    #[test]
    fn no_epilogue_leaves_a_plan_as_it_is_and_a_bias_comes_last() {
        let (p, chip) = (Gemm::parse("gemm:m=512,n=512,k=512,dtype=f16").unwrap(), Chip::h200());
        let config = TWINS[1].space(&p, &chip).default_config().unwrap();
        let plan = TWINS[1].plan(&p, &config, &chip).unwrap();
        assert_eq!(Epilogue::default().onto(plan.clone()), plan);
        let fused = Epilogue { bias: true, activation: Activation::Silu }.onto(plan.clone());
        assert_eq!(fused.arguments.last(), Some(&Argument::Pointer(3)));
        assert_eq!(fused.arguments.len(), plan.arguments.len() + 1);
        assert!(fused.source.defines.ends_with(&[("BIAS", 1), ("ACT", 4)]));
    }
}
