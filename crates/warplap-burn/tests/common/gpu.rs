//! What is held on a GPU: Burn's kernels and ours in turns, and every operation beside the CPU backend.

use burn::tensor::{Device, FloatDType, Tensor};
use warplap_burn::{AttentionOptions, BsrTensor, NormOptions, attention, copies, matmul, norm_residual};

use super::{distance, drawn, mask};

/// A long chain: each step reads what the other side has just queued. A launch that came too early reads what is not
/// there yet, and every later step carries it on.
pub(crate) fn chain(device: &Device, steps: usize) {
    let host = Device::flex();
    let n = 512;
    let (a, x) = (drawn([n, n], 1, &host) * 0.05, drawn([n, n], 2, &host));
    let (on_a, mut on_x) = (a.clone().to_device(device), x.clone().to_device(device));
    let mut right = x;
    let before = copies();
    for step in 0..steps {
        // Ours, then several of Burn's, whose memory comes from what was let go before.
        on_x = matmul(on_a.clone(), on_x) + 0.25;
        on_x = (on_x.clone() * 0.5 + on_x.clone().transpose() * 0.5).clamp(-2.0, 2.0);
        right = a.clone().matmul(right) + 0.25;
        right = (right.clone() * 0.5 + right.clone().transpose() * 0.5).clamp(-2.0, 2.0);
        if step % 20 == 19 {
            let off = distance(on_x.clone().to_device(&host), right.clone());
            assert!(off < 1e-3, "step {step}: off by {off}");
        }
    }
    assert_eq!(copies(), before);
}

/// Every operation and its gradients, beside the CPU backend.
pub(crate) fn everything(device: &Device) {
    let near = |name: &str, on_gpu: Vec<Tensor<1>>, right: Vec<Tensor<1>>| {
        for (i, (got, right)) in on_gpu.into_iter().zip(right).enumerate() {
            let off = distance(got.to_device(&Device::flex()), right);
            assert!(off < 2e-3, "{name}, {i}: off by {off}");
        }
    };
    let flat = |t: Tensor<2>| t.flatten::<1>(0, 1);
    let product = |d: &Device| {
        let (a, b) = (drawn([96, 64], 1, d).require_grad(), drawn([64, 128], 2, d).require_grad());
        let c = matmul(a.clone(), b.clone());
        let grads = (c.clone() * c.clone()).sum().backward();
        vec![flat(c.inner()), flat(a.grad(&grads).unwrap()), flat(b.grad(&grads).unwrap())]
    };
    let (gpu, host) = (device.clone().autodiff(), Device::flex().autodiff());
    near("matmul", product(&gpu), product(&host));
    let sparse = |d: &Device| {
        let dense = drawn([128, 64], 3, d).require_grad();
        let bsr = BsrTensor::from_dense(dense.clone(), mask([4, 2], 2, 4, d), 32);
        let x = drawn([32, 64], 5, d).require_grad();
        let y = bsr.linear(x.clone(), Some(drawn([128], 6, d)));
        let grads = (y.clone() * y.clone()).sum().backward();
        vec![flat(y.inner()), flat(dense.grad(&grads).unwrap()), flat(x.grad(&grads).unwrap())]
    };
    near("block-sparse", sparse(&gpu), sparse(&host));
    let attended = |d: &Device| {
        let q = drawn([1, 2, 64, 64], 7, d).require_grad();
        let (k, v) = (drawn([1, 2, 64, 64], 8, d), drawn([1, 2, 64, 64], 9, d));
        let out = attention(q.clone(), k, v, AttentionOptions { causal: true, ..AttentionOptions::default() });
        let grads = (out.clone() * out.clone()).sum().backward();
        vec![out.inner().flatten(0, 3), q.grad(&grads).unwrap().flatten(0, 3)]
    };
    near("attention", attended(&gpu), attended(&host));
    let normed = |d: &Device| {
        let (x, residual) = (drawn([48, 96], 10, d).require_grad(), drawn([48, 96], 11, d));
        let (y, sum) = norm_residual(x.clone(), residual, NormOptions::default());
        let grads = (y.clone() * sum.clone()).sum().backward();
        vec![flat(y.inner()), flat(sum.inner()), flat(x.grad(&grads).unwrap())]
    };
    near("norm", normed(&gpu), normed(&host));
    let half = |d: &Device| {
        let of = |seed| drawn([128, 128], seed, d).cast(FloatDType::F16);
        vec![flat(matmul(of(1), of(2)).cast(FloatDType::F32))]
    };
    near("matmul in f16", half(device), half(&Device::flex()));
}
