//! Cross entropy on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod online;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::CrossEntropy;

/// Who may race.
pub fn catalog() -> Catalog<CrossEntropy, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(online::Online))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::cross_entropy::CrossEntropy;

    #[test]
    fn a_label_that_is_no_column_makes_the_loss_nan_and_reads_nothing() {
        let cpu = Cpu::new();
        for (grad, label) in [(false, 5), (false, -1), (true, i64::MAX), (true, i64::MIN)] {
            let p = CrossEntropy::parse(&format!("rows=3,n=5,grad={grad}")).unwrap();
            let labels = [1, label, -100];
            for variant in super::catalog().variants() {
                for config in variant.space(&p, &cpu).configs() {
                    let mut x = [0.5f32, 1.0, 2.0, -1.0, 0.0].repeat(3);
                    let (mut loss, mut lse, mut total) = ([7f32; 3], [7f32; 3], [7f32; 1]);
                    let again = x.clone();
                    let mut args: Vec<Arg<'_, Cpu>> = vec![
                        if grad { Arg::Write(SliceMut::F32(&mut x)) } else { Arg::Read(Slice::F32(&again)) },
                        Arg::Read(Slice::I64(&labels)),
                        Arg::Write(SliceMut::F32(&mut loss)),
                        Arg::Write(SliceMut::F32(&mut lse)),
                        Arg::Write(SliceMut::F32(&mut total)),
                        Arg::Absent,
                    ];
                    variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                    drop(args);
                    let what = format!("{}[{config}] {label}: {loss:?} {total:?} {x:?}", variant.id());
                    assert!(loss[0] > 0.0 && loss[1].is_nan() && loss[2] == 0.0 && total[0].is_nan(), "{what}");
                    assert!(lse.iter().all(|l| (*l - lse[0]).abs() == 0.0 && *l > 2.0), "{what}");
                    assert!(!grad || (x[..10].iter().all(|x| x.is_finite()) && x[10..] == [0.0; 5]), "{what}");
                }
            }
        }
    }
}
