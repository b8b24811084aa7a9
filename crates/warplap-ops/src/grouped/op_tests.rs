//! Texts of products by groups.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::{Grouped, slot};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "grouped:rows=8192,n=1536,k=2048,experts=128,dtype=bf16,w=row",
        "grouped:rows=7,n=33,k=5,experts=3,dtype=f16,w=col,spread=one,tail=2",
        "grouped:rows=7,n=33,k=5,experts=3,dtype=f32,w=row,spread=even",
    ] {
        assert_eq!(Grouped::text(&Grouped::parse(text).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,n=8,k=8,experts=0", "'experts'"),
        ("rows=1,n=8,k=8,experts=1025", "'experts'"),
        ("rows=1,n=8192,k=8192,experts=64", "'experts'"),
        ("rows=1,n=8,k=8,experts=2,w=up", "'w'"),
        ("rows=1,n=8,k=8,experts=2,spread=odd", "'spread'"),
        ("rows=4,n=8,k=8,experts=2,tail=5", "'tail'"),
        ("rows=1000000,n=8,k=8192,experts=2", "'k'"),
        ("rows=1,n=8,k=8,experts=2,dtype=f64", "'dtype'"),
    ] {
        let error = Grouped::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn drawn_ends_rise_to_the_last_row_that_is_somebodys() {
    for rest in ["", ",spread=even", ",spread=one", ",tail=100", ",tail=7"] {
        let p = Grouped::parse(&format!("rows=100,n=2,k=3,experts=9{rest}")).unwrap();
        let drawn = |seed| Grouped::draw(&p, &mut fastrand::Rng::with_seed(seed)).swap_remove(slot::OFFSETS);
        let ends = drawn(1);
        let ends = ends.indices().unwrap();
        assert!(ends.is_sorted() && ends[8] as u64 == p.rows - p.tail, "{rest}: {ends:?}");
        assert!(p.spread.to_string() != "skewed" || p.tail == 100 || ends != drawn(2).indices().unwrap());
    }
}

#[test]
fn only_matrices_of_experts_with_rows_are_work_and_keys_know_no_tail() {
    let bytes = |text: &str| Grouped::parse(text).unwrap().work().bytes;
    assert_eq!(bytes("rows=4,n=8,k=16,experts=10,spread=one"), (4 * 16 + 4 * 8 + 8 * 16) as f64 * 4.0 + 40.0);
    assert_eq!(bytes("rows=4,n=8,k=16,experts=10,spread=even"), (4 * 16 + 4 * 8 + 4 * 8 * 16) as f64 * 4.0 + 40.0);
    let key = |text: &str| Grouped::parse(text).unwrap().key_fields(&Bucket::Changing).to_string();
    assert_eq!(key("rows=100,n=8,k=16,experts=10,tail=3"), key("rows=100,n=8,k=16,experts=10"));
    assert_ne!(key("rows=100,n=8,k=16,experts=10,spread=even"), key("rows=100,n=8,k=16,experts=10"));
}

#[test]
fn a_ragged_problem_keeps_what_sizes_are_divided_by() {
    let p = Grouped::parse("rows=8192,n=1536,k=2056,experts=128,dtype=bf16,w=col").unwrap();
    let ragged = p.ragged().unwrap();
    assert_eq!((ragged.rows, ragged.n, ragged.k, ragged.experts, ragged.tail), (333, 256, 264, 7, 5));
}
