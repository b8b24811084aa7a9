//! Softmax on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod kept;
mod online;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Softmax;

/// Who may race.
pub fn catalog() -> Catalog<Softmax, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(kept::Kept)).with(Arc::new(online::Online))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::softmax::{Softmax, slot};

    #[test]
    fn nan_passes_a_row_of_nothing_is_nan_and_the_lowest_numbers_share_alike() {
        let (cpu, n) = (Cpu::new(), 37);
        let p = Softmax::parse(&format!("rows=4,n={n}")).unwrap();
        let mut x = vec![0.5f32; 4 * n];
        x[20] = f32::NAN;
        x[n..2 * n].fill(f32::NEG_INFINITY);
        x[2 * n..3 * n].fill(f32::MIN);
        for variant in super::catalog().variants() {
            for config in variant.space(&p, &cpu).configs() {
                let mut y = vec![7f32; 4 * n];
                let mut args: Vec<Arg<'_, Cpu>> = Softmax::signature(&p).slots().iter().map(|_| Arg::Absent).collect();
                args[slot::X] = Arg::Read(Slice::F32(&x));
                args[slot::Y] = Arg::Write(SliceMut::F32(&mut y));
                variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                drop(args);
                let what = format!("{}[{config}]: {y:?}", variant.id());
                assert!(y[..2 * n].iter().all(|y| y.is_nan()), "{what}");
                assert!(y[2 * n..].iter().all(|y| (y * n as f32 - 1.0).abs() < 1e-5), "{what}");
            }
        }
    }
}
