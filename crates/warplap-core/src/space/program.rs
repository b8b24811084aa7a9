//! Rules as one program: every part that several rules share is computed once, and as soon as its axes are set.
//!
//! Rules and an order of axes come in. Out go, for each level of that order, the steps to run when its axis is set, the
//! registers that must then be true, and the registers that later levels still read: two partial configs that agree in
//! those have the same continuations.

use std::collections::HashMap;

use super::Space;
use super::expr::{
    Binary, Compare, ExprNode, Function, Num, Texts, Tree, Unary, binary, both, call, choice, compare, either, unary,
};
use super::rule::Rule;

/// A register: where a step leaves its value.
pub(super) type Register = u32;

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Does {
    Unary(Unary, Register),
    Binary(Binary, Register, Register),
    Compare(Compare, Register, Register),
    Both(Register, Register),
    Either(Register, Register),
    Choice(Register, Register, Register),
    Call(Function, Vec<Register>),
    /// A rule that is a function of the Config.
    Ask(usize),
}

/// A rule program for one order of axes.
#[derive(Debug)]
pub(super) struct Program {
    /// The registers' first values: constants and axes with one value.
    pub(super) registers: Vec<Num>,
    steps: Vec<Vec<(Register, Does)>>,
    tests: Vec<Vec<Register>>,
    /// By level: what later levels read.
    pub(super) live: Vec<Vec<Register>>,
    /// By axis: its values as numbers.
    pub(super) values: Vec<Vec<Num>>,
}

/// What a run needs besides registers, for rules that are functions.
pub(super) struct Setting<'s> {
    pub(super) space: &'s Space,
    pub(super) picks: &'s [u16],
}

/// What the rules are made of, whatever the order of axes: by register the axes it depends on and its inputs.
pub(super) struct Parts {
    /// By register, one bit an axis.
    pub(super) axes: Vec<u128>,
    pub(super) inputs: Vec<Vec<Register>>,
    /// The registers that must be true.
    pub(super) tests: Vec<Register>,
}

impl Parts {
    /// The parts of a space's rules; axes beyond 128 share the last bit.
    pub(super) fn new(space: &Space) -> Parts {
        let (compiler, tests) = Compiler::compiled(space, space.rules(), &[]);
        let mut axes: Vec<u128> = Vec::with_capacity(compiler.inputs.len());
        for (register, inputs) in compiler.inputs.iter().enumerate() {
            let own = match space.axes().get(register) {
                Some(axis) if axis.values().len() > 1 => 1 << register.min(127),
                _ => 0,
            };
            // Inputs are made before what is made of them.
            axes.push(inputs.iter().fold(own, |all, input| all | axes[*input as usize]));
        }
        Parts { axes, inputs: compiler.inputs, tests }
    }
}

impl Program {
    /// Compiles the rules. `order` are the axes with a choice, outermost first; the register of an axis is its number.
    pub(super) fn new(space: &Space, rules: &[Rule], order: &[usize]) -> Program {
        let (compiler, all) = Compiler::compiled(space, rules, order);
        let mut tests = vec![Vec::new(); order.len() + 1];
        all.into_iter().for_each(|register| tests[compiler.level[register as usize]].push(register));
        let levels = order.len() + 1;
        let mut live: Vec<Vec<Register>> = vec![Vec::new(); levels];
        // The last level that reads a register.
        let mut last = compiler.level.clone();
        let mut steps = vec![Vec::new(); levels];
        for (register, does) in compiler.steps {
            let level = compiler.level[register as usize];
            for input in compiler.inputs[register as usize].iter().copied() {
                last[input as usize] = last[input as usize].max(level);
            }
            steps[level].push((register, does));
        }
        for (register, (made, read)) in compiler.level.iter().zip(&last).enumerate() {
            // Level 0 is the same for everybody.
            (*made.max(&1)..*read).for_each(|level| live[level].push(register as Register));
        }
        live[0].clear();
        live.iter_mut().for_each(|l| l.retain(|r| compiler.level[*r as usize] > 0));
        Program { registers: compiler.registers, steps, tests, live, values: compiler.values }
    }

    /// Runs a level's steps. Whether all its tests hold.
    #[inline]
    pub(super) fn run(&self, level: usize, registers: &mut [Num], setting: &Setting<'_>, rules: &[Rule]) -> bool {
        for (out, does) in &self.steps[level] {
            let get = |r: &Register| registers[*r as usize];
            registers[*out as usize] = match does {
                Does::Unary(operator, a) => unary(*operator, get(a)),
                Does::Binary(operator, a, b) => binary(*operator, get(a), get(b)),
                Does::Compare(operator, a, b) => compare(*operator, get(a), get(b)),
                Does::Both(a, b) => both(get(a), get(b)),
                Does::Either(a, b) => either(get(a), get(b)),
                Does::Choice(c, a, b) => choice(get(c), get(a), get(b)),
                Does::Call(function, all) => call(*function, &all.iter().map(get).collect::<Vec<_>>()),
                Does::Ask(rule) => Num::bool(rules[*rule].holds(&setting.space.partial(setting.picks, &rules[*rule]))),
            };
        }
        self.tests[level].iter().all(|r| registers[*r as usize].truth() == Some(true))
    }
}

struct Compiler<'s> {
    space: &'s Space,
    texts: Texts,
    registers: Vec<Num>,
    /// By register: the level that makes it, and what it is made of.
    level: Vec<usize>,
    inputs: Vec<Vec<Register>>,
    steps: Vec<(Register, Does)>,
    made: HashMap<Does, Register>,
    constants: HashMap<(u8, u64), Register>,
    values: Vec<Vec<Num>>,
}

impl<'s> Compiler<'s> {
    fn new(space: &'s Space, order: &[usize]) -> Self {
        let mut texts = Texts::default();
        let values: Vec<Vec<Num>> =
            space.axes().iter().map(|a| a.values().iter().map(|v| texts.of(v)).collect()).collect();
        let level = |axis: usize| order.iter().position(|a| *a == axis).map_or(0, |p| p + 1);
        Compiler {
            space,
            texts,
            registers: values.iter().map(|v: &Vec<Num>| v.first().copied().unwrap_or(Num::Undefined)).collect(),
            level: (0..values.len()).map(level).collect(),
            inputs: vec![Vec::new(); values.len()],
            steps: Vec::new(),
            made: HashMap::new(),
            constants: HashMap::new(),
            values,
        }
    }

    /// All rules, and the registers that must be true.
    fn compiled(space: &'s Space, rules: &[Rule], order: &[usize]) -> (Self, Vec<Register>) {
        let mut compiler = Compiler::new(space, order);
        let mut tests = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            match rule.expr() {
                Some(expr) => compiler.conjuncts(&expr.tree, &mut tests),
                None => tests.push(compiler.ask(i, rule)),
            }
        }
        (compiler, tests)
    }

    fn register(&mut self, value: Num, level: usize, inputs: Vec<Register>) -> Register {
        self.registers.push(value);
        self.level.push(level);
        self.inputs.push(inputs);
        (self.registers.len() - 1) as Register
    }

    fn constant(&mut self, value: Num) -> Register {
        match self.constants.get(&(value.kind(), value.bits())) {
            Some(register) => *register,
            None => {
                let register = self.register(value, 0, Vec::new());
                self.constants.insert((value.kind(), value.bits()), register);
                register
            }
        }
    }

    fn step(&mut self, does: Does, inputs: Vec<Register>) -> Register {
        if let Some(register) = self.made.get(&does) {
            return *register;
        }
        let level = inputs.iter().map(|r| self.level[*r as usize]).max().unwrap_or(0);
        let register = self.register(Num::Undefined, level, inputs);
        self.steps.push((register, does.clone()));
        self.made.insert(does, register);
        register
    }

    fn ask(&mut self, index: usize, rule: &Rule) -> Register {
        let inputs = self.space.read_by(rule).into_iter().map(|axis| axis as Register).collect();
        self.step(Does::Ask(index), inputs)
    }

    /// What must hold on its own: the parts of `and` and of a chain are tested as early as each can be.
    fn conjuncts(&mut self, tree: &Tree, result: &mut Vec<Register>) {
        match &tree.node {
            ExprNode::And(a, b) => {
                self.conjuncts(a, result);
                self.conjuncts(b, result);
            }
            ExprNode::Chain(operands, comparisons) => {
                let all: Vec<Register> = operands.iter().map(|o| self.tree(o)).collect();
                for (i, comparison) in comparisons.iter().enumerate() {
                    let (a, b) = (all[i], all[i + 1]);
                    result.push(self.step(Does::Compare(*comparison, a, b), vec![a, b]));
                }
            }
            _ => result.push(self.tree(tree)),
        }
    }

    fn tree(&mut self, tree: &Tree) -> Register {
        match &tree.node {
            ExprNode::Int(i) => self.constant(Num::Int(*i)),
            ExprNode::Float(x) => self.constant(Num::Float(*x)),
            ExprNode::Text(text) => {
                let text = self.texts.num(text);
                self.constant(text)
            }
            ExprNode::Name(name) => {
                if let Some(axis) = self.space.axes().iter().position(|a| a.name() == name) {
                    return axis as Register;
                }
                let space = self.space;
                match space.derived().iter().find(|d| d.0 == *name) {
                    Some((_, expr)) => self.tree(&expr.tree),
                    None => self.constant(Num::Undefined),
                }
            }
            ExprNode::Unary(operator, a) => {
                let a = self.tree(a);
                self.step(Does::Unary(*operator, a), vec![a])
            }
            ExprNode::Binary(operator, a, b) => {
                let (a, b) = (self.tree(a), self.tree(b));
                self.step(Does::Binary(*operator, a, b), vec![a, b])
            }
            ExprNode::And(a, b) => {
                let (a, b) = (self.tree(a), self.tree(b));
                self.step(Does::Both(a, b), vec![a, b])
            }
            ExprNode::Or(a, b) => {
                let (a, b) = (self.tree(a), self.tree(b));
                self.step(Does::Either(a, b), vec![a, b])
            }
            ExprNode::Choice { condition, yes, no } => {
                let (c, a, b) = (self.tree(condition), self.tree(yes), self.tree(no));
                self.step(Does::Choice(c, a, b), vec![c, a, b])
            }
            ExprNode::Call(function, arguments) => {
                let all: Vec<Register> = arguments.iter().map(|a| self.tree(a)).collect();
                self.step(Does::Call(*function, all.clone()), all)
            }
            ExprNode::Chain(operands, comparisons) => {
                let all: Vec<Register> = operands.iter().map(|o| self.tree(o)).collect();
                let pair = |i: usize| (all[i], all[i + 1]);
                let (a, b) = pair(0);
                let mut whole = self.step(Does::Compare(comparisons[0], a, b), vec![a, b]);
                for (i, comparison) in comparisons.iter().enumerate().skip(1) {
                    let (a, b) = pair(i);
                    let next = self.step(Does::Compare(*comparison, a, b), vec![a, b]);
                    whole = self.step(Does::Both(whole, next), vec![whole, next]);
                }
                whole
            }
            ExprNode::Member { item, list, negated } => {
                let item = self.tree(item);
                let mut result = self.constant(Num::bool(false));
                for entry in list {
                    let entry = self.tree(entry);
                    let same = self.step(Does::Compare(Compare::Equal, item, entry), vec![item, entry]);
                    result = self.step(Does::Either(result, same), vec![result, same]);
                }
                if *negated { self.step(Does::Unary(Unary::Not, result), vec![result]) } else { result }
            }
        }
    }
}
