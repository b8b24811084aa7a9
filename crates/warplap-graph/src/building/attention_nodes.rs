//! Nodes of heads: attention, and rotary position embedding of one tensor or two at once.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_ops::attention::{AttentionProblem, Order};
use warplap_ops::rope::{Pairs, Positions, RopeProblem};

use crate::builder::{Builder, Facts, same, wrong};
use crate::node::{Tensor, What};
use crate::task::Ground;

/// What heads are turned by ([`Builder::rope`]): cosines and sines, a row a position and a column a pair.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    cos: Tensor,
    sin: Tensor,
    positions: Option<Tensor>,
    bias: Option<Tensor>,
    pairs: Pairs,
    wide: bool,
    plain: u64,
}

impl Turn {
    /// By a table whose c columns turn the first 2c elements of a head, those of the first half with those of the
    /// second (Llama). Row i of what is turned has position i.
    pub fn by(cos: Tensor, sin: Tensor) -> Self {
        Turn { cos, sin, positions: None, bias: None, pairs: Pairs::Halves, wide: false, plain: 0 }
    }

    /// With a position for each row, of 32 or 64 bits.
    pub fn at(self, positions: Tensor) -> Self {
        Turn { positions: Some(positions), ..self }
    }

    /// Two elements that lie side by side are a pair (GPT-J).
    pub fn interleaved(self) -> Self {
        Turn { pairs: Pairs::Interleaved, ..self }
    }

    /// The table has a column for each element, not one for each pair.
    pub fn wide(self) -> Self {
        Turn { wide: true, ..self }
    }

    /// So many heads at the end are not turned: the values of a fused projection.
    pub fn leaving(self, plain: u64) -> Self {
        Turn { plain, ..self }
    }

    /// With a bias in front, a number for each column of all heads, which those that are not turned get too.
    pub fn biased(self, bias: Tensor) -> Self {
        Turn { bias: Some(bias), ..self }
    }
}

impl<D: Ground> Builder<D> {
    /// softmax(q·kᵀ / √d) · v, head by head: q is `[batch, heads, queries, d]`, k and v `[batch, heads, keys, d]` with
    /// as many heads as q or a divisor of that. `causal`: query i sees keys 0 … i.
    pub fn attention(&mut self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Result<Tensor, Error> {
        self.attended(q, k, v, causal, Order::Bhsd)
    }

    /// The same of q as `[batch, queries, heads, d]` and k and v as `[batch, keys, heads, d]`: as projections give it
    /// and [`Builder::rope`] takes it.
    pub fn attention_by_rows(&mut self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Result<Tensor, Error> {
        self.attended(q, k, v, causal, Order::Bshd)
    }

    fn attended(&mut self, q: Tensor, k: Tensor, v: Tensor, causal: bool, layout: Order) -> Result<Tensor, Error> {
        let name = self.name("attention");
        let (q, k) = (self.facts(&name, "q", q)?, self.facts(&name, "k", k)?);
        let v = self.facts(&name, "v", v)?;
        let by_heads = layout == Order::Bhsd;
        let form =
            |of: &str| if by_heads { format!("[batch, heads, {of}, d]") } else { format!("[batch, {of}, heads, d]") };
        let sizes = |field: &str, facts: &Facts, of: &str| match facts.shape[..] {
            [batch, heads, rows, d] if by_heads => Ok([batch, heads, rows, d]),
            [batch, rows, heads, d] => Ok([batch, heads, rows, d]),
            _ => Err(wrong(&name, field, format!("is {}, expected {}: reshape it", facts.describe(), form(of)))),
        };
        let [batch, heads, queries, d] = sizes("q", &q, "queries")?;
        let [of, hkv, keys, wide] = sizes("k", &k, "keys")?;
        if of != batch || wide != d || hkv == 0 || heads % hkv != 0 {
            let own = format!("{heads} or a divisor of it");
            let all =
                if by_heads { format!("[{batch}, {own}, keys, {d}]") } else { format!("[{batch}, keys, {own}, {d}]") };
            let expected = format!("{all} as q is {:?}", q.shape);
            return Err(wrong(&name, "k", format!("is {}, expected {expected}", k.describe())));
        }
        same(&name, "v", &v, &k.shape, "as k")?;
        let mut problem = AttentionProblem::new(batch, heads, queries, keys, d, q.dtype);
        (problem.hkv, problem.causal, problem.layout) = (hkv, causal, layout);
        self.node(name, What::Attention(problem), &[("q", &q), ("k", &k), ("v", &v)], q.shape.clone())
    }

    /// Rotary position embedding of x, `[…, rows, heads, d]`.
    pub fn rope(&mut self, x: Tensor, by: Turn) -> Result<Tensor, Error> {
        Ok(self.turned(x, None, by)?.remove(0))
    }

    /// The same of q and k in one launch: `[…, rows, heads, d]`, each with heads of its own. A bias has numbers for the
    /// columns of q and, behind them, of k.
    pub fn rope_pair(&mut self, q: Tensor, k: Tensor, by: Turn) -> Result<(Tensor, Tensor), Error> {
        let both = self.turned(q, Some(k), by)?;
        Ok((both[0], both[1]))
    }

    fn turned(&mut self, x: Tensor, k: Option<Tensor>, by: Turn) -> Result<Vec<Tensor>, Error> {
        let name = self.name("rope");
        let x = self.facts(&name, if k.is_some() { "q" } else { "x" }, x)?;
        let k = k.map(|k| self.facts(&name, "k", k)).transpose()?;
        let form = "[…, rows, heads, d]";
        let [outer @ .., each, h, d] = &x.shape[..] else {
            return Err(wrong(&name, "x", format!("is {}, expected {form}: reshape it", x.describe())));
        };
        let (h, d, rows) = (*h, *d, outer.iter().product::<u64>() * each);
        let (cos, sin) = (self.facts(&name, "cos", by.cos)?, self.facts(&name, "sin", by.sin)?);
        let [n, columns] = cos.shape[..] else {
            return Err(wrong(&name, "cos", format!("is {}, expected [positions, columns]", cos.describe())));
        };
        same(&name, "sin", &sin, &cos.shape, "as cos")?;
        let rot = if by.wide { columns } else { 2 * columns };
        if rot > d || rot % 2 == 1 {
            let most = if by.wide { format!("an even number up to {d}") } else { format!("at most {}", d / 2) };
            let why = format!("has {columns} columns, expected {most}; wide() means one an element");
            return Err(wrong(&name, "cos", why));
        }
        if cos.dtype != sin.dtype || (cos.dtype != x.dtype && cos.dtype != DType::F32) {
            let result = format!("are {} and {}, expected one type: f32 or {} as x is", cos.dtype, sin.dtype, x.dtype);
            return Err(wrong(&name, "cos and sin", result));
        }
        let positions = by.positions.map(|positions| self.facts(&name, "positions", positions)).transpose()?;
        let hk = match &k {
            None => 0,
            Some(k) if k.shape.len() == x.shape.len() && k.shape[..outer.len() + 1] == x.shape[..outer.len() + 1] => {
                k.shape[outer.len() + 1]
            }
            Some(k) => {
                return Err(wrong(&name, "k", format!("is {}, expected the rows of q, {:?}", k.describe(), x.shape)));
            }
        };
        if let Some(k) = &k
            && (k.n(), k.dtype) != (d, x.dtype)
        {
            return Err(wrong(
                &name,
                "k",
                format!("is {}, expected d = {d} and {} as q has it", k.describe(), x.dtype),
            ));
        }
        let of = match &positions {
            // Rows count through all that is in front of them.
            None if n == *each || (n > *each && rows == *each) => Positions::Rows,
            None => {
                let why = format!("has {n} rows, expected {each} as x has: positions say another order");
                return Err(wrong(&name, "cos", why));
            }
            Some(facts) if facts.shape.iter().product::<u64>() != rows => {
                return Err(wrong(&name, "positions", format!("is {}, expected {rows} numbers", facts.describe())));
            }
            Some(facts) => match facts.dtype {
                DType::I32 => Positions::I32,
                DType::I64 => Positions::I64,
                _ => return Err(wrong(&name, "positions", format!("is {}, expected i32 or i64", facts.describe()))),
            },
        };
        let bias = by.bias.map(|bias| self.facts(&name, "bias", bias)).transpose()?;
        if let Some(bias) = &bias {
            same(&name, "bias", bias, &[(h + hk) * d], "one number a column of all heads")?;
            if bias.dtype != x.dtype {
                return Err(wrong(&name, "bias", format!("is {}, expected {} as x is", bias.describe(), x.dtype)));
            }
        }
        let problem = RopeProblem {
            rows,
            h,
            hk,
            d,
            rot,
            n,
            dtype: x.dtype,
            table: cos.dtype,
            wide: by.wide,
            pairs: by.pairs,
            positions: of,
            plain: by.plain,
            bias: bias.is_some(),
            back: false,
            in_place: false,
            ld: h * d,
            ldk: hk * d,
            ldt: columns,
        };
        let reads: Vec<&Facts> = [Some(&x), k.as_ref(), Some(&cos), Some(&sin), positions.as_ref(), bias.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        let shapes: Vec<Vec<u64>> = [Some(&x), k.as_ref()].into_iter().flatten().map(|f| f.shape.clone()).collect();
        self.push(name, What::Rope(problem), &reads, &shapes)
    }
}
