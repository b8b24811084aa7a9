//! Texts, keys and pairs of turns.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::problem::Problem;

use super::{Rope, RopeProblem};

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "rope:rows=4096,h=40,d=128,dtype=bf16,pairs=halves",
        "rope:rows=7,h=3,hk=1,d=80,rot=32,n=100,dtype=f16,table=f32,wide=true,pairs=interleaved,positions=i64,\
         plain=2,bias=true,inplace=true,ld=300,ldk=81,ldt=64",
        "rope:rows=7,h=3,d=8,n=1,dtype=f32,pairs=halves,positions=i32,back=true",
    ] {
        assert_eq!(Rope::text(&Rope::parse(text).unwrap()), text);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, field) in [
        ("rows=1,h=1,d=7", "'rot'"),
        ("rows=1,h=1,d=8,rot=10", "'rot'"),
        ("rows=1,h=2,d=8,plain=2", "'plain'"),
        ("rows=1,h=2,d=8,ld=15", "'ld'"),
        ("rows=1,h=2,hk=1,d=8,ldk=7", "'ldk'"),
        ("rows=1,h=2,d=8,ldt=3", "'ldt'"),
        ("rows=1048576,h=32,d=128", "'ld'"),
        ("rows=1,h=2,d=8,table=f16", "'table'"),
        ("rows=1,h=2,d=8,dtype=f64", "'dtype'"),
        ("rows=1,h=2,d=8,bias=true,back=true", "'bias'"),
        ("rows=1,h=2,d=8,positions=f32", "'positions'"),
        ("rows=1,h=2,d=8,pair=halves", "did you mean 'pairs'?"),
    ] {
        let error = Rope::parse(fields).unwrap_err().to_string();
        assert!(error.contains(field), "{fields}: {error}");
    }
}

#[test]
fn a_key_rounds_rows_and_forgets_the_table_and_the_way() {
    let key = |text: &str| Rope::parse(text).unwrap().key_fields(&Bucket::PowerOfTwo);
    let whole = key("rows=1000,h=4,d=8,n=77");
    assert_eq!(whole, key("rows=1024,h=4,d=8,n=4096,back=true"));
    assert_ne!(whole, key("rows=1024,h=4,d=8,ld=40"));
    assert_ne!(whole, key("rows=1024,h=4,d=8,inplace=true"));
}

#[test]
fn elements_know_their_pairs_and_a_turn_back_undoes_a_turn() {
    for text in ["d=8,rot=6", "d=8,rot=6,pairs=interleaved", "d=8,wide=true", "d=8,wide=true,pairs=interleaved"] {
        let forth = Rope::parse(&format!("rows=1,h=1,{text}")).unwrap();
        let back = RopeProblem { back: true, ..forth };
        for j in 0..forth.rot as usize {
            let other = forth.other(j);
            assert!(other != j && forth.other(other) == j, "{text}");
            // The matrix of a turn back is the other one's, mirrored.
            assert_eq!(back.sine(j), forth.sine(other), "{text}");
            assert!(forth.sine(j).1 == -forth.sine(other).1 && forth.column(j) < forth.columns() as usize, "{text}");
        }
    }
}
