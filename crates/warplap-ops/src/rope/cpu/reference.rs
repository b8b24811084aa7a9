//! The reference: plain loops over heads, one thread.
//!
//! Idea: one pair after another. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Table};
use crate::rope::{Rope, RopeProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<Rope, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &RopeProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &RopeProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &RopeProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(RopeProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(p: &RopeProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    let (d, rot) = (p.d as usize, p.rot as usize);
    let mut head = vec![0f32; d];
    for row in 0..p.rows as usize {
        let line = call.line(row);
        // The cosine or the sine in a column.
        let angle = |which: usize, column: usize| match (line, call.table) {
            (None, _) => f32::NAN,
            (Some(line), Table::Wide(table)) => table[which][line + column],
            (Some(line), Table::Half(table)) => table[which][line + column].to_f32(),
            (Some(line), Table::Brain(table)) => table[which][line + column].to_f32(),
        };
        for i in 0..p.heads() as usize {
            let (from, to, bias) = call.head(row, i);
            for (j, x) in head.iter_mut().enumerate() {
                // SAFETY: the problem has the head of d elements and the bias, where there is one; there is one thread.
                *x = unsafe { (*from.add(j)).widen() + if bias.is_null() { 0.0 } else { (*bias.add(j)).widen() } };
            }
            for j in 0..d {
                let mut y = head[j];
                if j < rot && (i as u64) < p.turned() {
                    let (column, sign) = p.sine(j);
                    y = head[j] * angle(0, p.column(j)) + head[p.other(j)] * (sign * angle(1, column));
                }
                // SAFETY: as above.
                unsafe { *to.add(j) = T::narrow(y) };
            }
        }
    }
    Ok(())
}
