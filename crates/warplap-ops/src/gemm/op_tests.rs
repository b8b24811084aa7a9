use super::*;
use crate::gemm::Gemm;
use warplap_core::measure::Policy;
use warplap_core::op::Op;

#[test]
fn a_ragged_problem_is_small_legal_and_keeps_what_decides_who_may_race() {
    for text in [
        "gemm:m=4096,n=4096,k=4096,dtype=bf16",
        "gemm:m=4096,n=4096,k=4096,dtype=f16,a=col,b=col",
        "gemm:m=1,n=11008,k=4096,dtype=f16,b=col",
        "gemm:m=33,n=17,k=5,dtype=f32,lda=9",
        "gemm:m=16,n=64,k=8,dtype=bf16,batch=7",
        "gemm:m=512,n=64,k=80,dtype=bf16,bias=true,act=silu",
        "gemm:m=512,n=64,k=80,dtype=bf16,join=mul",
        "gemm:m=512,n=64,k=80,dtype=bf16,act=silu,pair=true",
        "gemm:m=512,n=64,k=80,dtype=bf16,rms=0.001",
        "gemm:m=512,n=64,k=80,dtype=bf16,scale=rows",
    ] {
        let p = Gemm::parse(text).unwrap();
        let ragged = p.ragged().unwrap();
        assert_eq!(Gemm::parse(&Gemm::text(&ragged)).unwrap(), ragged, "{text}");
        assert!(ragged.m <= 264 && ragged.n <= 264 && ragged.k <= 136, "{text}");
        assert_eq!((ragged.m == 1, ragged.n.is_multiple_of(8)), (p.m == 1, p.n.is_multiple_of(8)), "{text}");
        assert_eq!((ragged.dtype, ragged.a, ragged.b, ragged.align), (p.dtype, p.a, p.b, p.align), "{text}");
        assert_eq!((ragged.bias, ragged.act, ragged.join), (p.bias, p.act, p.join), "{text}");
        assert_eq!((ragged.pair, ragged.scale, ragged.rms), (p.pair, p.scale, p.rms), "{text}");
    }
    assert_eq!(Gemm::parse("gemm:m=1,n=1,k=1,dtype=f32").unwrap().ragged(), None);
}

#[test]
fn a_problem_reads_back_what_it_prints() {
    for text in [
        "gemm:m=1,n=2,k=3,dtype=f32",
        "gemm:m=64,n=8,k=16,dtype=bf16,a=col,b=col,lda=100,ldb=17,ldc=9,align=16",
        "gemm:m=1,n=2,k=3,dtype=f32,batch=8,tf32=true",
        "gemm:m=1,n=2,k=3,dtype=f32,tf32=true,bias=true,act=gelu_tanh",
        "gemm:m=1,n=2,k=3,dtype=f16,act=gelu",
        "gemm:m=1,n=2,k=3,dtype=f16,bias=true,act=silu,join=mul",
        "gemm:m=1,n=2,k=3,dtype=f32,join=add",
        "gemm:m=1,n=2,k=3,dtype=f32,act=silu,pair=true",
        "gemm:m=1,n=2,k=3,dtype=f32,scale=rows",
        "gemm:m=1,n=2,k=3,dtype=f32,act=silu,pair=true,rms=0.00001",
    ] {
        assert_eq!(Gemm::text(&Gemm::parse(text).unwrap()), text);
    }
    let usual = "gemm:m=1,n=2,k=3,dtype=f32,bias=false,act=none,pair=false";
    assert_eq!(Gemm::text(&Gemm::parse(usual).unwrap()), "gemm:m=1,n=2,k=3,dtype=f32");
}

#[test]
fn bad_problems_name_the_field() {
    for (text, field) in [
        ("gemm:m=0,n=1,k=1", "'m'"),
        ("gemm:m=1,n=1", "'k'"),
        ("gemm:n=1,k=1", "'m'"),
        ("gemm:m=1,n=1,kk=1", "'kk'"),
        ("gemm:m=4,n=4,k=4,lda=3", "'lda'"),
        ("gemm:m=4,n=4,k=4,dtype=f8", "'dtype'"),
        ("gemm:m=1048576,n=1,k=1048576", "'m'"),
        ("gemm:m=4,n=4,k=4,align=3", "'align'"),
        ("gemm:m=4,n=4,k=4,batch=0", "'batch'"),
        ("gemm:m=4,n=4,k=4,dtype=f16,tf32=true", "'tf32'"),
        ("gemm:m=4096,n=4096,k=4096,batch=1048576", "'m'"),
        ("gemm:m=4,n=4,k=4,bias=4", "'bias'"),
        ("gemm:m=4,n=4,k=4,act=swish", "'act'"),
        ("gemm:m=4,n=4,k=4,join=sub", "'join'"),
        ("gemm:m=4,n=4,k=4,pair=2", "'pair'"),
        ("gemm:m=4,n=4,k=4,scale=columns", "'scale'"),
        ("gemm:m=4,n=4,k=4,scale=one,rms=1e-5", "'scale'"),
        ("gemm:m=4,n=4,k=4,rms=0", "'rms'"),
        ("gemm:m=4,n=4,k=4,rms=nan", "'rms'"),
        ("gemm:m=4,n=4,k=4,a=col,rms=1e-5", "'a'"),
        ("gemm:m=4,n=4,k=4,pair=true,bias=true", "'bias'"),
        ("gemm:m=4,n=4,k=4,pair=true,join=mul", "'join'"),
    ] {
        let error = Gemm::parse(text).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("expected"), "{text}: {error}");
    }
}

#[test]
fn every_field_that_matters_changes_the_key() {
    let key = |text: &str, bucket: &Bucket| Gemm::key(&Gemm::parse(text).unwrap(), bucket, Policy::default());
    let plain = "gemm:m=64,n=64,k=64,dtype=f32";
    for other in [
        "gemm:m=65,n=64,k=64,dtype=f32",
        "gemm:m=64,n=65,k=64,dtype=f32",
        "gemm:m=64,n=64,k=65,dtype=f32",
        "gemm:m=64,n=64,k=64,dtype=f16",
        "gemm:m=64,n=64,k=64,dtype=f32,a=col",
        "gemm:m=64,n=64,k=64,dtype=f32,b=col",
        "gemm:m=64,n=64,k=64,dtype=f32,lda=65",
        "gemm:m=64,n=64,k=64,dtype=f32,ldc=96",
        "gemm:m=64,n=64,k=64,dtype=f32,align=4",
        "gemm:m=64,n=64,k=64,dtype=f32,batch=2",
        "gemm:m=64,n=64,k=64,dtype=f32,tf32=true",
        "gemm:m=64,n=64,k=64,dtype=f32,bias=true",
        "gemm:m=64,n=64,k=64,dtype=f32,act=relu",
        "gemm:m=64,n=64,k=64,dtype=f32,join=add",
        "gemm:m=64,n=64,k=64,dtype=f32,join=mul",
        "gemm:m=64,n=64,k=64,dtype=f32,pair=true",
    ] {
        assert_ne!(key(plain, &Bucket::Exact), key(other, &Bucket::Exact), "{other}");
    }
    assert_eq!(key("gemm:m=63,n=64,k=64", &Bucket::PowerOfTwo), key("gemm:m=60,n=64,k=64", &Bucket::PowerOfTwo));
    assert_ne!(key("gemm:m=1,n=64,k=64", &Bucket::PowerOfTwo), key("gemm:m=2,n=64,k=64", &Bucket::PowerOfTwo));
}

#[test]
fn a_pair_is_two_products_that_read_a_and_write_c_once() {
    let of = |rest: &str| Gemm::parse(&format!("gemm:m=8,n=32,k=16,dtype=f16,batch=3{rest}")).unwrap();
    let work = |rest: &str| of(rest).work();
    let (one, pair) = (work(",act=silu"), work(",act=silu,pair=true"));
    let (elements, factor) = (3.0 * 8.0 * 32.0, 3.0 * 16.0 * 32.0);
    assert_eq!(pair.flops - one.flops, elements * (2.0 * 16.0 + 1.0));
    assert_eq!(pair.bytes - one.bytes, 2.0 * factor);
    let spanned = |rest: &str| Gemm::signature(&of(rest)).slots().iter().map(|s| s.len()).sum::<usize>();
    assert_eq!((spanned(",pair=true") - spanned("")) as f64, factor);
}

proptest::proptest! {
    #[test]
    fn any_legal_problem_reads_back_what_it_prints(
        (m, n, k) in (1u64..3000, 1u64..3000, 1u64..3000),
        pads in proptest::array::uniform3(0u64..70),
        (dtype, a, b, align) in (0usize..3, 0usize..2, 0usize..2, 2u32..7),
        (batch, tf32, bias) in (1u64..5, proptest::bool::ANY, proptest::bool::ANY),
        (act, join, pair) in (0usize..5, 0usize..3, proptest::bool::ANY),
    ) {
        let layout = |i| [Layout::Row, Layout::Col][i];
        let mut p = GemmProblem::new(m, n, k, [DType::F32, DType::F16, DType::Bf16][dtype])
            .with_layouts(layout(a), layout(b))
            .with_epilogue(bias && !pair, Activation::ALL[act])
            .with_join(if pair { Join::None } else { Join::ALL[join] })
            .with_pair(pair);
        p.lda += pads[0];
        p.ldb += pads[1];
        p.ldc += pads[2];
        (p.align, p.batch, p.tf32) = (1 << align, batch, tf32 && p.dtype == DType::F32);
        proptest::prop_assert_eq!(Gemm::parse(&Gemm::text(&p)).unwrap(), p);
        let pow2 = p.representative(&Bucket::PowerOfTwo);
        proptest::prop_assert!(pow2.m >= p.m && pow2.n >= p.n && pow2.k >= p.k);
        proptest::prop_assert_eq!((pow2.kind(), pow2.bias, pow2.act, pow2.join), (p.kind(), p.bias, p.act, p.join));
        proptest::prop_assert_eq!(pow2.pair, p.pair);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "gemm:[mnkabldist=,0-9rowcfp:-]{0,60}") {
        let _ = Gemm::parse(&text);
    }
}
