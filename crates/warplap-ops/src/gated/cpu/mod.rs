//! Activations on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod reference;
mod vectors;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Gated;

/// Who may race.
pub fn catalog() -> Catalog<Gated, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(vectors::Vectors))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::gated::Gated;
    use crate::gemm::Activation;

    #[test]
    fn what_is_not_a_number_stays_that_alone_and_padding_is_not_read() {
        let cpu = Cpu::new();
        // Two rows of 19 in lines of 23, between which nothing is a number.
        let a: Vec<f32> =
            (0..42).map(|i| if i % 23 < 19 && i != 7 { 0.1 * i as f32 - 2.0 } else { f32::NAN }).collect();
        let b: Vec<f32> = (0..38).map(|i| if i == 30 { f32::NAN } else { 1.5 }).collect();
        for act in Activation::ALL {
            let p = Gated::parse(&format!("rows=2,n=19,act={act},join=add,lda=23")).unwrap();
            for variant in super::catalog().variants() {
                for config in variant.space(&p, &cpu).configs() {
                    let mut y = [7f32; 38];
                    let mut args: Vec<Arg<'_, Cpu>> =
                        vec![Arg::Read(Slice::F32(&a)), Arg::Read(Slice::F32(&b)), Arg::Write(SliceMut::F32(&mut y))];
                    variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                    drop(args);
                    for (i, y) in y.iter().enumerate() {
                        let nan = i == 7 || i == 30;
                        assert!(y.is_nan() == nan && *y != 7.0, "{}[{config}] {act}: {i} is {y}", variant.id());
                    }
                }
            }
        }
    }
}
