//! The sizes of a launch, by host arithmetic alone: a spec's expressions come in; blocks, threads and parameters go
//! out.

use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Expr, Value};

use crate::argument::{Argument, Element};
use crate::spec::{Launch, Reference, Spec};

/// The sizes of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchSizes {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// Blocks of a cluster; zeros where the spec names none.
    pub(crate) cluster: [u32; 3],
}

impl LaunchSizes {
    /// Works the launch of a spec out for a config.
    pub(crate) fn of(spec: &Spec, config: &Config) -> Result<LaunchSizes, Rejection> {
        let launch = spec.launch.as_ref().ok_or_else(|| refused("the spec states no launch".into()))?;
        LaunchSizes::worked_out(launch, |name| spec.value(config, name))
    }

    /// The launch of the reference: its own, or that of the kernel at its default config.
    pub(crate) fn of_reference(spec: &Spec) -> Result<LaunchSizes, Rejection> {
        match &spec.reference {
            Reference::Cuda(_, Some(launch)) => {
                LaunchSizes::worked_out(launch, |name| spec.value(&Config::new(), name))
            }
            _ => LaunchSizes::of(spec, &spec.default_config()),
        }
    }

    fn worked_out(launch: &Launch, known: impl Fn(&str) -> Option<Value>) -> Result<LaunchSizes, Rejection> {
        let Launch { grid, block, shared, cluster } = launch;
        let size = |expr: &Expr, least: u32| -> Result<u32, Rejection> {
            let value = expr.eval(&known).map_err(|e| refused(e.to_string()))?;
            let whole = match value {
                Value::Int(i) => u32::try_from(i).ok(),
                Value::Float(x) if x.0.fract() == 0.0 && x.0 >= 0.0 && x.0 < f64::from(u32::MAX) => Some(x.0 as u32),
                _ => None,
            };
            let wrong =
                || refused(format!("'{}' gives {value}: a launch takes whole numbers from {least}", expr.text()));
            whole.filter(|w| *w >= least).ok_or_else(wrong)
        };
        let three = |parts: &[Expr]| -> Result<[u32; 3], Rejection> {
            let mut all = [1; 3];
            for (to, part) in all.iter_mut().zip(parts) {
                *to = size(part, 1)?;
            }
            Ok(all)
        };
        let shared = shared.as_ref().map_or(Ok(0), |s| size(s, 0))?;
        let grid = three(grid)?;
        let cluster = if cluster.is_empty() { [0; 3] } else { three(cluster)? };
        if let Some((blocks, size)) = grid.iter().zip(cluster).find(|(blocks, size)| **blocks % (*size).max(1) != 0) {
            return Err(refused(format!("a grid of {blocks} blocks cannot be cut into clusters of {size}")));
        }
        Ok(LaunchSizes { grid, block: three(block)?, shared, cluster })
    }

    /// Threads of one block.
    pub(crate) fn threads(&self) -> u64 {
        self.block.iter().map(|b| u64::from(*b)).product()
    }
}

fn refused(reason: String) -> Rejection {
    Rejection::DoesNotBuild { reason }
}

/// A number as a kernel's parameter: its bytes, eight at the most.
pub(crate) fn parameter(argument: &Argument) -> u64 {
    let number = argument.number();
    match (argument.element, &argument.value) {
        (Element::Stored(warplap::DType::I64), Some(Value::Int(i))) => *i as u64,
        (Element::Stored(warplap::DType::I64), _) => number as i64 as u64,
        (Element::Stored(warplap::DType::I32), _) => u64::from(number as i32 as u32),
        (Element::Stored(warplap::DType::F32), _) => u64::from((number as f32).to_bits()),
        _ => number.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::argument::{Fill, Role};
    use warplap::DType;

    fn spec(launch: &str) -> (tempfile::TempDir, Result<Arc<Spec>, crate::SpecError>) {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "source = \"k.cu\"\nentry = \"k\"\n[constants]\nN = 1000\n[axes]\nblock_size_x = [128, 256]\nTILE = [1, 3]\n\
             [[arguments]]\nname = \"y\"\nrole = \"out\"\ndtype = \"f32\"\nshape = \"N\"\n\
             [reference]\nsource = \"r.c\"\nentry = \"r\"\n{launch}"
        );
        std::fs::write(folder.path().join("k.toml"), text).unwrap();
        std::fs::write(folder.path().join("k.cu"), "__global__ void k(float *y) {}").unwrap();
        std::fs::write(folder.path().join("r.c"), "void r(float *y) {}").unwrap();
        let spec = Spec::load(&folder.path().join("k.toml"));
        (folder, spec)
    }

    #[test]
    fn the_launch_is_worked_out_from_axes_and_constants() {
        let (_folder, spec) = spec(
            "[launch]\ngrid = [\"ceil(N / (block_size_x * TILE))\", 2]\nblock = [\"block_size_x\"]\nshared = \"4 * block_size_x\"",
        );
        let config = Config::new().with("block_size_x", 128).with("TILE", 3);
        let sizes = LaunchSizes::of(&spec.unwrap(), &config).unwrap();
        assert_eq!(sizes, LaunchSizes { grid: [3, 2, 1], block: [128, 1, 1], shared: 512, cluster: [0; 3] });
        assert_eq!(sizes.threads(), 128);
    }

    #[test]
    fn a_launch_that_is_no_whole_number_is_a_rejection_and_an_unknown_name_an_error_with_its_line() {
        let (_folder, good) = spec("[launch]\ngrid = \"N / TILE\"\nblock = 1");
        let config = Config::new().with("block_size_x", 128).with("TILE", 3);
        let said = LaunchSizes::of(&good.unwrap(), &config).unwrap_err().to_string();
        assert!(said.contains("N / TILE"), "{said}");
        let said = spec("[launch]\ngrid = \"M\"\nblock = 1").1.unwrap_err().to_string();
        assert!(said.contains("k.toml:17") && said.contains("'M'"), "{said}");
        let said = spec("").1.unwrap_err().to_string();
        assert!(said.contains("expected grid and block"), "{said}");
    }

    #[test]
    fn a_grid_is_cut_into_whole_clusters_or_the_config_is_rejected() {
        let (_folder, spec) = spec("[launch]\ngrid = [\"2 * TILE\", 4]\nblock = 1\ncluster = [2, \"TILE\"]");
        let (spec, config) = (spec.unwrap(), Config::new().with("block_size_x", 128));
        let sizes = |tile| LaunchSizes::of(&spec, &config.clone().with("TILE", tile));
        assert_eq!(sizes(1).unwrap().cluster, [2, 1, 1]);
        assert!(sizes(3).unwrap_err().to_string().contains("4 blocks cannot be cut into clusters of 3"));
    }

    #[test]
    fn numbers_are_parameters_of_their_own_width() {
        let scalar = |element, value| {
            let (name, shape, fill) = ("n".to_string(), Vec::new(), Fill::Zeros);
            parameter(&Argument { name, element, role: Role::Scalar, shape, fill, value: Some(value) })
        };
        assert_eq!(scalar(Element::Stored(DType::I32), Value::Int(-1)), 0xffff_ffff);
        assert_eq!(scalar(Element::Stored(warplap::DType::I64), Value::Int(-1)), u64::MAX);
        assert_eq!(scalar(Element::Stored(DType::F32), Value::from(1.0)), u64::from(1f32.to_bits()));
        assert_eq!(scalar(Element::Stored(DType::F64), Value::Int(2)), 2f64.to_bits());
    }
}
