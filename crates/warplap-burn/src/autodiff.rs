//! Gradients through Burn's autodiff: a call on tracked tensors comes in; its outputs go out as nodes of Burn's graph,
//! whose backward step is the call's own. One step for every operation, whatever it reads and writes.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use warplap::Error;

use crate::call::{Call, Kept, Slope};
use crate::extension::Warplap;
use crate::tensor::tensor_layout::wrong;
use crate::tensor::tensor_list::TensorList;

impl<B: Warplap, C: CheckpointStrategy> Warplap for Autodiff<B, C> {
    fn warplap(tensor_list: TensorList<Self>, call: Call) -> TensorList<Self> {
        // Burn's steps know the number of their parents when they are compiled.
        TensorList::of(match tensor_list.floats.len() {
            1 => tracked::<B, C, 1>(tensor_list, call),
            2 => tracked::<B, C, 2>(tensor_list, call),
            3 => tracked::<B, C, 3>(tensor_list, call),
            4 => tracked::<B, C, 4>(tensor_list, call),
            many => Err(wrong("the arguments", format!("there are {many} float tensors, expected 1 to 4"))),
        })
    }
}

fn tracked<B: Warplap, C: CheckpointStrategy, const N: usize>(
    tensor_list: TensorList<Autodiff<B, C>>,
    call: Call,
) -> Result<TensorList<Autodiff<B, C>>, Error> {
    let inputs: Vec<FloatTensor<B>> = tensor_list.floats.iter().map(|t| t.primitive().clone()).collect();
    let call = call.tracked();
    let mut outputs = B::warplap(TensorList::new(inputs.clone(), tensor_list.ints), call.clone()).outcome()?.floats;
    if !call.has_gradients() {
        return Ok(TensorList::new(outputs.into_iter().map(FloatTensor::<Autodiff<B, C>>::new).collect(), Vec::new()));
    }
    let kept = if call.keeps_outputs() { outputs.clone() } else { Vec::new() };
    let kept = Kept { inputs: call.kept(inputs), outputs: kept };
    outputs.truncate(call.seen(outputs.len()));
    let node = |(output, tensor): (usize, FloatTensor<B>)| {
        let nodes = std::array::from_fn::<_, N, _>(|i| tensor_list.floats[i].node());
        match (Step { call: call.clone(), output }).prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(kept.clone(), tensor),
            OpsKind::UnTracked(prepared) => prepared.finish(tensor),
        }
    };
    Ok(TensorList::new(outputs.into_iter().enumerate().map(node).collect(), Vec::new()))
}

/// The backward step of one output of a call.
#[derive(Debug)]
struct Step {
    call: Call,
    output: usize,
}

impl<B: Warplap, const N: usize> Backward<B, N> for Step {
    type State = Kept<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let slope = Slope { output: self.output, grad: grads.consume::<B>(&ops.node), wanted: &wanted };
        // Burn's backward passes have no way to fail: what the forward pass took, this one takes too.
        let got = self.call.backward::<B>(ops.state, slope).unwrap_or_else(|e| panic!("backward pass: {e}"));
        for (node, gradient) in ops.parents.into_iter().zip(got) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
