//! Mutants that add up the wrong numbers: terms and tails that are missing, doubled or lost, and results spoilt in one
//! place.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{Wrong, anywhere, tails, whole};

pub(crate) const SUMS: &[Wrong] = &[
    ("no_op", anywhere, |_| Ok(())),
    ("zeros", anywhere, |c| {
        c.each(|_, _, _| Some(0.0));
        Ok(())
    }),
    ("m_tail_missing", tails, |c| {
        c.each(|c, i, j| (i < whole(c.p.m as usize)).then(|| c.sum(i, j)));
        Ok(())
    }),
    ("n_tail_missing", tails, |c| {
        c.each(|c, i, j| (j < whole(c.p.n as usize)).then(|| c.sum(i, j)));
        Ok(())
    }),
    ("k_tail_missing", tails, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 0..whole(c.p.k as usize))));
        Ok(())
    }),
    ("n_tail_zeroed", tails, |c| {
        c.each(|c, i, j| Some(if j < whole(c.p.n as usize) { c.sum(i, j) } else { 0.0 }));
        Ok(())
    }),
    ("last_k_term_dropped", anywhere, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 0..c.p.k as usize - 1)));
        Ok(())
    }),
    ("first_k_term_dropped", anywhere, |c| {
        c.each(|c, i, j| Some(c.part(i, j, 1..c.p.k as usize)));
        Ok(())
    }),
    ("last_k_term_twice", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + c.part(i, j, c.p.k as usize - 1..c.p.k as usize)));
        Ok(())
    }),
    ("alpha_doubled", anywhere, |c| {
        c.each(|c, i, j| Some(2.0 * c.sum(i, j)));
        Ok(())
    }),
    ("adds_to_c", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + c.get_at(c.at(i, j))));
        Ok(())
    }),
    ("two_threads_add_without_sync", anywhere, |c| {
        let (m, n, k) = c.sizes();
        let totals: Vec<AtomicU32> = (0..m * n).map(|_| AtomicU32::new(0)).collect();
        // Two threads that read before either has written: the lost update is not left to luck.
        let together = Barrier::new(2);
        let (call, totals) = (&*c, &totals);
        std::thread::scope(|scope| {
            for half in [0..k / 2, k / 2..k] {
                let together = &together;
                scope.spawn(move || {
                    let mine: Vec<f32> = (0..m * n).map(|at| call.part(at / n, at % n, half.clone())).collect();
                    let read: Vec<f32> = totals.iter().map(|t| f32::from_bits(t.load(Ordering::Relaxed))).collect();
                    together.wait();
                    for ((total, read), mine) in totals.iter().zip(read).zip(mine) {
                        total.store((read + mine).to_bits(), Ordering::Relaxed);
                    }
                });
            }
        });
        let values: Vec<f32> = totals.iter().map(|t| f32::from_bits(t.load(Ordering::Relaxed))).collect();
        c.each(|_, i, j| Some(values[i * n + j]));
        Ok(())
    }),
    ("wrong_in_one_element", anywhere, |c| {
        c.right();
        let at = c.at(c.p.m as usize / 2, c.p.n as usize / 3);
        let value = c.get_at(at) + 0.125;
        c.put_at(at, value);
        Ok(())
    }),
    ("wrong_in_one_block_of_rows", anywhere, |c| {
        c.each(|c, i, j| Some(if (4..8).contains(&i) { -c.sum(i, j) } else { c.sum(i, j) }));
        Ok(())
    }),
    ("nan_in_a_corner", anywhere, |c| {
        c.right();
        let at = c.at(c.p.m as usize - 1, c.p.n as usize - 1);
        c.put_at(at, f32::NAN);
        Ok(())
    }),
    ("infinite_in_a_corner", anywhere, |c| {
        c.right();
        c.put_at(0, f32::INFINITY);
        Ok(())
    }),
    ("wrong_sign_for_negative_inputs", anywhere, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q).abs() * c.b(q, j)).sum()));
        Ok(())
    }),
    ("half_of_k_doubled", anywhere, |c| {
        c.each(|c, i, j| Some(2.0 * c.part(i, j, 0..c.p.k as usize / 2)));
        Ok(())
    }),
];
