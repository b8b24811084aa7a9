//! Mutants that read or write in the wrong place: other elements of their inputs, padding, what lies beside C.

use crate::call::{Wrong, anywhere, padded, square};

pub(crate) const PLACES: &[Wrong] = &[
    ("tile_off_by_one", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, if j % 16 == 15 { j - 1 } else { j })));
        Ok(())
    }),
    ("rows_swapped_at_a_tile_edge", anywhere, |c| {
        c.each(|c, i, j| {
            Some(c.sum(
                if i == 7 {
                    8
                } else if i == 8 {
                    7
                } else {
                    i
                },
                j,
            ))
        });
        Ok(())
    }),
    ("a_transposed", square, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(q, i) * c.b(q, j)).sum()));
        Ok(())
    }),
    ("b_transposed", square, |c| {
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q) * c.b(j, q)).sum()));
        Ok(())
    }),
    ("c_transposed", square, |c| {
        c.each(|c, i, j| Some(c.sum(j, i)));
        Ok(())
    }),
    ("lda_ignored", padded, |c| {
        let k = c.p.k as usize;
        c.each(|c, i, j| Some((0..k).map(|q| c.a[i * k + q] * c.b(q, j)).sum()));
        Ok(())
    }),
    ("ldb_ignored", padded, |c| {
        let n = c.p.n as usize;
        c.each(|c, i, j| Some((0..c.p.k as usize).map(|q| c.a(i, q) * c.b[q * n + j]).sum()));
        Ok(())
    }),
    ("ldc_ignored", padded, |c| {
        let (m, n, _) = c.sizes();
        for at in 0..m * n {
            let value = c.sum(at / n, at % n);
            c.put_at(at, value);
        }
        Ok(())
    }),
    ("padding_written", padded, |c| {
        c.right();
        let at = c.p.n as usize;
        c.put_at(at, 0.0);
        Ok(())
    }),
    ("writes_one_after", anywhere, |c| {
        c.right();
        c.stray(1);
        Ok(())
    }),
    ("writes_one_before", anywhere, |c| {
        c.right();
        c.stray(-1);
        Ok(())
    }),
    ("writes_a_vector_after", anywhere, |c| {
        c.right();
        c.stray(17);
        Ok(())
    }),
    ("copies_its_input", anywhere, |c| {
        c.each(|c, i, j| Some(c.a(i, j % c.p.k as usize)));
        Ok(())
    }),
    ("one_column_for_the_whole_tile", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j / 4 * 4)));
        Ok(())
    }),
    ("reads_past_its_row", anywhere, |c| {
        c.each(|c, i, j| {
            let k = c.p.k as usize;
            Some(c.sum(i, j) + c.a((i + 1) % c.p.m as usize, 0) * c.b(k - 1, j))
        });
        Ok(())
    }),
];
