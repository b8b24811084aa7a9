//! Products by groups on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod pieces;
mod reference;
mod thin;
mod tiles;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Grouped;

/// Who may race.
pub fn catalog() -> Catalog<Grouped, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(tiles::Tiles)).with(Arc::new(thin::Thin))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_core::variant::Fit;
    use warplap_cpu::{Slice, SliceMut};

    use super::*;

    #[test]
    fn ends_that_go_back_or_lead_past_the_rows_are_refused_and_nothing_is_written() {
        let p = Grouped::parse("rows=6,n=4,k=3,experts=3,dtype=f32,w=row").unwrap();
        let (x, w, cpu) = ([0.5f32; 18], [0.25f32; 36], Cpu::new());
        for (offsets, sentence) in [
            ([2, 1, 6], "offsets[1] is 1: expected at least 2, the end of the expert before it"),
            ([2, 4, 7], "offsets[2] is 7: expected at most 6, the rows of x"),
            ([-1, 4, 6], "offsets[0] is -1: expected 0 or more"),
        ] {
            for variant in catalog().variants().iter().filter(|v| !matches!(v.fit(&p, &cpu), Fit::Aside(_))) {
                let mut y = [7f32; 24];
                let config = variant.space(&p, &cpu).default_config().unwrap();
                let mut args = [
                    Arg::Read(Slice::F32(&x)),
                    Arg::Read(Slice::F32(&w)),
                    Arg::Read(Slice::I32(&offsets)),
                    Arg::Write(SliceMut::F32(&mut y)),
                ];
                let refused = variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap_err();
                assert!(refused.to_string().contains(sentence), "{}: {refused}", variant.id());
                assert_eq!(y, [7f32; 24], "{}", variant.id());
            }
        }
    }
}
