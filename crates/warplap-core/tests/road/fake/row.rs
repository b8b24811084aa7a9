//! Variants of the fake operation by a table: what each takes, and what it does wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};

use super::{Fake, Meter, Scale, ScaleProblem, X, Y};

/// What a fake variant does when it is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    Right,
    CompileFails,
    /// Takes so many milliseconds to compile.
    CompilesSlowly(u64),
    BuildFails,
    BuildPanics,
    LaunchFails,
    LaunchPanics,
    /// Refuses its n-th launch and all later ones.
    FailsFrom(u64),
    /// Panics at its n-th launch.
    PanicsFrom(u64),
    /// Adds this to each element.
    OffBy(f64),
    /// Adds one to each element from its n-th launch on.
    WrongFrom(u64),
    /// Gives this in its last element.
    LastIs(f64),
    /// Leaves every other element as it was.
    LeavesHoles,
    /// Writes this many elements before (-) or after its output.
    Strays(isize),
    /// Gives the output of its first launch again and again.
    RemembersFirst,
    /// Gives the output of the first launch with this address again.
    RemembersAddress,
    /// Does nothing after its n-th launch.
    LazyAfter(u64),
    /// Panics when it is asked for its workspace.
    WorkspacePanics,
    /// Says that its timed launches give new outputs.
    GivesNew,
    /// Takes so many milliseconds for its first launch.
    OpensSlowly(u64),
}

/// Where a fake variant panics before it is ever built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Panics {
    Fit,
    Space,
    Rule,
    Source,
    Needs,
    Floor,
}

/// A variant by the table.
#[derive(Clone)]
pub struct Row {
    pub id: String,
    pub source: String,
    pub fit: Fit,
    /// Seconds by the value of its axis `i`; the first is the default.
    pub seconds: Vec<f64>,
    pub act: Act,
    pub needs: Needs,
    pub panics: Option<Panics>,
    /// It does only sizes that this divides.
    pub multiple: u64,
    /// Its axis has the two values below a problem's size over this one; 0: all of them at any size.
    pub each: u64,
    /// Above this size it takes so many seconds.
    pub above: (u64, f64),
    /// What a launch really takes.
    pub real: Duration,
    /// Whether it is what a user would call instead.
    pub library: bool,
    /// Whether it is what the host program would call without us.
    pub usual: bool,
    pub count: Arc<Count>,
}

/// What was done with a variant.
#[derive(Default, Debug)]
pub struct Count {
    pub builds: AtomicU64,
    pub launches: AtomicU64,
}

impl Count {
    pub fn builds(&self) -> u64 {
        self.builds.load(Ordering::SeqCst)
    }
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::SeqCst)
    }
}

/// A right variant that takes so many seconds.
pub fn row(id: &str, seconds: f64) -> Row {
    Row {
        id: id.into(),
        source: "1".into(),
        fit: Fit::HIGH,
        seconds: vec![seconds],
        act: Act::Right,
        needs: Needs::default(),
        panics: None,
        multiple: 1,
        each: 0,
        above: (u64::MAX, 0.0),
        real: Duration::ZERO,
        library: false,
        usual: false,
        count: Arc::default(),
    }
}

impl Row {
    pub fn act(self, act: Act) -> Row {
        Row { act, ..self }
    }
    pub fn fit(self, fit: Fit) -> Row {
        Row { fit, ..self }
    }
    pub fn source(self, source: &str) -> Row {
        Row { source: source.into(), ..self }
    }
    pub fn configs(self, seconds: &[f64]) -> Row {
        Row { seconds: seconds.to_vec(), ..self }
    }
    pub fn panics(self, at: Panics) -> Row {
        Row { panics: Some(at), ..self }
    }
    pub fn real(self, micros: u64) -> Row {
        Row { real: Duration::from_micros(micros), ..self }
    }
    pub fn library(self) -> Row {
        Row { library: true, ..self }
    }
    pub fn usual(self) -> Row {
        Row { library: true, usual: true, ..self }
    }
    pub fn multiple(self, multiple: u64) -> Row {
        Row { multiple, ..self }
    }
    pub fn above(self, size: u64, seconds: f64) -> Row {
        Row { above: (size, seconds), ..self }
    }
    pub fn each(self, each: u64) -> Row {
        Row { each, ..self }
    }
}

impl Variant<Scale, Fake> for Row {
    fn id(&self) -> &str {
        &self.id
    }

    fn source(&self) -> SourceHash {
        assert!(self.panics != Some(Panics::Source), "source");
        SourceHash::of(&[&self.id, &self.source])
    }

    fn fit(&self, p: &ScaleProblem, _: &Fake) -> Fit {
        assert!(self.panics != Some(Panics::Fit), "fit");
        if p.n.is_multiple_of(self.multiple) { self.fit.clone() } else { Fit::aside("an odd size") }
    }

    fn space(&self, p: &ScaleProblem, _: &Fake) -> Space {
        assert!(self.panics != Some(Panics::Space), "space");
        let all = self.seconds.len() as i64;
        let values = p.n.checked_div(self.each).map_or(0..all, |top| (top as i64 - 2).max(0)..(top as i64).min(all));
        let space = Space::single().axis(Axis::ints("i", values));
        match self.panics {
            Some(Panics::Rule) => space.rule(Rule::on("panics", &["i"], |_| panic!("rule"))),
            _ => space,
        }
    }

    fn is_library(&self) -> bool {
        self.library
    }

    fn is_usual(&self) -> bool {
        self.usual
    }

    fn needs(&self, _: &ScaleProblem, _: &Config) -> Needs {
        assert!(self.panics != Some(Panics::Needs), "needs");
        self.needs.clone()
    }

    fn floor(&self, _: &ScaleProblem, _: &Config, _: &Ceilings) -> Option<f64> {
        assert!(self.panics != Some(Panics::Floor), "floor");
        None
    }

    fn compile(&self, _: &ScaleProblem, _: &Config, _: &Fake) -> Result<(), Rejection> {
        match self.act {
            Act::CompileFails => Err(Rejection::DoesNotBuild { reason: "the compiler says no".into() }),
            Act::BuildPanics => panic!("the compiler panics"),
            Act::CompilesSlowly(ms) => {
                std::thread::sleep(std::time::Duration::from_millis(ms));
                Ok(())
            }
            _ => Ok(()),
        }
    }
    fn build(&self, p: &ScaleProblem, config: &Config, _: &Fake) -> Result<Box<dyn Kernel<Fake>>, Rejection> {
        self.count.builds.fetch_add(1, Ordering::SeqCst);
        match self.act {
            Act::BuildFails => return Err(Rejection::DoesNotBuild { reason: "by the table".into() }),
            Act::BuildPanics => panic!("build"),
            _ => {}
        }
        // Nothing is built that the space does not hold: this would be the panic of a record believed blindly.
        let by_table = self.seconds[config.size("i").expect("a config of the space")];
        let seconds = if p.n > self.above.0 { self.above.1 } else { by_table };
        let (step, act, real, count) = (p.step as f64, self.act, self.real, self.count.clone());
        Ok(Box::new(Built { step, act, real, seconds, count, launched: 0.into(), first: Mutex::default() }))
    }
}

struct Built {
    step: f64,
    act: Act,
    real: Duration,
    seconds: f64,
    count: Arc<Count>,
    launched: AtomicU64,
    first: Mutex<Vec<(usize, Vec<f64>)>>,
}

impl Kernel<Fake> for Built {
    fn writes(&self) -> bool {
        !matches!(self.act, Act::GivesNew)
    }

    fn launch(&self, args: &mut [Arg<'_, Fake>], queue: &Meter) -> Result<(), Rejection> {
        self.count.launches.fetch_add(1, Ordering::SeqCst);
        let nth = self.launched.fetch_add(1, Ordering::SeqCst) + 1;
        if !self.real.is_zero() {
            std::thread::sleep(self.real);
        }
        *queue.0.lock().unwrap() = self.seconds;
        let refused = || Err(Rejection::LaunchFailed { reason: "by the table".into() });
        let (x, mut y) = (args[X].read()?.values, args[Y].write()?);
        let mut right: Vec<f64> = x.iter().map(|x| 2.0 * x + self.step).collect();
        match self.act {
            Act::LaunchFails => return refused(),
            Act::OpensSlowly(ms) if nth == 1 => std::thread::sleep(Duration::from_millis(ms)),
            Act::LaunchPanics => panic!("launch"),
            Act::FailsFrom(n) if nth >= n => return refused(),
            Act::PanicsFrom(n) if nth >= n => panic!("launch {n}"),
            Act::OffBy(error) => right.iter_mut().for_each(|y| *y += error),
            Act::WrongFrom(n) if nth >= n => right.iter_mut().for_each(|y| *y += 1.0),
            Act::LastIs(value) => *right.last_mut().unwrap() = value,
            Act::LeavesHoles => right.iter_mut().step_by(2).for_each(|y| *y = f64::NAN),
            Act::LazyAfter(n) if nth > n => return Ok(()),
            Act::RemembersFirst => {
                let mut first = self.first.lock().unwrap();
                if first.is_empty() {
                    first.push((0, right.clone()));
                }
                right.clone_from(&first[0].1);
            }
            Act::RemembersAddress => {
                let (address, mut first) = (x.as_ptr() as usize, self.first.lock().unwrap());
                match first.iter().find(|(a, _)| *a == address) {
                    Some((_, known)) => right.clone_from(known),
                    None => first.push((address, right.clone())),
                }
            }
            Act::Strays(by) => y.stray(by),
            _ => {}
        }
        y.all[y.at].copy_from_slice(&right);
        Ok(())
    }

    fn workspace(&self) -> u64 {
        assert!(self.act != Act::WorkspacePanics, "workspace");
        0
    }
}
