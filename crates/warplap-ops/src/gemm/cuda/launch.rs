//! The buffers of a dense product, checked before every launch.

use warplap_core::rejection::Rejection;
use warplap_cuda::Cuda;

use super::plan::Side;
use crate::cuda::own::OnCuda;
use crate::gemm::{Gemm, GemmArgs, GemmProblem};

impl OnCuda<3> for Gemm {
    /// A, B and C.
    #[inline]
    fn addresses(built: &GemmProblem, args: &GemmArgs<'_, Cuda>) -> Result<[u64; 3], Rejection> {
        let p = args.problem;
        if p != built {
            let reason = "a kernel was launched for another problem than it was built for".into();
            return Err(Rejection::LaunchFailed { reason });
        }
        let (a, b, c) = (&args.a, &args.b, &args.c);
        let given = [
            ("a", a.dtype(), a.len(), p.a_len(), a.address()),
            ("b", b.dtype(), b.len(), p.b_len(), b.address()),
            ("c", c.dtype(), c.len(), p.c_len(), c.address()),
        ];
        for (name, dtype, len, wanted, address) in given {
            if dtype != p.dtype || len < wanted {
                let reason = format!("{name} holds {len} {dtype}, the problem asks for {wanted} {}", p.dtype);
                return Err(Rejection::LaunchFailed { reason });
            }
            // A power of two: a division is what this launch has no time for.
            if address & p.align.wrapping_sub(1) != 0 {
                let reason = format!("{name} is not aligned to {} bytes as the problem says", p.align);
                return Err(Rejection::LaunchFailed { reason });
            }
        }
        Ok([a.address(), b.address(), c.address()])
    }
}

const _: () = assert!(Side::A as usize == 0 && Side::B as usize == 1 && Side::C as usize == 2);
