//! Rotary position embedding on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod pairs;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Rope;

/// Who may race.
pub fn catalog() -> Catalog<Rope, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(pairs::TwoByTwo))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::rope::Rope;

    #[test]
    fn a_position_that_the_table_does_not_have_turns_into_nan_and_reads_nothing() {
        let cpu = Cpu::new();
        for (pairs, position) in [("halves", 5), ("interleaved", -1), ("halves", i64::MAX), ("interleaved", i64::MIN)] {
            let p = Rope::parse(&format!("rows=3,h=2,d=6,rot=4,n=5,plain=1,positions=i64,pairs={pairs}")).unwrap();
            let (x, positions) = ([0.5f32; 36], [4, position, 0]);
            let (cos, sin) = ([0.6f32; 10], [0.8f32; 10]);
            for variant in super::catalog().variants() {
                for config in variant.space(&p, &cpu).configs() {
                    let mut y = [7f32; 36];
                    let mut args: Vec<Arg<'_, Cpu>> = vec![
                        Arg::Read(Slice::F32(&x)),
                        Arg::Absent,
                        Arg::Read(Slice::F32(&cos)),
                        Arg::Read(Slice::F32(&sin)),
                        Arg::Read(Slice::I64(&positions)),
                        Arg::Absent,
                        Arg::Write(SliceMut::F32(&mut y)),
                        Arg::Absent,
                    ];
                    variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                    drop(args);
                    let turned = |row: usize| y[12 * row..12 * row + 4].iter().all(|y| y.is_nan());
                    let kept = |row: usize| y[12 * row + 4..12 * row + 12] == [0.5; 8];
                    let what = format!("{}[{config}] {position}: {y:?}", variant.id());
                    assert!(!turned(0) && turned(1) && !turned(2), "{what}");
                    assert!((0..3).all(kept) && y[0] != 7.0 && y[24] != 7.0, "{what}");
                }
            }
        }
    }
}
