//! Mutants that behave badly: they remember, read what nobody wrote, refuse or panic.

use warplap_core::rejection::Rejection;

use crate::call::{Wrong, anywhere, remember, tiny};

pub(crate) const CONDUCT: &[Wrong] = &[
    ("reads_what_was_never_written", anywhere, |c| {
        c.each(|c, i, j| Some(c.sum(i, j) + 0.0 * c.get_at(c.at(i, j))));
        Ok(())
    }),
    ("remembers_its_first_output", anywhere, |c| {
        c.right();
        remember(c, 0);
        Ok(())
    }),
    ("remembers_by_address", anywhere, |c| {
        c.right();
        let address = c.address;
        remember(c, address);
        Ok(())
    }),
    ("works_on_its_first_launch_only", anywhere, |c| {
        if c.nth == 1 {
            c.right();
        }
        Ok(())
    }),
    ("panics_in_a_tail", anywhere, |c| {
        let (m, n, _) = c.sizes();
        let row = vec![0f32; n];
        let past = row[m.max(n)];
        c.each(|_, _, _| Some(past));
        Ok(())
    }),
    ("refuses", anywhere, |_| Err(Rejection::LaunchFailed { reason: "a mutant".into() })),
    ("panics_at_its_fourth_launch", tiny, |c| {
        assert!(c.nth < 4, "a mutant");
        c.right();
        Ok(())
    }),
];
