//! Edge problems of `gemm`: every variant is held to the right answer on them, and the device's right answer to the
//! host's.

/// Where kernels break: sizes of one, sizes that no vector divides, every type and layout.
pub(super) fn problems() -> Vec<String> {
    let mut problems = Vec::new();
    for dtype in ["f32", "f16", "bf16"] {
        for shape in
            ["m=1,n=1,k=1", "m=1,n=37,k=19", "m=29,n=1,k=33", "m=7,n=13,k=5", "m=64,n=64,k=64", "m=65,n=97,k=130"]
        {
            for layout in ["", ",a=col", ",b=col", ",a=col,b=col"] {
                problems.push(format!("gemm:{shape},dtype={dtype}{layout}"));
            }
        }
        problems.push(format!("gemm:m=33,n=40,k=70,dtype={dtype},lda=77,ldb=48,ldc=43,align=4"));
        problems.push(format!("gemm:m=3,n=300,k=520,dtype={dtype}"));
        problems.push(format!("gemm:m=260,n=5,k=1030,dtype={dtype}"));
        // Several blocks of k and of rows, with tails in each direction.
        problems.push(format!("gemm:m=131,n=83,k=1100,dtype={dtype},b=col"));
        problems.push(format!("gemm:m=300,n=70,k=650,dtype={dtype},a=col,ldc=75"));
        for layout in ["", ",b=col"] {
            problems.push(format!("gemm:m=1,n=530,k=300,dtype={dtype}{layout}"));
            problems.push(format!("gemm:m=14,n=100,k=45,dtype={dtype}{layout}"));
        }
        for layout in ["", ",a=col"] {
            problems.push(format!("gemm:m=400,n=1,k=270,dtype={dtype}{layout},ldc=3"));
            problems.push(format!("gemm:m=90,n=9,k=333,dtype={dtype}{layout}"));
        }
    }
    for layout in ["", ",a=col", ",b=col"] {
        problems.push(format!("gemm:m=5,n=9,k=17,dtype=f32,batch=3{layout}"));
        problems.push(format!("gemm:m=33,n=40,k=70,dtype=bf16,lda=77,ldb=88,ldc=43,align=4,batch=2{layout}"));
        problems.push(format!("gemm:m=1,n=70,k=65,dtype=f16,batch=4{layout}"));
    }
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true".into());
    for dtype in ["f32", "f16", "bf16"] {
        // Every activation with and without a bias; then, in turn, every shape that some variant is made for.
        for act in ["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"] {
            problems
                .push(format!("gemm:m=33,n=40,k=70,dtype={dtype},lda=77,ldb=48,ldc=43,align=4,bias=true,act={act}"));
            problems.push(format!("gemm:m=20,n=37,k=24,dtype={dtype},act={act}"));
        }
        let shapes = [
            "m=1,n=1,k=1",
            "m=1,n=530,k=300",
            "m=1,n=530,k=300,b=col",
            "m=400,n=1,k=270,ldc=3",
            "m=400,n=1,k=270,a=col",
            "m=3,n=300,k=520",
            "m=14,n=100,k=45,b=col",
            "m=260,n=5,k=1030",
            "m=90,n=9,k=333",
            "m=131,n=83,k=1100,b=col",
            "m=300,n=70,k=650,a=col,ldc=75",
            "m=5,n=19,k=17,batch=3,a=col",
            "m=20,n=2100,k=40",
        ];
        let finishes = ["bias=true", "bias=true,act=gelu", "bias=true,act=silu"];
        let joins = ["join=add", "bias=true,act=silu,join=mul"];
        let pairs = ["pair=true,act=silu", "pair=true", "pair=true,act=gelu"];
        let scales = ["rms=1e-5", "scale=rows,bias=true", "rms=1e-3,pair=true,act=silu", "scale=one,act=gelu,join=add"];
        for (i, shape) in shapes.iter().enumerate() {
            problems.push(format!("gemm:{shape},dtype={dtype},{}", finishes[i % 3]));
            problems.push(format!("gemm:{shape},dtype={dtype},{}", joins[i % 2]));
            problems.push(format!("gemm:{shape},dtype={dtype},{}", pairs[i % 3]));
            let scale = scales[if shape.contains("a=col") { 1 + i % 2 * 2 } else { i % 4 }];
            problems.push(format!("gemm:{shape},dtype={dtype},{scale}"));
        }
    }
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true,bias=true,act=gelu_tanh".into());
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true,pair=true,act=gelu_tanh".into());
    problems.push("gemm:m=9,n=40,k=70,dtype=bf16,lda=77,ldb=88,ldc=43,align=4,batch=2,b=col,pair=true,act=silu".into());
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true,rms=1e-5,bias=true".into());
    problems.push("gemm:m=9,n=40,k=70,dtype=bf16,lda=77,ldb=88,ldc=43,align=4,batch=2,b=col,rms=1e-5,join=add".into());
    problems
        .push("gemm:m=9,n=40,k=70,dtype=f16,lda=77,ldb=88,ldc=43,align=4,batch=2,b=col,scale=rows,pair=true".into());
    // More columns than one block of packed B holds.
    problems.push("gemm:m=20,n=2100,k=40,dtype=f32".into());
    problems.push("gemm:m=20,n=2100,k=40,dtype=bf16".into());
    problems
}

/// What the device's right answer is held to the host's on.
pub(super) const PROOFS: &[&str] = &[
    "gemm:m=64,n=64,k=64,dtype=bf16",
    "gemm:m=70,n=65,k=130,dtype=bf16,batch=2,rms=1e-5,bias=true",
    "gemm:m=70,n=130,k=33,dtype=f16,b=col,rms=1e-3,act=silu,pair=true",
    "gemm:m=70,n=65,k=130,dtype=f32,batch=2,scale=rows,join=mul",
    "gemm:m=70,n=65,k=130,dtype=f16,scale=one,act=gelu",
    "gemm:m=1,n=1,k=1,dtype=f16",
    "gemm:m=777,n=333,k=555,dtype=bf16",
    "gemm:m=129,n=65,k=17,dtype=f16,a=col",
    "gemm:m=65,n=130,k=33,dtype=bf16,b=col",
    "gemm:m=100,n=70,k=51,dtype=f32,a=col,b=col",
    "gemm:m=50,n=60,k=70,dtype=f16,lda=72,ldb=64,ldc=67",
    "gemm:m=50,n=60,k=70,dtype=f32,a=col,b=col,lda=56,ldb=71,ldc=61,batch=3",
    "gemm:m=33,n=31,k=29,dtype=bf16,batch=5",
    "gemm:m=1,n=500,k=300,dtype=f16,ldc=512",
    "gemm:m=512,n=256,k=1024,dtype=f32,tf32=true",
    "gemm:m=2048,n=2048,k=2048,dtype=bf16",
    "gemm:m=77,n=131,k=35,dtype=f16,ldc=140,batch=2,bias=true",
    "gemm:m=77,n=131,k=35,dtype=f32,bias=true,act=gelu",
    "gemm:m=200,n=328,k=72,dtype=bf16,b=col,bias=true,act=gelu_tanh",
    "gemm:m=200,n=328,k=72,dtype=f32,tf32=true,act=silu",
    "gemm:m=77,n=131,k=35,dtype=f32,act=tanh",
    "gemm:m=77,n=131,k=35,dtype=bf16,bias=true,act=sigmoid",
];
