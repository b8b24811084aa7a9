//! The logarithm of the sum of a row's exponentials, which attention's backward pass starts from: queries and keys come
//! in, one number a query goes out, in f32.
//!
//! The library's attention does not give it yet, so it is computed here with Burn's own operations, some rows at a time:
//! the scores of all rows are never in memory at once.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, FloatDType, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, Shape, Slice};

/// Scores that are held at once.
const SCORES: usize = 1 << 22;

/// The least finite f32: what hides a whole row leaves exp(-inf - this) = 0, not exp(-inf + inf).
const LEAST: f32 = f32::MIN;

/// Log-sum-exps `[batch, heads, queries]` of `scale · Q·Kᵀ + mask`; -inf where a query sees nothing.
pub(crate) fn log_sum_exp<B: Backend>(
    [q, k]: [&FloatTensor<B>; 2],
    mask: Option<FloatTensor<B>>,
    scale: Option<f64>,
    causal: bool,
) -> FloatTensor<B> {
    let ([b, h, sq, d], [_, hkv, sk, _]) = (q.shape().dims::<4>(), k.shape().dims::<4>());
    let scale = scale.unwrap_or_else(|| 1.0 / (d as f64).sqrt());
    let (q, k) = (single::<B>(q.clone()), single::<B>(k.clone()));
    let mask = mask.map(single::<B>);
    let group = h / hkv;
    let step = (SCORES / (b * h * sk).max(1)).clamp(1, sq);
    let mut parts = Vec::new();
    for first in (0..sq).step_by(step) {
        let last = (first + step).min(sq);
        let rows = last - first;
        // Keys behind the last of these rows are seen by none of them.
        let keys = if causal { last.min(sk) } else { sk };
        let some = B::float_slice(q.clone(), &cut(&[b, h, rows, d], 2, first));
        let some = B::float_reshape(some, Shape::new([b * hkv, group * rows, d]));
        let seen = B::float_slice(k.clone(), &cut(&[b, hkv, keys, d], 2, 0));
        let seen = B::float_swap_dims(B::float_reshape(seen, Shape::new([b * hkv, keys, d])), 1, 2);
        let scores = B::float_mul_scalar(B::float_matmul(some, seen), scale.into());
        let mut scores = B::float_reshape(scores, Shape::new([b * h, rows, keys]));
        if let Some(mask) = &mask {
            let part = B::float_slice(mask.clone(), &[line(first, rows), line(0, keys)]);
            scores = B::float_add(scores, B::float_reshape(part, Shape::new([1, rows, keys])));
        }
        if causal {
            let hidden = B::bool_expand(behind::<B>(&scores, first, rows, keys), Shape::new([b * h, rows, keys]));
            scores = B::float_mask_fill(scores, hidden, f32::NEG_INFINITY.into());
        }
        let most = B::float_clamp_min(B::float_max_dim(scores.clone(), 2), LEAST.into());
        let sum = B::float_sum_dim(B::float_exp(B::float_sub(scores, most.clone())), 2);
        let got = B::float_add(B::float_log(sum), most);
        parts.push(B::float_reshape(got, Shape::new([b, h, rows])));
    }
    if parts.len() == 1 { parts.remove(0) } else { B::float_cat(parts, 2) }
}

/// Which keys lie behind the position of a query, `[1, rows, keys]`.
fn behind<B: Backend>(scores: &FloatTensor<B>, first: usize, rows: usize, keys: usize) -> BoolTensor<B> {
    let device = scores.device();
    let settings = get_or_init_device_settings::<B>(&device);
    let count = |from: usize, to: usize| B::int_arange(from as i64..to as i64, &device, settings.int_dtype);
    let positions = B::int_reshape(count(first, first + rows), Shape::new([rows, 1]));
    let keys_at = B::int_reshape(count(0, keys), Shape::new([1, keys]));
    let both = Shape::new([rows, keys]);
    let (positions, keys_at) = (B::int_expand(positions, both.clone()), B::int_expand(keys_at, both));
    B::bool_reshape(B::int_lower(positions, keys_at, settings.bool_dtype), Shape::new([1, rows, keys]))
}

fn single<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    if tensor.dtype() == DType::F32 { tensor } else { B::float_cast(tensor, FloatDType::F32) }
}

fn line(first: usize, len: usize) -> Slice {
    Slice::new(first as isize, Some((first + len) as isize), 1)
}

/// Slices of whole sizes, with one that begins elsewhere.
fn cut(shape: &[usize], at: usize, first: usize) -> Vec<Slice> {
    shape.iter().enumerate().map(|(i, n)| line(if i == at { first } else { 0 }, *n)).collect()
}
