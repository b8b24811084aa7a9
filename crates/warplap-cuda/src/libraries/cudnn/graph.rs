//! A graph of operations as plain numbers: tensors and the nodes between them. Nothing here needs the library.

use warplap_core::dtype::DType;

/// A tensor of a graph, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DnnTensor(pub usize);

/// Where the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnnPlace {
    /// In the caller's memory, on addresses that are multiples of so many bytes.
    Memory(u64),
    /// Nowhere: it is handed from node to node.
    Inner,
    /// One element that the caller says with each launch: its bits.
    Value(u32),
}

/// What is known of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnnTensorSpec {
    /// Type of its elements.
    pub dtype: DType,
    /// Sizes.
    pub dims: [u64; 4],
    /// Elements from one to the next along each dimension.
    pub strides: [u64; 4],
    /// Where they are.
    pub place: DnnPlace,
}

/// What a node does element by element. Numbers of `cudnnPointwiseMode_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DnnMode {
    /// x + b.
    Add = 0,
    /// x · b.
    Mul = 1,
    /// x / b.
    Div = 6,
    /// x - b.
    Sub = 9,
    /// e to the x.
    Exp = 13,
    /// The natural logarithm of x.
    Log = 15,
    /// The hyperbolic tangent of x.
    Tanh = 101,
    /// Whether x > b.
    Greater = 302,
    /// Whether x >= b.
    AtLeast = 303,
    /// The place along an axis.
    Index = 501,
    /// x where t is true, else b.
    Select = 601,
}

/// How a line becomes one element. Numbers of `cudnnReduceTensorOp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DnnReduction {
    /// The sum.
    Sum = 0,
    /// The largest.
    Max = 3,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnnNode {
    /// c = a · b, matrices of the last two dimensions. Heads of b may serve several of a.
    Matmul([DnnTensor; 3]),
    /// y of x, and of b and t where the mode has them.
    Pointwise {
        /// What is done.
        mode: DnnMode,
        /// x, then b and t.
        from: [Option<DnnTensor>; 3],
        /// What is written.
        y: DnnTensor,
        /// The type it is computed in.
        within: DType,
        /// The axis of [`DnnMode::Index`].
        axis: Option<u64>,
    },
    /// y of the lines of x, along the dimensions in which y has one.
    Reduce {
        /// How.
        mode: DnnReduction,
        /// What is read.
        x: DnnTensor,
        /// What is written.
        y: DnnTensor,
    },
}

/// Tensors and nodes, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnnGraph {
    tensors: Vec<DnnTensorSpec>,
    nodes: Vec<DnnNode>,
}

impl DnnGraph {
    /// All tensors.
    pub fn tensors(&self) -> &[DnnTensorSpec] {
        &self.tensors
    }

    /// All nodes.
    pub fn nodes(&self) -> &[DnnNode] {
        &self.nodes
    }

    /// One tensor.
    pub fn tensor(&self, at: DnnTensor) -> &DnnTensorSpec {
        &self.tensors[at.0]
    }

    /// Adds a tensor.
    pub fn add(&mut self, tensor: DnnTensorSpec) -> DnnTensor {
        self.tensors.push(tensor);
        DnnTensor(self.tensors.len() - 1)
    }

    /// Adds one in the caller's memory. Addresses of a launch come in this order.
    pub fn memory(&mut self, dtype: DType, dims: [u64; 4], strides: [u64; 4], align: u64) -> DnnTensor {
        self.add(DnnTensorSpec { dtype, dims, strides, place: DnnPlace::Memory(align) })
    }

    /// Adds one that is handed from node to node, row-major.
    pub fn inner(&mut self, dtype: DType, dims: [u64; 4]) -> DnnTensor {
        let [_, y, z, w] = dims;
        self.add(DnnTensorSpec { dtype, dims, strides: [y * z * w, z * w, w, 1], place: DnnPlace::Inner })
    }

    /// Adds a number.
    pub fn float(&mut self, value: f32) -> DnnTensor {
        self.value(DType::F32, value.to_bits())
    }

    /// Adds a whole number.
    pub fn whole(&mut self, value: i32) -> DnnTensor {
        self.value(DType::I32, value as u32)
    }

    fn value(&mut self, dtype: DType, bits: u32) -> DnnTensor {
        self.add(DnnTensorSpec { dtype, dims: [1; 4], strides: [1; 4], place: DnnPlace::Value(bits) })
    }

    /// Adds a product of matrices.
    pub fn matmul(&mut self, a: DnnTensor, b: DnnTensor, c: DnnTensor) {
        self.nodes.push(DnnNode::Matmul([a, b, c]));
    }

    /// Adds a node of one operand in f32, and gives what it writes.
    pub fn of(&mut self, mode: DnnMode, x: DnnTensor) -> DnnTensor {
        let y = self.inner(DType::F32, self.tensor(x).dims);
        self.node(mode, [Some(x), None, None], y, DType::F32)
    }

    /// Adds a node of two operands in f32, and gives what it writes.
    pub fn of_two(&mut self, mode: DnnMode, x: DnnTensor, b: DnnTensor) -> DnnTensor {
        self.of_two_in(mode, x, b, DType::F32)
    }

    /// The same computed, and written, in another type.
    pub fn of_two_in(&mut self, mode: DnnMode, x: DnnTensor, b: DnnTensor, within: DType) -> DnnTensor {
        let y = self.inner(within, self.tensor(x).dims);
        self.node(mode, [Some(x), Some(b), None], y, within)
    }

    /// Adds x where t is true, and b elsewhere.
    pub fn select(&mut self, x: DnnTensor, b: DnnTensor, t: DnnTensor) -> DnnTensor {
        let y = self.inner(DType::F32, self.tensor(x).dims);
        self.node(DnnMode::Select, [Some(x), Some(b), Some(t)], y, DType::F32)
    }

    /// Adds places along an axis, shaped like another tensor.
    pub fn index(&mut self, like: DnnTensor, axis: u64) -> DnnTensor {
        let y = self.inner(DType::I32, self.tensor(like).dims);
        let from = [Some(like), None, None];
        self.nodes.push(DnnNode::Pointwise { mode: DnnMode::Index, from, y, within: DType::F32, axis: Some(axis) });
        y
    }

    /// Adds a node that writes a tensor which is there, and gives that.
    pub fn node(&mut self, mode: DnnMode, from: [Option<DnnTensor>; 3], y: DnnTensor, within: DType) -> DnnTensor {
        self.nodes.push(DnnNode::Pointwise { mode, from, y, within, axis: None });
        y
    }

    /// Adds lines that become one element each, and gives what is written.
    pub fn reduce(&mut self, mode: DnnReduction, x: DnnTensor) -> DnnTensor {
        let [batch, head, rows, _] = self.tensor(x).dims;
        let y = self.inner(DType::F32, [batch, head, rows, 1]);
        self.nodes.push(DnnNode::Reduce { mode, x, y });
        y
    }

    /// What a plan depends on, as text: everything but the numbers that are said with each launch.
    pub(super) fn text(&self) -> String {
        let mut plain = self.clone();
        for tensor in &mut plain.tensors {
            if matches!(tensor.place, DnnPlace::Value(_)) {
                tensor.place = DnnPlace::Value(0);
            }
        }
        format!("{plain:?}")
    }
}

/// Numbers of `cudnnDataType_t`.
pub(super) fn code(dtype: DType) -> Option<i32> {
    match dtype {
        DType::F32 => Some(0),
        DType::F16 => Some(2),
        DType::I32 => Some(4),
        DType::Bf16 => Some(9),
        DType::Bool => Some(11),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_nodes_are_shaped_like_their_operands_and_rows_become_one() {
        let mut graph = DnnGraph::default();
        let x = graph.memory(DType::Bf16, [2, 3, 4, 5], [60, 20, 5, 1], 16);
        let scale = graph.float(0.5);
        let y = graph.of_two(DnnMode::Mul, x, scale);
        let most = graph.reduce(DnnReduction::Max, y);
        let place = graph.index(y, 2);
        assert_eq!((graph.tensor(y).dims, graph.tensor(y).strides), ([2, 3, 4, 5], [60, 20, 5, 1]));
        assert_eq!((graph.tensor(most).dims, graph.tensor(most).strides), ([2, 3, 4, 1], [12, 4, 1, 1]));
        assert_eq!((graph.tensor(place).dtype, graph.nodes().len()), (DType::I32, 3));
    }

    #[test]
    fn a_plan_does_not_depend_on_the_numbers_that_come_with_a_launch() {
        let text = |scale: f32, width: u64| {
            let mut graph = DnnGraph::default();
            let (x, scale) = (graph.inner(DType::F32, [1, 1, 1, width]), graph.float(scale));
            graph.of_two(DnnMode::Mul, x, scale);
            graph.text()
        };
        assert_eq!(text(0.5, 8), text(2.0, 8));
        assert_ne!(text(0.5, 8), text(0.5, 16));
    }
}
