//! Normalisation on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod one_pass;
mod reference;
mod row;
mod two_pass;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Norm;

/// Who may race.
pub fn catalog() -> Catalog<Norm, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(one_pass::OnePass)).with(Arc::new(two_pass::TwoPass))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::array::Array;
    use warplap_core::op::Op;
    use warplap_core::scalar::{F8E4m3, Scalar};
    use warplap_core::variant::Fit;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::norm::{Norm, slot};

    #[test]
    fn rows_of_zeros_get_zeros_and_a_row_that_is_no_number_says_so() {
        let (cpu, n) = (Cpu::new(), 77);
        for quant in ["f8e4m3", "i8"] {
            let p = Norm::parse(&format!("rows=3,n={n},weight=false,quant={quant}")).unwrap();
            let mut x = vec![0f32; 3 * n];
            x[n..2 * n].fill(0.25);
            x[2 * n..].fill(-1.0);
            x[2 * n + 70] = f32::NAN;
            for variant in super::catalog().variants().iter().filter(|v| matches!(v.fit(&p, &cpu), Fit::Fits(_))) {
                for config in variant.space(&p, &cpu).configs() {
                    let (mut f8, mut i8) = (vec![F8E4m3(99); 3 * n], vec![99i8; 3 * n]);
                    let mut scale = vec![f32::NAN; 3];
                    let mut args: Vec<Arg<'_, Cpu>> = Norm::signature(&p).slots().iter().map(|_| Arg::Absent).collect();
                    args[slot::X] = Arg::Read(Slice::F32(&x));
                    args[slot::Y] = Arg::Write(match quant {
                        "i8" => SliceMut::I8(&mut i8),
                        _ => SliceMut::F8E4m3(&mut f8),
                    });
                    args[slot::SCALE] = Arg::Write(SliceMut::F32(&mut scale));
                    variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                    drop(args);
                    let codes: Vec<f64> = match quant {
                        "i8" => i8.iter().map(|c| f64::from(*c)).collect(),
                        _ => f8.iter().map(|c| c.to_f64()).collect(),
                    };
                    let (what, top) = (format!("{}[{config}] {quant}", variant.id()), f64::from(p.quant.top()));
                    assert!(codes[..n].iter().all(|c| *c == 0.0) && scale[0] > 0.0 && scale[0] < 1e-30, "{what}");
                    assert!(codes[n..2 * n].iter().all(|c| *c == top), "{what}: one number is the largest");
                    assert!((f64::from(scale[1]) * top - 1.0).abs() < 1e-4, "{what}: {scale:?}");
                    assert!(scale[2].is_nan(), "{what}: {scale:?}");
                }
            }
        }
    }

    #[test]
    fn a_layer_far_from_zero_keeps_its_digits_in_every_variant() {
        let (cpu, n) = (Cpu::new(), 5000);
        let p = Norm::parse(&format!("rows=1,n={n},kind=layer,weight=false")).unwrap();
        let mut rng = fastrand::Rng::with_seed(3);
        let x: Vec<f32> = (0..n).map(|_| 1000.0 + rng.f32()).collect();
        let mut inputs = vec![Array::none(); Norm::signature(&p).slots().len()];
        inputs[slot::X] = Array::F32(x.clone());
        let right = &Norm::answer(&p, &inputs)[0];
        assert!(right.tolerance.allowed(1.0) < 0.02, "{:?}", right.tolerance);
        for variant in super::catalog().variants() {
            for config in variant.space(&p, &cpu).configs() {
                let mut y = vec![0f32; n];
                let mut args: Vec<Arg<'_, Cpu>> = Norm::signature(&p).slots().iter().map(|_| Arg::Absent).collect();
                args[slot::X] = Arg::Read(Slice::F32(&x));
                args[slot::Y] = Arg::Write(SliceMut::F32(&mut y));
                variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                drop(args);
                // Mean square less square of the mean, both from zero on, would be off by half of y.
                let share = |(y, r): (&f32, &f64)| (f64::from(*y) - r).abs() / right.tolerance.allowed(*r);
                let worst = y.iter().zip(&right.values).map(share).fold(0.0, f64::max);
                assert!(worst <= 1.0, "{}[{config}]: {worst} of the allowed error", variant.id());
            }
        }
    }
}
