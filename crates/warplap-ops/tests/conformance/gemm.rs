//! Dense products.

use warplap_core::dtype::DType;
use warplap_core::variant::Fit;
use warplap_cpu::Cpu;
use warplap_ops::gemm::GemmProblem;

use crate::installed;

/// Sees to it that a BLAS library races: the one that `WARPLAP_BLAS` names, or NumPy's.
pub(crate) fn with_a_library() {
    if std::env::var_os("WARPLAP_BLAS").is_none() && cfg!(target_os = "linux") {
        let [numpy, _] = installed::libraries().expect("nobody said off");
        // SAFETY: what reads the environment here goes through std, or comes later on this thread.
        unsafe { std::env::set_var("WARPLAP_BLAS", numpy) };
    }
    let (catalog, cpu) = (warplap_ops::gemm::cpu::catalog(), Cpu::new());
    let blas = catalog.find("blas").expect("it is listed");
    let wanted = cfg!(target_os = "linux") && std::env::var_os("WARPLAP_BLAS").is_some_and(|v| v != "off");
    let fit = blas.fit(&GemmProblem::new(64, 64, 64, DType::F32), &cpu);
    assert!(fit == Fit::HIGH || !wanted, "{fit:?}");
}

/// The edge problems.
pub(crate) fn problems() -> Vec<String> {
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
        for (i, shape) in shapes.iter().enumerate() {
            problems.push(format!("gemm:{shape},dtype={dtype},{}", finishes[i % 3]));
            problems.push(format!("gemm:{shape},dtype={dtype},{}", joins[i % 2]));
            problems.push(format!("gemm:{shape},dtype={dtype},{}", pairs[i % 3]));
        }
    }
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true,bias=true,act=gelu_tanh".into());
    problems.push("gemm:m=65,n=97,k=130,dtype=f32,tf32=true,pair=true,act=gelu_tanh".into());
    problems.push("gemm:m=9,n=40,k=70,dtype=bf16,lda=77,ldb=88,ldc=43,align=4,batch=2,b=col,pair=true,act=silu".into());
    // More columns than one block of packed B holds.
    problems.push("gemm:m=20,n=2100,k=40,dtype=f32".into());
    problems.push("gemm:m=20,n=2100,k=40,dtype=bf16".into());
    problems
}
