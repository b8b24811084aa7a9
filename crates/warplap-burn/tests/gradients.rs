//! Gradients through Burn's autodiff, against Burn's own dense operations and against finite differences in f64.
//! About 10 s.

mod common;

use burn::module::Param;
use burn::tensor::module::attention as burns_attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{DType, Device, FloatDType, Tensor, activation};
use common::{distance, drawn, mask, values, without_races};
use warplap_burn::{
    Activation, AttentionOptions, BsrTensor, NormKind, NormOptions, SparseLinearConfig, attention, linear, matmul,
    norm, norm_residual,
};

/// What is allowed between two gradients.
const NEAR: f64 = 1e-4;

fn tracked<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
    drawn(shape, seed, &Device::flex().autodiff()).require_grad()
}

/// A loss that weighs every element differently.
fn loss<const D: usize>(y: Tensor<D>) -> Tensor<1> {
    let weights = drawn(y.dims(), 99, &y.device());
    (y * weights).sum()
}

/// The gradients of a loss by two tensors.
fn grads<const A: usize, const B: usize>(loss: &Tensor<1>, a: &Tensor<A>, b: &Tensor<B>) -> (Tensor<A>, Tensor<B>) {
    let got = loss.backward();
    (a.grad(&got).unwrap(), b.grad(&got).unwrap())
}

#[test]
fn products_of_every_kind_have_burns_gradients() {
    without_races();
    // Plain, a batch, and one matrix for a batch.
    for (left, right) in [([1, 24, 40], [1, 40, 16]), ([3, 24, 40], [3, 40, 16]), ([3, 24, 40], [1, 40, 16])] {
        let (a, b) = (tracked(left, 1), tracked(right, 2));
        let (ours, burns) = (matmul(a.clone(), b.clone()), a.clone().matmul(b.clone()));
        assert!(distance(ours.clone().inner(), burns.clone().inner()) < NEAR, "{left:?} {right:?}");
        let (got, right_ones) = (grads(&loss(ours), &a, &b), grads(&loss(burns), &a, &b));
        assert!(distance(got.0, right_ones.0) < NEAR, "{left:?} {right:?}: a");
        assert!(distance(got.1, right_ones.1) < NEAR, "{left:?} {right:?}: b");
    }
    // Of a batch of left matrices that is broadcast.
    let (a, b) = (tracked([1, 8, 16], 1), tracked([4, 16, 8], 2));
    let got = grads(&loss(matmul(a.clone(), b.clone())), &a, &b);
    let right = grads(&loss(a.clone().matmul(b.clone())), &a, &b);
    assert!(distance(got.0, right.0) < NEAR && distance(got.1, right.1) < NEAR);
}

#[test]
fn a_transposed_factor_and_a_strided_one_have_the_same_gradients() {
    without_races();
    let (a, b) = (tracked([40, 24], 1), tracked([32, 40], 2));
    let of = |product: fn(Tensor<2>, Tensor<2>) -> Tensor<2>| {
        let c = product(a.clone().transpose(), b.clone().transpose().slice([0..40, 0..16]));
        (c.clone().inner(), grads(&loss(c), &a, &b))
    };
    let (got, right) = (of(matmul), of(|a, b| a.matmul(b)));
    assert!(distance(got.0, right.0) < NEAR);
    assert!(distance(got.1.0, right.1.0) < NEAR && distance(got.1.1, right.1.1) < NEAR);
}

#[test]
fn a_layer_with_each_activation_has_burns_gradients() {
    without_races();
    let silu = |z: Tensor<3>| activation::silu(z);
    let tanh = |z: Tensor<3>| {
        let inner = (z.clone() + z.clone().powf_scalar(3.0) * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
        z * 0.5 * (inner.tanh() + 1.0)
    };
    type Applied = fn(Tensor<3>) -> Tensor<3>;
    let all: [(Activation, Applied); 7] = [
        (Activation::None, |z| z),
        (Activation::Relu, activation::relu),
        (Activation::Gelu, activation::gelu),
        (Activation::GeluTanh, tanh),
        (Activation::Silu, silu),
        (Activation::Tanh, activation::tanh),
        (Activation::Sigmoid, activation::sigmoid),
    ];
    for (act, burns) in all {
        let (x, w, bias) = (tracked([2, 12, 40], 3), tracked([40, 24], 4), tracked([24], 5));
        let ours = linear(x.clone(), w.clone(), Some(bias.clone()), act);
        let dense = burns(x.clone().matmul(w.clone().unsqueeze()) + bias.clone().unsqueeze());
        assert!(distance(ours.clone().inner(), dense.clone().inner()) < NEAR, "{act:?}");
        let (got, right) = (loss(ours).backward(), loss(dense).backward());
        assert!(distance(x.grad(&got).unwrap(), x.grad(&right).unwrap()) < NEAR, "{act:?}: x");
        assert!(distance(w.grad(&got).unwrap(), w.grad(&right).unwrap()) < NEAR, "{act:?}: weight");
        assert!(distance(bias.grad(&got).unwrap(), bias.grad(&right).unwrap()) < NEAR, "{act:?}: bias");
    }
}

#[test]
fn a_block_sparse_product_has_the_gradients_of_the_dense_one_with_the_same_mask() {
    without_races();
    let device = Device::flex().autodiff();
    let chosen = mask([4, 6], 3, 8, &device);
    for turned in [false, true] {
        let dense = tracked([64, 96], 6);
        let b = tracked([if turned { 64 } else { 96 }, 10], 7);
        let bsr = BsrTensor::from_dense(dense.clone(), chosen.clone(), 16);
        let bsr = if turned { bsr.transpose() } else { bsr };
        let masked = masked(dense.clone(), &bsr, turned);
        let ours = bsr.matmul(b.clone());
        let right = if turned { masked.transpose() } else { masked }.matmul(b.clone());
        assert!(distance(ours.clone().inner(), right.clone().inner()) < NEAR, "turned={turned}");
        let (got, right) = (grads(&loss(ours), &dense, &b), grads(&loss(right), &dense, &b));
        assert!(distance(got.0, right.0) < NEAR, "turned={turned}: blocks");
        assert!(distance(got.1, right.1) < NEAR, "turned={turned}: b");
    }
}

/// A dense matrix with zeros where a block-sparse one stores nothing.
fn masked(dense: Tensor<2>, bsr: &BsrTensor, turned: bool) -> Tensor<2> {
    let stored = BsrTensor::from_parts(
        if turned { [bsr.dims()[1], bsr.dims()[0]] } else { bsr.dims() },
        bsr.row_ptr().to_vec(),
        bsr.col_idx().to_vec(),
        bsr.values().clone().detach().ones_like(),
    );
    dense * stored.unwrap().to_dense()
}

#[test]
fn a_sparse_layer_has_the_gradients_of_the_dense_layer_with_the_same_mask() {
    without_races();
    let device = Device::flex().autodiff();
    let layer = SparseLinearConfig::new(96, 64).with_block(16).with_density(0.4).init(&device);
    let x = tracked([5, 7, 96], 10);
    let y = layer.forward(x.clone());
    let weight = layer.weight().unwrap().to_dense().transpose();
    let dense = x.clone().matmul(weight.unsqueeze()) + layer.bias.as_ref().unwrap().val().unsqueeze();
    assert!(distance(y.clone().inner(), dense.clone().inner()) < NEAR);
    let (got, right) = (loss(y).backward(), loss(dense).backward());
    let pair = |of: &dyn Fn(&burn::tensor::Gradients) -> Vec<f64>| (of(&got), of(&right));
    let blocks = pair(&|g| values(layer.values.val().grad(g).unwrap()));
    let bias = pair(&|g| values(layer.bias.as_ref().map(Param::val).unwrap().grad(g).unwrap()));
    let input = pair(&|g| values(x.grad(g).unwrap()));
    for (name, (got, right)) in [("blocks", blocks), ("bias", bias), ("x", input)] {
        let largest = right.iter().fold(0f64, |m, v| m.max(v.abs()));
        let worst = got.iter().zip(&right).fold(0f64, |m, (f, r)| m.max((f - r).abs()));
        assert!(worst <= NEAR * largest, "{name}: {worst} of {largest}");
    }
}

#[test]
fn the_slope_of_a_sparse_layer_is_that_of_finite_differences() {
    without_races();
    let device = Device::flex().autodiff();
    let layer = SparseLinearConfig::new(64, 48).with_block(16).with_density(0.5).init(&device);
    let x = tracked([6, 64], 11);
    let y = layer.forward(x.clone());
    let got = (y.clone() * y).sum().backward();
    // The same layer, dense and in f64, where differences are exact to eight digits.
    let f64s = |t: Tensor<2>| t.detach().inner().cast(FloatDType::F64);
    let weight = f64s(layer.weight().unwrap().to_dense());
    let bias = f64s(layer.bias.as_ref().unwrap().val().unsqueeze());
    let input = f64s(x.clone());
    let squares = |w: Tensor<2>, x: Tensor<2>| {
        let y = x.matmul(w.transpose()) + bias.clone();
        values((y.clone() * y).sum())[0]
    };
    let step = 1e-5;
    // By every tenth element of x.
    let slopes = values(x.grad(&got).unwrap());
    let largest = slopes.iter().fold(0f64, |m, v| m.max(v.abs()));
    for i in (0..slopes.len()).step_by(10) {
        let moved = |by: f64| {
            let at = Tensor::<2>::zeros([6, 64], (&Device::flex(), DType::F64));
            let one = Tensor::<2>::from_data([[by]], (&Device::flex(), DType::F64));
            squares(weight.clone(), input.clone() + at.slice_assign([i / 64..i / 64 + 1, i % 64..i % 64 + 1], one))
        };
        let difference = (moved(step) - moved(-step)) / (2.0 * step);
        assert!((slopes[i] - difference).abs() <= NEAR * largest, "x[{i}]: {} is not {difference}", slopes[i]);
    }
    // By some elements of the first stored block of each block row.
    let slopes = values(layer.values.val().grad(&got).unwrap());
    let largest = slopes.iter().fold(0f64, |m, v| m.max(v.abs()));
    let bsr = layer.weight().unwrap();
    for (row, ends) in bsr.row_ptr().windows(2).enumerate() {
        let (stored, column) = (ends[0] as usize, bsr.col_idx()[ends[0] as usize] as usize);
        for (r, c) in [(0, 0), (3, 7), (15, 15)] {
            let moved = |by: f64| {
                let (i, j) = (row * 16 + r, column * 16 + c);
                let at = Tensor::<2>::zeros([48, 64], (&Device::flex(), DType::F64));
                let one = Tensor::<2>::from_data([[by]], (&Device::flex(), DType::F64));
                squares(weight.clone() + at.slice_assign([i..i + 1, j..j + 1], one), input.clone())
            };
            let (difference, got) = ((moved(step) - moved(-step)) / (2.0 * step), slopes[(stored * 16 + r) * 16 + c]);
            assert!((got - difference).abs() <= NEAR * largest, "block {stored} ({r}, {c}): {got}, {difference}");
        }
    }
}

#[test]
fn attention_has_burns_gradients_with_masks_and_causal_and_in_either_order() {
    without_races();
    let device = Device::flex().autodiff();
    for (causal, masked, swapped, keys) in [
        (false, false, false, 20),
        (true, false, false, 20),
        (false, true, false, 33),
        (true, false, true, 20),
        (true, true, false, 33),
    ] {
        let sizes = |rows: usize| if swapped { [2, rows, 3, 16] } else { [2, 3, rows, 16] };
        let (q, k, v) = (tracked(sizes(20), 21), tracked(sizes(keys), 22), tracked(sizes(keys), 23));
        let seen = |t: &Tensor<4>| if swapped { t.clone().swap_dims(1, 2) } else { t.clone() };
        let added = masked.then(|| drawn([20, keys], 24, &device));
        let options = AttentionOptions { scale: Some(0.3), causal, mask: added.clone() };
        let ours = attention(seen(&q), seen(&k), seen(&v), options);
        let options = AttentionModuleOptions { scale: Some(0.3), softcap: None, is_causal: causal };
        let added = added.map(|m| m.unsqueeze::<4>().expand([2, 3, 20, keys]));
        let burns = burns_attention(seen(&q), seen(&k), seen(&v), None, added, options);
        let case = format!("causal={causal} masked={masked} swapped={swapped} keys={keys}");
        assert!(distance(ours.clone().inner(), burns.clone().inner()) < NEAR, "{case}");
        let (got, right) = (loss(ours).backward(), loss(burns).backward());
        for (name, tensor) in [("q", &q), ("k", &k), ("v", &v)] {
            let off = distance(tensor.grad(&got).unwrap(), tensor.grad(&right).unwrap());
            assert!(off < NEAR, "{case}: {name} is off by {off}");
        }
    }
}

#[test]
fn grouped_heads_sum_the_gradients_of_their_queries() {
    without_races();
    let (q, k, v) = (tracked([2, 6, 18, 16], 31), tracked([2, 2, 18, 16], 32), tracked([2, 2, 18, 8], 33));
    let ours = attention(q.clone(), k.clone(), v.clone(), AttentionOptions { causal: true, ..Default::default() });
    let wide = |t: &Tensor<4>| {
        let [b, h, s, d] = t.dims();
        t.clone().reshape([b, h, 1, s * d]).expand([b, h, 3, s * d]).reshape([b, h * 3, s, d])
    };
    let options = AttentionModuleOptions { scale: None, softcap: None, is_causal: true };
    let burns = burns_attention(q.clone(), wide(&k), wide(&v), None, None, options);
    assert!(distance(ours.clone().inner(), burns.clone().inner()) < NEAR);
    let (got, right) = (loss(ours).backward(), loss(burns).backward());
    for (name, tensor) in [("q", &q), ("k", &k), ("v", &v)] {
        assert!(distance(tensor.grad(&got).unwrap(), tensor.grad(&right).unwrap()) < NEAR, "{name}");
    }
}

#[test]
fn norms_have_the_gradients_of_their_formula_and_both_outputs_of_a_residual_flow_back() {
    without_races();
    for kind in [NormKind::Rms, NormKind::Layer] {
        let (x, residual) = (tracked([3, 4, 40], 41), tracked([3, 4, 40], 42));
        let (weight, bias) = (tracked([40], 43), tracked([40], 44));
        let options =
            NormOptions { kind, weight: Some(weight.clone()), bias: Some(bias.clone()), ..NormOptions::default() };
        let formula = |s: Tensor<3>| {
            let s = if kind == NormKind::Layer { s.clone() - s.mean_dim(2) } else { s };
            let root = (s.clone() * s.clone()).mean_dim(2).add_scalar(1e-5).sqrt();
            s / root * weight.clone().unsqueeze() + bias.clone().unsqueeze()
        };
        let (y, sum) = norm_residual(x.clone(), residual.clone(), options.clone());
        let right_sum = x.clone() + residual.clone();
        let right = formula(right_sum.clone());
        assert!(distance(y.clone().inner(), right.clone().inner()) < NEAR, "{kind:?}");
        assert!(distance(sum.clone().inner(), right_sum.clone().inner()) < NEAR, "{kind:?}");
        let got = (loss(y) + loss(sum * 2.0)).backward();
        let right = (loss(right) + loss(right_sum * 2.0)).backward();
        for (name, t) in [("x", &x), ("residual", &residual)] {
            assert!(distance(t.grad(&got).unwrap(), t.grad(&right).unwrap()) < NEAR, "{kind:?}: {name}");
        }
        for (name, t) in [("weight", &weight), ("bias", &bias)] {
            assert!(distance(t.grad(&got).unwrap(), t.grad(&right).unwrap()) < NEAR, "{kind:?}: {name}");
        }
        let plain = norm(x.clone(), options);
        let (got, right) = (loss(plain).backward(), loss(formula(x.clone())).backward());
        assert!(distance(x.grad(&got).unwrap(), x.grad(&right).unwrap()) < NEAR, "{kind:?}: without a residual");
    }
}
