//! The compiler: an image is the text. `//! does not compile`, `//! compiler dies` and `//! compiler hangs` in a text
//! do what they say. Each compilation adds a byte to the file that `WARPLAP_STANDIN_COMPILED` names.

use std::ffi::{CStr, c_char};

use crate::state::hang;

pub struct Program {
    text: String,
    log: String,
}

/// What images begin with.
pub(crate) const HEAD: &str = "stand-in image\n";

/// What the line of the options begins with.
pub(crate) const OPTIONS: &str = "//= ";

const LOG: &str = "ptxas info    : Used 32 registers, 0 bytes smem\n    0 bytes spill stores\n";

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut i32, minor: *mut i32) -> i32 {
    unsafe {
        major.write(13);
        minor.write(0);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    to: *mut *mut Program,
    text: *const c_char,
    _name: *const c_char,
    _count: i32,
    _headers: usize,
    _names: usize,
) -> i32 {
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let program = Program { text: format!("{HEAD}{text}\0"), log: String::new() };
    unsafe { to.write(Box::into_raw(Box::new(program))) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut Program) -> i32 {
    drop(unsafe { Box::from_raw(program.read()) });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(program: *mut Program, count: i32, options: *const *const c_char) -> i32 {
    let program = unsafe { &mut *program };
    count_one();
    let option = |i: i32| unsafe { CStr::from_ptr(*options.add(i as usize)) }.to_string_lossy().into_owned();
    let inputs: Vec<String> = (0..count).map(option).collect();
    program.text = decided(&program.text, &inputs);
    if program.text.contains("//! compiler dies") {
        std::process::abort();
    }
    if program.text.contains("//! compiler hangs") {
        hang();
    }
    let fails = program.text.contains("//! does not compile");
    program.log = if fails { "error: it says so itself".to_string() } else { LOG.to_string() };
    // 6 is NVRTC_ERROR_COMPILATION.
    if fails { 6 } else { 0 }
}

/// One more byte in the file that counts compilations, where somebody asks for it.
fn count_one() {
    let Some(path) = std::env::var_os("WARPLAP_STANDIN_COMPILED") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, b"."));
}

/// A text with the options it was compiled with and the acts of its constants in front: `//? KIND=3 hang` says `//@
/// hang` where `-DKIND=3` was given, or the text defines it so.
fn decided(text: &str, inputs: &[String]) -> String {
    let holds = |line: &str| {
        let (constant, act) = line.trim().strip_prefix("//?")?.trim().split_once(' ')?;
        let defined = format!("#define {}", constant.replacen('=', " ", 1));
        let holds = inputs.contains(&format!("-D{constant}")) || text.lines().any(|l| l == defined);
        holds.then(|| format!("//@ {act}\n"))
    };
    let acts: String = text.lines().filter_map(holds).collect();
    // What shall not compile is said to the compiler, not to the device.
    let acts = acts.replace("//@ does not compile", "//! does not compile");
    text.replacen(HEAD, &format!("{HEAD}{OPTIONS}{}\n{acts}", inputs.join(" ")), 1)
}

unsafe fn copy(text: &str, to: *mut c_char, closed: bool) -> i32 {
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        if closed {
            to.add(text.len()).write(0);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut Program, to: *mut usize) -> i32 {
    unsafe { to.write((&*program).log.len() + 1) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: *mut Program, to: *mut c_char) -> i32 {
    unsafe { copy(&(*program).log, to, true) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut Program, to: *mut usize) -> i32 {
    unsafe { to.write((&*program).text.len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut Program, to: *mut c_char) -> i32 {
    unsafe { copy(&(*program).text, to, false) }
}
