//! Mutants that compute in too few bits.

use half::{bf16, f16};

use crate::call::{Wrong, brain, half_precision, single};

pub(crate) const ROUNDING: &[Wrong] = &[
    ("alpha_nearly_one", single, |c| {
        c.each(|c, i, j| Some(1.0001 * c.sum(i, j)));
        Ok(())
    }),
    ("f16_accumulation", half_precision, |c| {
        c.each(|c, i, j| {
            let step = |s: f16, q| f16::from_f32(s.to_f32() + c.a(i, q) * c.b(q, j));
            Some((0..c.p.k as usize).fold(f16::ZERO, step).to_f32())
        });
        Ok(())
    }),
    ("bf16_accumulation", brain, |c| {
        c.each(|c, i, j| {
            let step = |s: bf16, q| bf16::from_f32(s.to_f32() + c.a(i, q) * c.b(q, j));
            Some((0..c.p.k as usize).fold(bf16::ZERO, step).to_f32())
        });
        Ok(())
    }),
    ("accumulator_rounded_every_64", brain, |c| {
        c.each(|c, i, j| {
            let k = c.p.k as usize;
            let step = |s: f32, q: usize| bf16::from_f32(s + c.part(i, j, q..(q + 64).min(k))).to_f32();
            Some((0..k).step_by(64).fold(0.0, step))
        });
        Ok(())
    }),
    ("inputs_rounded_to_bf16", single, |c| {
        let round = |x: f32| bf16::from_f32(x).to_f32();
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| round(c.a(i, q)) * round(c.b(q, j))).sum()));
        Ok(())
    }),
    ("output_rounded_to_f16", single, |c| {
        c.each(|c, i, j| Some(f16::from_f32(c.sum(i, j)).to_f32()));
        Ok(())
    }),
    ("inputs_rounded_to_tf32", single, |c| {
        let round = |x: f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| round(c.a(i, q)) * round(c.b(q, j))).sum()));
        Ok(())
    }),
];
