//! What the package `warplap-fuzz` hands texts to and nobody else can reach. No part of what this crate promises.

use crate::commands::vllm::moe::check_text;
use crate::failure::Failure;
use crate::sweep::Sweep;

/// Checks a table of vLLM's by its file's name and its text: a sentence about it, or why it is refused.
pub fn moe(name: &str, text: &str) -> Result<String, String> {
    check_text(name, text, |why| Failure::input(why)).map_err(|e| e.to_string())
}

/// The problems of a sweep.
pub fn sweep(text: &str) -> Result<Vec<String>, String> {
    Sweep::parse(text).map(|sweep| sweep.over("gemm:m=1,n=1,k=1"))
}
