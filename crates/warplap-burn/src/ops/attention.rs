//! Attention: `softmax(scale · Q·Kᵀ + mask) · V`, head by head, with grouped heads of K and V. Tensors that lie as
//! `[batch, heads, rows, width]`, or as `[batch, rows, heads, width]` with the two in the middle swapped, are read as
//! they are.

use burn::backend::ops::AttentionModuleOptions;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use warplap::ops::attention::{Corner, Mask, Order};
use warplap::{Attention, AttentionGrad, AttentionGradProblem, AttentionProblem, DType, Error};

use crate::backends::place::{Place, copied, packed};
use crate::call::{Call, Gradients, Kept, Slope};
use crate::extension::Warplap;
use crate::ops::gemm::row_major;
use crate::tensor::adapter::{Manner, Slotted, launch};
use crate::tensor::tensor_layout::{TensorLayout, wrong};
use crate::tensor::tensor_list::TensorList;
use crate::tensor::tensors::{call, expect};

/// What attention does besides.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// What scores are multiplied with; 1/√width where nothing is said.
    pub scale: Option<f64>,
    /// Whether a query sees no keys behind its own position. Where there are more keys than queries, the last query sees
    /// all of them, as Burn has it.
    pub causal: bool,
    /// What is added to the scaled scores of every batch and head, `[queries, keys]`; -inf hides a key. It is a constant:
    /// no gradient flows into it.
    pub mask: Option<Tensor<2>>,
}

/// Attention of q `[batch, heads, queries, width]` over k `[batch, kv heads, keys, width]` and v `[batch, kv heads,
/// keys, value width]`. The heads of q are a multiple of those of k and v. A query that sees no key gets zeros.
///
/// # Panics
/// Where [`try_attention`] says what is wrong.
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, options: AttentionOptions) -> Tensor<4> {
    expect("attention", try_attention(q, k, v, options))
}

/// As [`attention`]; an error names the argument that does not fit.
pub fn try_attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, options: AttentionOptions) -> Result<Tensor<4>, Error> {
    let ([b, h, sq, d], [kb, hkv, sk, kd], [vb, vh, vs, _]) = (q.dims(), k.dims(), v.dims());
    if kb != b || kd != d {
        return Err(wrong("k", format!("is {:?}, expected batch {b} and width {d} as q has", k.dims())));
    }
    if [vb, vh, vs] != [b, hkv, sk] {
        return Err(wrong("v", format!("is {:?}, expected batch {b}, {hkv} heads and {sk} keys as k has", v.dims())));
    }
    if hkv == 0 || h % hkv != 0 {
        return Err(wrong("k", format!("has {hkv} heads, expected a divisor of the {h} of q")));
    }
    if let Some(got) = options.mask.as_ref().map(|m| m.dims()).filter(|got| *got != [sq, sk]) {
        return Err(wrong("mask", format!("is {got:?}, expected [{sq}, {sk}]")));
    }
    if q.dims().contains(&0) || v.dims().contains(&0) {
        return Err(wrong("q", format!("is {:?} and v {:?}, expected no size of 0", q.dims(), v.dims())));
    }
    let mask = options.mask.map(|mask| mask.cast(q.dtype()));
    let made = AttentionCall { causal: options.causal, scale: options.scale, mask: mask.is_some(), lse: false };
    let mut tensor_list = vec![q.into_dispatch(), k.into_dispatch(), v.into_dispatch()];
    tensor_list.extend(mask.map(Tensor::into_dispatch));
    call(Call::Attention(made), tensor_list).map(Tensor::from_dispatch)
}

/// Attention of three tensors, and a mask as the fourth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionCall {
    causal: bool,
    scale: Option<f64>,
    mask: bool,
    /// Whether the log-sum-exps of the scores come out too, for the backward pass.
    lse: bool,
}

/// Its gradients, from those three or four, the outcome, the log-sum-exps and the gradient of the outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionGradCall(AttentionCall);

/// How tensors lie whose heads and rows are swapped.
const SWAPPED: [usize; 4] = [0, 2, 1, 3];

/// Tensors in one order that kernels read: their own where they share one, else made contiguous.
fn ordered<P: Place>(tensors: Vec<P::Tensor>) -> Result<(Vec<P::Tensor>, Order), Error> {
    let tensor_layout =
        tensors.iter().map(|t| P::layout_of(t, "q, k or v")).collect::<Result<Vec<TensorLayout>, Error>>()?;
    if !tensor_layout.iter().all(TensorLayout::is_packed) && tensor_layout.iter().all(|l| l.is_packed_as(&SWAPPED)) {
        return Ok((tensors, Order::Bshd));
    }
    let plain = |(tensor, tensor_layout): (P::Tensor, &TensorLayout)| {
        if tensor_layout.is_packed() { tensor } else { copied::<P>(tensor) }
    };
    Ok((tensors.into_iter().zip(&tensor_layout).map(plain).collect(), Order::Bhsd))
}

/// The strides of an output in an order.
fn strides(order: Order, shape: &[usize]) -> Vec<isize> {
    match order {
        Order::Bhsd => row_major(shape),
        Order::Bshd => {
            let swapped = row_major(&SWAPPED.map(|i| shape[i]));
            SWAPPED.map(|i| swapped[i]).to_vec()
        }
    }
}

impl AttentionCall {
    fn problem<P: Place>(&self, [q, k, v]: [&P::Tensor; 3], order: Order) -> Result<AttentionProblem, Error> {
        let (on_q, on_k, on_v) = (P::layout_of(q, "q")?, P::layout_of(k, "k")?, P::layout_of(v, "v")?);
        let kind: DType = crate::tensor::dtype::float(crate::tensor::dtype::burns(on_q.dtype)?, "q")?;
        for (name, got) in [("k", on_k.dtype), ("v", on_v.dtype)] {
            if got != kind {
                return Err(wrong(name, format!("holds {got}, expected {kind} as q has: cast one of them")));
            }
        }
        let size = |tensor_layout: &TensorLayout, i: usize| tensor_layout.shape[i] as u64;
        let (b, h, sq, d) = (size(&on_q, 0), size(&on_q, 1), size(&on_q, 2), size(&on_q, 3));
        let mut p = AttentionProblem::new(b, h, sq, size(&on_k, 2), d, kind);
        (p.hkv, p.dv, p.causal, p.layout) = (size(&on_k, 1), size(&on_v, 3), self.causal, order);
        p.mask = if self.mask { Mask::Add } else { Mask::None };
        // Burn counts from the last query and key; where there are as many of both, so does everybody.
        p.corner = if self.causal && p.sq != p.sk { Corner::Bottom } else { Corner::Top };
        Ok(self.scale.map_or(p, |scale| p.with_scale(scale as f32)))
    }

    pub(crate) fn run<P: Place>(&self, mut floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let mask = (floats.len() > 3).then(|| floats.remove(3));
        let mask = mask.map(|mask| packed::<P>(mask, "mask")).transpose()?;
        let (qkv, order) = ordered::<P>(floats)?;
        let [q, k, v] = three(qkv)?;
        let mut p = self.problem::<P>([&q, &k, &v], order)?;
        p.lse = self.lse;
        let shape = [p.b, p.h, p.sq, p.dv].map(|n| n as usize);
        let options = AttentionModuleOptions { scale: Some(f64::from(p.scale())), softcap: None, is_causal: p.causal };
        let (own, own_mask) = ([q.clone(), k.clone(), v.clone()], mask.clone());
        let burns = || vec![P::attend(own.clone(), own_mask.clone(), options)];
        // Burn's own gives no log-sum-exps.
        let manner = Manner { promised: true, burns_own: if self.lse { None } else { Some(&burns) } };
        let tensor_list = vec![Slotted::Tensor(q), Slotted::Tensor(k), Slotted::Tensor(v), mask.into()];
        let out = launch::<P, Attention>(&p, tensor_list, &manner)?;
        let mut out = out.into_iter();
        let seen = out.next().map(|o| P::seen_as(o, &shape, &strides(order, &shape)));
        let sums = out.next().map(|lse| P::seen_as(lse, &shape[..3], &row_major(&shape[..3])));
        Ok(seen.into_iter().chain(sums).collect())
    }

    /// The same, with what the backward pass needs.
    pub(crate) fn tracked(self) -> Self {
        AttentionCall { lse: true, ..self }
    }

    pub(crate) fn backward<B: Warplap>(
        &self,
        kept: Kept<FloatTensor<B>>,
        slope: Slope<'_, FloatTensor<B>>,
    ) -> Gradients<B> {
        let (inputs, mut outputs) = (kept.inputs, kept.outputs.into_iter());
        let (Some(out), Some(lse)) = (outputs.next(), outputs.next()) else { return Ok(Vec::new()) };
        let mut tensor_list = inputs;
        tensor_list.extend([out, lse, slope.grad]);
        let grads = B::warplap(TensorList::new(tensor_list, Vec::new()), Call::AttentionGrad(AttentionGradCall(*self)));
        // The mask has none.
        Ok(grads.outcome()?.floats.into_iter().map(Some).collect())
    }
}

impl AttentionGradCall {
    pub(crate) fn run<P: Place>(&self, mut floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let mask = self.0.mask.then(|| floats.remove(3));
        let mask = mask.map(|mask| packed::<P>(mask, "mask")).transpose()?;
        if floats.len() != 6 {
            return Err(wrong("the arguments", "the gradients of attention take q, k, v, out, lse and grad"));
        }
        let lse = packed::<P>(floats.remove(4), "lse")?;
        let (mut floats, order) = ordered::<P>(floats)?;
        let (grad, out) = (floats.pop(), floats.pop());
        let [q, k, v] = three(floats)?;
        let p = self.0.problem::<P>([&q, &k, &v], order)?;
        let [like_q, like_k, like_v] = [(p.h, p.sq, p.d), (p.hkv, p.sk, p.d), (p.hkv, p.sk, p.dv)]
            .map(|(h, s, d)| [p.b, h, s, d].map(|n| n as usize));
        let tensors = [Some(q), Some(k), Some(v), mask, out, Some(lse), grad];
        let tensor_list = tensors.into_iter().map(Slotted::from).collect();
        let got = launch::<P, AttentionGrad>(&AttentionGradProblem(p), tensor_list, &Manner::PROMISED)?;
        let shapes = [like_q, like_k, like_v];
        Ok(got.into_iter().zip(&shapes).map(|(g, shape)| P::seen_as(g, shape, &strides(order, shape))).collect())
    }
}

fn three<T>(tensors: Vec<T>) -> Result<[T; 3], Error> {
    tensors.try_into().map_err(|_| wrong("the arguments", "attention takes q, k and v"))
}
