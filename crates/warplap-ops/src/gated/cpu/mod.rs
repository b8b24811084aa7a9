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

    /// y of every setting of every variant, for f32 that is joined with nothing.
    fn activated(act: Activation, a: &[f32]) -> Vec<(String, Vec<f32>)> {
        let (cpu, mut all) = (Cpu::new(), Vec::new());
        let p = Gated::parse(&format!("rows=1,n={},act={act},join=none", a.len())).unwrap();
        for variant in super::catalog().variants() {
            for config in variant.space(&p, &cpu).configs() {
                let mut y = vec![7f32; a.len()];
                let mut args: Vec<Arg<'_, Cpu>> =
                    vec![Arg::Read(Slice::F32(a)), Arg::Absent, Arg::Write(SliceMut::F32(&mut y))];
                variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                drop(args);
                all.push((format!("{act} by {}[{config}]", variant.id()), y));
            }
        }
        all
    }

    #[test]
    fn the_whole_range_is_that_of_double_precision() {
        let ends = [88.0, 89.0, 103.0, 200.0, 1e4, 1e13, 1e19, 1e25, 1e38, f32::MAX, f32::INFINITY];
        let a: Vec<f32> = (-800..=800).map(|i| i as f32 * 0.1).chain(ends).chain(ends.map(|x| -x)).collect();
        for act in Activation::ALL {
            for (what, y) in activated(act, &a) {
                for (x, y) in a.iter().zip(y) {
                    let right = act.of(f64::from(*x));
                    let same = f64::from(y) == right || y.is_nan() && right.is_nan();
                    // From 104 on e^-x is nothing in f32.
                    let near = if x.abs() < 104.0 { 1.0 } else { 1e-36 };
                    let fine = (f64::from(y) - right).abs() <= 1e-6 * (right.abs() + near);
                    assert!(same || fine, "{what}: of {x:e} it is {y:e}, right is {right:e}");
                }
            }
        }
    }

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
