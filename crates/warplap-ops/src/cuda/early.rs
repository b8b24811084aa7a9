//! Whether a kernel that may begin early touches global memory before it has waited for the kernel in front: no proof
//! finds that, since the kernel in front is nearly always done. The machine code comes in, disassembled by nvdisasm
//! where there is one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Instructions that read or write global memory. Copies of the copy engine are not among them: one thread asks for
/// them, behind its own wait, under conditions that a walk over all ways does not see through.
const GLOBAL: [&str; 9] = ["LDG", "LDGSTS", "LD", "ATOM", "ATOMG", "RED", "REDG", "STG", "ST"];

/// The machine's name of griddepcontrol.wait.
const WAIT: &str = "ACQBULK";

/// Fails where compiled bytes do; says so once where nobody can look.
pub(crate) fn check(image: &[u8], what: &str) {
    static TOOL: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let path = tool();
        if path.is_none() {
            use std::io::Write;
            let why = "no nvdisasm on PATH, in WARPLAP_NVDISASM or in a Python package triton below the target folder";
            let _ = writeln!(std::io::stderr(), "SKIPPED: nobody looked for loads before the wait in kernels: {why}");
        }
        path
    });
    let Some(tool) = &*TOOL else { return };
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("warplap-{}-{}.cubin", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, image).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let said = Command::new(tool).arg("-c").arg(&file).output();
    let _ = std::fs::remove_file(&file);
    let said = said.unwrap_or_else(|e| panic!("{}: {e}", tool.display()));
    assert!(said.status.success(), "{what}: {}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains(WAIT), "{what}: may begin early, and does not wait for the kernel in front");
    if let Some(instruction) = too_early(&text) {
        panic!("{what}: touches global memory before it has waited for the kernel in front: {instruction}");
    }
}

fn tool() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WARPLAP_NVDISASM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(file) = std::env::split_paths(&path).map(|p| p.join("nvdisasm")).find(|p| p.is_file()) {
        return Some(file);
    }
    // Environments of the Python tests lie in the target folder: target/NAME/lib/pythonX.Y/site-packages.
    let exe = std::env::current_exe().ok()?;
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let pythons = below(exe.ancestors().nth(3)?.to_path_buf()).flat_map(|room| below(room.join("lib")));
    let within = "site-packages/triton/backends/nvidia/bin/nvdisasm";
    pythons.map(|python| python.join(within)).find(|tool| tool.is_file())
}

/// The first access to global memory that some way from a kernel's entry comes to without a wait.
fn too_early(sass: &str) -> Option<String> {
    let sections = sass.split(".section").filter(|s| s.trim_start().starts_with(".text."));
    sections.into_iter().find_map(|section| Code::read(section).too_early())
}

#[derive(Default)]
struct Code<'t> {
    instructions: Vec<&'t str>,
    labels: HashMap<&'t str, usize>,
}

impl<'t> Code<'t> {
    fn read(section: &'t str) -> Self {
        let mut code = Code::default();
        for line in section.lines().map(str::trim) {
            if let Some(label) = line.strip_suffix(':') {
                code.labels.insert(label, code.instructions.len());
            } else if let Some((_, instruction)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/"))
                && let Some((instruction, _)) = instruction.split_once(';')
            {
                code.instructions.push(instruction.trim());
            }
        }
        code
    }

    fn too_early(&self) -> Option<String> {
        let (mut seen, mut to_see) = (vec![false; self.instructions.len()], vec![0]);
        while let Some(mut at) = to_see.pop() {
            while at < seen.len() && !std::mem::replace(&mut seen[at], true) {
                let whole = self.instructions[at];
                let conditional = whole.starts_with('@');
                let body = if conditional { whole.split_once(' ').map_or("", |(_, body)| body.trim()) } else { whole };
                let (name, rest) = body.split_once(' ').unwrap_or((body, ""));
                let kind = name.split('.').next().unwrap_or_default();
                if kind == WAIT {
                    break;
                }
                if GLOBAL.contains(&kind) {
                    return Some(whole.to_string());
                }
                // Every label named is a way on; a jump without a condition is the only one.
                let target = rest.split_once("`(").and_then(|(_, label)| label.split_once(')'));
                to_see.extend(target.and_then(|(label, _)| self.labels.get(label)));
                let always =
                    !conditional && (kind == "EXIT" || kind == "RET" || kind == "BRA" && rest.starts_with('`'));
                if always && !name.contains(".DIV") {
                    break;
                }
                at += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::too_early;

    fn code(lines: &[&str]) -> String {
        let line = |l: &&str| if l.ends_with(':') { format!("{l}\n") } else { format!("        /*0010*/  {l} ;\n") };
        format!("\t.section\t.text.k,\"ax\"\n{}", lines.iter().map(line).collect::<String>())
    }

    #[test]
    fn a_load_is_too_early_on_any_way_that_has_not_waited() {
        let load = "LDG.E R2, desc[UR4][R2.64]";
        assert_eq!(too_early(&code(&["S2R R0, SR_TID.X", "ACQBULK", load, "EXIT"])), None);
        assert_eq!(too_early(&code(&[load, "ACQBULK", "EXIT"])).as_deref(), Some(load));
        // The consumers' way leads around the producers' wait.
        let around = ["@P0 BRA `(.L_x_0)", "ACQBULK", "EXIT", ".L_x_0:", load, "EXIT"];
        assert_eq!(too_early(&code(&around)).as_deref(), Some(load));
        let waits = ["@P0 BRA `(.L_x_0)", "ACQBULK", "EXIT", ".L_x_0:", "ACQBULK", load, "EXIT"];
        assert_eq!(too_early(&code(&waits)), None);
        // Behind a jump that is always taken nobody comes, and loops end.
        let behind = ["BRA `(.L_x_1)", load, ".L_x_1:", "@!P1 BRA `(.L_x_1)", "@P0 EXIT", "ACQBULK", load, "EXIT"];
        assert_eq!(too_early(&code(&behind)), None);
        let divided = ["BRA.DIV UR4, `(.L_x_2)", "ACQBULK", "EXIT", ".L_x_2:", load];
        assert_eq!(too_early(&code(&divided)).as_deref(), Some(load));
    }
}
