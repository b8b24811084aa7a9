//! Edge problems of `norm`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for kind in ["rms", "layer"] {
            for shape in [
                "rows=1,n=1",
                "rows=3,n=2",
                "rows=7,n=13",
                "rows=5,n=64",
                "rows=33,n=77",
                "rows=1,n=4096",
                "rows=300,n=129",
                "rows=2,n=10007",
            ] {
                for rest in ["", ",residual=true", ",weight=false", ",residual=true,bias=true,eps=1e-6"] {
                    problems.push(format!("norm:{shape},dtype={dtype},kind={kind}{rest}"));
                }
            }
            problems.push(format!("norm:rows=2,n=70000,dtype={dtype},kind={kind},weight=false,bias=true"));
            for shape in ["rows=3,n=2", "rows=33,n=77", "rows=40,n=1024"] {
                for rest in ["before=true", "dropout=0.3", "residual=true,before=true,dropout=0.1,sum=false"] {
                    problems.push(format!("norm:{shape},dtype={dtype},kind={kind},{rest}"));
                }
            }
            for quant in ["f8e4m3", "i8"] {
                for shape in ["rows=1,n=1", "rows=3,n=2", "rows=33,n=77", "rows=40,n=1024", "rows=2,n=10007"] {
                    for rest in ["", ",residual=true", ",weight=false,bias=true"] {
                        problems.push(format!("norm:{shape},dtype={dtype},kind={kind}{rest},quant={quant}"));
                    }
                }
                let front = "residual=true,bias=true,before=true,dropout=0.1,sum=false";
                problems.push(format!("norm:rows=20,n=300,dtype={dtype},kind={kind},{front},quant={quant}"));
            }
            problems.push(format!("norm:rows=9,n=100,dtype={dtype},kind={kind},residual=true,eps=0.5"));
        }
    }
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "norm:rows=1,n=1,dtype=f32",
    "norm:rows=13,n=77,dtype=f16",
    "norm:rows=64,n=4096,dtype=bf16,residual=true",
    "norm:rows=100,n=768,dtype=f32,kind=layer,bias=true",
    "norm:rows=31,n=1000,dtype=f16,kind=layer,residual=true,bias=true,eps=0.001",
    "norm:rows=5,n=300,dtype=bf16,weight=false,bias=true",
    "norm:rows=9,n=257,dtype=f32,kind=layer,weight=false",
    "norm:rows=9,n=257,dtype=f16,kind=layer,before=true,dropout=0.3",
    "norm:rows=100,n=768,dtype=bf16,residual=true,before=true,dropout=0.1",
    "norm:rows=4096,n=4096,dtype=bf16,kind=layer,residual=true,bias=true",
    "norm:rows=31,n=1000,dtype=bf16,residual=true,quant=f8e4m3",
    "norm:rows=100,n=768,dtype=f16,kind=layer,bias=true,quant=i8",
    "norm:rows=9,n=257,dtype=f32,residual=true,before=true,dropout=0.2,quant=i8",
];
