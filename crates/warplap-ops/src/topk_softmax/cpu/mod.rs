//! The router's softmax on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod list;
mod maxima;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::TopkSoftmax;

/// Who may race.
pub fn catalog() -> Catalog<TopkSoftmax, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(list::List)).with(Arc::new(maxima::Maxima))
}

#[cfg(test)]
mod tests {
    use warplap_core::arg::Arg;
    use warplap_core::op::Op;
    use warplap_cpu::{Cpu, Slice, SliceMut};

    use crate::topk_softmax::{TopkSoftmax, order};

    /// What every variant gives for rows of n, in all its settings: it is the same of all of them.
    fn each(x: &[f32], n: usize, k: usize, renormalize: bool, check: impl Fn(&[f32], &[i32], &str)) {
        let (cpu, rows) = (Cpu::new(), x.len() / n);
        let p = TopkSoftmax::parse(&format!("rows={rows},n={n},k={k},renormalize={renormalize}")).unwrap();
        for variant in super::catalog().variants() {
            for config in variant.space(&p, &cpu).configs() {
                let (mut weights, mut indices) = (vec![7f32; rows * k], vec![-7i32; rows * k]);
                let mut args: Vec<Arg<'_, Cpu>> = vec![
                    Arg::Read(Slice::F32(x)),
                    Arg::Write(SliceMut::F32(&mut weights)),
                    Arg::Write(SliceMut::I32(&mut indices)),
                ];
                variant.build(&p, &config, &cpu).unwrap().launch(&mut args, &()).unwrap();
                drop(args);
                check(&weights, &indices, &format!("{}[{config}]: {weights:?} {indices:?}", variant.id()));
            }
        }
    }

    #[test]
    fn equal_ones_are_taken_in_their_order_and_both_zeros_are_equal() {
        for n in [5, 40, 200] {
            let mut x = vec![-0.0f32; 3 * n];
            x[1] = 0.0;
            x[n..2 * n].iter_mut().enumerate().for_each(|(i, x)| *x = if i % 3 == 1 { 2.0 } else { -1.0 });
            x[2 * n..].iter_mut().enumerate().for_each(|(i, x)| *x = (i % 2) as f32 * f32::from_bits(1));
            for k in [1, 2, 5] {
                each(&x, n, k, k > 1, |_, indices, what| {
                    let right: Vec<i32> =
                        x.chunks(n).flat_map(|row| order::first(row, k)).map(|place| place as i32).collect();
                    assert_eq!(indices, right, "{what}");
                    assert!(indices[..k].iter().copied().eq(0..k as i32), "{what}");
                });
            }
        }
    }

    #[test]
    fn hidden_experts_come_last_with_no_weight_behind_the_lowest_number() {
        for n in [7, 64, 130] {
            let mut x = vec![f32::NEG_INFINITY; n];
            (x[4], x[6]) = (f32::MIN, 1.0);
            each(&x, n, 5, true, |weights, indices, what| {
                assert_eq!(indices, [6, 4, 0, 1, 2], "{what}");
                assert_eq!(weights, [1.0, 0.0, 0.0, 0.0, 0.0], "{what}");
            });
        }
    }

    #[test]
    fn rows_of_nan_infinities_or_nothing_have_indices_and_no_weights() {
        for n in [9, 77, 256] {
            let mut x = vec![0.5f32; 5 * n];
            (x[3], x[5], x[6], x[8]) = (f32::NAN, f32::INFINITY, -f32::NAN, 3.0);
            x[n..2 * n].fill(f32::NEG_INFINITY);
            (x[2 * n + 2], x[2 * n + 7], x[2 * n + 8]) = (f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY);
            // A sum of these is NaN, and they are numbers all the same.
            x[3 * n..4 * n].fill(f32::MAX);
            x[3 * n] = f32::NEG_INFINITY;
            x[4 * n..].fill(f32::NAN);
            for renormalize in [false, true] {
                each(&x, n, 4, renormalize, |weights, indices, what| {
                    let right = [3, 6, 5, 8, 0, 1, 2, 3, 2, 7, 0, 1, 1, 2, 3, 4, 0, 1, 2, 3];
                    assert_eq!(indices, right, "{what}");
                    assert!(weights[..12].iter().chain(&weights[16..]).all(|w| w.is_nan()), "{what}");
                    let share = if renormalize { 0.25 } else { 1.0 / (n - 1) as f32 };
                    assert!(weights[12..16].iter().all(|w| (w / share - 1.0).abs() < 1e-5), "{what}");
                });
            }
        }
    }
}
