//! The assembler's report: what `-Xptxas -v` prints comes in; registers, spills and warnings go out.

use serde::{Deserialize, Serialize};
use warplap_core::rejection::Rejection;

/// A spill up to this many bytes may still win; more never did.
const TOLERATED_SPILL: u32 = 64;

/// What the assembler said of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Registers of one thread.
    pub registers: u32,
    /// Bytes stored to local memory because registers ran out.
    pub spill_bytes: u32,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Warnings that cost speed: tensor-core products made to wait for each other (C7509 to C7520 all say so; C7519
    /// alone, an arrival put in, costs nothing).
    pub serialized: Vec<String>,
}

impl Report {
    /// Reads the compiler's log.
    pub fn parse(log: &str) -> Self {
        let mut report = Report::default();
        for line in log.lines() {
            if let Some(n) = number_before(line, " registers") {
                report.registers = report.registers.max(n);
            }
            if let Some(n) = number_before(line, " bytes spill stores") {
                report.spill_bytes = report.spill_bytes.max(n);
            }
            if let Some(n) = number_before(line, " bytes smem") {
                report.shared_bytes = report.shared_bytes.max(n);
            }
            if line.contains("wgmma.mma_async instructions are serialized") {
                report.serialized.push(line.trim().to_string());
            }
        }
        report
    }

    /// Why a kernel with this report is not worth running, if so.
    pub fn refusal(&self) -> Option<Rejection> {
        let reason = if let Some(warning) = self.serialized.first() {
            format!("the assembler serialised its tensor-core products: {warning}")
        } else if self.spill_bytes > TOLERATED_SPILL {
            format!("it spills {} bytes at {} registers", self.spill_bytes, self.registers)
        } else {
            return None;
        };
        Some(Rejection::DoesNotBuild { reason })
    }
}

/// The number that stands right before a text.
fn number_before(line: &str, text: &str) -> Option<u32> {
    let before = &line[..line.find(text)?];
    let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
    before[digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'wgmma_coop' for 'sm_90a'\n\
        ptxas info    : Function properties for wgmma_coop\n\
        \u{20}   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 168 registers, used 10 barriers, 64 bytes smem\n";

    #[test]
    fn a_clean_log_gives_registers_and_no_refusal() {
        let report = Report::parse(CLEAN);
        assert_eq!((report.registers, report.spill_bytes, report.shared_bytes), (168, 0, 64));
        assert_eq!(report.refusal(), None);
    }

    #[test]
    fn spills_and_serialised_products_are_refused_before_they_reach_the_gpu() {
        let spilling = CLEAN.replace("0 bytes spill stores", "488 bytes spill stores");
        assert!(
            matches!(Report::parse(&spilling).refusal(), Some(Rejection::DoesNotBuild { reason }) if reason.contains("488"))
        );
        let serial = format!(
            "{CLEAN}ptxas info : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        );
        assert!(Report::parse(&serial).refusal().is_some());
        let arrival =
            format!("{CLEAN}ptxas info : (C7519) warpgroup.arrive is injected in around line 8 by compiler\n");
        assert_eq!(Report::parse(&arrival).refusal(), None);
        assert_eq!(Report::parse(&CLEAN.replace("0 bytes spill stores", "32 bytes spill stores")).refusal(), None);
    }

    #[test]
    fn no_log_makes_the_reader_panic() {
        for log in ["", " registers", "é bytes spill stores", "99999999999 registers", "\0\n\n"] {
            let _ = Report::parse(log);
        }
    }
}
